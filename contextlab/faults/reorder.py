"""Some packets are overtaken by later ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from contextlab.experiment import Direction, Landed, Piece, Stage, option
from contextlab.faults.packets import DELAYS, Counted, PacketFault, direction_option, flow, landing, null_landing


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder(PacketFault):
    """Hold a share of the packets back for `hold_s`; what its connection sends meanwhile overtakes them.

    A connection that sends nothing for so long is only delayed, which is not reordering and not counted as such.
    """

    NAME: ClassVar[str] = "reorder"
    SUMMARY: ClassVar[str] = "some packets are held back, so that later ones overtake them"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"reorder"})

    share: float = option(0.05, "share of the packets that are held back", kind="share", low=0.0, high=1.0)
    hold_s: float = option(0.03, "for how long they are held back", kind="duration", low=0.0, high=60.0, unit="s")
    direction: str = direction_option()

    @property
    def is_null(self) -> bool:
        """Holding none back, or for no time, changes nothing."""
        return self.share == 0 or self.hold_s == 0

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Hold packets back. One draw for each."""
        return _Holding(self, rng)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Packets were overtaken by others of their connection, and TCP received segments out of order."""
        if self.is_null:
            return null_landing("share=0" if self.share == 0 else "hold=0")
        out_of_order = kernel.get("out_of_order_segments", 0)
        return landing(
            tally, (tally.get("overtaken"), "packets overtaken"), (out_of_order, "segments received out of order")
        )


class _Holding(Counted):
    """`overtaken`: held packets that a later one of the same connection passed by."""

    def __init__(self, fault: Reorder, rng: Random) -> None:
        super().__init__("overtaken", *DELAYS)
        self._share, self._hold_s, self._draw = fault.share, fault.hold_s, rng.random
        self._waiting: dict[bytes, list[float]] = {}

    def feed(self, piece: Piece) -> Iterable[Piece]:
        self.see(piece)
        held = self._draw() < self._share
        if held:
            self.delay(piece, self._hold_s)
            self._waiting.setdefault(flow(piece.data), []).append(piece.at_s)
        elif waiting := self._waiting.pop(flow(piece.data), None):
            self.tally["overtaken"] += sum(due_s > piece.at_s for due_s in waiting)
        return (piece,)


FAULT = Reorder
