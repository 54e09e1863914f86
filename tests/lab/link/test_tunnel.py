"""The packet link with real packets: what arrives at the far side, and what the kernel says of it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine
from itertools import pairwise
from random import Random
from struct import pack, unpack
from time import monotonic, sleep
from typing import Any

import pytest

from contextlab import registry
from contextlab.experiment import Direction, Placed, WireFault
from contextlab.faults.delay import Delay
from contextlab.faults.loss import Loss
from contextlab.faults.rate import Rate
from contextlab.lab.link.chain import Chain, total
from contextlab.lab.link.tunnel import NEAR, Tunnel
from tests.faults.packets import binomial_bounds
from tests.lab.link.inside import opened, sockets_inside, until
from tests.lab.processes import PATIENCE_S

pytestmark = pytest.mark.process
UDP_IP_BYTES = 28
SPURIOUS = 2
"""Segments that TCP sends again though none is lost, where a busy machine keeps it waiting for an acknowledgement."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop, as the link process does."""
    import uvloop

    uvloop.run(main)


def chains(faults: list[WireFault], seed: int = 1) -> dict[Direction, Chain]:
    """The faults acting both ways from now on."""
    now_s = monotonic()
    return {
        way: Chain(
            [
                (now_s, now_s + 1000.0, fault.stage(Random(f"{seed}:{number}:{way}"), way))
                for number, fault in enumerate(faults)
                if fault.touches(way)
            ]
        )
        for way in Direction
    }


def tally(armed: dict[Direction, Chain], number: int = 0) -> dict[str, float]:
    return total(chain.windows[number][2].tally for chain in armed.values() if len(chain.windows) > number)


class Datagrams:
    """Numbered datagrams up the link: who sends them, and what its far side, on the near address, received."""

    def __init__(self, link: Tunnel) -> None:
        def make() -> list[socket.socket]:
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            receiver.bind((NEAR, link.far[1]))
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.connect(link.far)
            return [receiver, sender]

        self.receiver, self.sender = sockets_inside(link.namespace_pid, make)
        self.got: list[tuple[int, float, float]] = []
        self.sent = 0
        asyncio.get_running_loop().add_reader(self.receiver, self._receive)

    def _receive(self) -> None:
        now_s = monotonic()
        while True:
            try:
                data = self.receiver.recv(2048)
            except BlockingIOError:
                return
            number, sent_s = unpack("!Id", data[:12])
            self.got.append((number, sent_s, now_s))

    async def send(self, num: int, size_bytes: int = 100, at_once: int = 50) -> None:
        """So many datagrams of this size (with headers), the loop in between so that they are taken."""
        for _ in range(num):
            self.sender.send(pack("!Id", self.sent, monotonic()).ljust(size_bytes - UDP_IP_BYTES))
            self.sent += 1
            if self.sent % at_once == 0:
                await asyncio.sleep(0.001)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.receiver)
        self.receiver.close()
        self.sender.close()


def test_without_faults_every_packet_passes_and_nothing_is_sent_again() -> None:
    async def main() -> None:
        link = opened()
        link.run(asyncio.get_running_loop())
        datagrams = Datagrams(link)
        await datagrams.send(2000)
        assert await until(lambda: len(datagrams.got) == 2000)
        assert [number for number, _, _ in datagrams.got] == list(range(2000))
        counters = link.counters()
        assert (counters["up_packets"], counters["up_bytes"]) == (2000, 200_000)
        assert counters["refused_packets"] == counters["device_dropped_packets"] == counters["held_packets"] == 0
        assert link.kernel()["retransmitted_segments"] == 0
        datagrams.close()
        link.close()

    run(main())


@pytest.mark.parametrize(("rate", "burst"), [(0.15, 1.0), (0.1, 5.0)])
def test_loss_and_bursts_at_the_far_side(rate: float, burst: float) -> None:
    async def main() -> None:
        link = opened()
        link.run(asyncio.get_running_loop())
        armed = chains([Loss(rate=rate, burst=burst)])
        link.arm(armed)
        datagrams, num = Datagrams(link), 4000
        await datagrams.send(num)
        lost = tally(armed)["dropped"]
        assert await until(lambda: len(datagrams.got) == num - lost)
        link.close()
        came = {number for number, _, _ in datagrams.got}
        marks = [number not in came for number in range(num)]
        assert sum(marks) == lost
        after = [then for now, then in pairwise(marks) if now]
        low, high = binomial_bounds(len(after), max(rate, 1 - 1 / burst))
        assert low <= sum(after) <= high
        before = [then for now, then in pairwise(marks) if not now]
        low, high = binomial_bounds(len(before), rate if burst == 1 else rate / (1 - rate) / burst)
        assert low <= sum(before) <= high
        datagrams.close()

    run(main())


def test_delay_at_the_far_side() -> None:
    async def main() -> None:
        link = opened()
        link.run(asyncio.get_running_loop())
        datagrams = Datagrams(link)
        await datagrams.send(300, at_once=1)
        assert await until(lambda: len(datagrams.got) == 300)
        link.arm(chains([Delay(delay_s=0.03), Delay(delay_s=0.02)]))
        await datagrams.send(300, at_once=1)
        assert await until(lambda: len(datagrams.got) == 600)
        late_s = sorted(came_s - sent_s for _, sent_s, came_s in datagrams.got[300:])
        usual_s = sorted(came_s - sent_s for _, sent_s, came_s in datagrams.got[:300])
        assert late_s[0] >= 0.05
        assert late_s[150] - usual_s[150] < 0.1
        counters = link.counters()
        assert counters["held_packets"] == 300
        assert 0 <= counters["late_s"] <= 300 * counters["max_late_s"]
        datagrams.close()
        link.close()

    run(main())


