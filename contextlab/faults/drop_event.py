"""An event of a stream never arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contextlab.experiment import Piece
from contextlab.faults.streams import EventFault


@dataclass(frozen=True, slots=True, kw_only=True)
class DropEvent(EventFault):
    """An event is left out, whole; what HTTP frames stays valid, so only the stream itself can tell."""

    NAME: ClassVar[str] = "drop-event"
    SUMMARY: ClassVar[str] = "an event of a stream is left out"

    @property
    def acting(self) -> str:
        """It drops events."""
        return "dropped events"

    def changed(self, piece: Piece, draw: float) -> tuple[Piece, ...]:
        """Nothing of it."""
        return ()


FAULT = DropEvent
