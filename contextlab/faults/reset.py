"""A connection is torn down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contextlab.experiment import Close
from contextlab.faults.streams import ClosingFault, at_option


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(ClosingFault):
    """Both sides get a RST at a place of the reply (linger 0, set then); what was still to be sent is lost."""

    NAME: ClassVar[str] = "reset"
    SUMMARY: ClassVar[str] = "the connection is reset (RST) in the middle of a reply"
    CLOSE: ClassVar[Close] = Close.RESET
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"cut", "blackhole", "limit-data"})

    at: str = at_option("event:3", "where it is reset")

    @property
    def acting(self) -> str:
        """It ends connections."""
        return "reset connections"


FAULT = Reset
