"""A connection carries only so many bytes a second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Piece, Stage, option
from contextlab.faults.streams import StreamFault, StreamStage, direction_option
from contextlab.model import UsageError

SMOOTH_S = 0.02
"""What takes longer than this to pass comes in parts, as it would from a slow line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth(StreamFault):
    """Bytes of each connection pass at `limit_bytes_per_s`; what comes faster waits, and so must its sender.

    A limit of 0 is refused: what stands still for a time is `stall`, for good `blackhole`.
    """

    NAME: ClassVar[str] = "bandwidth"
    SUMMARY: ClassVar[str] = "each connection carries only so many bytes a second"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"bandwidth"})

    limit_bytes_per_s: float = option(16_000.0, "bytes per second", kind="rate", unit="bytes/s")
    direction: str = direction_option("down")

    def __post_init__(self) -> None:
        if self.limit_bytes_per_s <= 0:
            raise UsageError(
                f"limit={self.limit_bytes_per_s:g}: bandwidth needs a limit above 0",
                "to let nothing pass for a time use stall, for good use blackhole",
            )

    @property
    def acting(self) -> str:
        """It slows reads down."""
        return "slowed bytes"

    def touches(self, direction: Direction) -> bool:
        """As asked."""
        return self.direction in ("both", direction)

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Let bytes pass one after the other. Draws nothing."""
        return _Narrow(self.limit_bytes_per_s)


class _Narrow(StreamStage):
    """`delay_s`: in sum, until the last byte of each read has passed; `applied`: reads that took their time."""

    def __init__(self, limit_bytes_per_s: float) -> None:
        super().__init__("delay_s", "bytes")
        self._limit = limit_bytes_per_s
        self._part_bytes = max(1, int(limit_bytes_per_s * SMOOTH_S))
        self._free_s = 0.0

    def feed(self, piece: Piece) -> Iterable[Piece]:
        if not piece.data:
            if piece.close is not None:
                piece.at_s = max(piece.at_s, self._free_s)
            return (piece,)
        size_bytes, arrived_s = len(piece.data), piece.at_s
        begins_s = max(arrived_s, self._free_s)
        self._free_s = begins_s + size_bytes / self._limit
        self.tally["applied"] += 1
        self.tally["bytes"] += size_bytes
        self.tally["delay_s"] += self._free_s - arrived_s
        parts: list[Piece] = []
        for at in range(0, size_bytes, self._part_bytes):
            data = piece.data[at : at + self._part_bytes]
            due_s = begins_s + (at + len(data)) / self._limit
            parts.append(Piece(due_s, data) if parts else Piece(due_s, data, piece.mark, piece.event))
        parts[-1].close = piece.close
        return parts


FAULT = Bandwidth
