"""A reply is complete, but its end is late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Close, Direction, Mark, Piece, Stage, option
from contextlab.faults.streams import StreamFault, StreamStage


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowClose(StreamFault):
    """What ends the reply comes `delay_s` later: its last chunk, or the FIN. The client waits after `[DONE]`.

    A reply whose length is declared ends with its last byte; there, only the FIN is late.
    """

    NAME: ClassVar[str] = "slow-close"
    SUMMARY: ClassVar[str] = "the end of a reply (last chunk, FIN) comes late, after all of its events"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"blackhole", "slow-close"})

    delay_s: float = option(1.0, "how much later", kind="duration", low=0.0, high=600.0, unit="s")

    @property
    def by_event(self) -> bool:
        """The last chunk must be told from the events."""
        return True

    @property
    def asks_nothing(self) -> str:
        """No delay."""
        return "" if self.delay_s else "delay=0"

    @property
    def acting(self) -> str:
        """It delays ends."""
        return "kept a reply open"

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Wait for the end. Draws nothing."""
        return _SlowEnd(self.delay_s)


class _SlowEnd(StreamStage):
    """`applied`: replies whose end was late."""

    def __init__(self, delay_s: float) -> None:
        super().__init__("delay_s")
        self._delay_s = delay_s

    def feed(self, piece: Piece) -> Iterable[Piece]:
        is_end = (piece.mark is Mark.TAIL and piece.data) or piece.close is Close.FIN
        if is_end:
            piece.at_s += self._delay_s
            if not self.tally["applied"]:
                self.tally["applied"] = 1
                self.tally["delay_s"] = self._delay_s
        return (piece,)


FAULT = SlowClose
