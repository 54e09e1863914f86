"""A connection goes silent, and nobody closes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Piece, Stage
from contextlab.faults.streams import Place, PlacedFault, StreamStage, at_option, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackhole(PlacedFault):
    """From a place of the reply on nothing passes any more, either way, and no close: a half-open connection.

    It lasts until the client leaves, also after the window: a stream with a hole in it must not go on. The target is
    read on (its bytes are `swallowed_bytes`), as by a client whose network has gone while its buffers are empty.
    """

    NAME: ClassVar[str] = "blackhole"
    SUMMARY: ClassVar[str] = "nothing passes any more and nothing is closed, until the client gives up"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"cut", "reset", "limit-data", "slow-close"})

    at: str = at_option("event:3", "where silence begins")

    @property
    def acting(self) -> str:
        """It silences connections."""
        return "silenced connections"

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Swallow. Draws nothing. What the client sends is the relay's to keep (`is_dark`)."""
        return _Dark(place(self.at))


class _Dark(StreamStage):
    def __init__(self, where: Place) -> None:
        super().__init__("swallowed_bytes")
        self._where = where

    def feed(self, piece: Piece) -> Iterable[Piece]:
        if self.holds:
            self.tally["swallowed_bytes"] += len(piece.data)
            return ()
        reached = self._where.reached(piece)
        if reached is None:
            return (piece,)
        before, rest = reached
        self.holds = self.is_dark = True
        self.tally["applied"] += 1
        self.tally["swallowed_bytes"] += len(rest.data)
        return () if before is None else (before,)


FAULT = Blackhole
