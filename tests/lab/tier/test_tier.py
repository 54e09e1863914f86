"""The tier as a whole: it starts, it is empty when an arm begins, it is read, and nothing of it outlives us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contextlab.deeds import Tier
from contextlab.lab.tier import redis_server
from contextlab.lab.tier.redis_server import RedisServer
from contextlab.lab.tier.servant import Servant
from contextlab.lab.tier.tier import RunningTier
from contextlab.model import UnableError
from tests.lab import processes
from tests.lab.processes import await_gone, marked, until
from tests.lab.tier.tiers import needs_redis, running

pytestmark = [pytest.mark.process]


def test_without_redis_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnableError, match="redis-server") as caught:
        RunningTier(Tier(), ("127.0.0.1", 9), folder=tmp_path)
    assert "apt install redis-server" in caught.value.next_step


@needs_redis
def test_without_its_packages_it_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "PACKAGES", ("redis", "no_such_package"))
    with pytest.raises(UnableError, match="no_such_package") as caught:
        RunningTier(Tier(), ("127.0.0.1", 9), folder=tmp_path)
    assert "contextlab[tier]" in caught.value.next_step


@needs_redis
def test_redis_keeps_its_port_while_it_is_down(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    try:
        port = redis.port
        assert redis.command("SET", "a", "1") is True
        redis.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(UnableError, match="'PING'"):
            redis.command("PING")
        redis.start()
        assert redis.port == port
        assert redis.command("GET", "a") is None, "it was to come back empty"
        assert [path.name for path in tmp_path.iterdir()] == ["redis.log"], "it was to keep nothing on disk"
    finally:
        redis.close()


@needs_redis
def test_an_arm_begins_with_nothing_and_is_read_from_its_zero(tmp_path: Path) -> None:
    with running(tmp_path) as bench:
        bench.ask("one")
        until(lambda: bench.counts["redis_puts"] == 1, "the write to Redis")
        bench.tier.begin(time.monotonic() - 5.0)
        assert bench.machine.redis.command("DBSIZE") == 0
        assert bench.counts["requests"] == 0
        bench.ask("one")
        [reading] = bench.tier.taken()
        assert bench.tier.taken() == [], "it was asked a moment ago"
        assert reading.source == "tier"
        assert 5.0 <= reading.at_s < 15.0
        assert (reading.values["requests"], reading.values["origin_requests"]) == (1, 1)


SCRIPT = """
import sys, time
from pathlib import Path
from contextlab.deeds import Tier
from contextlab.lab.tier.servant import Servant
from contextlab.lab.tier.tier import RunningTier
tier = RunningTier(Tier(), ("127.0.0.1", 9), folder=Path(sys.argv[1]))
print("READY", flush=True)
time.sleep(60)
"""


@needs_redis
def test_nothing_of_it_outlives_the_tool(tmp_path: Path) -> None:
    mark = processes.new_mark()
    tool = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, env={**os.environ, **mark}
    )
    assert tool.stdout is not None
    assert tool.stdout.readline() == b"READY\n"
    names = {name for process in marked(mark) for name in process.cmdline() if "redis-server" in name}
    assert names, "it was to run"
    tool.send_signal(signal.SIGKILL)
    tool.wait()
    tool.stdout.close()
    await_gone(mark, 5.0)


@needs_redis
def test_a_part_that_died_is_named_with_how(tmp_path: Path) -> None:
    with running(tmp_path) as bench:
        gateway = bench.machine.gateway
        assert gateway.pid is not None
        os.kill(gateway.pid, signal.SIGKILL)
        with pytest.raises(UnableError, match="the cache tier's gateway has died \\(SIGKILL\\)") as caught:
            gateway.ask("report")
        assert "tier.log" in caught.value.next_step


@needs_redis
def test_a_module_that_cannot_start_says_why(tmp_path: Path) -> None:
    relay = Servant("delay", log=tmp_path / "tier.log", upstream="no port")
    try:
        with pytest.raises(UnableError, match="the cache tier's delay has died") as caught:
            relay.opened()
        assert "ValueError" in caught.value.message
    finally:
        relay.close()
