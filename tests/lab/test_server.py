"""A server that the tool owns, as a real process: when it counts as ready, and what is said when it never is."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from contextlab.lab import server as lab_server
from contextlab.lab.server import OwnedServer
from contextlab.model import ServerCommand, UnableError, UsageError
from tests.lab.processes import marked, until, words

pytestmark = pytest.mark.process

SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    statuses = [int(word) for word in sys.argv[3].split(",")]
    def do_GET(self):
        statuses = type(self).statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()
        self.wfile.write(self.path.encode())

port, announcement = int(sys.argv[1]), sys.argv[2]
with HTTPServer(("127.0.0.1", port), Handler) as server:
    print("the server's own words", file=sys.stderr, flush=True)
    for part in announcement.replace("URL", f"http://127.0.0.1:{server.server_port}").split("|"):
        sys.stdout.write(part)
        sys.stdout.flush()
        time.sleep(0.1)
    server.serve_forever()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def http_server(
    mark: dict[str, str], *, port: int = 0, says: str = "READY URL\n", statuses: str = "200", timeout_s: float = 60.0
) -> ServerCommand:
    """A small server: what it prints ("|" is a pause), and the statuses it answers with, the last one for ever."""
    return ServerCommand(
        argv=(sys.executable, "-c", SERVER, str(port), says, statuses),
        url=f"http://127.0.0.1:{port}" if port else None,
        env=mark,
        ready_timeout_s=timeout_s,
    )


def script(mark: dict[str, str], code: str, *, url: str | None = None, timeout_s: float = 60.0) -> ServerCommand:
    return ServerCommand(argv=("/bin/sh", "-c", code), url=url, env=mark, ready_timeout_s=timeout_s)


# ── ready ────────────────────────────────────────────────────────────────────────────────────────


def test_ready_by_the_line_that_it_prints(mark: dict[str, str], log: Path) -> None:
    with OwnedServer(http_server(mark, says="loading …\nREADY URL\nREADY later\n"), log=log) as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.url)
        assert urlopen(f"{server.url}/hello").read() == b"/hello"
        assert server.num_starts == 1
        assert server.process.poll() is None
        assert 1 << 20 < (server.process.memory_bytes() or 0) < 1 << 30
        assert "the server's own words" in server.process.log_lines()
    assert not marked(mark)
    assert "READY http" in log.read_text(encoding="utf-8"), "its log is kept"


@pytest.mark.parametrize("says", ["READY |URL\n", "READY|\nREADY |URL\n"])
def test_a_line_that_comes_in_parts(mark: dict[str, str], log: Path, says: str) -> None:
    with OwnedServer(http_server(mark, says=says), log=log) as server:
        assert urlopen(server.url).status == 200


def test_an_address_that_is_none(mark: dict[str, str], log: Path) -> None:
    error = failure(http_server(mark, says="READY http://127.0.0.1:nowhere\n", timeout_s=0.5), log)
    assert "waited for its address" in error.message
    assert "READY http://127.0.0.1:nowhere" in error.message


def test_ready_by_its_url(mark: dict[str, str], log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers only when it listens; meanwhile the user sees what is waited for."""
    monkeypatch.setattr(lab_server, "PROGRESS_EVERY_S", 0.01)
    told: list[str] = []
    command = http_server(mark, port=free_port())
    with OwnedServer(command, log=log, progress=told.append) as server:
        assert server.url == command.url
        assert urlopen(f"{server.url}/x").read() == b"/x"
    assert told
    assert all(re.fullmatch(rf"waiting for an answer at {command.url} \(\d+ s\)", line) for line in told)


@pytest.mark.parametrize(("statuses", "asked"), [("503,503,500,200", 4), ("404", 1), ("401", 1)])
def test_a_server_that_still_loads_is_not_ready(mark: dict[str, str], log: Path, statuses: str, asked: int) -> None:
    """5xx is "not yet"; a server that does not know the path, or wants a key, is up."""
    with OwnedServer(http_server(mark, statuses=statuses), log=log):
        pass
    assert log.read_text(encoding="utf-8").count("GET /health") == asked


def test_the_path_that_is_asked(mark: dict[str, str], log: Path) -> None:
    command = replace(http_server(mark), ready_path="/v1/models")
    with OwnedServer(command, log=log):
        pass
    assert "GET /v1/models" in log.read_text(encoding="utf-8")


# ── not ready ────────────────────────────────────────────────────────────────────────────────────


def failure(command: ServerCommand, log: Path) -> UnableError:
    """Why it could not be started; nothing of it is left."""
    with pytest.raises(UnableError) as caught:
        OwnedServer(command, log=log)
    assert not marked(dict(command.env))
    return caught.value


def test_never_ready_says_what_it_waited_for(mark: dict[str, str], log: Path) -> None:
    error = failure(script(mark, "echo loading shard 3 of 7; sleep 600", timeout_s=0.3), log)
    assert "waited for its address (a line READY http://…)" in error.message
    assert "loading shard 3 of 7" in error.message
    assert str(log) in error.next_step
    assert "ready_timeout_s" in error.next_step
    assert error.exit_code == 4


