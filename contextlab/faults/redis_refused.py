"""Redis is gone: connections to it are refused until the fault is over; then it is back, empty."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Hands
from contextlab.experiment import Landed
from contextlab.faults.tiers import REDIS_FAULTS, TierFault, landing, met, num_keys, tier_hands


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisRefused(TierFault):
    """End Redis and leave it ended."""

    NAME: ClassVar[str] = "redis-refused"
    SUMMARY: ClassVar[str] = "the cache's Redis server is gone: connections to it are refused"
    EXCLUDES: ClassVar[frozenset[str]] = REDIS_FAULTS

    def inflict(self, hands: Hands) -> Iterator[float]:
        """End it; what it held goes with it (`keys_gone`)."""
        tier = tier_hands(hands)
        tier.tally["keys_gone"] = num_keys(tier)
        tier.stop_redis()
        yield math.inf

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """The tier asked, and was refused."""
        return landing(met(kernel, redis_refused="asks of Redis refused"), "the tier asked Redis for nothing meanwhile")


FAULT = RedisRefused
