"""Packets are lost, each on its own or in bursts (Gilbert–Elliott)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Landed, Piece, Stage, option
from contextlab.faults.packets import DELAYS, Counted, PacketFault, direction_option, landing, null_landing

FIRST_TIMEOUT_S, LONGEST_TIMEOUT_S = 0.2, 120.0
"""Linux's least and longest retransmission timeout; it doubles from one to the other (RFC 6298)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(PacketFault):
    """Lose a share of the packets; TCP sends them again, which costs time and no data."""

    NAME: ClassVar[str] = "loss"
    SUMMARY: ClassVar[str] = "packets are lost; TCP sends them again after a while"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"loss"})

    rate: float = option(0.05, "share of the packets that are lost", kind="share", low=0.0, high=1.0)
    burst: float = option(
        1.0,
        "mean number of packets lost in a row; up to 1/(1−rate) each packet is lost on its own",
        kind="float",
        low=1.0,
        high=10_000.0,
        unit="packets",
    )
    direction: str = direction_option()

    @property
    def is_null(self) -> bool:
        """A rate of 0 loses nothing."""
        return self.rate == 0

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Lose packets."""
        return _Losing(self, rng)

    def emulated(self, rng: Random, direction: Direction) -> Stage:
        """Stall reads as long as TCP would, taking each read for one packet."""
        return _Stalling(self, rng)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Packets were dropped, and the kernel sent segments again."""
        if self.is_null:
            return null_landing("rate=0")
        if "stalled" in tally:
            return landing(tally, (tally["stalled"], "stalls in place of losses"))
        again = kernel.get("retransmitted_segments", 0)
        return landing(tally, (tally.get("dropped", 0), "packets dropped"), (again, "segments sent again"))


class _TwoStates:
    """Gilbert–Elliott as netem's `gemodel p r`: all is lost in the bad state, nothing in the good one.

    r = P(bad → good) = 1/burst, p = P(good → bad) = r·rate/(1−rate), so that the share of the bad state is
    p/(p+r) = rate and a burst is 1/r packets long on average. At r = 1−rate, p = rate: losses are independent, with
    bursts of 1/(1−rate); no shorter ones are made. It begins in its stationary state. One draw a packet.
    """

    def __init__(self, fault: Loss, rng: Random) -> None:
        self._draw = rng.random
        leave_bad = min(1.0 - fault.rate, 1.0 / fault.burst)
        self._stay_bad = 1.0 - leave_bad
        self._go_bad = leave_bad * fault.rate / (1.0 - fault.rate) if fault.rate < 1 else 1.0
        self._bad = self._draw() < fault.rate

    def lost(self) -> bool:
        """What becomes of the next packet."""
        self._bad = self._draw() < (self._stay_bad if self._bad else self._go_bad)
        return self._bad


class _Losing(Counted):
    """`dropped`, `dropped_bytes`, and `bursts`: runs of packets lost one after the other."""

    def __init__(self, fault: Loss, rng: Random) -> None:
        super().__init__("dropped", "dropped_bytes", "bursts")
        self._states = _TwoStates(fault, rng)
        self._in_burst = False

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        if not self._states.lost():
            self._in_burst = False
            return (piece,)
        self.tally["dropped"] += 1
        self.tally["dropped_bytes"] += len(piece.data)
        self.tally["bursts"] += not self._in_burst
        self._in_burst = True
        return ()


class _Stalling(Counted):
    """`stalled`: reads that wait for a retransmission timeout, which doubles with every loss in a row."""

    def __init__(self, fault: Loss, rng: Random) -> None:
        super().__init__("stalled", *DELAYS)
        self._states = _TwoStates(fault, rng)
        self._timeout_s = FIRST_TIMEOUT_S

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        if self._states.lost():
            self.tally["stalled"] += 1
            self.delay(piece, self._timeout_s)
            self._timeout_s = min(2 * self._timeout_s, LONGEST_TIMEOUT_S)
        else:
            self._timeout_s = FIRST_TIMEOUT_S
        return (piece,)


FAULT = Loss
