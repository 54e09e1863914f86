"""`contextlab serve` as a user has it: an address for clients of one's own, faults on the way, and nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.cli.running import wait_for
from tests.command import Ran, Running, contextlab, orphans
from tests.lab.link.upstream import Upstream, reply

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

FAKE = ("fake:caps", "--set", "token_delay_s=0.001")
READY_S = 40.0


class Served:
    """A running `serve`, once it is ready."""

    def __init__(self, words: tuple[str, ...], folder: Path) -> None:
        self.said = folder / "said"
        with self.said.open("wb") as out:
            self.running = Running(("serve", *words), folder, stdout=out)
        self.url = wait_for("its address", self._address, READY_S)

    def _address(self) -> str | None:
        found = re.match(r"READY (http://127\.0\.0\.1:\d+)\n.*stop: Ctrl-C\n", self.said.read_text(), re.DOTALL)
        return found[1] if found else None

    def ask(self, prompt: str = "The capital of France is", timeout_s: float = 20.0) -> bytes:
        """A stream as a client of one's own reads it."""
        body = json.dumps({"prompt": prompt, "max_tokens": 8, "stream": True}).encode()
        request = urllib.request.Request(f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return bytes(answer.read())

    def stopped(self, number: int = signal.SIGINT) -> Ran:
        """Its end after a signal; `out` is what it said."""
        os.kill(self.running.pid, number)
        ran = self.running.ended()
        return Ran(ran.code, self.said.read_text(), ran.err)


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[Served]:
    """One that is ended, whatever happens."""
    served = Served(words, folder)
    try:
        yield served
    finally:
        if served.running.pid and orphans(served.running.mark):
            served.stopped(signal.SIGTERM)


def free_port() -> int:
    """A port that nobody has, a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_it_is_there_until_it_is_stopped(number: int, tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, *FAKE, "--port", str(port)) as served:
        assert served.url == f"http://127.0.0.1:{port}"
        assert served.ask().rstrip().endswith(b"data: [DONE]")
        ran = served.stopped(number)
    assert ran.code == 0, ran.err
    assert "target: fake:caps\n" in ran.out
    assert re.search(r"STOPPED after \d+:\d\d: 1 connection, \d open, [\d.]+[kK]?B to clients\n$", ran.out)


def test_faults_act_on_clients_of_ones_own_and_are_counted(tmp_path: Path) -> None:
    with serving(tmp_path, *FAKE, "--fault", "cut:at=event:2", "--fault", "latency:delay=10ms@2h+1h") as served:
        for _ in range(3):
            assert b"[DONE]" not in cut(served)
        ran = served.stopped()
    assert "fault: cut at event:2 (always)\n" in ran.out
    assert "fault: latency 10ms (7200–10800 s)\n" in ran.out
    assert "cut hit 3 of 3 requests, latency hit 0 of 0 requests" in ran.out


def cut(served: Served) -> bytes:
    """What comes of a stream that is broken off."""
    try:
        return served.ask()
    except (HTTPException, urllib.error.URLError, OSError) as error:
        return bytes(getattr(error, "partial", b""))


def test_a_server_that_runs_already_is_put_behind_it(tmp_path: Path) -> None:
    with Upstream(reply("length", [b"hello"])) as upstream:
        url = "http://{}:{}".format(*upstream.address)
        with serving(tmp_path, url) as served:
            assert served.ask() == b"hello"
            assert served.stopped().code == 0
        assert len(upstream.seen) == 1


def test_killed_it_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, *FAKE) as served:
        os.kill(served.running.pid, signal.SIGKILL)
        assert served.running.ended().code == -signal.SIGKILL  # `ended` looks for what is left


def test_a_target_that_dies_is_told_with_how(tmp_path: Path) -> None:
    with serving(tmp_path, "fake:segfaults", "--set", "token_delay_s=0.001") as served:
        assert served.ask().rstrip().endswith(b"[DONE]")
        with pytest.raises((HTTPException, urllib.error.URLError, OSError)):
            served.ask("word " * 600)
        ran = served.running.ended()
    assert ran.code == 4
    assert "the target has ended by itself: signal SIGSEGV" in ran.err
    assert " next: its log says more" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("fake:nope",), 2, "there is no such fake"),
        (("fake:caps", "--port", "70000"), 2, "70000: must be between 0 and 65535"),
        (("fake:caps", "--fault", "loss:rate=10%"), 2, "loss acts on packets, and your clients cannot be put behind"),
        (("fake:caps", "--fault", "cpu:quota=200m"), 2, "cpu is a fault of the plane host; serve has those of streams"),
        (("fake:caps", "--fault", "cutt"), 2, "did you mean cut"),
        (("https://127.0.0.1:4",), 4, "it speaks TLS"),
        (("http://192.0.2.1:8000",), 2, "192.0.2.1 is not this machine"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(
    words: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    ran = contextlab("serve", *words, cwd=tmp_path)
    assert ran.code == code, ran.err
    assert says in ran.err
    assert " next: " in ran.err
    assert ran.out == ""


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        ran = contextlab("serve", "fake:caps", "--port", str(port), cwd=tmp_path)
    assert ran.code == 4
    assert f"port {port} of 127.0.0.1 cannot be had: Address already in use" in ran.err
    assert list(tmp_path.iterdir()) == []