def test_never_ready_at_its_url(mark: dict[str, str], log: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    error = failure(script(mark, "sleep 600", url=url, timeout_s=0.3), log)
    assert f"waited for an answer at {url}" in error.message


def test_a_server_that_listens_and_never_answers_with_success(mark: dict[str, str], log: Path) -> None:
    error = failure(http_server(mark, port=free_port(), statuses="503", timeout_s=1.5), log)
    assert "was not ready after" in error.message
    assert '"GET /health HTTP/1.1" 503' in error.message, "its last words"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("echo 'CUDA error: no device'; exit 3", "exit code 3\n  CUDA error: no device"),
        ("echo MemoryError; exit 1", "exit code 1, out of memory\n  MemoryError"),
        ("echo down we go; kill -ABRT $$", "signal SIGABRT\n  down we go"),
        ("exit 0", "exit code 0\n"),
    ],
)
def test_dies_before_it_is_ready(mark: dict[str, str], log: Path, code: str, words: str) -> None:
    error = failure(script(mark, code), log)
    assert f"the server ended before it was ready: {words}" in error.message
    assert str(log) in error.next_step


def test_a_command_that_does_not_exist(mark: dict[str, str], log: Path) -> None:
    error = failure(ServerCommand(argv=("no-such-server",), env=mark), log)
    assert "exit code 127" in error.message
    assert "cannot start no-such-server" in error.message


def test_a_port_that_is_taken(mark: dict[str, str], log: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        error = failure(http_server(mark, port=port), log)
    assert f"port {port} of 127.0.0.1 is already taken" in error.message
    assert "name its URL as the target" in error.next_step
    assert not log.exists(), "nothing was started"


def test_a_port_that_cannot_be(mark: dict[str, str], log: Path) -> None:
    with pytest.raises(UsageError, match=r"--at='http://127\.0\.0\.1:99999': Port out of range"):
        OwnedServer(script(mark, "sleep 600", url="http://127.0.0.1:99999"), log=log)


# ── its end, and another beginning ───────────────────────────────────────────────────────────────


def test_restart_after_a_crash(mark: dict[str, str], log: Path) -> None:
    with OwnedServer(http_server(mark), log=log) as server:
        before, url = server.process.pid, server.url
        assert before is not None
        os.kill(before, signal.SIGSEGV)
        until(lambda: server.process.poll() is not None, "its end")
        server.restart()
        assert server.num_starts == 2
        assert server.process.pid != before
        assert urlopen(server.url).status == 200
        assert server.url != url, "the address of its second life, though the first one's is still in the log"
    assert log.read_text(encoding="utf-8").count("READY") == 2


def test_restart_of_one_that_hangs(mark: dict[str, str], log: Path) -> None:
    with OwnedServer(http_server(mark), log=log) as server:
        before = server.process
        server.restart()
        assert before.poll() is not None
        assert len([one for one in marked(mark) if SERVER in words(one) and one.pid == server.process.pid]) == 1


def test_restart_that_fails(mark: dict[str, str], log: Path, tmp_path: Path) -> None:
    """The error says why, and leaving afterwards is still in order."""
    once = tmp_path / "once"
    command = http_server(mark)
    code = f'test -e {once} && {{ echo "no second time"; exit 9; }}; touch {once}; exec "$@"'
    with OwnedServer(replace(command, argv=("/bin/sh", "-c", code, "sh", *command.argv)), log=log) as server:
        with pytest.raises(UnableError, match=r"exit code 9\n  no second time"):
            server.restart()
        assert server.num_starts == 1
    assert not marked(mark)


def test_close_tells_how_it_ended(mark: dict[str, str], log: Path) -> None:
    orderly, crashed = (OwnedServer(http_server(mark), log=log) for _ in range(2))
    assert orderly.close().signal == "SIGTERM"
    assert crashed.process.pid is not None
    os.kill(crashed.process.pid, signal.SIGABRT)
    until(lambda: crashed.process.poll() is not None, "its end")
    assert crashed.close().signal == "SIGABRT"


def test_its_memory_limit(mark: dict[str, str], log: Path) -> None:
    """The user's word, else the command's own, else what keeps the machine alive."""
    command = replace(http_server(mark), memory_limit_bytes=3 << 30)
    with OwnedServer(command, log=log, memory_limit_bytes=2 << 30) as server:
        assert server.memory_limit_bytes == 2 << 30
    with OwnedServer(command, log=log) as server:
        assert server.memory_limit_bytes == 3 << 30
        assert server.process.memory_limit in ("cgroup", "rlimit")


def test_an_interrupted_start_leaves_nothing(mark: dict[str, str], log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        OwnedServer(script(mark, "sleep 600"), log=log)
    monkeypatch.undo()
    assert not marked(mark)


def test_the_address_is_found_behind_half_a_line_of_the_servers_own_log(mark: dict[str, str], log: Path) -> None:
    """A logger in another thread does not wait for the end of a line."""
    with OwnedServer(http_server(mark, says="0.00.456 I srv init: READY URL\nI srv: listening\n"), log=log) as server:
        assert server.url.startswith("http://127.0.0.1:")
