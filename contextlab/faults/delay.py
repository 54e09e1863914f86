"""Every packet takes longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Landed, Piece, Stage, option
from contextlab.faults.packets import (
    DELAYS,
    Counted,
    PacketFault,
    direction_option,
    landing,
    mean_delay_words,
    null_landing,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(PacketFault):
    """A longer way: each packet arrives `delay_s` later, so both directions together add 2 × `delay_s` to the RTT."""

    NAME: ClassVar[str] = "delay"
    SUMMARY: ClassVar[str] = "every packet arrives later, by the same time each way"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"delay"})

    delay_s: float = option(0.1, "how much later, each way", kind="duration", low=0.0, high=60.0, unit="s")
    direction: str = direction_option()

    @property
    def is_null(self) -> bool:
        """No time at all changes nothing."""
        return self.delay_s == 0

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Delay packets. Draws nothing."""
        return _Delaying(self.delay_s)

    def emulated(self, rng: Random, direction: Direction) -> Stage:
        """Delay reads."""
        return _Delaying(self.delay_s)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Packets were held back; the kernel does not count that."""
        if self.is_null:
            return null_landing("delay=0")
        return landing(tally, (tally.get("delayed"), f"delayed{mean_delay_words(tally)}"))


class _Delaying(Counted):
    def __init__(self, delay_s: float) -> None:
        super().__init__(*DELAYS)
        self._delay_s = delay_s

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        self.delay(piece, self._delay_s)
        return (piece,)


FAULT = Delay
