"""A target in a thread of the test that keeps what its clients did to it, connection by connection.

    with Target() as target: … target.talks[0].end

Each request is answered by a stream that goes on for `num_events` events, one every `pause_s`, or by one JSON text.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ANSWER = {"choices": [{"text": "all at once", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
USAGE = {"choices": [], "usage": {"completion_tokens": 7}}


@dataclass
class Talk:
    """One connection. `end`: "" while it is open, "fin" or "reset" by the client, "done" when it was answered."""

    head: str = ""
    body: Any = None
    end: str = ""
    num_reads: int = 0

    @property
    def name(self) -> str:
        """The request's own name."""
        return next(line[14:] for line in self.head.split("\r\n") if line.lower().startswith("x-request-id: "))


class Target:
    """Serves until it is left."""

    def __init__(self, *, num_events: int = 1000, pause_s: float = 0.01, event_bytes: int = 5) -> None:
        self.num_events, self.pause_s, self.event_bytes = num_events, pause_s, event_bytes
        self.talks: list[Talk] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        talk = Talk()
        self.talks.append(talk)
        with suppress(asyncio.CancelledError):
            try:
                await self._answer(talk, reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                talk.end = talk.end or ("fin" if isinstance(error, asyncio.IncompleteReadError) else "reset")
            finally:
                writer.transport.abort()

    async def _answer(self, talk: Talk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = await reader.readexactly(1) if not head else await reader.read(1)
            if not data:
                raise asyncio.IncompleteReadError(head, None)
            head += data
            talk.num_reads += 1
        talk.head = head.decode()
        length = next(int(line[15:]) for line in talk.head.split("\r\n") if line.lower().startswith("content-length:"))
        talk.body = json.loads(await reader.readexactly(length))
        watch = asyncio.create_task(self._watch(talk, reader))
        try:
            if not talk.body["stream"]:
                for _ in range(self.num_events):
                    await self._pause(talk)
                body = json.dumps(ANSWER).encode()
                writer.write(JSON_HEAD % len(body) + body)
            else:
                writer.write(HEAD)
                for number in range(self.num_events):
                    await self._pause(talk)
                    writer.write(event({"choices": [{"text": str(number).rjust(self.event_bytes)}]}))
                writer.write(event(USAGE) + b"data: [DONE]\n\n")
            await writer.drain()
            talk.end = talk.end or "done"
            writer.close()
            await writer.wait_closed()
        finally:
            watch.cancel()

    async def _pause(self, talk: Talk) -> None:
        await asyncio.sleep(self.pause_s)
        if talk.end:
            raise ConnectionError

    async def _watch(self, talk: Talk, reader: asyncio.StreamReader) -> None:
        """How the client ends the connection."""
        try:
            if not await reader.read(1):
                talk.end = talk.end or "fin"
        except ConnectionError:
            talk.end = talk.end or "reset"


def event(data: object) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(data)}\n\n".encode()
