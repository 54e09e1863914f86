"""`contextlab doctor [TARGET]`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contextlab.cli.options import At, IOwnThis, Json, Patience, Runs, Set
from contextlab.cli.output import printing, telling

if TYPE_CHECKING:
    from contextlab.model import TargetSpec

EPILOG = """
Examples:
  contextlab doctor
  contextlab doctor smollm2 --set slots=1
  contextlab doctor http://127.0.0.1:8000 --json

Nothing is changed: it looks for two seconds, and opens the target as a run would, if one is named.

Exit 0: a run can be made; warnings say what would be better. Exit 2: wrong usage. Exit 4: something stops a run.
"""


def doctor(
    target: Annotated[str | None, typer.Argument(help="What will be tested, as for the other commands.")] = None,
    at: At = None,
    settings: Set = None,
    timeout: Patience = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    i_own_this: IOwnThis = False,
) -> None:
    """Look at what a run needs, before there is one: what is installed, what is allowed, how quiet the machine is."""
    from contextlab.analysis.checkup import exit_code
    from contextlab.lab.provenance import without_secrets
    from contextlab.reports import checkup as writing
    from contextlab.reports.json import write_document

    shown = without_secrets(target) if target is not None else None
    with telling(partial(writing.failure_document, shown) if json else None):
        from contextlab.lab.checkup.checkup import checkup
        from contextlab.lab.run import Options

        spec = _parsed(target, settings or [], at, i_own_this)
        tell = sys.stderr.isatty() and not json
        found = []
        for one in checkup(runs, spec, Options(patience_s=timeout, command="doctor")):
            found.append(one)
            if tell:
                typer.echo(f"\r\x1b[K… {one.section}: {one.name}", err=True, nl=False)
        if tell:
            typer.echo("\r\x1b[K", err=True, nl=False)
    with printing() as out:
        if json:
            write_document(writing.document(shown, found), out)
        else:
            writing.write_text(found, out)
    raise typer.Exit(exit_code(found))


def _parsed(target: str | None, settings: list[str], at: str | None, i_own_this: bool) -> TargetSpec | None:
    """The target that was named. Raises UsageError for one that cannot be meant, or that is not on this machine."""
    from contextlab.cli.session import Session
    from contextlab.model import UsageError

    if target is None:
        if settings or at:
            raise UsageError("--set and --at belong to a target", "name one: contextlab doctor smollm2")
        return None
    session = Session(command="doctor", target=target, json=False, quiet=True, runs=Path("runs"), output=None)
    return session.parse(settings, at=at, i_own_this=i_own_this)
