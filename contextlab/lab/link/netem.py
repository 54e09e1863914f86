"""The second engine of packet faults: the kernel's own `tc netem`, on loopback in a private network namespace.

    client ─▶ 127.0.0.1 in the namespace ─▶ lo: qdisc netem ─▶ relay's listener     (both directions pass this one)

`plan` says what would be run and when, and why some faults cannot be meant this way; `NetemLink` runs it. Loopback is
given an MTU of 1500 and no segmentation offload, so that a packet is a packet. What netem did is known from the
qdisc's own counters and the kernel's: it does not tell one fault from another.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic

from contextlab.experiment import Placed, WireFault
from contextlab.faults.corrupt import Corrupt
from contextlab.faults.delay import Delay
from contextlab.faults.duplicate import Duplicate
from contextlab.faults.jitter import Jitter
from contextlab.faults.loss import Loss
from contextlab.faults.rate import Rate
from contextlab.faults.reorder import Reorder
from contextlab.lab.link.namespace import (
    IFLA_GSO_MAX_SEGS,
    MESSAGE_BYTES,
    Anchor,
    allow_many_connections,
    bring_up,
    kernel_counters,
    listener,
    set_link,
)
from contextlab.model import UnableError, UsageError

HOST, DEVICE, MTU_BYTES = "127.0.0.1", "lo", 1500
QUEUE_PACKETS = 100_000
"""What netem keeps where no rate limits it: its default of 1000 packets drops in silence what is delayed for long."""
TC_TIMEOUT_S = 10.0
QDISC = ("qdisc", "{verb}", "dev", DEVICE, "root", "netem")
SHOW = ("tc", "-s", "qdisc", "show", "dev", DEVICE, "root")
_SENT = re.compile(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One change of the qdisc, when it is due in seconds since the arm began, and the faults that act from then on."""

    at_s: float
    argv: tuple[str, ...]
    acting: tuple[int, ...] = ()


def command(verb: str, faults: Sequence[WireFault]) -> tuple[str, ...]:
    """The command that makes these faults act, and no others: every word is given, since a change keeps what is not.

    Raises UsageError where netem cannot do what is asked.
    """
    delay_s, jitter_s, distribution, words = 0.0, 0.0, "uniform", dict[str, tuple[str, ...]]()
    rate, reorder = None, None
    for fault in faults:
        if getattr(fault, "direction", "both") != "both":
            raise UsageError(f"netem has one queue for both directions, {fault.NAME} wants one", "use direction=both")
        match fault:
            case Delay():
                delay_s += fault.delay_s
            case Jitter():
                delay_s, jitter_s, distribution = delay_s + fault.mean_s, fault.jitter_s, fault.distribution
            case Loss():
                words["loss"] = _loss_words(fault)
            case Duplicate():
                words["duplicate"] = (_percent(fault.share),)
            case Corrupt():
                words["corrupt"] = (_percent(fault.share),)
            case Rate():
                rate = fault
            case Reorder():
                reorder = fault
            case _:
                raise UsageError(f"netem has no {fault.NAME}", "use the packet link")
    if reorder is not None and not reorder.is_null:
        if delay_s:
            raise UsageError("netem cannot reorder what it delays", "place delay, jitter and reorder apart")
        delay_s = reorder.hold_s
        words["reorder"] = (_percent(1.0 - reorder.share),)
    num_packets, bits_per_s = QUEUE_PACKETS, 0.0
    if rate is not None and not rate.is_null:
        waiting_bytes = rate.queue_bytes + (delay_s + jitter_s) * rate.limit_bytes_per_s
        num_packets, bits_per_s = max(1, int(waiting_bytes / MTU_BYTES)), rate.limit_bytes_per_s * 8
    found = ["tc", *(word.format(verb=verb) for word in QDISC), "limit", str(num_packets)]
    found += ["delay", _microseconds(delay_s), _microseconds(jitter_s)]
    found += ["distribution", distribution] if distribution != "uniform" and jitter_s else []
    for word, nothing in (("loss", ("random", "0%")), ("duplicate", ("0%",)), ("corrupt", ("0%",))):
        found += [word, *words.get(word, nothing)]
    if "reorder" in words:
        found += ["reorder", *words["reorder"]]
    return (*found, "rate", f"{bits_per_s:.0f}bit")


def plan(placed: Sequence[Placed], faults: Sequence[WireFault]) -> tuple[Command, ...]:
    """What is run and when, for faults and their places on the timeline. Raises UsageError as `command` does."""
    spreads = {fault.distribution for fault in faults if isinstance(fault, Jitter)}
    if len(spreads) > 1:
        raise UsageError("netem cannot go from one distribution of jitter to another", "choose one for all")
    times = sorted({at_s for one in placed for at_s in (one.start_s, one.end_s)})
    found = []
    for at_s in times:
        acting = tuple(number for number, one in enumerate(placed) if one.start_s <= at_s < one.end_s)
        argv = command("change", [faults[number] for number in acting])
        found.append(Command(at_s=at_s, argv=argv, acting=acting))
    return tuple(found)


def probe() -> str:
    """Why netem cannot be had here, found by adding one in a namespace that is thrown away; "" where it can."""
    try:
        Anchor(_set_up).close()
    except UnableError as error:
        return error.message
    return ""


def _loss_words(fault: Loss) -> tuple[str, ...]:
    if fault.rate >= 1.0 or fault.burst <= 1.0 / (1.0 - fault.rate):
        return ("random", _percent(fault.rate))
    leave = 1.0 / fault.burst
    return ("gemodel", _percent(leave * fault.rate / (1.0 - fault.rate)), _percent(leave))


