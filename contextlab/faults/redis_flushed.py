"""Redis loses everything that it holds, once or again and again; it goes on answering."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Hands
from contextlab.experiment import Landed, option
from contextlab.faults.tiers import TierFault, landing, met, num_keys, tier_hands


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFlushed(TierFault):
    """FLUSHALL at the beginning, and then each time that `every_s` is over; 0: only once."""

    NAME: ClassVar[str] = "redis-flushed"
    SUMMARY: ClassVar[str] = "the cache's Redis server loses everything that it holds"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"redis-flushed", "redis-refused", "redis-restarted"})

    every_s: float = option(0.0, "again so often; 0: once", kind="duration", low=0.0, high=3600.0, unit="s")

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Flush (`flushes`, `keys_gone`)."""
        tier = tier_hands(hands)
        tier.tally |= {"flushes": 0.0, "keys_gone": 0.0}
        while True:
            gone = num_keys(tier)
            tier.redis("FLUSHALL")
            tier.tally["flushes"] += 1
            tier.tally["keys_gone"] += gone
            tier.note("redis flushed", keys=gone)
            yield self.every_s or math.inf

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """There was something to lose."""
        return landing(met(tally, keys_gone="answers gone"), "Redis held nothing")


FAULT = RedisFlushed
