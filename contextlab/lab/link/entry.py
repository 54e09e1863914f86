"""The link process: a relay, with the packet link or netem in front of it where there is one, and the faults on both.

    python -m contextlab.lab.link.entry FD

Orders come as JSON lines over the socket FD, the first one is `open`; each is answered by one line. The process ends
when the socket does. See `route.py` for the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import uvloop

from contextlab import registry
from contextlab.analysis.loads import rng_of
from contextlab.experiment import Direction, FaultEvidence, Landed, Placed, Plane, Stage, WireFault
from contextlab.lab.journal import plain, revive
from contextlab.lab.link.chain import Chain, Window, total
from contextlab.lab.link.emulation import Emulated
from contextlab.lab.link.engines import EMULATED, NETEM, PACKET_LINK, RELAY
from contextlab.lab.link.exposure import Armed
from contextlab.lab.link.netem import NetemLink
from contextlab.lab.link.relay import Relay, listening
from contextlab.lab.link.tunnel import Tunnel, open_tunnel
from contextlab.model import ContextlabError, UnableError, UsageError

Json = Mapping[str, Any]
AFTERMATH_S = 1.0
"""How long after a packet fault the kernel's counters are still put down to it: TCP takes its time to retransmit."""


class OnPackets:
    """A packet fault at work, and the kernel's counters from its beginning to a moment after its end."""

    def __init__(self, fault: WireFault, read_kernel: Callable[[], dict[str, float]]) -> None:
        self.fault = fault
        self.stages: list[Stage] = []
        self._read = read_kernel
        self._before: dict[str, float] | None = None
        self._after: dict[str, float] | None = None

    def begin(self) -> None:
        """It acts from now on."""
        self._before = self._read()

    def end(self) -> None:
        """What the kernel does from now on is not its doing."""
        self._after = self._read()

    def kernel(self) -> dict[str, float]:
        """How much each counter of the kernel grew; empty before it has begun."""
        if self._before is None:
            return {}
        after = self._after or self._read()
        return {name: value - self._before.get(name, 0.0) for name, value in after.items()}


