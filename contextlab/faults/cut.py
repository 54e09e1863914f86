"""A reply is cut off by an orderly close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contextlab.experiment import Close
from contextlab.faults.streams import ClosingFault, at_option


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(ClosingFault):
    """The client's connection is closed (FIN) at a place of the reply, and the target's with it.

    Where the reply is chunked a client can know that its end is missing; where the close ends it, only the stream
    itself tells: a finish reason, `[DONE]`.
    """

    NAME: ClassVar[str] = "cut"
    SUMMARY: ClassVar[str] = "the connection is closed (FIN) in the middle of a reply"
    CLOSE: ClassVar[Close] = Close.FIN
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"reset", "blackhole", "limit-data"})

    at: str = at_option("event:3", "where it is cut")

    @property
    def acting(self) -> str:
        """It ends replies."""
        return "cut replies"


FAULT = Cut
