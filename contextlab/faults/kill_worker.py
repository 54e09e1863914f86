"""One process of the target dies that is not its main one: does the server go on, end, or stand still?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Hands
from contextlab.experiment import Landed, Plane
from contextlab.faults import killing

LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class KillWorker:
    """End one process below the main one, chosen by chance. If the server itself ends of it, that is its own doing."""

    NAME: ClassVar[str] = "kill-worker"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "one process of the target dies that is not its main one"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"kill", "crash-loop"})
    ENDS_PROCESSES: ClassVar[bool] = True

    signal: str = killing.signal_option()

    @property
    def is_null(self) -> bool:
        """A death is never nothing."""
        return False

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Kill one, then see whether another takes its place. One draw, where there is a worker."""
        tree = killing.processes(hands)
        hands.tally["workers"] = len(tree) - 1.0
        if len(tree) == 1:
            return
        killing.kill(hands, hands.rng.choice(tree[1:]), self.signal)
        waited_s = 0.0
        while len(now := hands.tree()) < len(tree):
            if not now:
                hands.tally["server_ended"] = 1.0
                return
            yield LOOK_EVERY_S
            waited_s += LOOK_EVERY_S
        hands.tally["replaced"] = 1.0
        hands.note("replaced", after_s=round(waited_s, 3))

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """A worker was there, and was seen to end."""
        workers = tally.get("workers", 0)
        if not workers:
            return Landed(proven=False, why="the target has no process but its main one: no worker could be killed")
        if not tally.get("killed"):
            return Landed(proven=False, why=f"none of its {workers:.0f} workers was seen to end")
        then = "the server ended with it" if tally.get("server_ended") else "no other took its place"
        then = "another took its place" if tally.get("replaced") else then
        return Landed(proven=True, why=f"one of {workers:.0f} workers ended of SIG{self.signal}; {then}")


FAULT = KillWorker
