"""Sockets of a private network namespace in the test's own process, so that one event loop sees both ends."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import pytest

from contextlab.lab.link.namespace import enter
from contextlab.lab.link.tunnel import Tunnel, open_tunnel
from contextlab.model import UnableError


def opened() -> Tunnel:
    """A tunnel; the test is skipped, with the reason, where there can be none."""
    try:
        return open_tunnel()
    except UnableError as error:
        pytest.skip(error.message)


def sockets_inside(pid: int, make: Callable[[], list[socket.socket]]) -> list[socket.socket]:
    """What `make` makes in the namespace of a process: a child enters it and hands the sockets over."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            enter(pid)
            made = make()
            socket.send_fds(theirs, [b"made"], [one.fileno() for one in made])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        _, fds, _, _ = socket.recv_fds(ours, 16, 16)
    os.waitpid(child, 0)
    found = [socket.socket(fileno=fd) for fd in fds]
    for one in found:
        one.setblocking(False)
    return found


async def until(true: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Wait for something that must happen; whether it did."""
    for _ in range(int(timeout_s / 0.005)):
        if true():
            return True
        await asyncio.sleep(0.005)
    return true()
