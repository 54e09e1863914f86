"""Streams that say of themselves what a test needs."""

from __future__ import annotations

import io

import pytest


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


def surroundings(patch: pytest.MonkeyPatch, *, columns: int = 80, **environ: str) -> None:
    """A terminal's environment of that width and nothing else that rich would look at."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM"):
        patch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": str(columns), **environ}.items():
        patch.setenv(name, value)
