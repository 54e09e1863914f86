"""The records of a run as they stand, one JSON object a line, for `jq` and for other programs."""

from __future__ import annotations

from typing import TextIO

from contextlab.model import Run
from contextlab.reports.json import encoded


def write(run: Run, out: TextIO) -> None:
    """Write every record on a line of its own, oldest first, in compact ASCII JSON."""
    for record in run.records:
        out.write(encoded(record) + "\n")
