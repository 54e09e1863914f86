"""The way from the cache tier to Redis: a TCP relay that can make every answer late, or be gone.

    python -m contextlab.lab.tier.delay FD

    tier ══▶ port of ours ══▶ Redis       at once
    tier ◀── due time ◀────── Redis       each read so much later, in order

Gone ("dark") means that nobody listens: the kernel refuses connections, as it does for a server that is down. A second
socket stays bound to the port meanwhile, so that nobody else gets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time

from contextlab.lab.tier.orders import Json, Obey, obey

READ_BYTES = 1 << 16
BACKLOG = 1024


def reserved_port() -> socket.socket:
    """A socket that holds a free loopback port without listening; who sets SO_REUSEADDR may still listen there."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


class Delay:
    """Relays connections to `upstream` (a loopback port). `delay_s` holds for what is read from now on."""

    def __init__(self, upstream: int) -> None:
        self.delay_s = 0.0
        self.counts = {"relay_connections": 0.0, "relay_answers": 0.0, "relay_delayed": 0.0, "relay_delay_s": 0.0}
        self._upstream = upstream
        self._holder = reserved_port()
        self.port = int(self._holder.getsockname()[1])
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def light(self) -> None:
        """Accept connections."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self._relayed, "127.0.0.1", self.port, backlog=BACKLOG, reuse_address=True, limit=READ_BYTES
            )

    async def darken(self) -> None:
        """Refuse connections, and tear down those that there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def obeyed(self, order: Json) -> Json:
        """One order of the tool."""
        match order["order"]:
            case "light":
                await self.light()
            case "darken":
                await self.darken()
            case "delay":
                self.delay_s = float(order["delay_s"])
        return dict(self.counts)

    async def _relayed(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.counts["relay_connections"] += 1
        self._open.add(to_client)
        try:
            redis, to_redis = await asyncio.open_connection("127.0.0.1", self._upstream, limit=READ_BYTES)
        except OSError:  # it died on its own: this connection is over before it began
            self._open.discard(to_client)
            to_client.transport.abort()
            return
        self._open.add(to_redis)
        lanes = [
            asyncio.create_task(self._passed_on(client, to_redis)),
            asyncio.create_task(self._passed_back(redis, to_client)),
        ]
        try:
            await asyncio.wait(lanes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for lane in lanes:
                lane.cancel()
            for writer in (to_client, to_redis):
                self._open.discard(writer)
                writer.close()

    async def _passed_on(self, client: asyncio.StreamReader, to_redis: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await _read(client):
                to_redis.write(data)
                await to_redis.drain()

    async def _passed_back(self, redis: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Read what Redis says, and send each read when it is due; the end of it is late as well."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(_sent_when_due(waiting, to_client))
        try:
            data = await _read(redis)
            while data:
                self.counts["relay_answers"] += 1
                if self.delay_s:
                    self.counts["relay_delayed"] += 1
                    self.counts["relay_delay_s"] += self.delay_s
                waiting.put_nowait((time.monotonic() + self.delay_s, data))
                data = await _read(redis)
            waiting.put_nowait((time.monotonic() + self.delay_s, b""))
            await sending
        finally:
            sending.cancel()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """What came; nothing at the end, however it ended."""
    try:
        return await reader.read(READ_BYTES)
    except OSError:
        return b""


async def _sent_when_due(waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    """Send what waits, each at its time, until the empty one."""
    with contextlib.suppress(OSError):
        while True:
            due_s, data = await waiting.get()
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if not data:
                return
            writer.write(data)
            await writer.drain()


async def begin(order: Json) -> tuple[Json, Obey]:
    """Make the relay that the first order asks for."""
    delay = Delay(int(order["upstream"]))
    await delay.light()
    return {"port": delay.port}, delay.obeyed


def main() -> None:
    """Relay until the tool closes its socket."""
    asyncio.run(obey(int(sys.argv[1]), begin))


if __name__ == "__main__":
    main()
