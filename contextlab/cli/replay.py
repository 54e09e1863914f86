"""`contextlab replay RUN --probe NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contextlab.cli.options import IOwnThis, Json, Output, Patience, Quiet, Runs

EPILOG = """
Examples:
  contextlab replay latest --probe no-max-tokens
  contextlab replay runs/NAME --probe prompt-too-long/chat-whole-control
"""


def replay(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name below runs/, or latest.")],
    probe: Annotated[
        str,
        typer.Option(metavar="NAME", help="The probe to repeat; SCENARIO/NAME where a name is not unique."),
    ],
    timeout: Patience = None,
    output: Output = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    quiet: Quiet = False,
    i_own_this: IOwnThis = False,
) -> None:
    """Repeat one recorded probe against the same target, and say whether the outcome is the same."""
    from contextlab.cli.session import Session, recordable_argv
    from contextlab.lab.journal import find_run, read_run
    from contextlab.lab.replay import compare, recall
    from contextlab.lab.run import Options

    session = Session(command="replay", target=run, json=json, quiet=quiet, runs=runs, output=output)
    with session:
        memory = recall(read_run(find_run(run, runs)), probe)
        session.check(memory.spec, i_own_this=i_own_this)
        options = Options(policy=memory.policy, patience_s=timeout, argv=recordable_argv(), command="replay")
        repeated = session.work(memory.spec, options, lambda lab: lab.replay(memory.scenario, memory.probe))
        session.code, words = compare(memory, repeated, session.code)
        typer.echo(words, err=json)
    raise typer.Exit(session.code)
