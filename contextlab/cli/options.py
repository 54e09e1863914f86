"""Options that several commands share: one spelling, one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the target; repeatable (contextlab scenarios settings TARGET lists them).",
    ),
]
At = Annotated[str | None, typer.Option(metavar="URL", help="Where a run: command will answer.")]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal probes.")]
Patience = Annotated[
    float | None,
    typer.Option(min=0.1, metavar="SECONDS", help="Time for each reply; by default scaled to the target's speed."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for this run's record.")]
Runs = Annotated[Path, typer.Option(metavar="DIR", help="Folder that holds the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to standard output, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
IOwnThis = Annotated[bool, typer.Option("--i-own-this", help="Probe a server that is not on this machine.")]
