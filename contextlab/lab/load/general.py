"""The client's general path, by aiohttp: TLS and proxies. Slower, with the same flights.

A read here is what aiohttp hands out at once, the head first; `num_bytes` counts bodies only: the rest is not seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from contextlab.experiment import Ending
from contextlab.lab.load.client import CUT_WITHIN, RESET_WORDS
from contextlab.lab.load.flight import Flight, retransmits
from contextlab.lab.load.order import LoadOrder
from contextlab.model import Failure
from contextlab.targets.openai.wire import arrived, broken_line


class GeneralClient:
    """Sends requests and tells `on_end` when each is over. Make it in the event loop that it will run in."""

    def __init__(self, order: LoadOrder, on_end: Callable[[Flight], None]) -> None:
        import aiohttp

        self._order = order
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_connected)
        trace.on_connection_reuseconn.append(_connected)
        host = f"[{order.host}]" if ":" in order.host else order.host
        self._root = f"{order.scheme}://{host}:{order.port}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=not order.kept_connections, ssl=order.verify_tls),
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json", **dict(order.headers)},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            trace_configs=[trace],
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, flight: Flight) -> None:
        """Act on a request now."""
        flight.sent_s = time.monotonic()
        task = self._loop.create_task(self._carry(flight))
        flight.way = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def give_up(self, flight: Flight, ending: Ending, at_s: float, failure: Failure) -> None:
        """Wait no longer for a request, and leave its connection."""
        flight.way.cancel()
        flight.land(ending, at_s, failure)
        self._on_end(flight)

    def tidy(self, at_s: float) -> None:
        """Nothing: aiohttp closes its connections itself."""

    async def close(self) -> None:
        """Leave every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _carry(self, flight: Flight) -> None:
        import aiohttp

        content: aiohttp.StreamReader | None = None
        try:
            async with self._request(flight) as response:
                self._stamp(flight, b"")  # the head
                flight.status = response.status
                flight.headers = {name.lower(): value for name, value in response.raw_headers}
                content = response.content
                transport = response.connection.transport if response.connection else None
                while data := await content.readany():
                    self._stamp(flight, data)
                    if transport is not None and not self._order.kept_connections:
                        flight.retransmits = retransmits(transport)
                self._over(flight, Ending.WHOLE, flight.stamps[-1] if flight.stamps else time.monotonic())
        except (aiohttp.ClientError, OSError, ValueError) as error:
            now = time.monotonic()
            if content is not None and (rest := arrived(content)):
                self._stamp(flight, rest)
            self._over(flight, *self._broken(error, now, has_begun=content is not None))

    def _request(self, flight: Flight) -> Any:
        prepared = self._order.requests[flight.mixed]
        return self._session.post(
            self._root + prepared.path,
            data=prepared.body,
            headers={"X-Request-Id": f"{self._order.arm}-{flight.index}"},
            proxy=self._order.proxy or None,
            allow_redirects=False,
            trace_request_ctx=flight,
        )

    def _stamp(self, flight: Flight, data: bytes) -> None:
        flight.stamps.append(time.monotonic())
        flight.num_bytes += len(data)
        if data:
            flight.pieces.append(data)
        flight.counts.append(len(flight.pieces))

    def _over(self, flight: Flight, ending: Ending, at_s: float, failure: Failure | None = None) -> None:
        if flight.ending is None:
            flight.land(ending, at_s, failure)
            self._on_end(flight)

    def _broken(self, error: Exception, at_s: float, *, has_begun: bool) -> tuple[Ending, float, Failure]:
        """The ending that an exception of aiohttp means."""
        where, message, _ = broken_line(error, self._order.connect_timeout_s or self._order.timeout_s)
        failure = Failure(where=where, message=message)
        if where == "connect":
            return (Ending.REFUSED if message == "connection refused" else Ending.UNREACHED), at_s, failure
        if where == "protocol":
            return Ending.GARBLED, at_s, failure
        if message == RESET_WORDS or "ConnectionReset" in str(error):  # within a body aiohttp tells it in words only
            return Ending.RESET, at_s, Failure(where="transport", message=RESET_WORDS)
        return Ending.FIN, at_s, Failure(where="transport", message=CUT_WITHIN) if has_begun else failure


async def _connected(session: Any, context: Any, parameters: Any) -> None:
    context.trace_request_ctx.connected_s = time.monotonic()
