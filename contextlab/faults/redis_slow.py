"""Redis answers late: each answer, so much, on the way back to the tier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Hands
from contextlab.experiment import Landed, option
from contextlab.faults.tiers import TierFault, landing, met, tier_hands


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSlow(TierFault):
    """Delay what Redis answers. Beyond the tier's own time limit an answer that came late is no answer."""

    NAME: ClassVar[str] = "redis-slow"
    SUMMARY: ClassVar[str] = "the cache's Redis server answers late"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"redis-slow", "redis-refused"})

    delay_s: float = option(0.4, "how late each answer is", kind="duration", low=0.0, high=60.0, unit="s")

    @property
    def is_null(self) -> bool:
        """No delay."""
        return self.delay_s == 0

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Delay from now on."""
        tier_hands(hands).delay_redis(self.delay_s)
        yield math.inf

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Answers were held back, and the tier waited for them as long as that, or until its limit."""
        if self.is_null:
            return Landed(proven=None, why="delay=0 asks for nothing")
        found = met(kernel, relay_delayed="answers held back")
        waited = met(kernel, redis_timeouts="asks timed out")
        asks = kernel.get("redis_asks", 0)
        if found and not waited and kernel.get("redis_wait_s", 0) >= self.delay_s:
            waited = [f"the tier waited {kernel['redis_wait_s'] / max(asks, 1):.3g} s for each on average"]
        why = "the tier waited for none of them" if found else "Redis answered nothing meanwhile"
        return landing([*found, *waited] if found and waited else [], why)


FAULT = RedisSlow
