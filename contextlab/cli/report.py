"""`contextlab report RUN [RUN] --as FORMAT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contextlab.cli.options import Runs
from contextlab.cli.output import printing
from contextlab.model import UsageError

EPILOG = """
Examples:
  contextlab report latest
  contextlab report runs/NAME --as json > report.json
  contextlab report latest --as html > report.html
  contextlab report runs/OLD runs/NEW --as html > both.html
  contextlab report latest --as markdown >> "$GITHUB_STEP_SUMMARY"
  contextlab report latest --as junit > contextlab.xml
  contextlab report --schema chaos > chaos.schema.json
"""
FORMATS = "terminal, html, markdown, comment, json, jsonl, csv, parquet, junit, sarif, github, schema"


def _show_schema(command: str | None) -> None:
    if command is not None:
        from contextlab.reports import schema

        with printing() as out:
            out.write(schema.text(command))
        raise typer.Exit


def report(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name below runs/, or latest.")],
    other: Annotated[str | None, typer.Argument(help="A second run, to be shown beside the first (html).")] = None,
    form: Annotated[str, typer.Option("--as", metavar="FORMAT", help=f"The format: {FORMATS}.")] = "terminal",
    runs: Runs = Path("runs"),
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            callback=_show_schema,
            is_eager=True,
            help="Print the JSON Schema of that command's documents, and leave.",
        ),
    ] = None,
) -> None:
    """Write the report of a recorded run, complete or not; of two runs, side by side."""
    from contextlab import registry
    from contextlab.lab.journal import find_run, read_run

    write = registry.choose_writer(form)
    record = read_run(find_run(run, runs))
    if other is None:
        with printing() as out:
            write(record, out)
        return
    if form != "html":
        raise UsageError(f"--as={form!r}: shows one run", "name one run, or --as html")
    from contextlab.reports.html import write_pair

    beside = read_run(find_run(other, runs))
    with printing() as out:
        write_pair((record, beside), out)
