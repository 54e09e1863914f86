"""The link process as its parent sees it: orders, evidence, deaths."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from contextlab.experiment import Placed
from contextlab.lab.link import netem, tunnel
from contextlab.lab.link.route import Route
from contextlab.model import UnableError, UsageError
from tests.lab.link.relaying import Client, Reads, fault, until, whole
from tests.lab.link.upstream import Upstream, events, reply
from tests.lab.processes import await_gone, marked

pytestmark = pytest.mark.process
INSIDE = """
import socket, sys, time
from contextlab.lab.link.namespace import enter
enter(int(sys.argv[1]))
with socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=20) as client:
    for _ in range(60):
        client.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        data = b""
        while not data.endswith(b"hello"):
            data += client.recv(4096)
"""


def asked(route: Route, index: int = 0) -> Reads:
    """One request through a route."""
    with Client(route.address) as client:
        client.ask(index)
        return client.read(whole)


def test_faults_are_armed_counted_and_disarmed(tmp_path: Path) -> None:
    faults = [fault("cut", at="event:2", share=0.5), fault("latency", delay_s=0.01), fault("drop-event", start_s=90.0)]
    with Upstream(reply("chunked", events())) as upstream:
        with Route(upstream.address, engine="relay", log=tmp_path / "link.log", seed=4) as route:
            assert route.namespace_pid is None
            assert asked(route).is_whole
            assert route.evidence() == []
            route.arm(faults, time.monotonic())
            cut = {index for index in range(20) if asked(route, index).ended == "fin"}
            first, second, third = route.evidence()
            assert (first.name, first.engine, first.landed.proven) == ("cut", "relay", True)
            assert first.tally["applied"] == first.tally["requests_hit"] == len(cut)
            assert first.tally["requests_seen"] == 20
            assert second.tally["achieved_p50_s"] == pytest.approx(0.01)
            assert third.landed.proven is False
            assert route.counters()["connections"] == 21
            assert route.cpu_s() > 0
            route.arm([], time.monotonic())
            assert asked(route).is_whole
            assert route.evidence() == []
        with Route(upstream.address, engine="relay", log=tmp_path / "link.log", seed=4) as route:
            route.arm(faults, time.monotonic())
            assert {index for index in range(20) if asked(route, index).ended == "fin"} == cut
    assert 0 < len(cut) < 20
    assert (tmp_path / "link.log").read_text() == ""


def test_evidence_is_there_before_the_connection_ends(tmp_path: Path) -> None:
    with (
        Upstream(reply("chunked", events(), 0.05)) as upstream,
        Route(upstream.address, engine="relay", log=tmp_path / "link.log", seed=4) as route,
        Client(route.address) as client,
    ):
        route.arm([fault("latency", delay_s=0.001)], time.monotonic())
        with Client(route.address) as client:
            client.ask()
            client.read(lambda reads: len(reads.data) >= 3)
            (evidence,) = route.evidence()
            assert evidence.tally["applied"] >= 3
            assert evidence.landed.proven


@pytest.mark.parametrize(
    ("engine", "placed", "error", "words"),
    [
        ("telepathy", [], UsageError, "engine='telepathy'"),
        ("relay", [fault("loss", rate=0.1)], UnableError, "acts on packets"),
        ("emulated", [fault("corrupt", share=0.1)], UnableError, "cannot corrupt packets"),
        ("relay", [Placed(name="cut", start_s=0, length_s=1, options={"at": "somewhere"})], UsageError, "somewhere"),
    ],
)
def test_what_cannot_be_is_refused(
    engine: str, placed: list[Placed], error: type[Exception], words: str, tmp_path: Path
) -> None:
    log = tmp_path / "link.log"
    with (
        Upstream([]) as upstream,
        pytest.raises(error, match=words),
        Route(upstream.address, engine=engine, log=log, seed=4) as route,
    ):
        route.arm(placed, time.monotonic())


def test_an_engine_that_this_machine_has_not_is_told(tmp_path: Path) -> None:
    why_not = netem.probe()
    if not why_not:
        pytest.skip("there is netem here")
    with pytest.raises(UnableError, match="no netem here"):
        Route(("127.0.0.1", 9), engine="netem", log=tmp_path / "link.log", seed=4)


def test_an_unknown_host_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="no-such-host"):
        Route(("no-such-host.invalid", 80), engine="relay", log=tmp_path / "link.log", seed=4)


def test_a_link_process_that_dies_is_told_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "link.log"
    with Upstream([]) as upstream, Route(upstream.address, engine="relay", log=log, seed=4) as route:
        with log.open("a") as file:
            file.write("its last words\n")
        assert route.pid is not None
        os.kill(route.pid, signal.SIGKILL)
        with pytest.raises(UnableError, match=r"has died \(SIGKILL\):\nits last words"):
            route.evidence()
        with pytest.raises(UnableError, match="SIGKILL"):
            route.arm([], 0.0)
        with pytest.raises(UnableError, match="SIGKILL"):
            route.cpu_s()


OWNER = """
import sys, time
from pathlib import Path
from contextlab.lab.link.route import Route
route = Route(("127.0.0.1", 9), engine=sys.argv[1], log=Path(sys.argv[2]), seed=1)
print(*route.address, route.namespace_pid or 0, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("engine", ["relay", "packet link"])
def test_the_death_of_the_owner_ends_the_link_and_frees_its_port(
    engine: str, tmp_path: Path, mark: dict[str, str]
) -> None:
    if engine == "packet link":
        _needs_packet_link()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, engine, str(tmp_path / "link.log")],
        env={**os.environ, **mark},
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        host, port, namespace_pid = owner.stdout.readline().split()
        assert len(marked(mark)) >= 3
        owner.kill()
        owner.wait()
        await_gone(mark, 10.0)
        assert not psutil.pid_exists(int(namespace_pid)) or namespace_pid == "0"
    if engine == "relay":
        socket.create_server((host, int(port))).close()


