"""The rooms of the commands that show something of their own in place of limits and outcomes; each is opened only for a
run of that command, since what it draws on takes a while to import."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Protocol, cast

from rich.text import Text

from contextlab.model import Run

_COMMANDS = frozenset({"chaos", "gate", "pareto"})


class RoomText(Protocol):
    """The module `text` of a room."""

    def sections(self, run: Run, width: int, prose: int) -> Iterator[tuple[str, list[Text]]]:
        """(title, lines) of its parts on a terminal; sentences are as wide as `prose`."""

    def lines(self, run: Run) -> Iterator[Iterator[str]]:
        """The same as plain rows, in groups."""


def text_of(command: str) -> RoomText | None:
    """The texts of the command's own room; None where it has none."""
    if command not in _COMMANDS:
        return None
    return cast("RoomText", importlib.import_module(f"contextlab.reports.{command}.text"))
