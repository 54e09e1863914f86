"""A reply stands still for a while, then goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Piece, Stage, option
from contextlab.faults.streams import Place, PlacedFault, StreamStage, at_option, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(PlacedFault):
    """From a place of the reply on nothing arrives for `pause_s`, once in a request; then all of it does, in order."""

    NAME: ClassVar[str] = "stall"
    SUMMARY: ClassVar[str] = "a reply stands still for a while in its middle, then goes on"

    at: str = at_option("event:3", "where it stands still")
    pause_s: float = option(1.0, "for how long", kind="duration", low=0.0, high=600.0, unit="s")

    @property
    def asks_nothing(self) -> str:
        """No pause."""
        return "" if self.pause_s else "pause=0"

    @property
    def acting(self) -> str:
        """It holds replies."""
        return "held replies"

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Hold the reply. Draws nothing."""
        return _Still(place(self.at), self.pause_s)


class _Still(StreamStage):
    """`held_bytes`: what had to wait."""

    def __init__(self, where: Place, pause_s: float) -> None:
        super().__init__("pause_s", "held_bytes")
        self._where, self._pause_s = where, pause_s
        self._until_s = 0.0

    def feed(self, piece: Piece) -> Iterable[Piece]:
        if self.holds:
            return (self._held(piece),)
        reached = self._where.reached(piece)
        if reached is None:
            return (piece,)
        before, rest = reached
        self.holds = True
        self._until_s = piece.at_s + self._pause_s
        self.tally["applied"] += 1
        self.tally["pause_s"] += self._pause_s
        rest = self._held(rest)
        return (rest,) if before is None else (before, rest)

    def _held(self, piece: Piece) -> Piece:
        if piece.at_s < self._until_s:
            piece.at_s = self._until_s
            self.tally["held_bytes"] += len(piece.data)
        return piece


FAULT = Stall