class Link:
    """What one route consists of. `carrier`: what carries packets to the relay, None: they come as they are."""

    def __init__(self, order: Json) -> None:
        self.engine = str(order["engine"])
        self._carrier: Tunnel | NetemLink | None = None  # its anchor is forked, so it comes before loop and threads
        if self.engine == PACKET_LINK:
            self._carrier = open_tunnel()
        elif self.engine == NETEM:
            self._carrier = NetemLink()
        self._seed = int(order["seed"])
        self._faults: list[tuple[str, Armed | OnPackets]] = []
        self.loop = uvloop.new_event_loop()
        self._num_errors = 0
        self.loop.set_exception_handler(self._failed)
        host, port = order["upstream"]
        self._relay = Relay(self.loop, (str(host), int(port)), seed=self._seed)
        if self._carrier is None:
            self._listener = listening(int(order["port"]))
        else:
            self._listener = self._carrier.listener
            self._carrier.run(self.loop)
        self._relay.listen(self._listener)

    def opened(self) -> Json:
        """Where clients connect."""
        if self._carrier is None:
            host, port = self._listener.getsockname()[:2]
            return {"host": host, "port": port, "namespace_pid": None}
        host, port = self._carrier.far
        return {"host": host, "port": port, "namespace_pid": self._carrier.namespace_pid}

    def arm(self, order: Json) -> Json:
        """Make the faults and place them, in the relay or on the packets' way."""
        zero_s = float(order["zero_s"])
        placed = [revive(one, Placed) for one in order["faults"]]
        made: list[Armed | OnPackets] = []
        windows: dict[Direction, list[Window]] = {direction: [] for direction in Direction}
        for number, one in enumerate(placed):
            fault = registry.wire_fault(one)
            start_s, end_s = zero_s + one.start_s, zero_s + one.end_s
            if fault.PLANE is Plane.STREAM or self.engine == EMULATED:
                acting: WireFault = fault if fault.PLANE is Plane.STREAM else Emulated(fault)
                made.append(Armed(acting, number=number, start_s=start_s, end_s=end_s))
                continue
            if self._carrier is None:
                raise UnableError(
                    f"{one.name} acts on packets, and the engine is {self.engine}", f"use the engine {PACKET_LINK}"
                )
            on_packets = OnPackets(fault, self._carrier.kernel)
            made.append(on_packets)
            self._relay.alarms.at(start_s, on_packets.begin)
            self._relay.alarms.at(end_s + AFTERMATH_S, on_packets.end)
            for direction in Direction:
                if fault.touches(direction):
                    stage = fault.stage(rng_of(self._seed, number, direction.value), direction)
                    on_packets.stages.append(stage)
                    windows[direction].append((start_s, end_s, stage))
        if isinstance(self._carrier, Tunnel):
            self._carrier.arm({direction: Chain(found) for direction, found in windows.items()})
        elif isinstance(self._carrier, NetemLink):
            pairs = [(one, made[number]) for number, one in enumerate(placed)]
            on_link = [(one, fault.fault) for one, fault in pairs if isinstance(fault, OnPackets)]
            self._carrier.arm([one for one, _ in on_link], [fault for _, fault in on_link], zero_s)
        if order["keep"]:
            self._relay.keep()
        self._relay.arm([one for one in made if isinstance(one, Armed)])
        self._faults = list(zip((one.name for one in placed), made, strict=True))
        return {}

    def report(self) -> Json:
        """The evidence of each armed fault in their order, and what passed."""
        counters = {**self._relay.counters(), "errors": float(self._num_errors)}
        if self._carrier is not None:
            counters |= {f"link_{name}": value for name, value in self._carrier.counters().items()}
        tallies = iter(self._carrier.tallies()) if isinstance(self._carrier, NetemLink) else None
        evidence = []
        for name, one in self._faults:
            if isinstance(one, Armed):
                engine = EMULATED if isinstance(one.fault, Emulated) else RELAY
                tally, kernel = one.tally(), dict[str, float]()
            else:
                engine, kernel = self.engine, one.kernel()
                tally = next(tallies) if tallies else total(stage.tally for stage in one.stages)
            landed = one.fault.landed(tally, kernel)
            if engine == NETEM and isinstance(self._carrier, NetemLink) and self._carrier.errors:
                landed = Landed(proven=False, why=f"tc refused: {self._carrier.errors[0]}")
            evidence.append(FaultEvidence(name=name, engine=engine, tally=tally, kernel=kernel, landed=landed))
        return {"evidence": [plain(one) for one in evidence], "counters": counters}

    def as_sent(self, order: Json) -> Json:
        """Which of the requests asked about got the bytes that the target sent, or the first of them."""
        tap = self._relay.tap
        asked = [(int(index), int(size), int(crc)) for index, size, crc in order["asked"]]
        return {
            "as_sent": [] if tap is None else [index for index, size, crc in asked if tap.is_as_sent(index, size, crc)]
        }

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A mistake of ours on one connection; the others go on, the log has it, and so have the counters."""
        self._num_errors += 1
        loop.default_exception_handler(context)

    def close(self) -> None:
        """Release everything."""
        self._relay.close()
        self._listener.close()
        if self._carrier is not None:
            self._carrier.close()
        self.loop.close()


def serve(control: socket.socket) -> None:
    """Obey orders until the socket closes."""
    first, rest = _first_line(control)
    if not first:
        return
    try:
        link = Link(msgspec.json.decode(first))
    except ContextlabError as error:
        _answer(control, _refusal(error))
        return
    buffer = bytearray(rest)

    def ordered() -> None:
        chunk = control.recv(1 << 16)
        if not chunk:
            link.loop.stop()
        buffer.extend(chunk)
        while b"\n" in buffer:
            line, _, after = bytes(buffer).partition(b"\n")
            buffer[:] = after
            _answer(control, _obeyed(link, msgspec.json.decode(line)))

    _answer(control, link.opened())
    link.loop.add_reader(control, ordered)
    try:
        link.loop.run_forever()
    finally:
        link.loop.remove_reader(control)
        link.close()


def _obeyed(link: Link, order: Json) -> Json:
    try:
        match order["order"]:
            case "arm":
                return link.arm(order)
            case "report":
                return link.report()
            case "as_sent":
                return link.as_sent(order)
        raise UsageError(f"order={order['order']!r}: there is no such order", "choose from: arm, report, as_sent")
    except ContextlabError as error:
        return _refusal(error)


def _refusal(error: ContextlabError) -> Json:
    kind = "usage" if isinstance(error, UsageError) else "unable"
    return {"error": kind, "message": error.message, "next_step": error.next_step}


def _first_line(control: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\n" not in data:
        chunk = control.recv(1 << 16)
        if not chunk:
            return b"", b""
        data += chunk
    line, _, rest = data.partition(b"\n")
    return line, rest


def _answer(control: socket.socket, answer: Json) -> None:
    """Blocking, for the other end waits for it; what it does not want to hear any more is not said."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.sendall(msgspec.json.encode(answer) + b"\n")


def main() -> None:
    """Run one link process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
