"""Which engine carries the packet faults of an experiment on this machine, and why the better ones do not.

In order of preference: the packet link, `tc netem`, and, only where the user allows it, delays and stalls made by the
relay, which are no packet faults and are called "emulated" everywhere. Stream faults need the relay alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from contextlab import registry
from contextlab.experiment import Direction, Placed, Plane, Stage, WireFault
from contextlab.faults.packets import PacketFault
from contextlab.lab.link import netem, tunnel
from contextlab.model import UnableError, UsageError

RELAY, PACKET_LINK, NETEM, EMULATED = "relay", "packet link", "netem", "emulated"
NEEDS = {
    RELAY: "nothing",
    PACKET_LINK: "Linux, /dev/net/tun, and CAP_SYS_ADMIN with CAP_NET_ADMIN or unprivileged user namespaces",
    NETEM: "Linux with sch_netem, the program tc, and the same rights",
    EMULATED: "--allow-emulation",
}
"""What each engine needs, for `--dry-run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine and why it cannot carry these faults here; "" where it can."""

    name: str
    why_not: str = ""


def survey(placed: Sequence[Placed]) -> Iterator[Engine]:
    """The engines for these faults in order of preference, each tried for real when its turn comes.

    The relay alone where none of them acts on packets. Raises UsageError where a fault contradicts itself.
    """
    pairs = [(one, fault) for one in placed if (fault := registry.wire_fault(one)).PLANE is Plane.PACKET]
    if not pairs:
        yield Engine(name=RELAY)
        return
    faults = [fault for _, fault in pairs]
    yield Engine(name=PACKET_LINK, why_not=why_no_packet_link())
    yield Engine(name=NETEM, why_not=_why_no_netem([one for one, _ in pairs], faults))
    yield Engine(name=EMULATED, why_not=_why_not_emulated(faults))


def choose_engine(placed: Sequence[Placed], *, allow_emulation: bool = False) -> str:
    """The name of the best engine that can carry these faults here. Raises UnableError with what each one lacks."""
    lacking: list[str] = []
    for engine in survey(placed):
        if engine.name == EMULATED and not allow_emulation:
            break
        if not engine.why_not:
            return engine.name
        lacking.append(f"{engine.name}: {engine.why_not}")
    raise UnableError(
        "nothing here can act on packets:\n  " + "\n  ".join(lacking),
        f"the packet link needs {NEEDS[PACKET_LINK]}"
        + ("" if allow_emulation else "; --allow-emulation lets a relay delay and stall instead, and says so"),
    )


def emulation(fault: WireFault, rng: Random, direction: Direction) -> Stage | None:
    """The stage by which a relay stands in for a packet fault; None where it cannot."""
    return fault.emulated(rng, direction) if isinstance(fault, PacketFault) else None


def why_no_packet_link() -> str:
    """Why there can be no packet link here, found by making one that is thrown away; "" where there can."""
    try:
        tunnel.open_tunnel().close()
    except UnableError as error:
        return error.message
    return ""


def _why_no_netem(placed: Sequence[Placed], faults: Sequence[WireFault]) -> str:
    try:
        netem.plan(placed, faults)
    except UsageError as error:
        return error.message
    return netem.probe()


def _why_not_emulated(faults: Sequence[WireFault]) -> str:
    names = [fault.NAME for fault in faults if emulation(fault, Random(0), Direction.DOWN) is None]
    return f"a relay cannot {' or '.join(names)} packets" if names else ""