def test_rate_at_the_far_side() -> None:
    async def main() -> None:
        link = opened()
        link.run(asyncio.get_running_loop())
        armed = chains([Rate(limit_bytes_per_s=400_000.0, queue_bytes=150_000)])
        link.arm(armed)
        datagrams = Datagrams(link)
        await datagrams.send(300, size_bytes=1000)  # into a queue of 150
        dropped = tally(armed)["dropped"]
        assert await until(lambda: len(datagrams.got) == 300 - dropped)
        link.close()
        times = [came_s for _, _, came_s in datagrams.got]
        took_s = times[-1] - times[0]
        assert 250_000.0 < (len(times) - 1) * 1000 / took_s < 440_000.0
        assert times[-1] - datagrams.got[0][1] >= len(times) * 1000 / 400_000.0
        assert dropped > 50
        datagrams.close()

    run(main())


async def echoed(link: Tunnel, num_bytes: int) -> bytes:
    """What comes back of so many bytes sent through the link to an echo at its listener."""
    loop = asyncio.get_running_loop()

    def make() -> list[socket.socket]:
        return [socket.socket(socket.AF_INET, socket.SOCK_STREAM)]

    (client,) = sockets_inside(link.namespace_pid, make)
    await loop.sock_connect(client, link.far)
    served, _ = await loop.sock_accept(link.listener)

    async def echo() -> None:
        while data := await loop.sock_recv(served, 1 << 16):
            await loop.sock_sendall(served, data)
        served.close()

    async def send() -> None:
        await loop.sock_sendall(client, Random(num_bytes).randbytes(num_bytes))
        client.shutdown(socket.SHUT_WR)

    tasks = [asyncio.ensure_future(echo()), asyncio.ensure_future(send())]
    back = b""
    while data := await loop.sock_recv(client, 1 << 16):
        back += data
    await asyncio.gather(*tasks)
    client.close()
    return back


def test_tcp_repairs_what_packet_faults_do_and_the_kernel_proves_each() -> None:
    names = {"loss": "rate", "corrupt": "share", "duplicate": "share", "reorder": "share"}
    options: dict[str, dict[str, float]] = {name: {option: 0.08} for name, option in names.items()}
    made = [
        Placed(name=n, start_s=0.0, length_s=1.0, options=o)
        for n, o in (options | {"jitter": {"jitter_s": 0.001}}).items()
    ]
    faults = [*(registry.wire_fault(placed) for placed in made), Delay(delay_s=0.001)]

    async def main() -> None:
        link = opened()
        link.run(asyncio.get_running_loop())
        assert await echoed(link, 100_000) == Random(100_000).randbytes(100_000)
        before = link.kernel()["retransmitted_segments"]
        assert before <= SPURIOUS
        armed = chains(faults)
        link.arm(armed)
        assert await asyncio.wait_for(echoed(link, 300_000), 60) == Random(300_000).randbytes(300_000)
        kernel = link.kernel()
        assert kernel["retransmitted_segments"] > before + SPURIOUS
        for number, fault in enumerate(faults):
            landed = fault.landed(tally(armed, number), kernel)
            assert landed.proven, (fault.NAME, landed.why)
        link.close()

    run(main())


def test_nothing_lands_on_an_idle_link() -> None:
    async def main() -> None:
        link = opened()
        link.run(asyncio.get_running_loop())
        armed = chains([Loss(rate=0.5)])
        link.arm(armed)
        await asyncio.sleep(0.05)
        landed = Loss(rate=0.5).landed(tally(armed), link.kernel())
        assert (landed.proven, landed.why) == (False, "no packet passed while it acted")
        link.close()
        link.close()

    run(main())


OWNER = """
import asyncio, codecs, ctypes, os, sys
from contextlab.lab.link.tunnel import DEVICE, open_tunnel
codecs.lookup("ascii")  # whoever it becomes may not be allowed to read the standard library
if sys.argv[1:]:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as a process has it that began as this user
async def main():
    link = open_tunnel()
    link.run(asyncio.get_running_loop())
    where = os.readlink(f"/proc/{link.namespace_pid}/ns/net")
    devices = open(f"/proc/{link.namespace_pid}/net/dev").read()
    print(link.namespace_pid, where, DEVICE in devices, link.kernel()["segments_sent"], flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def processes_in(namespace: str) -> list[int]:
    """Who is in a network namespace, as far as one may see."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/net") == namespace:
                found.append(int(name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("user", ["ours", "nobody"])
def test_sigkill_of_its_owner_leaves_no_device_and_no_process(user: str) -> None:
    opened().close()
    if user == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    argv = [sys.executable, "-c", OWNER, *(["as nobody"] if user == "nobody" else [])]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stderr is not None
        line = owner.stdout.readline()
        if not line and "UnableError" in (said := owner.stderr.read()):
            pytest.skip(said.splitlines()[-1])
        anchor, namespace, has_device, _ = line.split()
        assert has_device == "True"
        assert processes_in(namespace) == [int(anchor)]
        owner.send_signal(signal.SIGKILL)
        owner.wait(PATIENCE_S)
        deadline = monotonic() + PATIENCE_S
        while processes_in(namespace) and monotonic() < deadline:
            sleep(0.01)
        assert processes_in(namespace) == []
        assert "link0" not in os.listdir("/sys/class/net")
