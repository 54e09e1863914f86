"""Begins each request when it is due, gives up on those whose time is up, and reads the replies in between.

    schedule ─▶ alarm ─▶ client.begin ─▶ … ─▶ landed ─▶ (a quiet moment) ─▶ Sample ─▶ report
                             tick, 50 a second: timeouts, last words, the loop's own lag

Open loop: a request begins when it is due, whatever became of the others; what is overdue begins at once and shows in
the lateness. Closed loop: one begins when another has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from contextlab.experiment import Ending, GeneratorHealth, Sample
from contextlab.lab.alarm import Alarm
from contextlab.lab.load.flight import Flight
from contextlab.lab.load.order import Assignment
from contextlab.lab.load.replies import Clean, sample_of
from contextlab.model import Failure

TICK_S = 0.02
SCAN_EVERY = 10
"""Ticks between two looks for last words."""
AFTER_END_S = 2.0
"""How long a reply may stay open after `[DONE]` or an error."""
BATCH = 32
"""Overdue requests that begin before the sockets are looked at again."""
QUIET_S, QUIET_S_PER_BYTE = 0.0005, 5e-8
"""Nothing may be due so soon while a reply is read: the bigger, the longer it takes."""
READING_S = 0.0002
"""Time for reading replies before the sockets are looked at again."""
MAX_UNREAD, MAX_UNREAD_BYTES = 4096, 64 << 20
"""What may wait for a quiet moment; beyond that, replies are read anyway."""
REFUSED_S = 0.05
"""A closed loop rests so long after a connection that failed: without it a dead target would be asked without pause."""
QUANTILES = (0.5, 0.9, 0.99, 1.0)
STOPPED = Failure(where="timeout", message="the arm was stopped")
ARM_OVER = Failure(where="timeout", message="the arm was over before the reply was")


class Client(Protocol):
    """What carries the requests: `client.py`, or `general.py`."""

    def begin(self, flight: Flight) -> None:
        """Act on a request now."""
        ...

    def give_up(self, flight: Flight, ending: Ending, at_s: float, failure: Failure) -> None:
        """Wait no longer for a request, and leave its connection."""
        ...

    def tidy(self, at_s: float) -> None:
        """Whatever must be done now and then."""
        ...


class Dispatcher:
    """One worker's share of a load. `report` gets each sample, and at the end the worker's own health.

    `client` makes the client, from the function to call when a flight has landed. `make` makes a sample of its fields.
    Made in the event loop.
    """

    def __init__(
        self,
        assignment: Assignment,
        client: Callable[[Callable[[Flight], None]], Client],
        report: Callable[[Any], None],
        clean: Clean = str,
        make: Callable[..., Any] = Sample,
    ) -> None:
        self._order = assignment.order
        self._worker = assignment.worker
        self._step = assignment.num_workers
        self._report = report
        self._clean = clean
        self._make = make
        self._client = client(self._landed)
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._dues: Sequence[tuple[float, int, int]] = ()  # (absolute time, index, place in the mix), oldest first
        self._next = 0
        self._flying: dict[int, Flight] = {}  # by index, in the order in which they were sent
        self._unread: deque[Flight] = deque()
        self._unread_bytes = 0
        self._reading = False
        self._stopped = False
        self._lateness: list[float] = []
        self._lags: list[float] = []
        self._num_begun = 0
        self._num_ticks = 0

    async def run(self, zero_s: float) -> None:
        """Send everything and wait for its end. Returns when the last sample and the health are reported."""
        order, self._zero_s = self._order, zero_s
        self._until_s = zero_s + order.duration_s
        self._end_s = float("inf") if order.drain_s is None else self._until_s + order.drain_s
        self._dues = [(zero_s + due.at_s, due.index, due.mixed) for due in order.schedule]
        if order.concurrency:
            self._dues, self._next_index = [], self._worker
        self._cpu_s, self._began_s = time.process_time(), time.monotonic()
        if self._stopped:
            self._give_up_all(self._began_s, STOPPED)
        self._ticks, self._alarm = Alarm(self._loop, self._tick), Alarm(self._loop, self._due)
        self._tick_s = time.monotonic() + TICK_S
        self._ticks.set(self._tick_s)
        self._alarm.set(self._dues[0][0] if self._dues else zero_s)
        try:
            await self._over
        finally:
            self._ticks.close()
            self._alarm.close()
        while self._unread:
            self._read_one()
        self._report(self._health())

    def stop(self) -> None:
        """End early: what is under way is given up, what was not sent becomes UNSENT."""
        if self._stopped or self._over.done():
            return
        self._give_up_all(time.monotonic(), STOPPED)
        self._finish()

    # ── beginning ──

    def _due(self) -> None:
        """The next request is due, or this many are overdue."""
        if self._order.concurrency:
            for _ in range(len(range(self._worker, self._order.concurrency, self._step))):
                self._begin_next(self._zero_s)
            return
        dues, last = self._dues, min(self._next + BATCH, len(self._dues))
        while self._next < last and dues[self._next][0] <= (now := time.monotonic()):
            at_s, index, mixed = dues[self._next]
            self._next += 1
            self._lateness.append(now - at_s)
            self._begin(Flight(index, mixed, at_s))
        if self._next < len(dues):
            self._alarm.set(dues[self._next][0])
        if self._unread and not self._reading:
            self._read_soon()

    def _begin_next(self, due_s: float) -> None:
        """The next request of a closed loop, if there is time for one."""
        if self._stopped or due_s >= self._until_s:
            return
        index, cycle = self._next_index, self._order.schedule
        self._next_index += self._step
        self._begin(Flight(index, cycle[index % len(cycle)].mixed, due_s))

    def _begin(self, flight: Flight) -> None:
        self._num_begun += 1
        self._flying[flight.index] = flight
        self._client.begin(flight)

    # ── ending ──

    def _landed(self, flight: Flight) -> None:
        """A request is over, however it ended."""
        self._flying.pop(flight.index, None)
        self._unread.append(flight)
        self._unread_bytes += flight.num_bytes
        if self._order.concurrency and flight.ended_s is not None:
            if flight.connected_s is None:
                self._loop.call_later(REFUSED_S, self._begin_next, flight.ended_s + REFUSED_S)
            else:
                self._begin_next(flight.ended_s)
        if not self._reading:
            self._read_soon()

    def _tick(self) -> None:
        """Look at what nobody calls about."""
        now = time.monotonic()
        while self._tick_s <= now:  # after a long sleep: one for each tick that it missed
            self._lags.append(now - self._tick_s)
            self._tick_s += TICK_S
        self._num_ticks += 1
        self._time_out(now)
        if self._num_ticks % SCAN_EVERY == 0:
            self._scan(now)
        self._client.tidy(now)
        if now >= self._end_s:
            self._give_up_all(now, ARM_OVER)
        self._finish()
        if not self._over.done():
            self._ticks.set(self._tick_s)

    def _time_out(self, now: float) -> None:
        timeout_s = self._order.timeout_s
        patience_s = min(self._order.connect_timeout_s or timeout_s, timeout_s)
        late: list[Flight] = []
        for flight in self._flying.values():
            if flight.sent_s is None or now - flight.sent_s < patience_s:
                break  # those behind it were sent later
            if flight.connected_s is None or now - flight.sent_s >= timeout_s:
                late.append(flight)
        for flight in late:
            if flight.connected_s is None:
                failure = Failure(where="connect", message=f"no connection within {patience_s:g} s")
                self._client.give_up(flight, Ending.UNREACHED, now, failure)
            else:
                what = "the reply did not end" if flight.stamps else "no answer"
                failure = Failure(where="timeout", message=f"{what} within {timeout_s:g} s")
                self._client.give_up(flight, Ending.TIMEOUT, now, failure)

    def _scan(self, now: float) -> None:
        """Give up on replies that have said their last words and do not end."""
        for flight in list(self._flying.values()):
            said_s = flight.last_words_s if flight.has_said_last_words(now) else None
            if said_s is not None and now - said_s >= AFTER_END_S:
                failure = Failure(where="timeout", message=f"still open {AFTER_END_S:g} s after its last words")
                self._client.give_up(flight, Ending.TIMEOUT, now, failure)

    def _give_up_all(self, now: float, failure: Failure) -> None:
        self._stopped = True
        for flight in list(self._flying.values()):
            ending = Ending.UNREACHED if flight.connected_s is None else Ending.TIMEOUT
            self._client.give_up(flight, ending, now, failure)
        for at_s, index, mixed in self._dues[self._next :]:
            self._unread.append(Flight(index, mixed, at_s))
            if at_s < now:
                self._lateness.append(now - at_s)
        self._next = len(self._dues)

    def _finish(self) -> None:
        """Say so if all is over."""
        waits = self._next < len(self._dues) or (
            self._order.concurrency and not self._stopped and time.monotonic() < self._until_s
        )
        if not waits and not self._flying and not self._over.done():
            self._over.set_result(None)

    # ── reading ──

    def _read_soon(self) -> None:
        self._reading = True
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Read what has landed, unless something is due; a bit, then the sockets have their turn."""
        self._reading = False
        until_s = time.monotonic() + READING_S
        while self._unread:
            now = time.monotonic()
            if self._next < len(self._dues):
                quiet_s = QUIET_S + self._unread[0].num_bytes * QUIET_S_PER_BYTE
                has_room = len(self._unread) < MAX_UNREAD and self._unread_bytes < MAX_UNREAD_BYTES
                if has_room and self._dues[self._next][0] - now < quiet_s:
                    return  # `_due` calls again
            self._read_one()
            if now > until_s:
                if self._unread:
                    self._read_soon()
                return

    def _read_one(self) -> None:
        flight = self._unread.popleft()
        self._unread_bytes -= flight.num_bytes
        self._report(sample_of(flight, self._zero_s, self._clean, self._make))

    def _health(self) -> GeneratorHealth:
        return GeneratorHealth(
            worker=self._worker,
            num_requests=self._num_begun,
            cpu_s=round(time.process_time() - self._cpu_s, 6),
            wall_s=round(time.monotonic() - self._began_s, 6),
            lateness_s=quantiles(self._lateness),
            loop_lag_s=quantiles(self._lags),
            fast=self._order.fast,
        )


def quantiles(values: Sequence[float]) -> tuple[float, float, float, float]:
    """(p50, p90, p99, max) by nearest rank; zeros where there is nothing."""
    if not values:
        return (0.0, 0.0, 0.0, 0.0)
    ranked = sorted(values)
    p50, p90, p99, most = (ranked[min(int(share * len(ranked)), len(ranked) - 1)] for share in QUANTILES)
    return (round(p50, 6), round(p90, 6), round(p99, 6), round(most, 6))
