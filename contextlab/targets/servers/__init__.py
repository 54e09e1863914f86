"""Servers that the tool starts as processes of their own: llama.cpp's, and the fakes. Not imported to list targets."""

import os
from collections.abc import Mapping

PORT_VARIABLE = "CONTEXTLAB_PORT"
"""The environment variable with the port of a server that has none of its own choice: 0, or the one that it had before.

Without it a server that comes back after a fault would stand at another address than its clients know."""

NO_CERTIFICATES: Mapping[str, str] = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""Environment of a process that speaks plain HTTP only: aiohttp reads all of the machine's certificates as it is
imported, which is a third of that time."""


def own_port(asked: int) -> int:
    """The port to listen on: the one asked for, else the one in `PORT_VARIABLE`; 0 takes a free one."""
    return asked or int(os.environ.get(PORT_VARIABLE) or "0")
