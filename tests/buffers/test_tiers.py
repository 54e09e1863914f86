"""The cache's policy with a store on paper and a clock in hand: who is asked, who is spared, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.buffers.tiers import (
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreTimeoutError,
    Tiers,
    Worth,
)
from contextlab.deeds import Tier

T = TypeVar("T")
NO_GUARDS = Tier(guards=False)


class PaperStore:
    """A store whose next asks fail with `failing`."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.failing: type[StoreError] | None = None
        self.asked: list[str] = []

    async def get(self, key: str) -> bytes | None:
        self.asked.append(f"get {key}")
        self._fail()
        return self.held.get(key)

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        self.asked.append(f"put {key}")
        self._fail()
        self.held[key] = value

    def _fail(self) -> None:
        if self.failing is not None:
            raise self.failing("on paper")


class Bench:
    """A cache, its store, and an origin that says two parts and waits for `gate` between them where there is one."""

    def __init__(self, tier: Tier = Tier()) -> None:  # noqa: B008
        self.now_s = 0.0
        self.store = PaperStore()
        self.tiers = Tiers(tier, self.store, clock=lambda: self.now_s)
        self.gate: asyncio.Event | None = None
        self.computed: list[str] = []
        self.cancelled = 0

    def compute(self, key: str, worth: Worth) -> Callable[[Callable[[bytes], None]], Awaitable[Worth]]:
        async def computed(add: Callable[[bytes], None]) -> Worth:
            self.computed.append(key)
            add(b"head")
            try:
                if self.gate is not None:
                    await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            add(key.encode())
            return worth

        return computed

    async def ask(self, key: str, worth: Worth = Worth.KEEP) -> list[bytes]:
        answer = [part async for part in self.tiers.ask(key, self.compute(key, worth))]
        await settled()
        return answer

    def counts(self, *names: str) -> list[float]:
        found = self.tiers.counters()
        return [found[name] for name in names]


