"""A connection is torn down."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Close, Direction, Stage, option
from contextlab.faults.streams import Ending, PlacedFault, at_option, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(PlacedFault):
    """Both sides get a RST at a place of the reply (linger 0, set then); what was still to be sent is lost."""

    NAME: ClassVar[str] = "reset"
    SUMMARY: ClassVar[str] = "the connection is reset (RST) in the middle of a reply"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"cut", "blackhole", "limit-data"})

    at: str = at_option("event:3", "where it is reset")
    after_s: float = option(
        0.05, "with at=prefill: how long after the request", kind="duration", low=0.0, high=600.0, unit="s"
    )

    @property
    def acting(self) -> str:
        """It ends connections."""
        return "reset connections"

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Reset the connection. Draws nothing."""
        return Ending(place(self.at), Close.RESET, self.after_s)


FAULT = Reset
