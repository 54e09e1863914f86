"""netem as commands, its probe, and the link that runs them: with a stand-in for `tc`, for few kernels have netem."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab import registry
from contextlab.experiment import Placed, WireFault
from contextlab.faults.corrupt import Corrupt
from contextlab.faults.delay import Delay
from contextlab.faults.duplicate import Duplicate
from contextlab.faults.jitter import Jitter
from contextlab.faults.loss import Loss
from contextlab.faults.rate import Rate
from contextlab.faults.reorder import Reorder
from contextlab.lab.link import netem
from contextlab.lab.link.namespace import Anchor, bring_up
from contextlab.lab.link.netem import NetemLink, command, plan, probe
from contextlab.model import UnableError, UsageError
from tests.lab.link.inside import opened, sockets_inside, until

SIMPLE: list[tuple[list[WireFault], str]] = [
    ([], "limit 100000 delay 0us 0us loss random 0% duplicate 0% corrupt 0% rate 0bit"),
    (
        [Loss(rate=0.15)],
        "limit 100000 delay 0us 0us loss random 15% duplicate 0% corrupt 0% rate 0bit",
    ),
    (
        [Loss(rate=0.1, burst=4.0)],
        "limit 100000 delay 0us 0us loss gemodel 2.777778% 25% duplicate 0% corrupt 0% rate 0bit",
    ),
    (
        [Delay(delay_s=0.1), Jitter(jitter_s=0.02, distribution="normal")],
        "limit 100000 delay 160000us 20000us distribution normal loss random 0% duplicate 0% corrupt 0% rate 0bit",
    ),
    (
        [Jitter(jitter_s=0.02), Duplicate(share=0.01), Corrupt(share=0.002)],
        "limit 100000 delay 20000us 20000us loss random 0% duplicate 1% corrupt 0.2% rate 0bit",
    ),
    (
        [Reorder(share=0.25, hold_s=0.01)],
        "limit 100000 delay 10000us 0us loss random 0% duplicate 0% corrupt 0% reorder 75% rate 0bit",
    ),
    (
        [Rate(limit_bytes_per_s=125_000.0, queue_bytes=15_000), Delay(delay_s=0.12)],
        "limit 20 delay 120000us 0us loss random 0% duplicate 0% corrupt 0% rate 1000000bit",
    ),
    ([Rate(limit_bytes_per_s=0.0)], "limit 100000 delay 0us 0us loss random 0% duplicate 0% corrupt 0% rate 0bit"),
]


@pytest.mark.parametrize(("faults", "words"), SIMPLE)
def test_commands(faults: list[WireFault], words: str) -> None:
    assert " ".join(command("change", faults)) == f"tc qdisc change dev lo root netem {words}"


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ([Loss(direction="up")], "one queue for both directions"),
        ([Delay(), Reorder()], "cannot reorder what it delays"),
        ([registry.faults()["cut"]()], "netem has no cut"),
    ],
)
def test_what_netem_cannot_do(faults: list[WireFault], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        command("change", faults)


@given(rate=st.floats(0.01, 0.9), burst=st.floats(1.0, 50.0))
def test_netems_words_mean_the_same_loss(rate: float, burst: float) -> None:
    """netem's mean loss is p/(p+r) and its mean burst 1/r (`gemodel p r`), or 1/(1−rate) if independent."""
    words = command("change", [Loss(rate=rate, burst=burst)])
    model, *numbers = words[words.index("loss") + 1 : words.index("duplicate")]
    shares = [float(number.removesuffix("%")) / 100 for number in numbers]
    if model == "random":
        assert shares == pytest.approx([rate])
        assert burst <= 1 / (1 - rate)
    else:
        p, r = shares
        assert p / (p + r) == pytest.approx(rate, rel=1e-4)
        assert 1 / r == pytest.approx(burst, rel=1e-4)


def placed(*texts: str) -> tuple[list[Placed], list[WireFault]]:
    found = [registry.parse_fault(text, start_s=0.0, length_s=1.0) for text in texts]
    return found, [registry.wire_fault(one) for one in found]


def test_a_timeline_of_commands() -> None:
    one, two, three = plan(*placed("loss:rate=15%@1+3", "delay:delay=50ms@2+2"))
    assert [(found.at_s, found.acting) for found in (one, two, three)] == [(1.0, (0,)), (2.0, (0, 1)), (4.0, ())]
    assert one.argv == command("change", [Loss(rate=0.15)])
    assert two.argv == command("change", [Loss(rate=0.15), Delay(delay_s=0.05)])
    assert three.argv == command("change", [])
    assert plan([], []) == ()


