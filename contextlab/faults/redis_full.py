"""Redis has no more room: it refuses what is new, or throws away what it holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.deeds import Hands
from contextlab.experiment import Landed, option
from contextlab.faults.tiers import TierFault, landing, met, tier_hands

POLICIES = ("noeviction", "allkeys-lru")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFull(TierFault):
    """Set Redis's maxmemory to what it uses already and `room_bytes` more."""

    NAME: ClassVar[str] = "redis-full"
    SUMMARY: ClassVar[str] = "the cache's Redis server is full: it takes nothing more, or evicts"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"redis-full", "redis-refused", "redis-restarted"})

    policy: str = option(
        "noeviction", "what it does then: refuse what is new, or evict what is old", kind="text", choices=POLICIES
    )
    room_bytes: int = option(0, "so much more than now", kind="size", low=0, unit="bytes")

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Limit its memory (`limit_bytes`)."""
        tier = tier_hands(hands)
        info = cast("Mapping[str, int]", tier.redis("INFO", "memory"))
        limit_bytes = int(info["used_memory"]) + self.room_bytes
        tier.redis("CONFIG", "SET", "maxmemory-policy", self.policy)
        tier.redis("CONFIG", "SET", "maxmemory", str(limit_bytes))
        tier.tally["limit_bytes"] = limit_bytes
        tier.note("redis full", limit_bytes=limit_bytes, policy=self.policy)
        yield math.inf

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Redis refused a write for want of room, or evicted."""
        found = met(kernel, redis_full="writes refused for want of room", server_evicted_keys="keys evicted")
        return landing(found, "it neither refused a write nor evicted a key")


FAULT = RedisFull
