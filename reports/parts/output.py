"""Where a report goes decides its form: styled columns on a terminal, plain rows anywhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TextIO

from rich.console import Console
from rich.text import Text

from contextlab.reports.parts.wording import encodable

MIN_WIDTH = 40
"""A narrower terminal gets lines of this width, and wraps them itself."""

MAX_PROSE = 112
"""Sentences are not set wider than this, however wide the terminal."""


def write_lines(out: TextIO, painted: Callable[[int], Iterable[Text]], plain: Callable[[], Iterable[str]]) -> None:
    """Write `painted`, given the terminal's width, or `plain`; what the encoding of `out` lacks is escaped."""
    console = Console(file=out, force_jupyter=False, color_system=None if os.environ.get("NO_COLOR") else "auto")
    if console.is_terminal and not console.is_dumb_terminal:
        with console.capture() as capture:
            lines = painted(max(MIN_WIDTH, console.width))
            console.print(Text("\n").join(lines), soft_wrap=True, highlight=False)
        text = capture.get()
    else:
        text = "".join(f"{line}\n" for line in plain())
    out.write(encodable(text, getattr(out, "encoding", None)))