def test_a_timeline_that_netem_cannot_follow() -> None:
    with pytest.raises(UsageError, match="distribution"):
        plan(*placed("jitter@1+1", "jitter:distribution=normal@3+1"))


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A `tc` that logs where it is and what it is told, then does as the script says."""
    log = folder / "log"
    tc = folder / "tc"
    tc.write_text(f'#!/bin/sh\necho "$(readlink /proc/$$/ns/net) $*" >> {log}\n{script}\n')
    tc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


@pytest.mark.process
def test_the_kernel_or_its_reason() -> None:
    opened().close()
    why = probe()
    assert why == "" or "the kernel has no netem: " in why or "no program tc" in why


@pytest.mark.process
def test_the_probe_tells_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().close()
    stand_in(tmp_path, monkeypatch, 'echo "Specified qdisc kind is unknown." >&2; exit 2')
    assert probe() == "the kernel has no netem: Specified qdisc kind is unknown."
    with pytest.raises(UnableError, match="no netem here"):
        NetemLink()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert probe() == "there is no program tc (Debian's package iproute2)"


@pytest.mark.process
@pytest.mark.skipif(shutil.which("tc") is None, reason="there is no tc")
def test_the_real_tc_understands_every_command() -> None:
    """It reads all the words before it asks the kernel, so that an unknown one is told apart from a missing netem."""
    opened().close()

    def setup() -> list[int]:
        bring_up("lo", mtu_bytes=1500)
        return []

    anchor = Anchor(setup, netem._work)
    anchor.control.send(json.dumps([command("add", faults) for faults, _ in SIMPLE]).encode())
    answers = json.loads(anchor.control.recv(1 << 16))
    anchor.close()
    assert len(answers) == len(SIMPLE)
    for (code, said), (_, words) in zip(answers, SIMPLE, strict=True):
        assert code == 0 or "kind is unknown" in said or "File exists" in said, (words, said)


@pytest.mark.process
def test_the_link_runs_its_commands_in_its_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().close()
    count = tmp_path / "count"
    show = f"n=$(($(cat {count} 2>/dev/null || echo 0)+1)); echo $n > {count}; "
    show += 'echo " Sent ${n}000 bytes ${n}00 pkt (dropped $n, overlimits 0 requeues 0)"'
    log = stand_in(tmp_path, monkeypatch, f'case "$2" in qdisc) {show};; esac')

    async def main() -> None:
        link = NetemLink()
        loop = asyncio.get_running_loop()
        link.run(loop)
        faults = placed("loss:rate=15%@0+0.1", "delay:delay=50ms@0.05+0.1")
        link.arm(*faults, loop.time())
        commands = [command("change", ()), *(one.argv for one in plan(*faults))]
        assert await until(lambda: log.read_text().count(" change ") == len(commands))
        assert await until(lambda: len(link._boundaries) == len(commands))
        lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
        assert {where for where, _ in lines} == {os.readlink(f"/proc/{link.namespace_pid}/ns/net")}
        told = [f"tc {words}" for _, words in lines]
        shown = " ".join(netem.SHOW)
        assert told == [" ".join(command("add", ())), *(w for one in commands for w in (shown, " ".join(one)))]
        # each acts over two boundaries, and each reading counts 100 packets more, and one dropped
        assert link.tallies() == [{"seen": 202.0, "seen_bytes": 2000.0, "dropped": 2.0, "delayed": 200.0}] * 2
        assert link.errors == []
        assert faults[1][0].landed(link.tallies()[0], {"retransmitted_segments": 1.0}).proven
        link.close()
        link.close()

    asyncio.run(main())


@pytest.mark.process
def test_a_command_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().close()
    stand_in(tmp_path, monkeypatch, 'case "$*" in *change*) echo "no memory" >&2; exit 2;; esac')

    async def main() -> None:
        link = NetemLink()
        loop = asyncio.get_running_loop()
        link.run(loop)
        link.arm([], [], loop.time())
        assert await until(lambda: bool(link.errors))
        assert link.errors == ["no memory"]
        link.close()

    asyncio.run(main())


@pytest.mark.process
def test_a_packet_on_its_loopback_is_a_packet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().close()
    stand_in(tmp_path, monkeypatch, "")

    async def main() -> None:
        link, loop = NetemLink(), asyncio.get_running_loop()
        (client,) = sockets_inside(link.namespace_pid, lambda: [socket.socket()])
        await loop.sock_connect(client, link.far)
        served, _ = await loop.sock_accept(link.listener)
        sending = asyncio.ensure_future(loop.sock_sendall(served, b"x" * 200_000))
        got = 0
        while got < 200_000:
            got += len(await loop.sock_recv(client, 1 << 16))
        await sending
        counters = link.counters()
        assert counters["passed_bytes"] > 200_000
        assert counters["passed_packets"] > 200_000 / 1500
        client.close()
        served.close()
        link.close()

    asyncio.run(main())
