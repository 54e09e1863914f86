"""One bit of some packets changes on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Landed, Piece, Stage, option
from contextlab.faults.packets import (
    IP_HEADER_BYTES,
    Counted,
    PacketFault,
    direction_option,
    landing,
    null_landing,
)

TCP, UDP = 6, 17
UDP_HEADER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrupt(PacketFault):
    """Flip one bit of a share of the packets, in what they carry or in its checksum.

    The receiver's checksum finds it and throws the packet away, so for TCP it is a loss with another counter. The
    data of a stream changes only by the fault `corrupt-event`.
    """

    NAME: ClassVar[str] = "corrupt"
    SUMMARY: ClassVar[str] = "one bit of some packets is flipped; TCP's checksum refuses them"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"corrupt"})

    share: float = option(0.05, "share of the packets that are damaged", kind="share", low=0.0, high=1.0)
    direction: str = direction_option()

    @property
    def is_null(self) -> bool:
        """Damaging none changes nothing."""
        return self.share == 0

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Damage packets. Two draws for each."""
        return _Flipping(self.share, rng)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Bits were flipped, and the kernel found checksums that do not fit."""
        if self.is_null:
            return null_landing("share=0")
        found = kernel.get("checksum_errors", 0)
        return landing(
            tally, (tally.get("corrupted"), "packets damaged"), (found, "segments refused by their checksum")
        )


class _Flipping(Counted):
    """`corrupted`; a packet that is neither TCP nor UDP is left as it is."""

    def __init__(self, share: float, rng: Random) -> None:
        super().__init__("corrupted")
        self._share, self._draw = share, rng.random

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        hit, where = self._draw() < self._share, self._draw()
        places = bits(piece.data) if hit else None
        if places is not None:
            checksum, payload = places
            place = int(where * (len(checksum) + len(payload)))
            bit = checksum[place] if place < len(checksum) else payload[place - len(checksum)]
            damaged = bytearray(piece.data)
            damaged[bit // 8] ^= 1 << bit % 8
            piece.data = bytes(damaged)
            self.tally["corrupted"] += 1
        return (piece,)


def bits(packet: bytes) -> tuple[range, range] | None:
    """Numbers of the bits of a packet's TCP or UDP checksum and of its payload; None where it is neither."""
    protocol = packet[9]
    if protocol == TCP and len(packet) >= IP_HEADER_BYTES + 20:
        checksum, header_bytes = IP_HEADER_BYTES + 16, (packet[IP_HEADER_BYTES + 12] >> 4) * 4
    elif protocol == UDP and len(packet) >= IP_HEADER_BYTES + UDP_HEADER_BYTES:
        checksum, header_bytes = IP_HEADER_BYTES + 6, UDP_HEADER_BYTES
    else:
        return None
    return range(8 * checksum, 8 * checksum + 16), range(8 * (IP_HEADER_BYTES + header_bytes), 8 * len(packet))


FAULT = Corrupt
