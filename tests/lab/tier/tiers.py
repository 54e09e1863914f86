"""A cache tier that runs in front of a fake server, and what a test asks of it."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from contextlab import registry
from contextlab.deeds import Tier
from contextlab.experiment import FaultEvidence, Placed
from contextlab.lab.host.injector import Injector
from contextlab.lab.server import OwnedServer
from contextlab.lab.tier.machine import TierMachine
from contextlab.lab.tier.tier import RunningTier
from contextlab.model import ServerCommand
from tests.lab.processes import until

needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="no redis-server here: apt install redis-server"
)
PATIENCE_S = 10.0


@dataclass
class Bench:
    """The server, the tier in front of it, and the server's log."""

    tier: RunningTier
    upstream: tuple[str, int]
    log: Path

    @property
    def counts(self) -> dict[str, float]:
        """What gateway, relay and Redis have counted."""
        return self.machine.counters()

    @property
    def machine(self) -> TierMachine:
        """What gives hands."""
        found = self.tier.machine(None)  # type: ignore[arg-type]
        assert isinstance(found, TierMachine)
        return found

    def ask(self, prompt: str, *, at: tuple[str, int] | None = None, **fields: Any) -> tuple[int, bytes]:
        """Status and body of one completion of two tokens, streamed and greedy unless `fields` say otherwise."""
        status, _, body = self.sent("POST", "/v1/completions", body_of(prompt, **fields), at=at)
        return status, body

    def sent(
        self, method: str, path: str, body: bytes | None = None, *, at: tuple[str, int] | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request to the gateway, or to another address."""
        host, port = at or self.tier.address
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), text

    def inflicted(self, fault: Placed, *prompts: str, for_s: float = 0.0) -> FaultEvidence:
        """What a fault did while these prompts were asked, one after the other, and again for so long."""
        injector = Injector([(0, fault)], self.machine, seed=1)
        with injector:
            injector.start(time.monotonic())
            if not registry.make_fault(fault).is_null:
                until(injector.taken, "the fault's first deed")
            began_s = time.monotonic()
            while True:
                for prompt in prompts:
                    assert self.ask(prompt)[0] == 200
                if time.monotonic() - began_s >= for_s:
                    break
        assert injector.error is None
        return injector.evidence()[0]


def body_of(prompt: str, **fields: Any) -> bytes:
    """The body of a greedy completion."""
    asked = {"prompt": prompt, "max_tokens": 2, "temperature": 0, "stream": True, **fields}
    return json.dumps(asked).encode()


def open_stream(address: tuple[str, int], prompt: str, **fields: Any) -> socket.socket:
    """A connection on which a completion was asked for and its first bytes have come."""
    body = body_of(prompt, **fields)
    client = socket.create_connection(address, timeout=PATIENCE_S)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    assert b"200" in client.recv(65536)
    return client


@contextmanager
def running(folder: Path, tier: Tier | None = None, *, token_delay_s: float = 0.001) -> Iterator[Bench]:
    """A fake server and a tier in front of it."""
    argv = [sys.executable, "-m", "contextlab.targets.servers.fake_server", "caps"]
    command = ServerCommand(argv=(*argv, "--token-delay-s", str(token_delay_s), "--port", "0"))
    with OwnedServer(command, log=folder / "server.log") as server:
        parts = urlsplit(server.url)
        upstream = (parts.hostname or "", parts.port or 0)
        with RunningTier(tier or Tier(), upstream, folder=folder) as one:
            one.begin(time.monotonic())
            yield Bench(one, upstream, folder / "server.log")
