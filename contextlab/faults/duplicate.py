"""Packets arrive twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Landed, Piece, Stage, option
from contextlab.faults.packets import Counted, PacketFault, direction_option, landing, null_landing


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(PacketFault):
    """Deliver a share of the packets twice, one right after the other; TCP throws the second away."""

    NAME: ClassVar[str] = "duplicate"
    SUMMARY: ClassVar[str] = "some packets arrive twice"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"duplicate"})

    share: float = option(0.05, "share of the packets that arrive twice", kind="share", low=0.0, high=1.0)
    direction: str = direction_option()

    @property
    def is_null(self) -> bool:
        """Doubling none changes nothing."""
        return self.share == 0

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Double packets. One draw for each."""
        return _Doubling(self.share, rng)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Packets were doubled, and TCP received segments that it had (it does not count bare acknowledgements)."""
        if self.is_null:
            return null_landing("share=0")
        known = kernel.get("duplicate_segments", 0)
        return landing(
            tally, (tally.get("duplicated"), "packets doubled"), (known, "segments received that TCP had already")
        )


class _Doubling(Counted):
    """`duplicated`, `duplicated_bytes`."""

    def __init__(self, share: float, rng: Random) -> None:
        super().__init__("duplicated", "duplicated_bytes")
        self._share, self._draw = share, rng.random

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        if self._draw() >= self._share:
            return (piece,)
        self.tally["duplicated"] += 1
        self.tally["duplicated_bytes"] += len(piece.data)
        return (piece, Piece(piece.at_s, piece.data))


FAULT = Duplicate
