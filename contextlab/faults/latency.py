"""Bytes arrive later, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Piece, Stage, option
from contextlab.faults.streams import Sketch, StreamFault, StreamStage, direction_option


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(StreamFault):
    """Each read arrives `delay_s` ± `jitter_s` (uniform) later, but never before those ahead of it.

    Waiting for those ahead makes jitter more than what was asked for: the mean rises, and what should come evenly
    comes in bursts. `achieved_p50_s`, `achieved_p90_s` and `achieved_p99_s` in the evidence say what came of it.
    """

    NAME: ClassVar[str] = "latency"
    SUMMARY: ClassVar[str] = "bytes arrive later, by a time that may vary; their order is kept"

    delay_s: float = option(0.1, "how much later", kind="duration", low=0.0, high=600.0, unit="s")
    jitter_s: float = option(0.0, "how far it varies, both ways", kind="duration", low=0.0, high=600.0, unit="s")
    direction: str = direction_option("down")

    @property
    def asks_nothing(self) -> str:
        """No delay and no jitter."""
        return "" if self.delay_s or self.jitter_s else "delay=0"

    @property
    def acting(self) -> str:
        """It holds back reads."""
        return "delayed bytes"

    def touches(self, direction: Direction) -> bool:
        """As asked."""
        return self.direction in ("both", direction)

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Delay what is read, one draw a read."""
        return _Late(self.delay_s, self.jitter_s, rng)


class _Late(StreamStage):
    """`delay_s` in sum, `min_delay_s`, `max_delay_s`, order included; `applied`: reads that were delayed."""

    def __init__(self, delay_s: float, jitter_s: float, rng: Random) -> None:
        super().__init__("delay_s", "bytes")
        self.achieved = self._sketch = Sketch()
        self._delay_s, self._jitter_s, self._draw = delay_s, jitter_s, rng.random
        self._last_s = 0.0

    def feed(self, piece: Piece) -> Iterable[Piece]:
        if not piece.data and piece.close is None:
            return (piece,)
        arrived_s = piece.at_s
        wanted_s = arrived_s + max(0.0, self._delay_s + self._jitter_s * (2.0 * self._draw() - 1.0))
        piece.at_s = self._last_s = max(wanted_s, self._last_s)
        if piece.data:
            self._count(piece.at_s - arrived_s, len(piece.data))
        return (piece,)

    def _count(self, delay_s: float, size_bytes: int) -> None:
        tally = self.tally
        tally["applied"] += delay_s > 0
        tally["bytes"] += size_bytes
        tally["delay_s"] += delay_s
        tally["min_delay_s"] = min(tally.get("min_delay_s", delay_s), delay_s)
        tally["max_delay_s"] = max(tally.get("max_delay_s", delay_s), delay_s)
        self._sketch.add(delay_s)


FAULT = Latency
