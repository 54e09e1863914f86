"""The target gets a part of a processor: by a quota of the kernel, by hogs that compete, or by being stopped in turns.

    quota   a control group: within each period the kernel lets the tree run for so long, then not at all
    hogs    processes of ours on the target's processors, so many that its share becomes what was asked for
    duty    SIGSTOP and SIGCONT, twenty times a second

An engine sees all processors whatever its quota: with more threads than it may use, those that run wait for those that
may not. The tally says how many threads were busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.analysis.quantities import num_of
from contextlab.deeds import Hands, MachineHands
from contextlab.experiment import Landed, Plane, option
from contextlab.faults.resources import HOGS, NO_GROUP, nothing_asked, used_cpus
from contextlab.model import UnableError, UsageError

LEAST_CPUS = 0.001
TOLERANCE_CPUS = 0.05
"""It counts as held to its quota up to so much above it."""
PERIOD_US, LONG_PERIOD_US = 100_000, 1_000_000
"""The kernel's usual period; below LONG_UNDER_CPUS the other one, since a quota is 1 ms at least (sched-bwc)."""
LONG_UNDER_CPUS = 0.01
LOOK_EVERY_S = 0.5
MOST_HOGS = 32
DUTY_S = 0.05
"""One turn of stopping and going on."""
NEW_TREE_EVERY = 20
"""Turns after which the tree is looked at again for processes that were born."""
ENOUGH_WANT = 0.9
"""Part of the quota that the target must have wanted before competing for it proves anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """Let the target's process tree run for `quota` seconds of processor time a second."""

    NAME: ClassVar[str] = "cpu"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "the target gets a part of a processor, such as 200m"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"cpu", "affinity"})

    quota: float = option(0.2, "processor time a second; 0: no limit", kind="cpus", low=0.0, high=1024.0, unit="CPUs")
    by: str = option(
        "auto",
        "a control group's quota, hogs that compete, or stopping in turns (duty); auto: the first that is possible",
        kind="text",
        choices=("auto", "quota", "hogs", "duty"),
    )

    def __post_init__(self) -> None:
        """Refuse what no way can keep."""
        if 0 < self.quota < LEAST_CPUS:
            raise UsageError(f"quota={self.quota:g}: must be 0 or at least {LEAST_CPUS:g}", "for example quota=200m")

    @property
    def is_null(self) -> bool:
        """No limit."""
        return self.quota == 0

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Hold the tree to the quota in the first way that this machine allows, and look how busy it is."""
        machine = cast("MachineHands", hands)
        hands.tally |= {"quota_cpus": self.quota, "threads": machine.look()["threads"], "busy_threads": 0.0}
        ways = {"quota": self._limit, "hogs": self._compete, "duty": self._turns}
        for by in ways if self.by == "auto" else (self.by,):
            way = ways[by](machine)
            try:
                first_s = next(way)
            except UnableError:
                if by in (self.by, "duty"):
                    raise
                continue
            hands.note("throttled", by=by, quota_cpus=self.quota)
            yield first_s
            yield from way

    def _limit(self, hands: MachineHands) -> Iterator[float]:
        """Set the quota of the tree's group: the kernel does the rest. `by_quota`."""
        group = hands.group("cpu")
        if group is None:
            raise UnableError("no control group with a quota can be made for the target", f"{NO_GROUP}; or by=hogs")
        period_us = LONG_PERIOD_US if self.quota < LONG_UNDER_CPUS else PERIOD_US
        quota_us = round(self.quota * period_us)
        if group.version == 2:
            group.set("cpu.max", f"{quota_us} {period_us}")
        else:
            group.set("cpu.cfs_period_us", str(period_us))
            group.set("cpu.cfs_quota_us", str(quota_us))
        hands.tally["by_quota"] = 1.0
        while True:
            yield LOOK_EVERY_S
            self._busy(hands, hands.look())

    def _compete(self, hands: MachineHands) -> Iterator[float]:
        """Put the tree on as few processors as the quota needs, and hogs beside it; more of them where it gets too
        much. `hogs`: how many there are."""
        cpus = hands.processors()[: max(1, math.ceil(self.quota))]
        hands.tally["hogs"] = 0.0
        self._add_hogs(hands, cpus, math.ceil(len(cpus) / self.quota) - 1)
        hands.pin(cpus)
        before = hands.look()
        while True:
            yield LOOK_EVERY_S
            hands.pin(cpus)
            now = hands.look()
            self._busy(hands, now)
            got = (now["cpu_s"] - before["cpu_s"]) / max(now["at_s"] - before["at_s"], 1e-6)
            if got > self.quota + TOLERANCE_CPUS and hands.tally["hogs"] < MOST_HOGS:
                self._add_hogs(hands, cpus, 1)
            before = now

    def _add_hogs(self, hands: MachineHands, cpus: tuple[int, ...], num_each: int) -> None:
        for cpu in cpus * num_each:
            hands.helper([*HOGS, "spin"], cpus=[cpu])
            hands.tally["hogs"] += 1

    def _turns(self, hands: MachineHands) -> Iterator[float]:
        """Let it run for its part of a turn, then stop it for the rest. What it used too much, or too little, is made
        up for in the next turns; an idle one saves one turn at most, and is never stopped. `stops`, `stopped_s`."""
        hands.tally |= {"stops": 0.0, "stopped_s": 0.0}
        turn_cpu_s = self.quota * DUTY_S
        before, debt_s, victims = hands.look(), -DUTY_S, hands.tree()
        for turn in range(1 << 62):
            run_s = min(max(turn_cpu_s - debt_s, 0.0), DUTY_S)
            if run_s > 0:
                hands.resume(*victims)
                yield run_s
            if run_s < DUTY_S:
                hands.stop(*victims)
                hands.tally["stops"] += 1
                hands.tally["stopped_s"] += DUTY_S - run_s
                yield DUTY_S - run_s
            now = hands.look()
            self._busy(hands, now)
            used_s, passed_s = now["cpu_s"] - before["cpu_s"], now["at_s"] - before["at_s"]
            debt_s = max(debt_s + used_s - self.quota * passed_s, -DUTY_S)
            before = now
            if turn % NEW_TREE_EVERY == 0:
                victims = hands.tree()

    def _busy(self, hands: MachineHands, seen: Mapping[str, float]) -> None:
        hands.tally["busy_threads"] = max(hands.tally["busy_threads"], seen["busy_threads"])

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """The target was held back, and used no more than its quota; an idle one is not held back by anything."""
        if self.is_null:
            return nothing_asked("quota=0")
        used = used_cpus(kernel)
        if used is None or not tally:
            return Landed(proven=False, why="nobody counted the target's processor time")
        words = f"{used:.2f} of {self.quota:g} CPUs used"
        num_busy = tally.get("busy_threads", 0.0)
        if num_busy > max(1.0, self.quota):
            words += f" by {num_busy:.0f} busy threads"
        held, how = self._held_back(tally, kernel)
        if not held:
            return Landed(proven=False, why=f"{words}: {how}, it was too idle to notice")
        if used > self.quota + TOLERANCE_CPUS:
            return Landed(proven=False, why=f"{words}: {how}, but it used more than its quota")
        return Landed(proven=True, why=f"{words}: {how}")

    def _held_back(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> tuple[bool, str]:
        """Whether something kept the target from running, and what."""
        if tally.get("by_quota"):
            num_throttled, num_periods = kernel.get("num_throttled", 0.0), kernel.get("num_periods", 0.0)
            return num_throttled > 0, f"throttled in {num_throttled:.0f} of {num_periods:.0f} periods"
        if "stops" in tally:
            return tally["stops"] > 0, f"stopped {num_of(tally['stops'], 'times')} for {tally['stopped_s']:.1f} s"
        waited_s = kernel.get("cpu_wait_s", 0.0)
        wanted = kernel.get("cpu_s", 0.0) + waited_s
        how = f"waited {waited_s:.1f} s beside {num_of(tally.get('hogs', 0.0), 'hogs')}"
        return wanted >= ENOUGH_WANT * self.quota * kernel["wall_s"], how


FAULT = Cpu
