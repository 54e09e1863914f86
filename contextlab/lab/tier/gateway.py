"""An HTTP gateway with a cache of two tiers: greedy answers are kept whole, and told again as the streams they were.

    python -m contextlab.lab.tier.gateway FD

    client ══▶ greedy completion? ─ no ─▶ passed on to the target as it is
                       │ yes
                       └─▶ buffers/tiers.py ─▶ local LRU, Redis, or the target, whose answer is kept

The key is a hash of path, authorization and body. An answer is kept where it is a success that came to its end
(`[DONE]`, where it is a stream); what the target refused as wrong is kept for a short while. A client that leaves takes
its request at the target along, unless others wait for the same answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import aiohttp
import msgspec
from aiohttp import web

from contextlab.buffers.tiers import Tiers, Worth
from contextlab.deeds import Tier
from contextlab.lab.journal import revive
from contextlab.lab.tier.orders import Json, Obey, obey
from contextlab.lab.tier.store import RedisStore

MAX_BODY_BYTES = 64 * 2**20
ENDING_S = 0.1
MAY_BE_OTHERWISE_SOON = frozenset({408, 409, 425, 429})
"""Refusals that say nothing of the request itself."""
OF_ONE_CONNECTION = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade", "host", "expect"}
)
"""Headers that each connection has its own of."""


class Head(msgspec.Struct):
    """The first part of a kept answer; what follows are the pieces of its body."""

    status: int
    headers: list[tuple[str, str]]
    length: int | None = None


def key_of(request: web.Request, body: bytes) -> str | None:
    """What an answer is kept under; None where it may not be: only a completion at temperature 0, and only one."""
    if request.method != "POST" or not request.path.endswith("/completions"):
        return None
    try:
        asked = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    if not isinstance(asked, dict) or asked.get("temperature") != 0 or asked.get("n", 1) != 1:
        return None
    words = (request.path_qs, request.headers.get("Authorization", ""))
    return hashlib.sha256(b"\0".join([*(word.encode() for word in words), body])).hexdigest()


def worth(head: Head, body: bytes) -> Worth:
    """What a whole answer of the target is good for."""
    if head.status == 200:
        streamed = any(name.lower() == "content-type" and "event-stream" in value for name, value in head.headers)
        return Worth.KEEP if not streamed or body.rstrip().endswith(b"data: [DONE]") else Worth.NOTHING
    if 400 <= head.status < 500 and head.status not in MAY_BE_OTHERWISE_SOON:
        return Worth.REFUSAL
    return Worth.NOTHING


class Gateway:
    """HTTP in front of a target. `passed`: requests that may not be kept."""

    def __init__(self, tiers: Tiers, upstream: str, session: aiohttp.ClientSession) -> None:
        self._tiers, self._upstream, self._session = tiers, upstream, session
        self._num_passed = 0

    def app(self) -> web.Application:
        """The application: one handler for every path."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self.answer)
        return app

    async def obeyed(self, order: Json) -> Json:
        """One order of the tool: `empty` forgets everything; both say what was counted."""
        if order["order"] == "empty":
            self._tiers.empty()
            self._num_passed = 0
        return {**self._tiers.counters(), "passed": float(self._num_passed)}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, from the cache if it may be."""
        body = await request.read()
        key = key_of(request, body)
        if key is not None:
            return await self._told(request, self._tiers.ask(key, lambda add: self._computed(request, body, add)))
        self._num_passed += 1
        return await self._told(request, self._fetched(request, body))

    async def _told(self, request: web.Request, parts: AsyncGenerator[bytes, None]) -> web.StreamResponse:
        """Tell an answer piece by piece; where it breaks off, so does this connection."""
        response: web.StreamResponse | None = None
        try:
            async with aclosing(parts):
                async for part in parts:
                    if response is None:
                        response = _opened(msgspec.json.decode(part, type=Head))
                        await response.prepare(request)
                    else:
                        await response.write(part)
        except (aiohttp.ClientError, OSError) as error:
            if response is None:
                message = f"the target behind the gateway did not answer: {error}"
                return web.json_response({"error": {"message": message, "type": "bad_gateway"}}, status=502)
            if request.transport is not None:
                request.transport.abort()
            return response
        if response is None:
            raise web.HTTPBadGateway(text="the target's answer was empty")
        await response.write_eof()
        return response

    async def _fetched(self, request: web.Request, body: bytes) -> AsyncGenerator[bytes, None]:
        """The target's answer: its head, then the pieces of its body as they come."""
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in OF_ONE_CONNECTION]
        url = self._upstream + request.path_qs
        async with self._session.request(
            request.method, url, headers=headers, data=body or None, allow_redirects=False
        ) as answer:
            kept = [
                (str(name), value) for name, value in answer.headers.items() if name.lower() not in OF_ONE_CONNECTION
            ]
            yield msgspec.json.encode(Head(status=answer.status, headers=kept, length=answer.content_length))
            async for piece, _ in answer.content.iter_chunks():
                if piece:
                    yield piece

    async def _computed(self, request: web.Request, body: bytes, add: Callable[[bytes], None]) -> Worth:
        """The same, told to whoever listens, and what it is worth."""
        parts = []
        async with aclosing(self._fetched(request, body)) as fetched:
            async for part in fetched:
                parts.append(part)
                add(part)
        return worth(msgspec.json.decode(parts[0], type=Head), b"".join(parts[1:]))


def _opened(head: Head) -> web.StreamResponse:
    response = web.StreamResponse(status=head.status)
    for name, value in head.headers:
        response.headers.add(name, value)
    response.content_length = head.length
    return response


async def serve(fd: int) -> None:
    """Serve until the tool closes its socket."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(order: Json) -> tuple[Json, Obey]:
            tier = revive(order["tier"], Tier)
            store = RedisStore(int(order["redis"]), timeout_s=tier.redis_timeout_s)
            stack.push_async_callback(store.close)
            # A connection of its own for each request: its end is the request's end, for target and client alike.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
            )
            await stack.enter_async_context(session)
            host, port = order["upstream"]
            upstream = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            gateway = Gateway(Tiers(tier, store), upstream, session)
            runner = web.AppRunner(gateway.app(), access_log=None, handler_cancellation=True, shutdown_timeout=ENDING_S)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return {"port": runner.addresses[0][1]}, gateway.obeyed

        await obey(fd, begin)


def main() -> None:
    """Run the gateway whose socket to the tool is on the command line."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
