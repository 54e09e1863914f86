"""`contextlab report RUN --as FORMAT`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from contextlab.cli.options import Runs


def report(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name below runs/, or latest.")],
    form: Annotated[str, typer.Option("--as", help="The format: terminal, json, jsonl.")] = "terminal",
    runs: Runs = Path("runs"),
) -> None:
    """Write the report of a recorded run, complete or not."""
    from contextlab import registry
    from contextlab.lab.journal import find_run, read_run

    write = registry.choose_writer(form)
    write(read_run(find_run(run, runs)), sys.stdout)
