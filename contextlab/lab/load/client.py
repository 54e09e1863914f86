"""The client's fast path: HTTP/1.1 and a stream over plain TCP, on asyncio's protocols and httptools.

    begin ─▶ connect (or a kept connection) ─▶ one write ─▶ data_received: stamp, feed, count ─▶ … ─▶ the end

A read costs a stamp and a call into the parser, which puts the pieces of the body into a list; what they say is not
looked at here. There is no automatic retry, no redirect, no cookie, no compression: each would change what is measured.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast
from zlib import crc32

from contextlab import __version__
from contextlab.experiment import Ending
from contextlab.lab.load.flight import TCP_INFO, Flight, retransmits
from contextlab.lab.load.order import LoadOrder
from contextlab.model import Failure, UnableError

LINGER_S = 1.0
"""How long the server may take to close a connection after its last reply. It should go first: the side that does
keeps the port for a minute, and there are only so many."""
PROBE_S = 2.0
"""Time for one of a name's addresses to accept a connection."""
RESETS = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
CUT_BEFORE = "the connection was closed before an answer"
CUT_WITHIN = "the connection ended in the middle of the answer"
RESET_WORDS = "the connection was reset"
ONE_SEGMENT_BYTES, SOONEST_REPEAT_S = 1000, 0.1
OWN_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
OWN_LIMIT = "generator"
"""`error_type` of a failure that is this machine's, not the target's: no free port, no free descriptor."""


class Connection(asyncio.Protocol):
    """One TCP connection, with the request that it carries now, if any."""

    __slots__ = ("_client", "_transport", "flight", "num_before")

    def __init__(self, client: FastClient, flight: Flight) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self.flight: Flight | None = flight
        self.num_before = 0  # segments sent again for earlier requests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: send at once."""
        now = time.monotonic()
        self._transport = cast("asyncio.Transport", transport)
        if self.flight is None or self.flight.ending is not None:  # it was given up in this very moment
            self.abort()
            return
        self.flight.connected_s = now
        self.carry(self.flight)

    def carry(self, flight: Flight) -> None:
        """Send a request over this connection."""
        self.flight = flight
        flight.way = self
        flight.listen(self._client.parser_type)
        if self._transport is not None:
            self._transport.write(self._client.bytes_of(flight))

    def data_received(self, data: bytes) -> None:
        """Bytes came: stamp them, and see whether they end the reply."""
        now = time.monotonic()
        flight = self.flight
        if flight is None:  # nobody asked
            self.abort()
            return
        flight.stamps.append(now)
        flight.num_bytes += len(data)
        if flight.crc32 is not None:
            flight.crc32 = crc32(data, flight.crc32)
        try:
            flight.feed(data)
        except self._client.parser_error as error:
            self._garbled(flight, now, error)
            return
        flight.counts.append(len(flight.pieces))
        if flight.whole:
            self._client.came_whole(self, now, reusable=flight.keeps_open)

    def eof_received(self) -> None:
        """The server closed; asyncio then closes this side."""
        flight = self.flight
        if flight is None:
            return
        now = time.monotonic()
        if flight.ends_with_connection:
            self.over(Ending.WHOLE, now)
        else:
            words = CUT_WITHIN if flight.stamps else CUT_BEFORE
            self.over(Ending.FIN, now, Failure(where="transport", message=words))

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone, by whoever's hand."""
        now = time.monotonic()
        self._client.forget(self)
        if self.flight is None:
            return
        if isinstance(error, TimeoutError):  # the kernel gave up sending the same segment again and again
            self.over(Ending.TIMEOUT, now, Failure(where="timeout", message="the connection timed out"))
        elif error is None or isinstance(error, RESETS):
            self.over(Ending.RESET, now, Failure(where="transport", message=RESET_WORDS))
        else:
            self.over(Ending.RESET, now, Failure(where="transport", message=f"the connection broke: {_words(error)}"))

    def over(self, ending: Ending, at_s: float, failure: Failure | None = None) -> None:
        """The request that it carries is over."""
        flight, self.flight = self.flight, None
        if flight is None:
            return
        if self._client.repeated_nothing(flight, at_s):
            flight.retransmits = 0
        elif (total := retransmits(self._transport)) is not None:
            flight.retransmits, self.num_before = total - self.num_before, total
        flight.land(ending, at_s, failure)
        self._client.on_end(flight)

    def abort(self) -> None:
        """Leave at once."""
        if self._transport is not None:
            self._transport.abort()

    def _garbled(self, flight: Flight, now: float, error: Exception) -> None:
        flight.counts.append(len(flight.pieces))
        if flight.whole:  # the reply was right; what follows it is not
            self._client.came_whole(self, now, reusable=False)
            return
        words = " ".join(str(error).split())
        self.over(Ending.GARBLED, now, Failure(where="protocol", message=f"the answer is not HTTP: {words}"))
        self.abort()


