"""Orders from the tool to a process of the cache tier, over a socket that it was started with.

One JSON object a line, each answered by exactly one line. The process ends when the socket does.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

Json = dict[str, Any]
Obey = Callable[[Json], Awaitable[Json]]
"""Obeys one order and says what came of it."""


async def obey(fd: int, begin: Callable[[Json], Awaitable[tuple[Json, Obey]]]) -> None:
    """Obey what comes on the socket `fd` until it closes. The first order is for `begin`, which makes who obeys the
    others."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    first = await reader.readline()
    if not first:
        return
    answer, obeying = await begin(msgspec.json.decode(first))
    while True:
        writer.write(msgspec.json.encode(answer) + b"\n")
        line = await reader.readline()
        if not line:
            return
        answer = await obeying(msgspec.json.decode(line))
