"""Options that several commands share: one spelling, one help text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from contextlab.model import Setting, UsageError


def number(kind: str, low: float | None = None, high: float | None = None) -> Callable[[str], Any]:
    """The parser of an option that is a number; it refuses as settings are refused, naming the value and the rule."""
    setting = Setting(name="", kind=kind, default=None, low=low, high=high, help="")

    def parsed(value: str) -> Any:
        from contextlab.registry import parse_setting

        try:
            return parse_setting(setting, str(value))  # a default comes as what it is
        except UsageError as error:
            raise typer.BadParameter(error.message.removeprefix("=")) from None

    return parsed


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the target; repeatable (contextlab scenarios settings TARGET lists them).",
    ),
]
At = Annotated[str | None, typer.Option(metavar="URL", help="Where a run: command will answer.")]
Seed = Annotated[int, typer.Option(parser=number("int"), metavar="N", help="Equal seeds give equal probes.")]
Patience = Annotated[
    float | None,
    typer.Option(
        parser=number("float", low=0.1, high=86400),
        metavar="SECONDS",
        help="Time for each reply; by default scaled to the target's speed.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="OUTCOME", help="An outcome that is no failure here, such as SHIFTED; repeatable."),
]
FailOn = Annotated[
    list[str] | None, typer.Option(metavar="OUTCOME", help="An outcome that is a failure here; repeatable.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory limit of a server of ours, such as 2GiB.")
]
Workers = Annotated[int, typer.Option(parser=number("int", low=1, high=64), metavar="N", help="Client processes.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for this run's record.")]
Runs = Annotated[Path, typer.Option(metavar="DIR", help="Folder that holds the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to standard output, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
IOwnThis = Annotated[bool, typer.Option("--i-own-this", help="Probe a server that is not on this machine.")]
