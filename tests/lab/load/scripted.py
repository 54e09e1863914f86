"""A server that does what the path asks of it, in a thread of the test: what a socket can do to a client.

    with Scripted() as server: … Fleet(order(server, "/whole", "/reset-within")) …

Every reply is made by hand, byte by byte. A request through a proxy (an absolute URL) is answered as its path says.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WORDS = ("Höher", " 漢字", " 😀 end")
ERROR = {"error": {"message": "the cache is full", "type": "server_error", "code": 500, "n_ctx": 64}}
LAST = b"0\r\n\r\n"
HOLD_S = 30.0
"""Longer than any client here waits."""


def event(data: object) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def word(text: str, name: str = "one") -> bytes:
    """A content event of a chat."""
    return event({"id": name, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})


FINISH = event({"id": "one", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
USAGE = event({"id": "one", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
DONE = event("[DONE]")
EVENTS = [*map(word, WORDS), FINISH, USAGE, DONE]
STREAM = b"".join(EVENTS)


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def sized(status: str, kind: str, body: bytes) -> bytes:
    """A whole answer with its length."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def stream(*parts: bytes) -> bytes:
    """A whole chunked stream, each part a chunk."""
    return CHUNKED + b"".join(map(chunk, parts)) + LAST


JSON_REPLY = {
    "id": "two",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "All at once"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3},
}
AT_ONCE: dict[str, bytes] = {
    "/whole": stream(*EVENTS),
    "/one-chunk": stream(STREAM),
    "/interim": b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n" + stream(*EVENTS),
    "/crlf": stream(STREAM.replace(b"\n", b"\r\n")),
    "/comments": stream(b": wait\n\n", *EVENTS[:2], b": wait\n\nevent: token\n", *EVENTS[2:]),
    "/json": sized("200 OK", "application/json", json.dumps(JSON_REPLY).encode()),
    "/refusal": sized("429 Too Many Requests", "application/json", json.dumps(ERROR).encode()),
    "/page": sized("502 Bad Gateway", "text/html", b"<html><body>bad gateway</body></html>"),
    "/error-frame": stream(*EVENTS[:2], event(ERROR)),
    "/error-then-done": stream(*EVENTS[:1], event(ERROR), DONE),
    "/bad-json": stream(EVENTS[0], EVENTS[1].replace(b'"id"', b'"id', 1), *EVENTS[2:]),
    "/bad-utf8": stream(EVENTS[0], EVENTS[1].replace(" 漢字".encode(), b" \xe6\xbc"), *EVENTS[2:]),
    "/done-twice": stream(*EVENTS, DONE),
    "/after-end": stream(*EVENTS, word("more")),
    "/foreign": stream(EVENTS[0], word(" 漢字", "other"), *EVENTS[2:]),
    "/no-done": stream(*EVENTS[:-1]),
    "/empty-stream": stream(),
    "/odd-fields": stream(
        *EVENTS[:3], event({"id": "one", "choices": [], "timings": {"prompt_n": 4, "cache_n": 1}}), DONE
    ),
    "/surrogate": stream(event('{"choices":[{"delta":{"content":"\\ud83d"}}]}'), *EVENTS),
}
"""Paths that are answered with these bytes, after which the connection is closed properly."""


