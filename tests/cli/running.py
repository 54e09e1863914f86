"""Odd servers for the command line to meet, and what the tests of bad input share."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.command import COMMAND, MARK, PLAIN, Ran, Running, contextlab, orphans

__all__ = ["COMMAND", "MARK", "ODD_SERVERS", "PLAIN", "Ran", "Running", "contextlab", "orphans"]

ODD_SERVERS = Path(__file__).with_name("odd_servers.py")


@contextmanager
def serving(*argv: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server that prints `READY URL`: its URL and its process; killed at the end."""
    with subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as one:
        try:
            assert one.stdout is not None
            ready = one.stdout.readline()
            assert ready.startswith("READY http"), ready
            yield ready.split()[1], one
        finally:
            one.kill()


@contextmanager
def odd(name: str) -> Iterator[str]:
    """The URL of an odd server."""
    with serving(str(ODD_SERVERS), name) as (url, _):
        yield url


def wait_for(what: str, found: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """The first true thing that `found` gives; it is asked again and again."""
    until = time.monotonic() + timeout_s
    while not (thing := found()):
        assert time.monotonic() < until, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.02)
    return thing


def records(folder: Path) -> list[dict[str, Any]]:
    """The lines of the one run record below a folder, as far as they are written."""
    lines = [line for path in folder.glob("**/run.jsonl") for line in path.read_text(encoding="utf-8").split("\n")]
    return [json.loads(line) for line in lines[:-1]]
