"""A cache of two tiers in front of something slow: a local LRU, then a store that others share, then the origin itself.

    ask ─▶ local LRU ─▶ negative entries ─▶ under way already? ─▶ Bloom filter ─▶ breaker ─▶ store ─▶ origin
             hit          refused before       join it              not there?     open?       hit      compute, keep

The four in the middle are the guards: without them every local miss asks the store, waits for it, and goes on to the
origin on its own. An answer is a list of parts, so that a stream is kept as the stream that it was. The store comes in
(`Store`), and so does what computes an answer; nothing here opens a connection. Needs the extra `tier`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Protocol

import cachetools
import msgspec
import rbloom

from contextlab.buffers.breaker import Breaker, BreakerOpenError
from contextlab.buffers.flights import Flight
from contextlab.deeds import Tier

EXPECTED_KEYS, FALSE_POSITIVES = 10_000, 0.01
"""What the Bloom filter is made for; beyond, it asks the store more often than it need, and nothing worse."""
MAX_NEGATIVE = 1024
Answer = tuple[bytes, ...]


class StoreError(Exception):
    """The store could not do what it was asked."""


class StoreRefusedError(StoreError):
    """Nobody listens there, or the connection broke."""


class StoreTimeoutError(StoreError):
    """No answer in time."""


class StoreFullError(StoreError):
    """It takes nothing more. It still answers, so this opens no breaker."""


class Store(Protocol):
    """The second tier. Every method raises one of the errors above, within its own time limit."""

    async def get(self, key: str) -> bytes | None:
        """What was put there; None where there is nothing (any more)."""
        ...

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Keep it for so long."""
        ...


class Worth(Enum):
    """What an answer of the origin is good for: KEEP in both tiers, REFUSAL for a short while, or for NOTHING."""

    KEEP = auto()
    REFUSAL = auto()
    NOTHING = auto()


Compute = Callable[[Callable[[bytes], None]], Awaitable[Worth]]
"""Computes an answer at the origin: tells it part by part, and returns what it is worth."""

COUNTS = (
    *("requests", "local_hits", "negative_hits", "joined", "redis_hits", "origin_requests"),
    *("origin_answers", "origin_failures", "origin_s", "cancelled"),
    *("redis_asks", "redis_misses", "redis_puts", "redis_wait_s"),
    *("redis_refused", "redis_timeouts", "redis_full", "redis_errors"),
    *("skipped_by_filter", "skipped_by_breaker"),
)
"""`requests` are what was asked; each becomes one of the five after it, unless everybody who wanted it left while the
store was asked: then it is `cancelled`, as an origin request may be too. `origin_s`: seconds in sum that
`origin_answers` took. `redis_asks` are reads and writes, `redis_wait_s` the wait for both; `redis_misses`: reads that
found nothing."""


