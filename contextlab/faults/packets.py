"""What the packet faults share: which way they act, what every stage counts, and when they count as landed. No fault.

A packet is a `Piece` whose data begins with an IPv4 header without options, as `lab/link/tunnel.py` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar

from contextlab.analysis.quantities import num_of
from contextlab.experiment import Direction, Landed, Piece, Plane, Stage, option

IP_HEADER_BYTES = 20


def direction_option() -> Any:
    """The field `direction` of every packet fault."""
    words = "which packets: up (client to target), down (target to client) or both"
    return option("both", words, kind="text", choices=("both", "up", "down"))


class PacketFault:
    """What holds for every packet fault; its fields are its own, among them `direction`."""

    __slots__ = ()
    PLANE: ClassVar[Plane] = Plane.PACKET
    direction: str

    @property
    def by_event(self) -> bool:
        """A packet knows nothing of events."""
        return False

    def touches(self, direction: Direction) -> bool:
        """Whether it acts on packets that go this way."""
        return self.direction in ("both", direction)

    def hits(self, rng: Random) -> bool:
        """Every request's packets, without a draw."""
        return True

    def emulated(self, rng: Random, direction: Direction) -> Stage | None:
        """What stands for it on the reads of a relay, where no packets can be reached; None: nothing does.

        A relay keeps the order and every byte, so such a stage only delays.
        """
        return None


class Counted:
    """A stage's tally: `seen` packets and `seen_bytes`, and the names of its own."""

    def __init__(self, *names: str) -> None:
        self.tally: dict[str, float] = dict.fromkeys(("seen", "seen_bytes", *names), 0.0)

    def see(self, piece: Piece) -> None:
        """Count a packet that reached this stage."""
        self.tally["seen"] += 1
        self.tally["seen_bytes"] += len(piece.data)

    def delay(self, piece: Piece, delay_s: float) -> None:
        """Let a piece be due so much later, and count it: `delayed`, `delay_s`, `max_delay_s`."""
        tally = self.tally
        piece.at_s += delay_s
        tally["delayed"] += delay_s > 0
        tally["delay_s"] += delay_s
        if delay_s > tally["max_delay_s"]:
            tally["max_delay_s"] = delay_s


DELAYS = ("delayed", "delay_s", "max_delay_s")
"""Names in the tally of a stage that delays."""


def flow(packet: bytes) -> bytes:
    """The ports of a packet, which tell its connection and its direction."""
    return packet[IP_HEADER_BYTES : IP_HEADER_BYTES + 4]


def null_landing(asked: str) -> Landed:
    """Nothing was asked of it, as `rate=0`."""
    return Landed(proven=None, why=f"{asked} asks for nothing")


def landing(tally: Mapping[str, float], *proofs: tuple[float | None, str]) -> Landed:
    """Landed if something passed and every proof, a count and what it counts, is more than nothing.

    A count of None is one that this engine does not keep; at least one must be kept.
    """
    seen = tally.get("seen", 0)
    if not seen:
        return Landed(proven=False, why="no packet passed while it acted")
    kept = [(count, what) for count, what in proofs if count is not None]
    missing = [what for count, what in kept if count <= 0]
    if missing or not kept:
        why = f"but 0 {' and 0 '.join(missing)}" if missing else "but nobody counted what became of them"
        return Landed(proven=False, why=f"{num_of(seen, 'packets passed')}, {why}")
    found = ", ".join(num_of(count, what) for count, what in kept)
    return Landed(proven=True, why=f"{num_of(seen, 'packets passed')}: {found}")


def mean_delay_words(tally: Mapping[str, float]) -> str:
    """The achieved mean and longest delay of what was seen, for a proof's words; "" where nobody measured it."""
    if "delay_s" not in tally:
        return ""
    mean_s = tally["delay_s"] / max(tally.get("seen", 0), 1)
    return f" (mean {mean_s * 1000:.1f} ms, longest {tally.get('max_delay_s', 0) * 1000:.1f} ms)"
