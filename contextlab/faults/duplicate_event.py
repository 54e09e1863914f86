"""An event of a stream arrives twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from contextlab.experiment import Piece
from contextlab.faults.streams import EventFault


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateEvent(EventFault):
    """An event is sent twice, one after the other, as a broken retry would; what HTTP frames stays valid."""

    NAME: ClassVar[str] = "duplicate-event"
    SUMMARY: ClassVar[str] = "an event of a stream comes twice"

    @property
    def acting(self) -> str:
        """It doubles events."""
        return "doubled events"

    def changed(self, piece: Piece, draw: float) -> tuple[Piece, ...]:
        """Itself, and itself again."""
        return (piece, replace(piece))


FAULT = DuplicateEvent
