"""`contextlab report RUN --as FORMAT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contextlab.cli.options import Runs
from contextlab.cli.output import printing

EPILOG = """
Examples:
  contextlab report latest
  contextlab report runs/NAME --as json > report.json
"""


def report(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name below runs/, or latest.")],
    form: Annotated[
        str, typer.Option("--as", metavar="FORMAT", help="The format: terminal, json, jsonl.")
    ] = "terminal",
    runs: Runs = Path("runs"),
) -> None:
    """Write the report of a recorded run, complete or not."""
    from contextlab import registry
    from contextlab.lab.journal import find_run, read_run

    write = registry.choose_writer(form)
    record = read_run(find_run(run, runs))
    with printing() as out:
        write(record, out)