def _percent(share: float) -> str:
    return f"{share * 100:.7g}%"


def _microseconds(value_s: float) -> str:
    return f"{value_s * 1e6:.0f}us"


def _set_up() -> list[int]:
    """In the anchor: loopback with the qdisc in place, and the listener's descriptor."""
    if shutil.which("tc") is None:
        raise OSError("there is no program tc (Debian's package iproute2)")
    allow_many_connections()
    bring_up(DEVICE, mtu_bytes=MTU_BYTES)
    set_link(DEVICE, IFLA_GSO_MAX_SEGS, 1)
    code, said = _run(command("add", ()))
    if code:
        raise OSError(f"the kernel has no netem: {said.strip()}")
    return [listener(HOST).detach()]


def _run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TC_TIMEOUT_S, check=False)
    return done.returncode, (done.stdout + done.stderr)[:4096]


def _work(message: bytes) -> bytes:
    """In the anchor: run the commands of one boundary, each a list of words, and tell (exit code, output) of each."""
    return json.dumps([_run(argv) for argv in json.loads(message)]).encode()


@dataclass(frozen=True, slots=True)
class _Boundary:
    """What the qdisc had counted when the faults of one command began to act: bytes and packets sent, and dropped."""

    acting: tuple[int, ...]
    counts: tuple[int, int, int]


class NetemLink:
    """The link while it is up, with the interface of a `Tunnel`, but that it is armed with faults, not with chains."""

    def __init__(self) -> None:
        try:
            self._anchor = Anchor(_set_up, _work)
        except UnableError as error:
            raise UnableError(f"no netem here: {error.message}", error.next_step) from None
        self.listener = socket.socket(fileno=self._anchor.fds[0])
        self.listener.setblocking(False)
        self.namespace_pid = self._anchor.pid
        self.far: tuple[str, int] = (HOST, self.listener.getsockname()[1])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._num_faults = 0
        self._boundaries: list[_Boundary] = []
        self._asked: list[tuple[int, ...]] = []
        self.errors: list[str] = []

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to change the qdisc when it is due, on this loop."""
        self._loop = loop
        self._anchor.control.setblocking(False)
        loop.add_reader(self._anchor.control, self._answered)

    def arm(self, placed: Sequence[Placed], faults: Sequence[WireFault], zero_s: float) -> None:
        """Let these faults act in their windows, which begin `zero_s` + their start; what was armed before ends now.

        Raises UsageError where netem cannot do what is asked.
        """
        if self._loop is None:
            raise RuntimeError("run() comes first")
        commands = plan(placed, faults)
        for timer in self._timers:
            timer.cancel()
        self._num_faults = len(faults)
        self._boundaries, self.errors = [], []
        self._change(Command(at_s=0.0, argv=command("change", ())))
        offset_s = self._loop.time() - monotonic() + zero_s
        self._timers = [self._loop.call_at(offset_s + one.at_s, self._change, one) for one in commands]

    def tallies(self) -> list[dict[str, float]]:
        """What the qdisc counted while each fault acted, in their order, whatever else acted then.

        `seen` packets, `dropped` of them, and `delayed`: all that it let through.
        """
        found = [dict.fromkeys(("seen", "seen_bytes", "dropped", "delayed"), 0.0) for _ in range(self._num_faults)]
        for before, after in pairwise(self._boundaries):
            num_bytes, num_packets, num_dropped = (b - a for a, b in zip(before.counts, after.counts, strict=True))
            for number in before.acting:
                tally = found[number]
                tally["seen"] += num_packets + num_dropped
                tally["seen_bytes"] += num_bytes
                tally["dropped"] += num_dropped
                tally["delayed"] += num_packets
        return found

    def counters(self) -> dict[str, float]:
        """Bytes and packets on loopback in the namespace since it is up; one direction is not told from the other."""
        with open(f"/proc/{self.namespace_pid}/net/dev", encoding="ascii") as file:
            numbers = next(line.split(":")[1].split() for line in file if line.split(":")[0].strip() == DEVICE)
        return {"passed_bytes": float(numbers[0]), "passed_packets": float(numbers[1])}

    def kernel(self) -> dict[str, float]:
        """What the kernel counted in the namespace; see `namespace.COUNTERS`. Raises OSError after `close`."""
        return kernel_counters(self.namespace_pid)

    def close(self) -> None:
        """Take the link down. May be called again."""
        for timer in self._timers:
            timer.cancel()
        if self._loop is not None and not self._loop.is_closed() and self._anchor.control.fileno() >= 0:
            self._loop.remove_reader(self._anchor.control)
        self.listener.close()
        self._anchor.close()

    def _change(self, one: Command) -> None:
        """Read the counters, then change the qdisc; the anchor does it, inside the namespace."""
        self._asked.append(one.acting)
        try:
            self._anchor.control.send(json.dumps([SHOW, one.argv]).encode())
        except OSError as error:
            self.errors.append(f"the namespace's process does not listen: {error}")

    def _answered(self) -> None:
        message = self._anchor.control.recv(MESSAGE_BYTES)
        if not message:
            if self._loop is not None:
                self._loop.remove_reader(self._anchor.control)
            self.errors.append("the namespace's process has ended")
            return
        (_, shown), (code, said) = json.loads(message)
        if code:
            self.errors.append(said.strip())
        found = _SENT.search(shown)
        counts = (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
        self._boundaries.append(_Boundary(self._asked.pop(0), counts))
