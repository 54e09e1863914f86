"""Plain clients to compare with: the same requests, the same reading of every event, by aiohttp or by httpx.

    python load_peers.py aiohttp --url http://127.0.0.1:PORT --streams 64 --duration 2
    python load_peers.py httpx --url … --rate 500 --duration 2

Runs in any environment that has the package; knows nothing of contextlab. They are given what helps a client: uvloop,
no limit on connections, kept connections, no garbage collection while it runs, a stamp at every read. What they must
do is what a load tool must: split the events, decode each one's JSON, keep its text and its time.
Prints one JSON line. CPU counts from the first request to the last event read, without start and imports.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import uvloop

WARM_UP = 64
Ask = Callable[[], Awaitable[dict]]


def read_events(chunks: list[tuple[float, bytes]]) -> dict:
    """What a stream said: times, texts, finish reason and usage, each event decoded."""
    times, texts, finish, usage, done, rest = [], [], None, None, 0, b""
    for at_s, chunk in chunks:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            if not block.startswith(b"data: "):
                continue
            data = block[6:]
            if data == b"[DONE]":
                done += 1
                continue
            event = json.loads(data)
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                finish = choice.get("finish_reason") or finish
                if text := choice["delta"].get("content"):
                    texts.append(text)
                    times.append(at_s)
    return {"times": times, "texts": texts, "finish": finish, "usage": usage, "done": done}


@asynccontextmanager
async def aiohttp_client(url: str, body: dict) -> AsyncIterator[Ask]:
    """aiohttp, every chunk that it hands out stamped before it is looked at."""
    import aiohttp

    payload = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def ask() -> dict:
            async with session.post(url, data=payload, headers=headers) as response:
                chunks = [(time.monotonic(), chunk) async for chunk in response.content.iter_any()]
            return read_events(chunks)

        yield ask


@asynccontextmanager
async def httpx_client(url: str, body: dict) -> AsyncIterator[Ask]:
    """httpx without its limits, raw chunks."""
    import httpx

    payload = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=60.0, trust_env=False) as client:

        async def ask() -> dict:
            async with client.stream("POST", url, content=payload, headers=headers) as response:
                chunks = [(time.monotonic(), chunk) async for chunk in response.aiter_raw()]
            return read_events(chunks)

        yield ask


@asynccontextmanager
async def bare_client(url: str, body: dict) -> AsyncIterator[Ask]:
    """The floor: read until the last chunk, understand nothing."""
    parts = urlsplit(url)
    payload = json.dumps(body).encode()
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(payload)}\r\n\r\n"
    loop, idle = asyncio.get_running_loop(), []

    class Bare(asyncio.Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:
            self.transport = transport

        def ask(self) -> asyncio.Future:
            self.reply = loop.create_future()
            self.transport.write(head.encode() + payload)
            return self.reply

        def data_received(self, data: bytes) -> None:
            if data.endswith(b"0\r\n\r\n"):
                self.reply.set_result({"done": 1, "finish": "unread"})

    async def ask() -> dict:
        if not idle:
            idle.append((await loop.create_connection(Bare, parts.hostname, parts.port))[1])
        connection = idle.pop()
        reply = await connection.ask()
        idle.append(connection)
        return reply

    yield ask


CLIENTS = {"aiohttp": aiohttp_client, "httpx": httpx_client, "bare": bare_client}


async def closed(ask: Ask, streams: int, duration_s: float) -> list[dict]:
    """So many streams at any time."""
    until_s, replies = time.monotonic() + duration_s, []

    async def stream() -> None:
        while time.monotonic() < until_s:
            replies.append(await ask())

    await asyncio.gather(*(stream() for _ in range(streams)))
    return replies


async def opened(ask: Ask, rate: float, duration_s: float, lateness: list[float]) -> list[dict]:
    """Poisson arrivals: each request sleeps until it is due."""
    rng, at_s, dues = random.Random(1), 0.0, []
    while (at_s := at_s + rng.expovariate(rate)) < duration_s:
        dues.append(at_s)
    loop, began_s = asyncio.get_running_loop(), time.monotonic() + 0.05

    async def one(due_s: float) -> dict:
        lateness.append(time.monotonic() - began_s - due_s)
        return await ask()

    tasks = []
    for due_s in dues:
        if (wait_s := began_s + due_s - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        tasks.append(loop.create_task(one(due_s)))
    return await asyncio.gather(*tasks)


def cpu_s() -> float:
    """CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--url", required=True)
    parser.add_argument("--body", required=True, help="the request, as JSON")
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--duration", type=float, default=2.0)
    options = parser.parse_args()
    lateness: list[float] = []
    async with CLIENTS[options.client](options.url, json.loads(options.body)) as ask:
        await asyncio.gather(*(ask() for _ in range(options.streams or WARM_UP)))
        gc.collect()
        gc.freeze()
        gc.disable()
        began_s, before_s = time.monotonic(), cpu_s()
        if options.rate:
            replies = await opened(ask, options.rate, options.duration, lateness)
        else:
            replies = await closed(ask, options.streams, options.duration)
        used_s, wall_s = cpu_s() - before_s, time.monotonic() - began_s
    whole = sum(reply["done"] == 1 and reply["finish"] is not None for reply in replies)
    seen = {"requests": len(replies), "whole": whole, "cpu_s": used_s, "wall_s": wall_s, "late": lateness}
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    uvloop.run(main())
