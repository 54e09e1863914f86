"""The load client's own process: takes its share of a load over a socket, sends it, reports what it saw.

    python -m contextlab.lab.load.worker FD

    tool ── Assignment, Go (, Go(stop)) ──▶ worker ── requests ──▶ target
         ◀────── Told: ready, samples, health ──┘

It ends after its health is told, or at once when the tool closes the socket. Reports never make it wait: what the
socket does not take is kept until it does.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import socket
import sys
from typing import Any

import msgspec
import uvloop

from contextlab.experiment import GeneratorHealth
from contextlab.lab.load.client import FastClient
from contextlab.lab.load.dispatch import Dispatcher
from contextlab.lab.load.general import GeneralClient
from contextlab.lab.load.order import Assignment, Go, Told, WireSample
from contextlab.lab.orders import allow_many_descriptors, first_line
from contextlab.model import ContextlabError

FLUSH_EVERY_S = 0.05
FLUSH_BYTES = 1 << 16
READ_BYTES = 1 << 16
SHORTEST_SECRET = 4
"""As in the rest of the tool: shorter ones are placeholders."""


class Channel:
    """The socket to the tool, inside the event loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._encoder = msgspec.json.Encoder()
        self._out = bytearray()
        self._in = b""
        self._loop = asyncio.get_running_loop()
        self._zero_s: asyncio.Future[float] = self._loop.create_future()
        self.dispatcher: Dispatcher | None = None
        self._loop.add_reader(sock.fileno(), self._readable)
        self._flush_again()

    def tell(self, told: Told) -> None:
        """Keep a line for the tool."""
        self._out += self._encoder.encode(told) + b"\n"

    def report(self, seen: object) -> None:
        """Keep a sample, or the health, for the tool."""
        name = b'{"health":%b}\n' if isinstance(seen, GeneratorHealth) else b'{"sample":%b}\n'
        self._out += name % self._encoder.encode(seen)
        if len(self._out) > FLUSH_BYTES:
            self._flush()

    async def go(self) -> float:
        """Wait for the word; when the load begins."""
        return await self._zero_s

    def finish(self) -> None:
        """Write what is left, however long that takes."""
        self._sock.setblocking(True)
        self._sock.sendall(self._out)
        self._out.clear()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(memoryview(self._out)[:FLUSH_BYTES])]
        except BlockingIOError:
            return
        except OSError:
            os._exit(1)

    def _flush_again(self) -> None:
        self._flush()
        self._loop.call_later(FLUSH_EVERY_S, self._flush_again)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the tool has gone, and nobody is left to report to
            os._exit(1)
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            go = msgspec.json.decode(line, type=Go)
            if go.stop and self.dispatcher is not None:
                self.dispatcher.stop()
            if not self._zero_s.done():
                self._zero_s.set_result(go.zero_s)


async def work(sock: socket.socket, assignment: Assignment) -> None:
    """Carry out an assignment."""
    channel = Channel(sock)
    order = assignment.order
    clients: list[Any] = []

    def client(on_end: Any) -> Any:
        clients.append((FastClient if order.fast else GeneralClient)(order, on_end))
        return clients[0]

    def clean(text: str) -> str:
        for secret in order.secrets:
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, "[key]")
        return text

    try:
        _settle(assignment)
        channel.dispatcher = Dispatcher(assignment, client, channel.report, clean if order.secrets else str, WireSample)
    except ContextlabError as error:
        channel.tell(Told(error=error.message, next_step=error.next_step))
        channel.finish()
        return
    channel.tell(Told(ready=True))
    zero_s = await channel.go()
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes cycles that last; a collection would stop the clock of every stream
    await channel.dispatcher.run(zero_s)
    await clients[0].close()
    channel.finish()


def _settle(assignment: Assignment) -> None:
    """Go where the order says, and allow as many connections as the system does."""
    if assignment.namespace_pid is not None:
        namespace: Any = importlib.import_module("contextlab.lab.link.namespace")
        namespace.enter(assignment.namespace_pid)
    if assignment.cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, assignment.cpus)
    allow_many_descriptors()


def main() -> None:
    """Read the assignment and carry it out."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    line = first_line(sock)
    if not line:
        return
    uvloop.run(work(sock, msgspec.json.decode(line, type=Assignment)))


if __name__ == "__main__":
    main()
