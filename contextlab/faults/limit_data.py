"""A reply ends after so many bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Close, Direction, Mark, Piece, Stage, option
from contextlab.faults.streams import StreamFault, StreamStage


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitData(StreamFault):
    """After exactly `size_bytes` of a reply's body the connection is closed (FIN), wherever that is."""

    NAME: ClassVar[str] = "limit-data"
    SUMMARY: ClassVar[str] = "the connection is closed (FIN) after so many bytes of a reply's body"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"cut", "reset", "blackhole", "limit-data"})

    size_bytes: int = option(1000, "body bytes that pass", kind="size", low=0, unit="bytes")

    @property
    def by_event(self) -> bool:
        """The body must be told from the head, and from HTTP's own chunks."""
        return True

    @property
    def acting(self) -> str:
        """It ends replies."""
        return "cut replies"

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Count the body's bytes. Draws nothing."""
        return _Counting(self.size_bytes)


class _Counting(StreamStage):
    """`passed_bytes` of bodies, `swallowed_bytes` beyond; a body that is short enough is not touched."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__("passed_bytes", "swallowed_bytes")
        self._left_bytes = size_bytes

    def feed(self, piece: Piece) -> Iterable[Piece]:
        if self.holds:
            self.tally["swallowed_bytes"] += len(piece.data)
            return ()
        if not piece.data or piece.mark in (Mark.HEAD, Mark.TAIL):
            return (piece,)
        size_bytes = len(piece.data)
        passed = min(size_bytes, self._left_bytes)
        self._left_bytes -= passed
        self.tally["passed_bytes"] += passed
        if passed == size_bytes:
            return (piece,)
        self.holds = True
        self.tally["applied"] += 1
        self.tally["swallowed_bytes"] += size_bytes - passed
        return (Piece(piece.at_s, piece.data[:passed], piece.mark, piece.event, Close.FIN),)


FAULT = LimitData
