"""What the relay does in place of packet faults where nothing here can act on packets. It is called "emulated" always.

A relay has no packets: what it reads has been received and acknowledged, so nothing can be lost, repeated or damaged.
It can only let bytes be late. Here each read is cut into what would have been segments; the fault's own stand-in
(`PacketFault.emulated`) says how late each would have been, a loss being a retransmission timeout; and the order is
kept, as TCP would, so that one late segment holds up all that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Landed, Piece, Plane, Stage, WireFault
from contextlab.lab.link.engines import emulation
from contextlab.model import UnableError

SEGMENT_BYTES = 1448
"""What one segment of TCP carries with an MTU of 1500."""


class Emulated:
    """A packet fault as a stream fault that hits every request. Raises UnableError where a relay can do nothing."""

    NAME: ClassVar[str] = "emulated"
    PLANE: ClassVar[Plane] = Plane.STREAM
    SUMMARY: ClassVar[str] = "a packet fault in appearance only"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset()
    by_event = False

    def __init__(self, fault: WireFault) -> None:
        self._fault = fault
        self.is_null = fault.is_null
        for direction in Direction:
            if fault.touches(direction) and emulation(fault, Random(0), direction) is None:
                raise UnableError(
                    f"a relay cannot {fault.NAME} packets, not even in appearance",
                    "run where the packet link works, or leave this fault out",
                )

    def touches(self, direction: Direction) -> bool:
        """As the fault itself."""
        return self._fault.touches(direction)

    def hits(self, rng: Random) -> bool:
        """Every request."""
        return True

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """The fault's stand-in, segment by segment."""
        stand_in = emulation(self._fault, rng, direction)
        if stand_in is None:
            raise UnableError(f"a relay cannot {self._fault.NAME} packets", "run where the packet link works")
        return _Segments(stand_in)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """As the fault itself says of its stand-in's tally."""
        return self._fault.landed(tally, kernel)


class _Segments:
    """Cuts reads into segments for a stand-in. What carries no data (an end, a poke) passes: order holds it back."""

    def __init__(self, stand_in: Stage) -> None:
        self._stand_in = stand_in
        self.tally = stand_in.tally

    def feed(self, piece: Piece) -> Iterable[Piece]:
        data = piece.data
        if len(data) <= SEGMENT_BYTES:
            return self._stand_in.feed(piece) if data else (piece,)
        first, *others = (data[at : at + SEGMENT_BYTES] for at in range(0, len(data), SEGMENT_BYTES))
        segments = [Piece(piece.at_s, first, piece.mark, piece.event), *(Piece(piece.at_s, part) for part in others)]
        segments[-1].close = piece.close
        return [out for segment in segments for out in self._stand_in.feed(segment)]
