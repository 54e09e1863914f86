"""Servers of ours that faults may kill, their machine, and a client with a stream that is open."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from contextlab import registry
from contextlab.deeds import Death, Deed, Victim
from contextlab.experiment import Due, FaultEvidence, Sample
from contextlab.lab.host.deaths import Deaths
from contextlab.lab.host.injector import Injector
from contextlab.lab.host.machine import TargetMachine
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.load.order import LoadOrder, Prepared
from contextlab.lab.server import OwnedServer
from contextlab.lab.undo.ledger import Ledger
from contextlab.lab.undo.steps import started_of
from contextlab.model import ServerCommand

WORKERS = Path(__file__).with_name("workers_server.py")


def workers(mark: dict[str, str], num: int, then: str = "replace") -> ServerCommand:
    """A server of a main process and so many workers; see `workers_server.py`."""
    return ServerCommand(argv=(sys.executable, str(WORKERS), str(num), then), env=mark, ready_timeout_s=60.0)


def fake(mark: dict[str, str], *settings: str, name: str = "caps") -> ServerCommand:
    """A fake whose streams last: 10 ms a token."""
    spec = registry.parse_target(f"fake:{name}", ["token_delay_s=0.01", *settings])
    command = registry.server_command(spec)
    assert command is not None
    return ServerCommand(argv=command.argv, env={**command.env, **mark}, memory_limit_bytes=command.memory_limit_bytes)


def root(server: OwnedServer) -> Victim:
    """The server's main process."""
    pid = server.process.pid
    assert pid is not None
    started = started_of(pid)
    assert started is not None
    return Victim(pid=pid, started=started)


class Lab:
    """A running server of ours with a machine and an injector for its faults."""

    def __init__(self, server: OwnedServer, folder: Path) -> None:
        self.server, self.num_restarts = server, 0
        self.deaths = Deaths(server, self._restarted)
        self.ledger = Ledger(run="test", target="test", state=folder / "state")
        self.machine = TargetMachine(root=self._root, ledger=self.ledger, deaths=self.deaths)

    def _restarted(self) -> None:
        self.num_restarts += 1

    def _root(self) -> Victim | None:
        pid = self.server.process.pid
        started = None if pid is None else started_of(pid)
        return None if pid is None or started is None else Victim(pid=pid, started=started)

    def injector(self) -> Injector:
        """An injector without a fault, whose arm begins now."""
        injector = Injector((), self.machine, 0)
        injector.start(time.monotonic())
        return injector

    def inflicted(
        self, text: str, length_s: float, *, zero_s: float | None = None, start_s: float = 0.0
    ) -> tuple[FaultEvidence, list[Deed], list[Death]]:
        """One fault, from `start_s` of an arm on that begins now or at `zero_s`, to its end: what it proved, did, and
        whom it killed."""
        placed = registry.parse_fault(text, start_s=start_s, length_s=length_s)
        injector = Injector([(0, placed)], self.machine, 0)
        injector.start(time.monotonic() if zero_s is None else zero_s)
        deadline = time.monotonic() + start_s + length_s + 60.0
        while 0 not in injector.evidence() and time.monotonic() < deadline:
            time.sleep(0.01)
        injector.close()
        news = injector.taken()
        return (
            injector.evidence()[0],
            [one for one in news if isinstance(one, Deed)],
            [one for one in news if isinstance(one, Death)],
        )


@contextmanager
def running(command: ServerCommand, folder: Path) -> Iterator[Lab]:
    """The server and its lab; nothing of either is left afterwards."""
    with OwnedServer(command, log=folder / "server.log") as server:
        lab = Lab(server, folder)
        with lab.ledger:
            yield lab


def fleet(lab: Lab, folder: Path, num: int, reply_tokens: int) -> Fleet:
    """So many streams of so many tokens, one every 50 ms."""
    parts = urlsplit(lab.server.url)
    body = {"prompt": "One, two,", "max_tokens": reply_tokens, "stream": True, "ignore_eos": True}
    order = LoadOrder(
        host=parts.hostname or "",
        port=parts.port or 0,
        requests=(Prepared(path="/v1/completions", body=msgspec.json.encode(body)),),
        schedule=tuple(Due(index=index, at_s=0.05 * index, mixed=0) for index in range(num)),
        duration_s=1.0,
        timeout_s=20.0,
    )
    return Fleet(order, log=folder / "client.log")


def samples(load: Fleet) -> tuple[Sample, ...]:
    """What became of its requests, once all are over, by their index."""
    found: list[Sample] = []
    while not load.finished:
        found += [thing for thing in load.poll(0.1) if isinstance(thing, Sample)]
    return tuple(sorted(found, key=lambda sample: sample.index))


class Stream:
    """An open stream: it has begun when this is made, or has broken off."""

    def __init__(self, url: str, prompt: str = "One, two, three") -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20.0)
        body = json.dumps({"prompt": prompt, "stream": True, "max_tokens": 200, "ignore_eos": True}).encode()
        head = "POST /v1/completions HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"
        self._socket.sendall("\r\n".join((*head, "", "")).encode() + body)
        self.raw, self._ended = b"", ""
        while b"data:" not in self.raw and not self._ended:
            self._read()

    def end(self) -> str:
        """Read to its end; how the transport ended it: "whole", "fin" or "reset"."""
        with self._socket:
            while not self._ended:
                self._read()
            return self._ended

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            self._ended = "reset"
            return
        self.raw += data
        self._ended = "whole" if self.raw.endswith(b"\r\n0\r\n\r\n") else "" if data else "fin"
