"""Packets take longer by a time that differs from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
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
class Jitter(PacketFault):
    """Each packet arrives later by a time of its own, independent of the others.

    `uniform`: from delay − jitter to delay + jitter; `normal`: mean delay, standard deviation jitter. What would be
    negative is 0. Packets on the link overtake each other where delays differ by more than the time between them, as
    with netem: TCP then sees reordering too. A relay (emulation) keeps the order, so its mean becomes longer.
    """

    NAME: ClassVar[str] = "jitter"
    SUMMARY: ClassVar[str] = "every packet arrives later, by a time that varies; packets overtake each other"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"jitter"})

    jitter_s: float = option(0.02, "how far delays spread", kind="duration", low=0.0, high=60.0, unit="s")
    delay_s: float | None = option(
        None,
        "the mean delay; left out, the least that keeps delays above 0: jitter if uniform, 3 × jitter if normal",
        kind="duration",
        low=0.0,
        high=60.0,
        unit="s",
    )
    distribution: str = option("uniform", "how delays are spread", kind="text", choices=("uniform", "normal"))
    direction: str = direction_option()

    @property
    def is_null(self) -> bool:
        """Without spread and without delay nothing changes."""
        return self.jitter_s == 0 and not self.delay_s

    @property
    def mean_s(self) -> float:
        """The mean of the delays before negative ones are made 0."""
        if self.delay_s is not None:
            return self.delay_s
        return self.jitter_s if self.distribution == "uniform" else 3 * self.jitter_s

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Delay packets. One draw for each."""
        return _Spreading(self._spread(), rng)

    def emulated(self, rng: Random, direction: Direction) -> Stage:
        """Delay reads."""
        return _Spreading(self._spread(), rng)

    def _spread(self) -> Callable[[float], float]:
        """The delay at each quantile from 0 to 1: one draw makes one delay, whatever the distribution."""
        mean_s, jitter_s = self.mean_s, self.jitter_s
        if self.distribution == "normal" and jitter_s > 0:
            quantile = NormalDist(mean_s, jitter_s).inv_cdf
            return lambda share: quantile(share or 2.0**-54)  # 0 itself has no quantile
        return lambda share: mean_s + jitter_s * (2.0 * share - 1.0)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Delays differed."""
        if self.is_null:
            return null_landing("jitter=0")
        mean_s = tally.get("delay_s", 0) / max(tally.get("seen", 0), 1)
        all_alike = "delay_s" in tally and tally["max_delay_s"] <= mean_s and self.jitter_s > 0
        delayed = 0 if all_alike else tally.get("delayed")
        return landing(tally, (delayed, f"delayed by different times{mean_delay_words(tally)}"))


class _Spreading(Counted):
    def __init__(self, spread: Callable[[float], float], rng: Random) -> None:
        super().__init__(*DELAYS)
        self._spread, self._draw = spread, rng.random

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        self.delay(piece, max(0.0, self._spread(self._draw())))
        return (piece,)


FAULT = Jitter
