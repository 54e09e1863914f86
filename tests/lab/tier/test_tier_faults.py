"""Every fault on the cache tier on a real Redis: it lands, the tier counts it, and afterwards all is as it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contextlab.deeds import Tier
from contextlab.experiment import Placed
from contextlab.lab.host.injector import Injector
from contextlab.model import UnableError
from tests.lab.processes import until
from tests.lab.tier.tiers import Bench, needs_redis, running

pytestmark = [pytest.mark.process, needs_redis]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    tier = Tier(local_entries=1, breaker_failures=3, breaker_reset_s=0.5)
    with running(tmp_path_factory.mktemp("guarded"), tier) as one:
        yield one


@pytest.fixture
def bench(guarded: Bench) -> Bench:
    """A tier that holds three answers, all of them in Redis."""
    guarded.tier.begin(time.monotonic())
    for prompt in ("a", "b", "c"):
        guarded.ask(prompt)
    until(lambda: guarded.counts["redis_puts"] == 3, "the writes to Redis")
    return guarded


def placed(name: str, **options: Any) -> Placed:
    return Placed(name=name, start_s=0.0, length_s=60.0, options=options)


def is_back(bench: Bench) -> bool:
    """Whether the tier asks Redis again and is answered."""
    before = bench.counts["redis_puts"]
    bench.ask(f"is it back at {time.monotonic()}")
    until(lambda: bench.counts["breaker_open"] or bench.counts["redis_puts"] > before, "a write to Redis")
    return bench.counts["redis_puts"] > before


@pytest.mark.calm
def test_refused(bench: Bench) -> None:
    evidence = bench.inflicted(placed("redis-refused"), "a", "b", "new", "newer", "newest")
    assert evidence.landed.proven, evidence.landed.why
    assert evidence.tally["keys_gone"] == 3
    assert evidence.kernel["redis_refused"] == 3
    assert evidence.kernel["skipped_by_breaker"] > 0
    assert (evidence.kernel["breaker_openings"], bench.counts["redis_timeouts"]) == (1, 0)
    until(lambda: is_back(bench), "Redis to be asked again")
    assert bench.counts["breaker_open"] == 0
    assert bench.counts["breaker_open_s"] >= 0.5


@pytest.mark.calm
@pytest.mark.parametrize(("delay_s", "in_time"), [(0.12, True), (0.8, False)])
def test_slow(bench: Bench, delay_s: float, in_time: bool) -> None:
    """Within the tier's time limit an answer is late; beyond it there is none, and the breaker opens."""
    began_s = time.monotonic()
    evidence = bench.inflicted(placed("redis-slow", delay_s=delay_s), "a", "b", "a", "b")
    took_s = time.monotonic() - began_s
    assert evidence.landed.proven, evidence.landed.why
    assert evidence.kernel["relay_delayed"] > 0
    if in_time:
        assert evidence.kernel["redis_hits"] == 4
        assert evidence.kernel["redis_wait_s"] >= 4 * delay_s
        assert took_s >= 4 * delay_s
    else:
        assert evidence.kernel["redis_hits"] == 0
        assert evidence.kernel["redis_timeouts"] >= 3
        assert evidence.kernel["breaker_openings"] >= 1
    until(lambda: is_back(bench), "Redis to be asked again")


def test_slow_by_nothing_asks_for_nothing(bench: Bench) -> None:
    evidence = bench.inflicted(placed("redis-slow", delay_s=0.0), "a", for_s=1.0)  # it does no deed to wait for
    assert evidence.landed.proven is None
    assert evidence.kernel["relay_delayed"] == 0


def test_flushed(bench: Bench) -> None:
    evidence = bench.inflicted(placed("redis-flushed"), "a", "b")
    assert evidence.landed.proven, evidence.landed.why
    assert (evidence.tally["flushes"], evidence.tally["keys_gone"]) == (1, 3)
    assert evidence.kernel["redis_misses"] == 2
    assert evidence.kernel["origin_requests"] == 2
    assert evidence.kernel["redis_refused"] == 0


def test_flushed_with_nothing_to_lose_is_not_proven(bench: Bench) -> None:
    bench.machine.redis.command("FLUSHALL")
    assert bench.inflicted(placed("redis-flushed")).landed.proven is False


@pytest.mark.calm
def test_restarted_again_and_again(bench: Bench) -> None:
    fault = placed("redis-restarted", down_s=0.3, up_s=0.3)
    evidence = bench.inflicted(fault, "a", "b", for_s=1.0)
    assert evidence.landed.proven, evidence.landed.why
    assert evidence.tally["restarts"] >= 1
    assert evidence.tally["keys_gone"] >= 3
    until(lambda: is_back(bench), "Redis to be asked again")


@pytest.mark.parametrize(("policy", "counted"), [("noeviction", "redis_full"), ("allkeys-lru", "server_evicted_keys")])
def test_full(bench: Bench, policy: str, counted: str) -> None:
    evidence = bench.inflicted(placed("redis-full", policy=policy), *(f"more {number}" for number in range(6)))
    assert evidence.landed.proven, evidence.landed.why
    assert evidence.kernel[counted] > 0
    assert evidence.kernel["breaker_openings"] == 0
    assert bench.machine.redis.command("CONFIG", "GET", "maxmemory") == {"maxmemory": "0"}
    assert bench.machine.redis.command("CONFIG", "GET", "maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert is_back(bench)


def test_full_with_room_enough_is_not_proven(bench: Bench) -> None:
    assert bench.inflicted(placed("redis-full", room_bytes=1 << 30), "more").landed.proven is False


@pytest.mark.calm
def test_without_guards_each_miss_waits_for_redis_and_goes_on_alone(tmp_path: Path) -> None:
    with running(tmp_path, Tier(local_entries=1, guards=False)) as bare:
        for prompt in ("a", "b"):
            bare.ask(prompt)
        until(lambda: bare.counts["redis_puts"] == 2, "the writes to Redis")
        evidence = bare.inflicted(placed("redis-slow", delay_s=0.8), "a", "b", "a", "b")
        assert evidence.kernel["breaker_openings"] == 0
        assert evidence.kernel["redis_timeouts"] >= 8 - 1  # each reads and writes; the last write may still be waiting
        assert evidence.kernel["origin_requests"] == 4


def test_hands_of_the_tier_touch_no_process_of_the_target(bench: Bench) -> None:
    fault = placed("redis-flushed")
    hands = bench.machine.hands(fault, Injector([(0, fault)], bench.machine, seed=1))
    assert hands.tree() == ()
    assert hands.group("cpu") is None
    for act in (hands.stop, hands.resume, hands.kill, hands.restart, lambda: hands.pin([0]), lambda: hands.helper([])):
        with pytest.raises(UnableError, match="cache tier"):
            act()
