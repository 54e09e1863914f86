"""Faults on the cache tier with hands on paper: what they do, and what counts as proof."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import pytest

from contextlab import registry
from contextlab.deeds import HostFault, TierHands
from contextlab.experiment import Placed, Plane
from tests.faults.hands import PaperHands

NAMES = ("redis-flushed", "redis-full", "redis-refused", "redis-restarted", "redis-slow")


class PaperTier(PaperHands):
    """`deeds.TierHands` on paper; Redis holds `num_keys`."""

    def __init__(self, num_keys: int = 3) -> None:
        super().__init__(0)
        self.num_keys = num_keys

    def note(self, what: str, **about: Any) -> None:
        self.notes.append((what, about))

    def stop_redis(self) -> None:
        self.done.append("stop")

    def start_redis(self) -> None:
        self.done.append("start")

    def delay_redis(self, delay_s: float) -> None:
        self.done.append(f"delay {delay_s:g}")

    def redis(self, *words: str) -> object:
        if words == ("DBSIZE",):
            return self.num_keys
        if words == ("INFO", "memory"):
            return {"used_memory": 1000}
        self.done.append(" ".join(words))
        return True


def made(name: str, **options: Any) -> Any:
    return registry.make_fault(Placed(name=name, start_s=0.0, length_s=1.0, options=options))


def played(fault: Any, hands: PaperTier, num_acts: int = 1) -> list[float]:
    """The pauses of its first acts."""
    acts: Iterator[float] = cast("HostFault", fault).inflict(cast("TierHands", hands))
    return [next(acts) for _ in range(num_acts)]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_fault_on_the_tier_that_excludes_its_like(name: str) -> None:
    fault = made(name)
    assert fault.PLANE is Plane.TIER
    assert name in fault.EXCLUDES
    assert set(NAMES) >= fault.EXCLUDES
    assert not fault.is_null
    assert fault.landed({}, {}).proven is False


def test_who_excludes_whom_is_mutual() -> None:
    pairs = {(name, other) for name in NAMES for other in made(name).EXCLUDES}
    for one, other in pairs:
        assert one in made(other).EXCLUDES or other in made(one).EXCLUDES


@pytest.mark.parametrize(
    ("name", "options", "done", "pauses"),
    [
        ("redis-refused", {}, ["stop"], [math.inf]),
        ("redis-slow", {"delay_s": 0.12}, ["delay 0.12"], [math.inf]),
        ("redis-flushed", {}, ["FLUSHALL"], [math.inf]),
        ("redis-flushed", {"every_s": 2.0}, ["FLUSHALL", "FLUSHALL"], [2.0, 2.0]),
        ("redis-restarted", {"down_s": 1.0}, ["stop", "start"], [1.0, math.inf]),
        ("redis-restarted", {"down_s": 1.0, "up_s": 2.0}, ["stop", "start", "stop", "start"], [1.0, 2.0, 1.0, 2.0]),
        (
            "redis-full",
            {"policy": "allkeys-lru", "room_bytes": 24},
            ["CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET maxmemory 1024"],
            [math.inf],
        ),
    ],
)
def test_what_it_does_and_how_long_it_waits(
    name: str, options: dict[str, Any], done: list[str], pauses: list[float]
) -> None:
    hands = PaperTier()
    assert played(made(name, **options), hands, len(pauses)) == pauses
    assert hands.done == done


@pytest.mark.parametrize(
    ("name", "tally", "kernel", "words"),
    [
        ("redis-refused", {"keys_gone": 3}, {"redis_refused": 2}, "2 asks of Redis refused"),
        ("redis-slow", {}, {"relay_delayed": 4, "redis_timeouts": 3}, "4 answers held back, 3 asks timed out"),
        ("redis-slow", {}, {"relay_delayed": 4, "redis_asks": 4, "redis_wait_s": 1.6}, "waited 0.4 s for each"),
        ("redis-flushed", {"flushes": 1, "keys_gone": 3}, {}, "3 answers gone"),
        ("redis-restarted", {"restarts": 2, "keys_gone": 0}, {"redis_refused": 5}, "2 restarts, 5 asks refused"),
        (
            "redis-restarted",
            {"restarts": 1, "keys_gone": 1},
            {"redis_refused": 1},
            "1 restart, 1 ask refused, 1 answer",
        ),
        ("redis-full", {}, {"redis_full": 5}, "5 writes refused"),
        ("redis-full", {}, {"server_evicted_keys": 2}, "2 keys evicted"),
    ],
)
def test_proof(name: str, tally: dict[str, float], kernel: dict[str, float], words: str) -> None:
    landed = made(name).landed(tally, kernel)
    assert landed.proven is True
    assert words in landed.why


@pytest.mark.parametrize(
    ("name", "tally", "kernel", "words"),
    [
        ("redis-refused", {"keys_gone": 3}, {"redis_asks": 0}, "asked Redis for nothing"),
        ("redis-slow", {}, {"relay_delayed": 4, "redis_asks": 4, "redis_wait_s": 0.1}, "waited for none"),
        ("redis-slow", {}, {"redis_timeouts": 1}, "answered nothing"),
        ("redis-flushed", {"flushes": 1, "keys_gone": 0}, {}, "held nothing"),
        ("redis-restarted", {"restarts": 1, "keys_gone": 0}, {}, "nobody noticed"),
        ("redis-restarted", {"restarts": 0, "keys_gone": 0}, {"redis_refused": 5}, "not started again"),
    ],
)
def test_no_proof(name: str, tally: dict[str, float], kernel: dict[str, float], words: str) -> None:
    landed = made(name).landed(tally, kernel)
    assert landed.proven is False
    assert words in landed.why


def test_a_delay_of_nothing_asks_for_nothing() -> None:
    fault = made("redis-slow", delay_s=0.0)
    assert fault.is_null
    assert fault.landed({}, {}).proven is None
