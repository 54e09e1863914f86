"""The process of the misbehaving clients: lets them act in their windows, and tells what they counted.

    python -m contextlab.lab.crowd.worker FD

    tool ── CrowdOrder, CrowdGo (, CrowdGo(stop)) ──▶ crowd ── calls ──▶ target
         ◀────── CrowdTold: ready, evidence ─────────┘

It ends when all faults are over and their evidence is told, or at once when the tool closes the socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from itertools import count
from typing import Any, cast

import msgspec

from contextlab import registry
from contextlab.analysis.loads import rng_of
from contextlab.deeds import ClientFault
from contextlab.experiment import FaultEvidence
from contextlab.lab.crowd.call import WireCall
from contextlab.lab.crowd.order import CrowdGo, CrowdOrder, CrowdTold, Numbered
from contextlab.lab.link import namespace
from contextlab.lab.load.client import resolved
from contextlab.lab.orders import allow_many_descriptors, first_line
from contextlab.model import ContextlabError

READ_BYTES = 1 << 16
LAST_WORDS_S = 0.2
"""Time for clients to leave in their own way when their fault is over, before they are made to."""
SHORTEST_LIFE_S = 0.05
"""A client that was gone sooner is followed by another only then: a target that turns clients away at once would have
to do with thousands, which is another fault."""


class Window:
    """One fault while it acts: so many clients at any time, each followed by another."""

    def __init__(self, order: CrowdOrder, one: Numbered, address: tuple[str, int], over: asyncio.Event) -> None:
        self._order, self._one, self._address = order, one, address
        self._fault = registry.make_fault(one.placed)
        self._arm_over = over
        self._over = asyncio.Event()
        self._numbers = count()
        self._tally: dict[str, float] = {}

    async def run(self, zero_s: float) -> FaultEvidence:
        """Act from the window's start to its end, or until the arm is over; what came of it."""
        placed, fault = self._one.placed, self._fault
        loop = asyncio.get_running_loop()
        clients = 0 if fault.is_null else cast("ClientFault", fault).clients
        if not await self._arm_ends_by(zero_s + placed.start_s):
            tasks = [loop.create_task(self._one_after_the_other()) for _ in range(clients)]
            await self._arm_ends_by(zero_s + placed.end_s)
            self._over.set()
            if tasks:
                await asyncio.wait(tasks, timeout=LAST_WORDS_S)
            for task in tasks:
                task.cancel()
            for came in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(came, Exception):  # a mistake in a fault must not pass for a target's silence
                    raise came
        return FaultEvidence(
            name=placed.name,
            engine="crowd",
            tally={name: round(value, 6) for name, value in self._tally.items()},
            landed=fault.landed(self._tally, {}),
        )

    async def _arm_ends_by(self, at_s: float) -> bool:
        """Wait until then, or until the arm is over: whether it is."""
        try:
            async with asyncio.timeout_at(at_s):  # the loop's clock is time.monotonic
                await self._arm_over.wait()
        except TimeoutError:
            return False
        return True

    async def _one_after_the_other(self) -> None:
        while not self._over.is_set():
            soonest_s = time.monotonic() + SHORTEST_LIFE_S
            call = self._call(next(self._numbers))
            self._tally["clients"] = self._tally.get("clients", 0.0) + 1
            try:
                await cast("ClientFault", self._fault).behave(call)
            finally:
                call.leave()
            await call.wait(soonest_s - time.monotonic())

    def _call(self, number: int) -> WireCall:
        order = self._order.order
        return WireCall(
            order,
            self._address,
            order.requests[number % len(order.requests)],
            name=f"{order.arm}-{self._one.placed.name}-{self._one.number}-{number}",
            number=number,
            tally=self._tally,
            rng=rng_of(self._order.seed, self._one.number, number, self._one.placed.name),
            over=self._over,
        )


async def work(sock: socket.socket, order: CrowdOrder) -> None:
    """Carry out an order."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    going: asyncio.Future[float] = loop.create_future()
    rest = b""

    def readable() -> None:
        nonlocal rest
        try:
            data = sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the tool has gone, and with it the reason to be here
            os._exit(1)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            go = msgspec.json.decode(line, type=CrowdGo)
            if go.stop:
                over.set()
            if not going.done():
                going.set_result(go.zero_s)

    sock.setblocking(False)
    loop.add_reader(sock.fileno(), readable)
    address = resolved(order.order.host, order.order.port)
    windows = {one.number: Window(order, one, address, over) for one in order.faults}
    tell(sock, CrowdTold(ready=True))
    zero_s = await going
    told = await asyncio.gather(*(window.run(zero_s) for window in windows.values()))
    loop.remove_reader(sock.fileno())
    tell(sock, CrowdTold(evidence=dict(zip(windows, told, strict=True))))


def tell(sock: socket.socket, told: CrowdTold) -> None:
    """Say one line, however long that takes."""
    sock.setblocking(True)
    sock.sendall(msgspec.json.encode(told) + b"\n")
    sock.setblocking(False)


def main() -> None:
    """Read the order and carry it out."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    line = first_line(sock)
    if not line:
        return
    order: Any = msgspec.json.decode(line, type=CrowdOrder)
    allow_many_descriptors()
    try:
        if order.namespace_pid is not None:
            namespace.enter(order.namespace_pid)
        asyncio.run(work(sock, order))
    except ContextlabError as error:
        tell(sock, CrowdTold(error=error.message, next_step=error.next_step))


if __name__ == "__main__":
    main()
