"""One misbehaving client on a bare socket: what a fault makes of it, and what crossed its connection, counted.

    connect ─▶ send (all, or byte by byte) ─▶ event | read | whole | wait ─▶ half_close | close | reset

A bare socket, because asyncio's transports read ahead: what a client does not read must stay in the kernel. Counted for
every connection, whatever the fault does:

    connected, not_connected      connections
    requests, requests_repeated   requests that were sent whole, and those of them that a client had sent before
    answers, refused              answers that came to their proper end; statuses that are no success
    events, events_in_answers     content events that were read, and those of them in whole answers
    tokens_in_answers             what the target says it generated for whole answers
    bytes_read                    taken off the socket
    unread_bytes                  left in our kernel's buffer when the client left (SIOCINQ), in sum
    most_unread_bytes             the most that ever stood there
    unsent_bytes                  what stood then in the sender's buffer, where that is on this machine too, in sum
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import socket
import struct
import termios
from collections import deque
from random import Random
from typing import Any

from contextlab import __version__
from contextlab.analysis.prompts import filler
from contextlab.lab.load.order import LoadOrder, Prepared
from contextlab.model import Event, Kind
from contextlab.targets.openai.replies import Reader, Refusal, Streamed, Whole

READ_BYTES = 1 << 16
LINGER = struct.pack("ii", 1, 0)


class WireCall:
    """A `deeds.Call` on a real socket. `address` is where to connect, `request` what to send, `name` its X-Request-Id;
    `over` is set when the fault is."""

    def __init__(
        self,
        order: LoadOrder,
        address: tuple[str, int],
        request: Prepared,
        *,
        name: str,
        number: int,
        tally: dict[str, float],
        rng: Random,
        over: asyncio.Event,
    ) -> None:
        self.tally, self.rng, self.number = tally, rng, number
        self._order, self._address, self._request, self._name = order, address, request, name
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = None
        self._bytes: bytes | None = None
        self._num_sent = 0
        self._num_requests = 0
        self._reply: _Reply | None = None

    async def connect(self, *, buffer_bytes: int = 0) -> bool:
        """Open a connection, leaving the one before; whether it opened."""
        self.leave()
        sock = socket.socket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        try:
            async with asyncio.timeout(self._order.timeout_s):
                await self._loop.sock_connect(sock, self._address)
        except OSError:  # a timeout is one too
            sock.close()
            self._count("not_connected")
            return False
        except BaseException:
            sock.close()
            raise
        self._sock, self._num_sent, self._reply = sock, 0, _Reply(self._count)
        self._count("connected")
        return True

    async def send(
        self,
        num_bytes: int | None = None,
        *,
        stream: bool = True,
        reply_tokens: int | None = None,
        more_words: int = 0,
    ) -> int:
        """Send the next bytes of the request; how many were sent."""
        if self._bytes is None:
            body = reworded(self._request.body, self.rng, stream=stream, reply_tokens=reply_tokens, words=more_words)
            self._bytes = head_of(self._order, self._request.path, len(body), self._name) + body
        until = len(self._bytes) if num_bytes is None else min(len(self._bytes), self._num_sent + num_bytes)
        part = self._bytes[self._num_sent : until]
        if self._sock is None or not part:
            return 0
        try:
            await self._loop.sock_sendall(self._sock, part)
        except OSError:
            return 0
        self._num_sent = until
        if until == len(self._bytes):
            self._count("requests")
            self._count("requests_repeated", self._num_requests > 0)
            self._num_requests += 1
        return len(part)

    async def event(self) -> str | None:
        """The text of the next content event."""
        while self._reply is not None:
            if self._reply.texts:
                return self._reply.texts.popleft()
            if not await self.read(READ_BYTES):
                break
        return None

    async def read(self, num_bytes: int) -> int:
        """Take at most so many bytes off the socket."""
        if self._sock is None or self._reply is None or self._reply.ended:
            return 0
        self.unread()
        try:
            data = await self._loop.sock_recv(self._sock, num_bytes)
        except OSError:
            data = b""
            self._count("torn_down")
        self._count("bytes_read", len(data))
        self._reply.feed(data)
        return len(data)

    async def whole(self, within_s: float | None = None) -> bool:
        """Read to the end, for at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while await self.read(READ_BYTES):
                    pass
        return self._reply is not None and self._reply.is_whole

    async def wait(self, seconds: float) -> bool:
        """Do nothing for so long, or until the fault is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return not self._over.is_set()

    @property
    def num_events(self) -> int:
        """Content events of this connection's reply."""
        return 0 if self._reply is None else self._reply.num_events

    def unread(self) -> int:
        """Bytes that stand in our receive buffer."""
        if self._sock is None:
            return 0
        num_bytes = waiting_bytes(self._sock)
        self.tally["most_unread_bytes"] = max(self.tally.get("most_unread_bytes", 0.0), num_bytes)
        return num_bytes

    def half_close(self) -> None:
        """Send FIN, and go on reading."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close with FIN, after reading what has come."""
        while self._sock is not None and self._reply is not None and self.unread():
            try:
                data = self._sock.recv(READ_BYTES)
            except OSError:
                break
            self._count("bytes_read", len(data))
            self._reply.feed(data)
        self.leave()

    def reset(self) -> None:
        """Close with RST."""
        if self._sock is not None:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        self.leave()

    def leave(self) -> None:
        """Let go of the connection as it stands, and count what nobody read; where something stood, that is a RST."""
        sock, self._sock, self._reply = self._sock, None, None
        if sock is None:
            return
        if num_bytes := waiting_bytes(sock):
            self._count("unread_bytes", num_bytes)
            self._count("unsent_bytes", sender_bytes(sock))
        sock.close()

    def _count(self, name: str, number: float = 1) -> None:
        self.tally[name] = self.tally.get(name, 0.0) + number


