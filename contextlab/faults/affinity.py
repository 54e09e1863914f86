"""The target's threads may run on so many processors only, whatever their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.deeds import Hands, MachineHands
from contextlab.experiment import Landed, Plane, option
from contextlab.faults.resources import nothing_asked, used_cpus

AGAIN_EVERY_S = 0.25
"""How often threads are looked for that were born meanwhile."""
TOLERANCE_CPUS = 0.05
LEAST_USE_CPUS = 0.01
"""Who used less ran nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Pin every thread of the target's tree to the same `cpus` processors."""

    NAME: ClassVar[str] = "affinity"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "the target's threads share a few processors"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"affinity", "cpu"})

    cpus: int = option(1, "how many processors are left to it; 0: all", kind="int", low=0, high=1024, unit="processors")

    @property
    def is_null(self) -> bool:
        """All of them."""
        return self.cpus == 0

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Pin, and pin again who was born since. `before`, `after`: processors that it may use."""
        machine = cast("MachineHands", hands)
        usable = machine.processors()
        machine.look()
        hands.tally |= {
            "before": machine.look()["processors"],
            "after": min(self.cpus, len(usable)),
            "busy_threads": 0.0,
        }
        hands.note("pinned", processors=" ".join(map(str, usable[: self.cpus])))
        while True:
            hands.pin(usable[: self.cpus])
            yield AGAIN_EVERY_S
            hands.tally["busy_threads"] = max(hands.tally["busy_threads"], machine.look()["busy_threads"])

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """It had more processors before, and ran on no more than these."""
        if self.is_null:
            return nothing_asked("cpus=0")
        used = used_cpus(kernel)
        if used is None or "after" not in tally:
            return Landed(proven=False, why="nobody counted the target's processor time")
        words = f"{used:.2f} CPUs used on {tally['after']:.0f} of {tally['before']:.0f} processors"
        if tally["busy_threads"] > 1:
            words += f" by {tally['busy_threads']:.0f} busy threads"
        if tally["after"] >= tally["before"]:
            return Landed(proven=False, why=f"{words}: it had no more before")
        if used < LEAST_USE_CPUS:
            return Landed(proven=False, why=f"{words}: it was idle")
        if used > tally["after"] + TOLERANCE_CPUS:
            return Landed(proven=False, why=f"{words}: it ran elsewhere too")
        return Landed(proven=True, why=words)


FAULT = Affinity