async def settled() -> None:
    """Let everything that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(it: Coroutine[object, object, T]) -> T:
    return asyncio.run(it)


def test_an_answer_is_computed_once_then_local_then_the_stores() -> None:
    async def story() -> None:
        bench = Bench(Tier(local_entries=1))
        whole = [b"head", b"a"]
        assert await bench.ask("a") == await bench.ask("a") == whole
        assert bench.counts("origin_requests", "local_hits", "redis_puts") == [1, 1, 1]
        await bench.ask("b")  # pushes the other out of the local tier
        assert await bench.ask("a") == whole
        assert bench.counts("redis_hits", "origin_requests", "distinct_keys", "amplification") == [1, 2, 2, 1.0]

    run(story())


def test_an_answer_does_not_outlive_its_time() -> None:
    async def story() -> None:
        bench = Bench(Tier(ttl_s=60.0))
        await bench.ask("a")
        bench.store.held.clear()
        bench.now_s = 59.0
        await bench.ask("a")
        assert bench.computed == ["a"]
        bench.now_s = 61.0
        await bench.ask("a")
        assert bench.computed == ["a", "a"]

    run(story())


def test_the_filter_spares_the_store_what_it_cannot_have() -> None:
    async def story() -> None:
        guarded, bare = Bench(), Bench(NO_GUARDS)
        for bench in (guarded, bare):
            await bench.ask("a")
        assert guarded.store.asked == ["put a"]
        assert bare.store.asked == ["get a", "put a"]
        assert guarded.counts("skipped_by_filter", "redis_misses") == [1, 0]
        assert bare.counts("skipped_by_filter", "redis_misses") == [0, 1]

    run(story())


def test_many_that_ask_the_same_share_one_computation() -> None:
    async def story(tier: Tier) -> Bench:
        bench = Bench(tier)
        bench.gate = asyncio.Event()
        tasks = [asyncio.create_task(bench.ask("a")) for _ in range(5)]
        await settled()
        bench.gate.set()
        assert await asyncio.gather(*tasks) == [[b"head", b"a"]] * 5
        return bench

    guarded, bare = run(story(Tier())), run(story(NO_GUARDS))
    assert guarded.counts("origin_requests", "joined") == [1, 4]
    assert bare.counts("origin_requests", "joined") == [5, 0]
    assert guarded.counts("amplification") < bare.counts("amplification")


def test_who_joins_late_hears_it_from_the_beginning_as_it_comes() -> None:
    async def story() -> None:
        bench = Bench()
        bench.gate = asyncio.Event()
        first = asyncio.create_task(bench.ask("a"))
        await settled()
        async with aclosing(bench.tiers.ask("a", bench.compute("a", Worth.KEEP))) as late:
            assert await anext(late) == b"head"  # while the computation still waits
            bench.gate.set()
            assert [part async for part in late] == [b"a"]
        await first

    run(story())


def test_the_computation_goes_when_the_last_who_wants_it_goes() -> None:
    async def story() -> None:
        bench = Bench()
        bench.gate = asyncio.Event()
        tasks = [asyncio.create_task(bench.ask("a")) for _ in range(2)]
        await settled()
        tasks[0].cancel()
        await settled()
        assert bench.cancelled == 0
        tasks[1].cancel()
        await settled()
        assert bench.cancelled == 1
        assert bench.counts("cancelled") == [1]
        bench.gate.set()
        assert await bench.ask("a") == [b"head", b"a"]  # a new one: nobody joins what was given up

    run(story())


def test_a_refusal_is_remembered_for_a_short_while() -> None:
    async def story(tier: Tier) -> list[str]:
        bench = Bench(tier)
        for bench.now_s in (0.0, 0.5, 1.5):
            await bench.ask("a", Worth.REFUSAL)
        return bench.computed

    assert run(story(Tier(negative_ttl_s=1.0))) == ["a", "a"]
    assert run(story(NO_GUARDS)) == ["a", "a", "a"]


def test_what_is_worth_nothing_is_not_kept() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.ask("a", Worth.NOTHING)
        await bench.ask("a", Worth.NOTHING)
        assert bench.computed == ["a", "a"]
        assert bench.store.asked == []

    run(story())


@pytest.mark.parametrize(
    ("error", "name"), [(StoreRefusedError, "redis_refused"), (StoreTimeoutError, "redis_timeouts")]
)
def test_the_breaker_opens_after_so_many_failures_and_spares_the_store(error: type[StoreError], name: str) -> None:
    async def story() -> None:
        bench = Bench(Tier(breaker_failures=3, breaker_reset_s=60.0))
        bench.store.failing = error
        for number in range(5):
            assert await bench.ask(f"{number}") == [b"head", f"{number}".encode()]
        assert bench.counts(name, "skipped_by_breaker", "breaker_openings", "breaker_open") == [3, 2, 1, 1]
        bench.now_s = 7.0
        assert bench.counts("breaker_open_s") == [7.0]
        assert len(bench.store.asked) == 3

    run(story())


def test_the_breaker_closes_again_when_the_store_is_back() -> None:
    async def story() -> None:
        bench = Bench(Tier(breaker_failures=1, breaker_reset_s=0.0))
        bench.store.failing = StoreRefusedError
        await bench.ask("a")
        bench.now_s = 2.0
        bench.store.failing = None
        await bench.ask("b")
        bench.now_s = 5.0
        assert bench.counts("breaker_openings", "breaker_open", "breaker_open_s") == [1, 0, 2.0]

    run(story())


def test_a_trial_that_fails_counts_as_another_opening() -> None:
    async def story() -> None:
        bench = Bench(Tier(breaker_failures=1, breaker_reset_s=0.0))
        bench.store.failing = StoreRefusedError
        await bench.ask("a")
        await bench.ask("b")
        assert bench.counts("breaker_openings", "redis_refused") == [2, 2]

    run(story())


def test_a_full_store_opens_no_breaker() -> None:
    async def story() -> None:
        bench = Bench(Tier(breaker_failures=1))
        bench.store.failing = StoreFullError
        for key in "abc":
            await bench.ask(key)
        assert bench.counts("redis_full", "breaker_openings") == [3, 0]

    run(story())


def test_without_guards_every_miss_asks_the_store() -> None:
    async def story() -> None:
        bench = Bench(Tier(guards=False, breaker_failures=1))
        bench.store.failing = StoreRefusedError
        for key in "abc":
            await bench.ask(key)
        assert bench.counts("redis_refused", "breaker_openings", "skipped_by_breaker") == [6, 0, 0]

    run(story())


def test_an_error_of_the_origin_is_everybodys_and_is_not_kept() -> None:
    async def story() -> None:
        bench = Bench()

        async def broken(add: Callable[[bytes], None]) -> Worth:
            add(b"head")
            await asyncio.sleep(0)
            raise OSError("gone")

        async def ask() -> list[bytes]:
            return [part async for part in bench.tiers.ask("a", broken)]

        found = await asyncio.gather(ask(), ask(), return_exceptions=True)
        assert [str(one) for one in found] == ["gone", "gone"]
        assert bench.counts("origin_requests", "origin_failures", "joined") == [1, 1, 1]
        assert await bench.ask("a") == [b"head", b"a"]

    run(story())


def test_emptied_it_knows_nothing() -> None:
    async def story() -> None:
        bench = Bench(Tier(breaker_failures=1, breaker_reset_s=60.0))
        bench.store.failing = StoreRefusedError
        await bench.ask("a")
        bench.tiers.empty()
        bench.store.failing = None
        assert set(bench.tiers.counters().values()) == {0.0}
        await bench.ask("a")
        assert bench.counts("origin_requests", "redis_puts") == [1, 1]

    run(story())


@given(
    keys=st.lists(st.sampled_from("abcdef"), max_size=40),
    guards=st.booleans(),
    entries=st.integers(1, 4),
    failing=st.sampled_from([None, StoreRefusedError, StoreTimeoutError, StoreFullError]),
)
def test_every_request_is_answered_in_exactly_one_way(
    keys: list[str], guards: bool, entries: int, failing: type[StoreError] | None
) -> None:
    async def story() -> None:
        bench = Bench(Tier(local_entries=entries, guards=guards))
        for place, key in enumerate(keys):
            bench.store.failing = failing if place % 3 else None
            assert await bench.ask(key) == [b"head", key.encode()]
        ways = bench.counts("local_hits", "negative_hits", "joined", "redis_hits", "origin_requests")
        assert sum(ways) == len(keys) == bench.counts("requests")[0]
        assert bench.counts("distinct_keys") == [len(set(keys))]
        assert bench.counts("origin_requests")[0] == len(bench.computed) >= len(set(keys))
        asked, puts = bench.counts("redis_asks", "redis_puts")
        assert asked == len(bench.store.asked)
        assert puts <= asked

    run(story())
