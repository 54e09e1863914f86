"""What the misbehaving clients share: how many there are, how long a reply they ask for, their proof. No fault.

A client's requests are the load's own, asked for in another way; they are marked by an X-Request-Id that names the
fault. What crosses their connections is counted for every fault alike (`lab/crowd/call`); a fault counts what it did.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from contextlab.analysis.quantities import num_of
from contextlab.deeds import Call
from contextlab.experiment import Landed, Plane, option


def clients_option(default: int) -> Any:
    """The field `clients`."""
    words = "how many at any time; each that has ended is followed by another"
    return option(default, words, kind="int", low=0, high=1000)


def reply_option(default: int) -> Any:
    """The field `reply_tokens`."""
    words = "length of the reply that they ask for"
    return option(default, words, kind="int", low=1, high=1_000_000, unit="tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misbehaving(ABC):
    """What holds for every kind of misbehaving client."""

    PLANE: ClassVar[Plane] = Plane.CLIENT
    EXCLUDES: ClassVar[frozenset[str]] = frozenset()

    clients: int = clients_option(2)

    @property
    def asks_nothing(self) -> str:
        """The option that makes it do nothing, in words; "" where none does."""
        return "" if self.clients else "clients=0"

    @property
    def is_null(self) -> bool:
        """Whether it does nothing as its options stand."""
        return bool(self.asks_nothing)

    @abstractmethod
    async def behave(self, call: Call) -> None:
        """One client from its connection to its end."""

    @abstractmethod
    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """How often it really did what it is for, and what that is, in words."""

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """A client connected, and then it did at least once what the fault is for."""
        if self.is_null:
            return Landed(proven=None, why=f"{self.asks_nothing} asks for nothing")
        connected = tally.get("connected", 0)
        if not connected:
            tried = tally.get("not_connected", 0)
            return Landed(
                proven=False, why=f"none of {num_of(tried, 'clients')} got a connection" if tried else "no client"
            )
        number, words = self.achieved(tally)
        return Landed(proven=number > 0, why=f"{num_of(connected, 'connections')}, {num_of(number, words)}")


def count(call: Call, name: str, number: float = 1) -> None:
    """Add to what all clients of a fault have counted."""
    call.tally[name] = call.tally.get(name, 0.0) + number