class _Reply:
    """What has come of one reply. `ended`: nothing more will be read; `is_whole`: it came to its proper end."""

    def __init__(self, count: Any) -> None:
        import httptools

        self.texts: deque[str] = deque()
        self.ended = self.is_whole = False
        self._count = count
        self._reader: Reader | None = None
        self._kind = ""
        self.num_events = self._num_tokens = 0
        self._parser = httptools.HttpResponseParser(self)
        self._error = httptools.HttpParserError

    def feed(self, data: bytes) -> None:
        """Bytes as they were read; none: the connection is over."""
        try:
            if data:
                self._parser.feed_data(data)
            elif not self.ended:
                self._close()
        except self._error:
            self.ended = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has read a header."""
        if name.lower() == b"content-type":
            self._kind = value.decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """The head of the reply has come."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        if not status < 300:
            self._count("refused")
            self._reader = Refusal(status, None)
        else:
            self._reader = (Whole if "json" in self._kind else Streamed)(status)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._reader is not None:
            self._take(self._reader.feed(data))

    def on_message_complete(self) -> None:
        """HTTP's end of the reply; an interim one has no reader yet."""
        if self._reader is not None:
            self._close()

    def _close(self) -> None:
        if self._reader is not None and not self.is_whole:
            self._take(self._reader.close())
        self.ended = True

    def _take(self, events: list[Event]) -> None:
        for event in events:
            match event.kind:
                case Kind.TOKEN:
                    self.texts.append(event.text)
                    self.num_events += 1
                    self._count("events")
                case Kind.USAGE if event.usage is not None:
                    self._num_tokens = event.usage.completion_tokens or 0
                case Kind.FAILED:
                    self.ended = True
                case Kind.DONE if not self.is_whole:
                    self.is_whole = self.ended = True
                    self._count("answers")
                    self._count("events_in_answers", self.num_events)
                    self._count("tokens_in_answers", self._num_tokens)


def reworded(body: bytes, rng: Random, *, stream: bool, reply_tokens: int | None, words: int) -> bytes:
    """A request of the load that asks otherwise: with or without a stream, for so long a reply, with more words."""
    asked = json.loads(body)
    asked["stream"] = stream
    if not stream:
        asked.pop("stream_options", None)
    if reply_tokens is not None:
        asked["max_tokens"] = reply_tokens
    if words and isinstance(asked.get("prompt"), str):
        asked["prompt"] = filler(words, rng).lstrip() + " " + asked["prompt"]
    elif words and asked.get("messages"):
        last = asked["messages"][-1]
        last["content"] = filler(words, rng).lstrip() + " " + last["content"]
    return json.dumps(asked).encode()


def head_of(order: LoadOrder, path: str, num_bytes: int, name: str) -> bytes:
    """The head of a request whose body has so many bytes, as the load's client writes it, with a name of its own."""
    host = f"[{order.host}]" if ":" in order.host else order.host
    headers = [
        ("Host", host if order.port == 80 else f"{host}:{order.port}"),
        ("User-Agent", f"contextlab/{__version__}"),
        ("Accept", "text/event-stream, application/json"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(num_bytes)),
        ("Connection", "close"),
        *order.headers,
        ("X-Request-Id", name),
    ]
    return "".join([f"POST {path} HTTP/1.1\r\n", *(f"{key}: {value}\r\n" for key, value in headers), "\r\n"]).encode()


def waiting_bytes(sock: socket.socket) -> int:
    """Bytes in a socket's receive buffer (SIOCINQ); 0 where the system does not tell."""
    number = bytearray(4)
    try:
        fcntl.ioctl(sock.fileno(), termios.FIONREAD, number)
    except OSError:
        return 0
    return int.from_bytes(number, "little")


def sender_bytes(sock: socket.socket) -> int:
    """Bytes that the other end has written and the network has not taken yet; 0 where it is not on this machine.

    From the column tx_queue of /proc/net/tcp and tcp6, by the two ports.
    """
    try:
        ports = sock.getpeername()[1], sock.getsockname()[1]
    except OSError:  # it has gone
        return 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                local, remote, _, queues = line.split()[1:5]
                if (int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)) == ports:
                    return int(queues.partition(":")[0], 16)
    return 0
