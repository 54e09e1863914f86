"""A chain of stages: what becomes of a packet, or of a read, on its way in one direction. Pure.

    piece ─▶ [window, stage] ─▶ [window, stage] ─▶ … ─▶ pieces, each with the time when it is due

A stage acts on what arrives inside its window, `start_s <= arrived_s < end_s`. Due times are absolute, so delays add
up and the time that a piece spends in a queue of ours is never counted twice. The link and the relay both use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from contextlab.experiment import Piece, Stage

Window = tuple[float, float, Stage]
"""When a stage begins to act, when it ends to, both in monotonic seconds, and the stage."""


class Chain:
    """Stages in their order, each with its window. `begins_s` and `ends_s` bound all of them together."""

    def __init__(self, windows: Sequence[Window] = ()) -> None:
        self.windows = tuple(windows)
        self.begins_s = min((start for start, _, _ in self.windows), default=inf)
        self.ends_s = max((end for _, end, _ in self.windows), default=-inf)

    def acts(self, arrived_s: float) -> bool:
        """Whether any stage may act on what arrives now; if not, `feed` would give the piece back as it is."""
        return self.begins_s <= arrived_s < self.ends_s

    def feed(self, piece: Piece, arrived_s: float) -> list[Piece]:
        """Pass a piece through every stage whose window holds `arrived_s`; nothing comes out where it was dropped.

        The order of the pieces is that in which stages gave them, not of their due times.
        """
        pieces = [piece]
        for start_s, end_s, stage in self.windows:
            if start_s <= arrived_s < end_s:
                feed = stage.feed
                pieces = [out for one in pieces for out in feed(one)]
        return pieces


def total(tallies: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Tallies of several stages of one fault as one: names that begin with `max_` by their maximum, others summed."""
    found: dict[str, float] = {}
    for tally in tallies:
        for name, value in tally.items():
            if name.startswith("max_"):
                found[name] = max(found.get(name, value), value)
            else:
                found[name] = found.get(name, 0) + value
    return found
