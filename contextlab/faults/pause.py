"""The target's processes stand still for a while, as under a stopped container or a machine that swaps, and go on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.deeds import Group, Hands, MachineHands
from contextlab.experiment import Landed, Plane, option
from contextlab.faults.killing import processes
from contextlab.model import UnableError

LOOK_EVERY_S, FREEZES_WITHIN_S = 0.01, 1.0
STILL_SHARE, STILL_S = 0.05, 0.05
"""What stands still takes less of a processor than this share, or less than so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Stop every process of the target, once. The kernel still takes connections in for it."""

    NAME: ClassVar[str] = "pause"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "the target's processes stand still for a while, then go on"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"pause", "kill", "crash-loop"})

    by: str = option(
        "auto",
        "freezer: a control group, all at once; signal: SIGSTOP to each; auto: the freezer where there is one",
        kind="text",
        choices=("auto", "signal", "freezer"),
    )
    pause_s: float | None = option(
        None, "for how long; else as long as the fault acts", kind="duration", low=0.0, high=600.0, unit="s"
    )

    @property
    def is_null(self) -> bool:
        """A pause of no length is no control that asks for nothing: it is not proven."""
        return False

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Stop, wait, let them go on."""
        if self.pause_s == 0:
            return
        num = len(processes(hands))
        group = None if self.by == "signal" else hands.group("freezer")
        if group is not None:
            _freeze(group)
            waited_s = 0.0
            while not _is_frozen(group):
                if waited_s > FREEZES_WITHIN_S:
                    raise UnableError(f"the target's group did not freeze within {FREEZES_WITHIN_S:g} s", "by=signal")
                yield LOOK_EVERY_S
                waited_s += LOOK_EVERY_S
        elif self.by == "freezer":
            raise UnableError("by=freezer: no control group of this kind can be made here", "by=signal, or run as root")
        else:
            hands.stop()
        hands.tally["stopped"] = float(num)
        hands.note("stopped", by="signal" if group is None else "freezer", processes=num)
        look = cast("MachineHands", hands).look
        before = look()
        try:
            yield math.inf if self.pause_s is None else self.pause_s
        finally:
            after = look()
            hands.tally["stood_s"] = after["at_s"] - before["at_s"]
            hands.tally["cpu_s"] = after["cpu_s"] - before["cpu_s"]
            if group is None:
                hands.resume()
            else:
                _thaw(group)
            hands.note("resumed", after_s=round(hands.tally["stood_s"], 6))

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Processes were stopped, and took no time of any processor meanwhile."""
        stopped, stood_s, cpu_s = (tally.get(name, 0.0) for name in ("stopped", "stood_s", "cpu_s"))
        if not stopped:
            why = "pause=0s stops nothing" if self.pause_s == 0 else "nothing was stopped"
            return Landed(proven=False, why=why)
        if cpu_s > max(STILL_S, STILL_SHARE * stood_s):
            return Landed(proven=False, why=f"{stopped:.0f} processes were stopped, and yet took {cpu_s:.2f} s of CPU")
        who = "1 process" if stopped == 1 else f"{stopped:.0f} processes"
        why = f"{who} stood still for {stood_s:.2f} s and took {cpu_s:.3f} s of CPU"
        return Landed(proven=True, why=why)


def _freeze(group: Group) -> None:
    if group.version == 2:
        group.set("cgroup.freeze", "1")
    else:
        group.set("freezer.state", "FROZEN")


def _thaw(group: Group) -> None:
    if group.version == 2:
        group.set("cgroup.freeze", "0")
    else:
        group.set("freezer.state", "THAWED")


def _is_frozen(group: Group) -> bool:
    if group.version == 2:
        return "frozen 1" in group.get("cgroup.events")
    return group.get("freezer.state").strip() == "FROZEN"


FAULT = Pause
