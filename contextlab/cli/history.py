"""`contextlab history DIR`: how the runs in a folder compare with each other over time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contextlab.cli.options import Json
from contextlab.cli.output import printing, telling

if TYPE_CHECKING:
    from contextlab.reports.history.text import History

FORMS = ("terminal", "html", "json")
EPILOG = """
Examples:
  contextlab history runs/
  contextlab history nightly/ --as html > history.html
  contextlab history runs/ --json

Exit 0: there is a history, whatever it shows. Exit 5: no run in the folder can be compared.
"""


def history(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that holds runs.")] = Path("runs"),
    form: Annotated[str, typer.Option("--as", metavar="FORMAT", help="The format: terminal, html, json.")] = "terminal",
    json: Json = False,
) -> None:
    """Show each metric over the runs of a folder, oldest first; changes of its level are advice, and never fail."""
    from contextlab.reports.history import text as writing
    from contextlab.reports.history.page import write_page
    from contextlab.reports.json import write_document

    with telling(partial(writing.failure_document, str(folder)) if json or form == "json" else None):
        form = _form(form, json)
        found = collected(folder)
    with printing() as out:
        match form:
            case "json":
                write_document(writing.document(found), out)
            case "html":
                write_page(found, out)
            case _:
                writing.write_text(found, out)


def collected(folder: Path) -> History:
    """The history of the runs in a folder, and in folders in it; what is none of them is named with the reason.

    Raises UsageError where there is no such folder, NothingMeasured where no run in it can be compared.
    """
    from contextlab.analysis.history import groups
    from contextlab.lab.journal import read_run
    from contextlab.model import ContextlabError, NothingMeasured, UsageError
    from contextlab.reports.history.entries import entry
    from contextlab.reports.history.text import History, LeftOut

    if not os.path.isdir(folder):
        raise UsageError(f"folder={str(folder)!r}: there is no such folder", "name one that holds runs, such as runs/")
    entries, left_out = [], []
    for path in _records(folder):
        name = str(path.parent.relative_to(folder))
        try:
            entries.append(entry(read_run(path)))
        except ContextlabError as error:
            left_out.append(LeftOut(run=name, why=error.message.removeprefix(f"{path}: ")))
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a record that is not what it says it is
            left_out.append(LeftOut(run=name, why=f"damaged: {type(error).__name__}: {error}"))
    if not entries:
        why = f"{len(left_out)} left out, such as {left_out[0].run}: {left_out[0].why}" if left_out else "none is there"
        raise NothingMeasured(f"folder={str(folder)!r}: holds no run that can be compared: {why}", "run one first")
    return History(folder=str(folder), groups=groups(entries), left_out=tuple(left_out))


def _records(folder: Path) -> Iterator[Path]:
    """The records below a folder, by name; a folder that is a link is not followed, for it may lead around."""
    from contextlab.lab.journal import RECORD

    for place, folders, files in os.walk(folder):
        folders.sort()
        if RECORD in files:
            yield Path(place) / RECORD


def _form(form: str, as_json: bool) -> str:
    from contextlab.registry import choose

    return "json" if as_json else choose("format", form, list(FORMS))
