"""Redis is ended and started again, empty, once or again and again: a cache that flaps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Hands
from contextlab.experiment import Landed, option
from contextlab.faults.tiers import REDIS_FAULTS, TierFault, landing, met, num_keys, tier_hands


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisRestarted(TierFault):
    """Down for `down_s`, then up for `up_s`, and so on; `up_s` 0: down only once."""

    NAME: ClassVar[str] = "redis-restarted"
    SUMMARY: ClassVar[str] = "the cache's Redis server is ended and started again, empty; as often as asked"
    EXCLUDES: ClassVar[frozenset[str]] = REDIS_FAULTS

    down_s: float = option(1.0, "how long it is down", kind="duration", low=0.0, high=600.0, unit="s")
    up_s: float = option(0.0, "how long it is up before the next time; 0: once", kind="duration", low=0.0, unit="s")

    def inflict(self, hands: Hands) -> Iterator[float]:
        """End it, wait, start it, wait (`restarts`, `keys_gone`)."""
        tier = tier_hands(hands)
        tier.tally |= {"restarts": 0.0, "keys_gone": 0.0}
        while True:
            gone = num_keys(tier)
            tier.stop_redis()
            yield self.down_s
            tier.start_redis()
            tier.tally["restarts"] += 1
            tier.tally["keys_gone"] += gone
            yield self.up_s or math.inf

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """It was started again, and the tier noticed: asks were refused, or answers that it had kept were gone."""
        again = met(tally, restarts="restarts")
        noticed = [*met(kernel, redis_refused="asks refused"), *met(tally, keys_gone="answers gone")]
        why = "nobody noticed: nothing was asked of it, and it held nothing" if again else "it was not started again"
        return landing([*again, *noticed] if again and noticed else [], why)


FAULT = RedisRestarted