class FastClient:
    """Sends requests and tells `on_end` when each is over. Make it in the event loop that it will run in.

    Raises UnableError where the host's name does not resolve.
    """

    def __init__(self, order: LoadOrder, on_end: Callable[[Flight], None]) -> None:
        import httptools

        self.parser_type: Any = httptools.HttpResponseParser
        self.parser_error = httptools.HttpParserError
        self.on_end = on_end
        self._order = order
        self._kept: list[Connection] = []
        self._lingering: deque[tuple[float, Connection]] = deque()
        self._loop = asyncio.get_running_loop()
        self._address = resolved(order.host, order.port)
        self._opening: set[asyncio.Task[None]] = set()
        self._heads = [_head_of(order, place) for place in range(len(order.requests))]
        self._small = [sum(map(len, parts)) < ONE_SEGMENT_BYTES for parts in self._heads]
        self._knows = TCP_INFO is not None

    def begin(self, flight: Flight) -> None:
        """Act on a request now."""
        flight.sent_s = time.monotonic()
        if not self._order.kept_connections:
            flight.crc32 = 0
        if self._kept:
            flight.connected_s = flight.sent_s
            self._kept.pop().carry(flight)
            return
        task = self._loop.create_task(self._open(flight))
        flight.way = task
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def give_up(self, flight: Flight, ending: Ending, at_s: float, failure: Failure) -> None:
        """Wait no longer for a request, and leave its connection."""
        way = flight.way
        if isinstance(way, Connection):
            way.over(ending, at_s, failure)
            way.abort()
            return
        way.cancel()
        flight.land(ending, at_s, failure)
        self.on_end(flight)

    def bytes_of(self, flight: Flight) -> bytes:
        """The request as it goes onto the wire."""
        before, after = self._heads[flight.mixed]
        return b"%b%d%b" % (before, flight.index, after)

    def repeated_nothing(self, flight: Flight, at_s: float) -> bool:
        """Whether no segment of a request can have been sent again; asking the kernel is not cheap.

        One segment is repeated by a timer only, and that never runs for less than 200 ms (TCP_RTO_MIN).
        """
        return self._knows and self._small[flight.mixed] and at_s - (flight.sent_s or at_s) < SOONEST_REPEAT_S

    def came_whole(self, connection: Connection, at_s: float, *, reusable: bool) -> None:
        """A reply came to its end; see what becomes of the connection, which the next request may then take at once."""
        if reusable and self._order.kept_connections:
            self._kept.append(connection)
        else:
            self._lingering.append((at_s + LINGER_S, connection))
        connection.over(Ending.WHOLE, at_s)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection in self._kept:
            self._kept.remove(connection)

    def tidy(self, at_s: float) -> None:
        """Close what the server has not closed by now."""
        while self._lingering and self._lingering[0][0] <= at_s:
            self._lingering.popleft()[1].abort()

    async def close(self) -> None:
        """Leave every connection."""
        for connection in (*self._kept, *(one for _, one in self._lingering)):
            connection.abort()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    async def _open(self, flight: Flight) -> None:
        try:
            await self._loop.create_connection(lambda: Connection(self, flight), *self._address)
        except OSError as error:
            now = time.monotonic()
            if flight.ending is None:
                flight.land(*unconnected(error, now))
                self.on_end(flight)


def unconnected(error: OSError, at_s: float) -> tuple[Ending, float, Failure]:
    """How a request ended that got no connection."""
    if isinstance(error, ConnectionRefusedError):
        return Ending.REFUSED, at_s, Failure(where="connect", message="connection refused")
    if isinstance(error, RESETS):
        return Ending.RESET, at_s, Failure(where="connect", message=f"{RESET_WORDS} before it was open")
    ours = OWN_LIMIT if error.errno in OWN_ERRNOS else ""
    return Ending.UNREACHED, at_s, Failure(where="connect", message=f"no connection: {_words(error)}", error_type=ours)


def resolved(host: str, port: int) -> tuple[str, int]:
    """The address to connect to, found once and before the load, so that no request waits for a name.

    Where a name has several (localhost is often both ::1 and 127.0.0.1), the first that accepts a connection.
    Raises UnableError where the name does not resolve.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnableError(f"no such host: {host} ({_words(error)})", "check the host name") from None
    addresses = list(dict.fromkeys((str(address[0]), port) for *_, address in found))
    for address in addresses if len(addresses) > 1 else ():
        try:
            socket.create_connection(address, timeout=PROBE_S).close()
        except OSError:
            continue
        return address
    return addresses[0]


def _head_of(order: LoadOrder, place: int) -> tuple[bytes, bytes]:
    """A request of the mix before and after its index, which is the end of the last header."""
    request = order.requests[place]
    host = f"[{order.host}]" if ":" in order.host else order.host
    headers = [
        ("Host", host if order.port == 80 else f"{host}:{order.port}"),
        ("User-Agent", f"contextlab/{__version__}"),
        ("Accept", "text/event-stream, application/json"),
        ("Accept-Encoding", "identity"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(request.body))),
        *([] if order.kept_connections else [("Connection", "close")]),
        *order.headers,
    ]
    lines = [f"POST {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    before = "".join(f"{line}\r\n" for line in lines) + f"X-Request-Id: {order.arm}-"
    return before.encode(), b"\r\n\r\n" + request.body


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
