"""A reply is cut off by an orderly close."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Close, Direction, Stage, option
from contextlab.faults.streams import Ending, PlacedFault, at_option, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(PlacedFault):
    """The client's connection is closed (FIN) at a place of the reply, and the target's with it.

    Where the reply is chunked a client can know that its end is missing; where the close ends it, only the stream
    itself tells: a finish reason, `[DONE]`.
    """

    NAME: ClassVar[str] = "cut"
    SUMMARY: ClassVar[str] = "the connection is closed (FIN) in the middle of a reply"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"reset", "blackhole", "limit-data"})

    at: str = at_option("event:3", "where it is cut")
    after_s: float = option(
        0.05, "with at=prefill: how long after the request", kind="duration", low=0.0, high=600.0, unit="s"
    )

    @property
    def acting(self) -> str:
        """It ends replies."""
        return "cut replies"

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """End the reply. Draws nothing."""
        return Ending(place(self.at), Close.FIN, self.after_s)


FAULT = Cut