class Talk:
    """One connection of a client, after its request has been read."""

    def __init__(self, server: Scripted, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send these bytes now, as a segment of their own."""
        self._writer.write(data)
        await self._writer.drain()

    async def pause(self, seconds: float = 0.03) -> None:
        """Let the client read what it has."""
        await asyncio.sleep(seconds)

    def reset(self) -> None:
        """Tear the connection down with RST."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


async def _fin_within(talk: Talk) -> None:
    await talk.send(CHUNKED + chunk(EVENTS[0]) + chunk(EVENTS[1]))


async def _fin_in_head(talk: Talk) -> None:
    await talk.send(HEAD)


async def _reset_before(talk: Talk) -> None:
    talk.reset()


async def _reset_within(talk: Talk) -> None:
    await talk.send(CHUNKED + chunk(EVENTS[0]))
    await talk.pause()
    talk.reset()


async def _silent(talk: Talk) -> None:
    await talk.pause(HOLD_S)


async def _stalls(talk: Talk) -> None:
    await talk.send(CHUNKED + chunk(EVENTS[0]))
    await talk.pause(HOLD_S)


async def _open_after_end(talk: Talk) -> None:
    await talk.send(CHUNKED + b"".join(map(chunk, EVENTS)))
    await talk.pause(HOLD_S)


async def _torn_done_open(talk: Talk) -> None:
    """The last words come in two reads, and a comment follows them."""
    body = b"".join(map(chunk, EVENTS))
    await talk.send(CHUNKED + body[:-9])
    await talk.pause()
    await talk.send(body[-9:])
    await talk.pause(0.5)
    await talk.send(chunk(b": still here\n\n"))
    await talk.pause(HOLD_S)


async def _fin_after_end(talk: Talk) -> None:
    await talk.send(CHUNKED + b"".join(map(chunk, EVENTS)))
    await talk.pause(0.2)


async def _until_closed(talk: Talk) -> None:
    await talk.send(HEAD + b"\r\n" + STREAM)


async def _garbled(talk: Talk) -> None:
    await talk.send(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")
    await talk.pause(HOLD_S)


async def _garbled_within(talk: Talk) -> None:
    await talk.send(CHUNKED + chunk(EVENTS[0]))
    await talk.pause()
    await talk.send(b"zz\r\nnot a chunk\r\n")
    await talk.pause(HOLD_S)


async def _paced(talk: Talk) -> None:
    """Each event a segment of its own, 30 ms apart."""
    await talk.send(CHUNKED)
    for one in EVENTS:
        await talk.pause()
        await talk.send(chunk(one))
    await talk.send(LAST)


async def _bytewise(talk: Talk) -> None:
    """Cut anywhere: inside characters, inside `data:`, inside the framing."""
    for place in range(0, len(AT_ONCE["/whole"]), 3):
        await talk.send(AT_ONCE["/whole"][place : place + 3])
        await asyncio.sleep(0)


async def _pausing(talk: Talk) -> None:
    """Answers in 5 ms, but not while the server pauses."""
    await talk.pause(0.005)
    start_s, end_s = talk.server.pause_s
    if start_s <= time.monotonic() < end_s:
        await talk.pause(end_s - time.monotonic())
    await talk.send(AT_ONCE["/whole"])


ACTS: dict[str, Callable[[Talk], Awaitable[None]]] = {
    "/fin-within": _fin_within,
    "/fin-in-head": _fin_in_head,
    "/reset-before": _reset_before,
    "/reset-within": _reset_within,
    "/silent": _silent,
    "/stalls": _stalls,
    "/open-after-end": _open_after_end,
    "/torn-done-open": _torn_done_open,
    "/fin-after-end": _fin_after_end,
    "/until-closed": _until_closed,
    "/garbled": _garbled,
    "/garbled-within": _garbled_within,
    "/paced": _paced,
    "/bytewise": _bytewise,
    "/pausing": _pausing,
}


class Scripted:
    """The server. `heads` are the heads of the requests that came; `num_connections` counts connections."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.num_connections = 0
        self.pause_s = (0.0, 0.0)
        """Between which times of the monotonic clock `/pausing` does not answer."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._talks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Scripted:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._talk, "127.0.0.1", 0, backlog=1024, ssl=self._tls), self._loop
        ).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._talks:
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await asyncio.sleep(0.05)  # connections that were aborted close in the loop's next rounds

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._talks.add(task)
            task.add_done_callback(self._talks.discard)
        self.num_connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            try:
                while await self._answer(reader, writer):
                    pass
            finally:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another may follow on this connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        self.bodies.append(await reader.readexactly(length))
        self.heads.append(head)
        path = urlsplit(head.split(b" ", 2)[1].decode()).path
        if path in AT_ONCE:
            await Talk(self, writer).send(AT_ONCE[path])
        else:
            await ACTS[path](Talk(self, writer))
        return path in {*AT_ONCE, "/pausing"} and b"connection: close" not in head.lower()