class Tiers:
    """The cache's policy and its counters. Lives on one event loop; `clock` gives seconds."""

    def __init__(self, tier: Tier, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tier, self._store, self._clock = tier, store, clock
        self._tasks: set[asyncio.Task[None] | asyncio.Task[object]] = set()
        self.empty()

    def empty(self) -> None:
        """Forget everything: entries, filter, breaker, counts. What is under way ends on its own, uncounted."""
        tier, clock = self._tier, self._clock
        self.counts = dict.fromkeys(COUNTS, 0.0)
        self._keys: set[str] = set()
        self._local: cachetools.TTLCache[str, Answer] = cachetools.TTLCache(tier.local_entries, tier.ttl_s, timer=clock)
        self._refusals: cachetools.TTLCache[str, Answer] = cachetools.TTLCache(
            MAX_NEGATIVE, tier.negative_ttl_s, timer=clock
        )
        self._flights: dict[str, Flight] = {}
        self._stored = rbloom.Bloom(EXPECTED_KEYS, FALSE_POSITIVES)
        self._breaker = Breaker(
            failures=tier.breaker_failures, reset_s=tier.breaker_reset_s, clock=clock, benign=StoreFullError
        )

    def counters(self) -> dict[str, float]:
        """What was counted since it was empty, and: `distinct_keys` that were asked for, `amplification` (origin
        requests for each of them), `breaker_openings`, `breaker_open_s` and `breaker_open` (1 or 0, now),
        `local_entries`."""
        num_keys = len(self._keys)
        return {
            **self.counts,
            "distinct_keys": float(num_keys),
            "amplification": self.counts["origin_requests"] / num_keys if num_keys else 0.0,
            "breaker_openings": float(self._breaker.openings),
            "breaker_open_s": self._breaker.open_s(),
            "breaker_open": float(not self._breaker.is_closed),
            "local_entries": float(len(self._local)),
        }

    async def ask(self, key: str, compute: Compute) -> AsyncGenerator[bytes, None]:
        """The parts of the answer for a key, from wherever it is soonest had. Raises what `compute` raises.

        Whoever stops listening gives up; when nobody is left who wants it, the computation is cancelled.
        """
        self.counts["requests"] += 1
        self._keys.add(key)
        found = self._local.get(key)
        if found is not None:
            self.counts["local_hits"] += 1
        elif self._tier.guards and (found := self._refusals.get(key)) is not None:
            self.counts["negative_hits"] += 1
        if found is not None:
            for part in found:
                yield part
            return
        flight = self._flights.get(key)
        if flight is not None:
            self.counts["joined"] += 1
        else:
            flight = self._started(key, compute)
        async with aclosing(flight.listen()) as parts:
            async for part in parts:
                yield part

    def _started(self, key: str, compute: Compute) -> Flight:
        def abandoned() -> None:
            self._leave(key, flight)  # at once: who asks next must not join what is being given up
            task.cancel()

        flight = Flight(abandoned)
        if self._tier.guards:
            self._flights[key] = flight
        task = asyncio.get_running_loop().create_task(self._fly(key, flight, compute))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return flight

    async def _fly(self, key: str, flight: Flight, compute: Compute) -> None:
        """Bring an answer from the store or from the origin, tell it to who listens, and keep it."""
        counts = self.counts
        try:
            if (stored := await self._read(key)) is not None:
                counts["redis_hits"] += 1
                self._local[key] = stored
                for part in stored:
                    flight.add(part)
                self._leave(key, flight)
                flight.end()
                return
            counts["origin_requests"] += 1
            began_s = self._clock()
            worth = await compute(flight.add)
            counts["origin_answers"] += 1
            counts["origin_s"] += self._clock() - began_s
            answer = tuple(flight.parts)
            if worth is Worth.KEEP:
                self._local[key] = answer
            elif worth is Worth.REFUSAL and self._tier.guards:
                self._refusals[key] = answer
            self._leave(key, flight)
            flight.end()
            if worth is Worth.KEEP:
                await self._write(key, answer)
        except asyncio.CancelledError:
            counts["cancelled"] += 1
            raise
        except Exception as error:  # it is the askers' to meet
            counts["origin_failures"] += 1
            self._leave(key, flight)
            flight.end(error)

    def _leave(self, key: str, flight: Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    # ── the store behind its guards ──

    async def _read(self, key: str) -> Answer | None:
        if self._tier.guards and key not in self._stored:
            self.counts["skipped_by_filter"] += 1
            return None
        value = await self._asked(lambda: self._store.get(key))
        if not isinstance(value, bytes):
            return None
        return msgspec.msgpack.decode(value, type=Answer)

    async def _write(self, key: str, answer: Answer) -> None:
        value = msgspec.msgpack.encode(answer)
        self._stored.add(key)  # before it is there: what was not confirmed in time may have arrived all the same
        await self._asked(lambda: self._store.put(key, value, self._tier.ttl_s), writes=True)

    async def _asked(self, ask: Callable[[], Awaitable[object]], *, writes: bool = False) -> object:
        """Ask the store; what goes wrong there is counted and gives None.

        Who asked may leave meanwhile: the ask goes on to its end, which is near, so that a client that hangs up is
        no failure of the store.
        """
        task = asyncio.get_running_loop().create_task(self._tried(ask, writes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _tried(self, ask: Callable[[], Awaitable[object]], writes: bool) -> object:
        counts = self.counts
        began_s = self._clock()
        try:
            if not self._tier.guards:
                return await self._counted(ask, writes)
            with self._breaker.trying():
                return await self._counted(ask, writes)
        except BreakerOpenError:
            counts["skipped_by_breaker"] += 1
            began_s = self._clock()
        except StoreRefusedError:
            counts["redis_refused"] += 1
        except StoreTimeoutError:
            counts["redis_timeouts"] += 1
        except StoreFullError:
            counts["redis_full"] += 1
        except StoreError:
            counts["redis_errors"] += 1
        finally:
            counts["redis_wait_s"] += self._clock() - began_s
        return None

    async def _counted(self, ask: Callable[[], Awaitable[object]], writes: bool) -> object:
        counts = self.counts
        counts["redis_asks"] += 1
        value = await ask()
        if writes:
            counts["redis_puts"] += 1
        elif value is None:
            counts["redis_misses"] += 1
        return value
