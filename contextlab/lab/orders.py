"""What a process of ours begins with that gets its order as one line over a socket, and opens many connections."""

from __future__ import annotations

import resource
import socket

READ_BYTES = 1 << 16


def first_line(sock: socket.socket) -> bytes:
    """The order, its newline included; b"" where the tool has gone before it was whole."""
    line = b""
    while not line.endswith(b"\n"):
        data = sock.recv(READ_BYTES)
        if not data:
            return b""
        line += data
    return line


def allow_many_descriptors() -> None:
    """As many as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
