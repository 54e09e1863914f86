"""Servers that the tool starts as processes of their own: llama.cpp's, and the fakes. Not imported to list targets."""

import os

PORT_VARIABLE = "CONTEXTLAB_PORT"
"""The environment variable with the port of a server that has none of its own choice: 0, or the one that it had before.

Without it a server that comes back after a fault would stand at another address than its clients know."""


def own_port(asked: int) -> int:
    """The port to listen on: the one asked for, else the one in `PORT_VARIABLE`; 0 takes a free one."""
    return asked or int(os.environ.get(PORT_VARIABLE) or "0")
