"""What faults on the cache tier share: whose hands they get, and the words of their proof.

Proof is what the tier itself met (`redis_refused`, `redis_timeouts`, …, as in `buffers/tiers.py`), what the relay held
back, and what Redis counted; differences over the fault's window come as `kernel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.analysis.quantities import num_of
from contextlab.deeds import Hands, TierHands
from contextlab.experiment import Landed, Plane

REDIS_FAULTS = frozenset({"redis-flushed", "redis-full", "redis-refused", "redis-restarted", "redis-slow"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFault:
    """A fault on Redis behind the tier; two that end or fill it at once would undo each other's work."""

    PLANE: ClassVar[Plane] = Plane.TIER

    @property
    def is_null(self) -> bool:
        """As it stands it does something."""
        return False


def tier_hands(hands: Hands) -> TierHands:
    """The hands of a fault whose plane is the cache tier: the injector gives it those of the tier."""
    return cast("TierHands", hands)


def num_keys(hands: TierHands) -> int:
    """How many answers Redis holds."""
    return int(cast("int", hands.redis("DBSIZE")))


def met(counts: Mapping[str, float], **words: str) -> list[str]:
    """What was met more than 0 times, in words: `3 asks refused`."""
    return [num_of(counts[name], what) for name, what in words.items() if counts.get(name, 0) > 0]


def landing(found: list[str], otherwise: str) -> Landed:
    """Landed if something was met; else why not."""
    return Landed(proven=bool(found), why=", ".join(found) or otherwise)
