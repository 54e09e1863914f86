"""Bytes arrive in slices of a few bytes, cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Piece, Stage, option
from contextlab.faults.streams import StreamFault, StreamStage, direction_option


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(StreamFault):
    """What is read is sent on in slices of `size_bytes`, `pause_s` apart, each in a segment of its own.

    The cuts fall where they fall: inside a UTF-8 character, inside `data:`, inside a chunk's size. Without a pause a
    client that is slow to read may find several slices together.
    """

    NAME: ClassVar[str] = "slice"
    SUMMARY: ClassVar[str] = "bytes come in slices of a few bytes, cut inside characters and inside `data:`"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"slice"})

    size_bytes: int = option(7, "bytes in a slice", kind="size", low=1, unit="bytes")
    pause_s: float = option(0.0005, "between two slices", kind="duration", low=0.0, high=60.0, unit="s")
    direction: str = direction_option("down")

    @property
    def acting(self) -> str:
        """It cuts reads."""
        return "cut bytes"

    def touches(self, direction: Direction) -> bool:
        """As asked."""
        return self.direction in ("both", direction)

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Cut what is read. Draws nothing."""
        return _Slicing(self.size_bytes, self.pause_s)


class _Slicing(StreamStage):
    """`slices`: how many were made; `applied`: reads that were cut."""

    def __init__(self, size_bytes: int, pause_s: float) -> None:
        super().__init__("slices", "bytes")
        self._size_bytes, self._pause_s = size_bytes, pause_s
        self._next_s = 0.0

    def feed(self, piece: Piece) -> Iterable[Piece]:
        if not piece.data:
            return (piece,)
        slices: list[Piece] = []
        for at in range(0, len(piece.data), self._size_bytes):
            due_s = max(piece.at_s, self._next_s)
            self._next_s = due_s + self._pause_s
            data = piece.data[at : at + self._size_bytes]
            slices.append(Piece(due_s, data) if slices else Piece(due_s, data, piece.mark, piece.event))
        slices[-1].close = piece.close
        self.tally["slices"] += len(slices)
        self.tally["bytes"] += len(piece.data)
        self.tally["applied"] += len(slices) > 1
        return slices


FAULT = Slice
