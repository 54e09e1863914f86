"""Private network namespaces: what is in them, who holds them, and what their kernel counts."""

from __future__ import annotations

import os
import select
import socket
import sys
from pathlib import Path

import pytest

from contextlab.lab.link import namespace
from contextlab.lab.link.namespace import COUNTERS, Anchor, bring_up, enter, kernel_counters, listener
from contextlab.model import UnableError
from tests.lab.link.inside import opened
from tests.lab.processes import PATIENCE_S

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
]


@pytest.fixture(autouse=True)
def possible() -> None:
    opened().close()


def network_of(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


def loopback() -> list[int]:
    bring_up("lo", mtu_bytes=1500)
    return [listener("127.0.0.1").detach()]


def child_status(act: object) -> int:
    """Exit status of a forked child that calls this."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = act()  # type: ignore[operator]
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_an_anchor_holds_a_network_of_its_own_and_nothing_of_its_owners() -> None:
    reading, writing = os.pipe()
    anchor = Anchor(loopback)
    with socket.socket(fileno=anchor.fds[0]) as listening:
        assert network_of(anchor.pid) != network_of("self")
        host, port = listening.getsockname()
        with pytest.raises(OSError):  # the same address here is another one
            socket.create_connection((host, port), timeout=5)

        def connects() -> int:
            enter(anchor.pid)
            socket.create_connection((host, port), timeout=5).close()
            return 0 if network_of("self") == network_of(anchor.pid) else 2

        assert child_status(connects) == 0
        os.close(writing)
        readable, _, _ = select.select([reading], [], [], PATIENCE_S)
        assert readable  # at its end: no copy of the pipe's other side is open anywhere
        os.close(reading)
        pid = anchor.pid
        anchor.close()
        anchor.close()
        assert not Path(f"/proc/{pid}").exists()


def test_an_anchor_works_on_what_it_is_asked() -> None:
    anchor = Anchor(list, lambda message: message.upper() + network_of("self").encode())
    anchor.control.send(b"where: ")
    assert anchor.control.recv(100) == b"WHERE: " + network_of(anchor.pid).encode()
    anchor.close()


def test_an_anchor_that_is_killed_is_noticed() -> None:
    anchor = Anchor(list)
    os.kill(anchor.pid, 9)
    readable, _, _ = select.select([anchor.control], [], [], PATIENCE_S)
    assert readable
    assert anchor.control.recv(1) == b""
    anchor.close()


def fails() -> list[int]:
    raise OSError("there is no such thing here")


def dies() -> list[int]:
    os.kill(os.getpid(), 9)
    return []


def not_allowed() -> None:
    raise PermissionError(1, "unshare: Operation not permitted")


@pytest.mark.parametrize(("setup", "why"), [(fails, "there is no such thing here"), (dies, "its process ended")])
def test_why_there_is_none(setup: namespace.Setup, why: str) -> None:
    with pytest.raises(UnableError) as raised:
        Anchor(setup)
    assert raised.value.message == why
    assert "namespaces" in raised.value.next_step


def test_without_the_right_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "unshare_network", not_allowed)
    with pytest.raises(UnableError, match=r"no private network namespace: .*Operation not permitted"):
        Anchor(list)


def test_entering_where_nobody_is() -> None:
    with pytest.raises(OSError):
        enter(2**22 + 1)


def test_every_counter_is_one_that_the_kernel_has() -> None:
    known = set()
    for name in ("snmp", "netstat"):
        for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[::2]:
            group, *keys = line.split()
            known |= {f"{group[:-1]}.{key}" for key in keys}
    assert {key for keys in COUNTERS.values() for key in keys} <= known
    assert kernel_counters(os.getpid()).keys() == COUNTERS.keys()


def test_counters_are_of_the_namespace_alone() -> None:
    anchor = Anchor(loopback)
    with socket.socket(fileno=anchor.fds[0]) as listening:
        before = kernel_counters(anchor.pid)
        assert before["segments_sent"] == 0

        def connects() -> int:
            enter(anchor.pid)
            socket.create_connection(listening.getsockname(), timeout=5).close()
            return 0

        assert child_status(connects) == 0
        assert kernel_counters(anchor.pid)["segments_sent"] >= 3
    anchor.close()