def test_emulated_loss_stalls_and_says_so(tmp_path: Path) -> None:
    steps = reply("chunked", events(), 0.005)
    with (
        Upstream(steps) as upstream,
        Route(upstream.address, engine="emulated", log=tmp_path / "link.log", seed=4) as route,
    ):
        route.arm([fault("loss", rate=0.08, direction="down"), fault("drop-event", at="done")], time.monotonic())
        reads = asked(route)
        loss, drop = route.evidence()
    assert reads.body == b"".join(events(done=False))
    assert (loss.engine, drop.engine) == ("emulated", "relay")
    assert loss.tally["stalled"] > 0
    assert loss.tally["seen"] >= len(events())
    assert loss.landed.proven
    assert reads.at_s[-1] > 0.2


def _needs_packet_link() -> None:
    try:
        tunnel.open_tunnel().close()
    except UnableError as error:
        pytest.skip(error.message)


def test_packet_and_stream_faults_together_on_the_packet_link(tmp_path: Path) -> None:
    _needs_packet_link()
    with (
        Upstream(reply("length", [b"hello"])) as upstream,
        Route(upstream.address, engine="packet link", log=tmp_path / "link.log", seed=4) as route,
    ):
        assert route.namespace_pid is not None
        route.arm([fault("loss", rate=0.03), fault("latency", delay_s=0.001)], time.monotonic())
        where = [str(route.namespace_pid), route.address[0], str(route.address[1])]
        subprocess.run([sys.executable, "-c", INSIDE, *where], check=True, timeout=30)
        loss, latency = route.evidence()
        assert (loss.engine, latency.engine) == ("packet link", "relay")
        assert loss.landed.proven, loss.landed.why
        assert loss.kernel["retransmitted_segments"] >= 1
        assert latency.tally["requests_seen"] == 60
        assert latency.landed.proven
        counters = route.counters()
        assert counters["link_up_packets"] > 60
        until(lambda: route.counters()["open_connections"] == 0)
