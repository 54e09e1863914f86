"""The link carries only so many bytes a second, and queues what comes faster until its queue is full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Landed, Piece, Stage, option
from contextlab.faults.packets import (
    DELAYS,
    Counted,
    PacketFault,
    direction_option,
    landing,
    mean_delay_words,
    null_landing,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(PacketFault):
    """A slow link with a queue: packets wait for those before them, and are lost where the queue is full (tail drop).

    Bytes count with their IP and TCP headers; each direction has a link of its own. A limit of 0 lets all pass: what
    lets nothing pass is `loss:rate=100%`.
    """

    NAME: ClassVar[str] = "rate"
    SUMMARY: ClassVar[str] = "the link carries only so many bytes a second; a full queue drops packets"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"rate"})

    limit_bytes_per_s: float = option(
        1e6, "bytes per second, headers included; 0: no limit", kind="rate", low=0.0, unit="bytes/s"
    )
    queue_bytes: int = option(65536, "what may wait; more is dropped", kind="size", low=1500, unit="bytes")
    direction: str = direction_option()

    @property
    def is_null(self) -> bool:
        """No limit changes nothing."""
        return self.limit_bytes_per_s == 0

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Carry packets. Draws nothing."""
        return _Carrying(self.limit_bytes_per_s, self.queue_bytes)

    def emulated(self, rng: Random, direction: Direction) -> Stage:
        """Carry reads; a relay drops nothing, so its queue has no end."""
        return _Carrying(self.limit_bytes_per_s, inf)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Packets took their time or were dropped; the kernel does not count that."""
        if self.is_null:
            return null_landing("limit=0")
        slowed = tally.get("delayed", 0) + tally.get("dropped", 0)
        words = f"slowed{mean_delay_words(tally)} or dropped ({tally.get('dropped', 0):.0f})"
        return landing(tally, (slowed, words))


class _Carrying(Counted):
    """`delay_s` is the wait in the queue and the packet's own time on the link; `dropped`: the queue was full."""

    def __init__(self, limit_bytes_per_s: float, queue_bytes: float) -> None:
        super().__init__("dropped", "dropped_bytes", *DELAYS)
        self._limit, self._queue_bytes = limit_bytes_per_s, queue_bytes
        self._free_s = -inf

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        if self._limit == 0:
            return (piece,)
        size_bytes, at_s = len(piece.data), piece.at_s
        wait_s = max(0.0, self._free_s - at_s)
        if wait_s * self._limit + size_bytes > self._queue_bytes:
            self.tally["dropped"] += 1
            self.tally["dropped_bytes"] += size_bytes
            return ()
        self.delay(piece, wait_s + size_bytes / self._limit)
        self._free_s = piece.at_s
        return (piece,)


FAULT = Rate
