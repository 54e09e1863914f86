"""How quiet the machine is beside an arm: a fixed piece of work, and what the kernel counts meanwhile.

    control ─▶ (server starts, load, probes, server ends) ─▶ control
      │              └ others' cores, steal, throttling          │
      └────────── time of the work, CPU pressure (PSI) ──────────┘      the arm is not there

Pressure is looked at only while the arm rests: under load an arm presses itself. Of the slices of the work the lower
quartile counts: what slows the machine slows them all, while on a shared host many a slice is hit by a burst of some
tenths of a second (there the fastest slices of a second agreed within 1 %, its medians within 50 %).
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass

import psutil

from contextlab.analysis.gate.nouns import Host
from contextlab.lab.contention import Busy, busy, others
from contextlab.lab.host import groups

CONTROL_BYTES = 12 << 20
"""Hashed once a slice: some 15 ms, several of a scheduler's turns."""
SLICES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """One control: the time of each slice, and how long something waited for a CPU, of how long (None: no PSI)."""

    slices_s: tuple[float, ...]
    stalled_s: float | None
    length_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The machine's counters at one moment. `throttled`: periods, of the groups around the tool."""

    busy: Busy
    steal_s: float
    all_s: float
    throttled: int | None


def control() -> Controlled:
    """Do the fixed work now, on one core."""
    block = b"\x5a" * CONTROL_BYTES
    before, times = busy(), []
    for _ in range(SLICES):
        begun = time.perf_counter()
        hashlib.blake2b(block).digest()
        times.append(time.perf_counter() - begun)
    after = busy()
    stalled = None
    if before.stalled_us is not None and after.stalled_us is not None:
        stalled = (after.stalled_us - before.stalled_us) / 1e6
    return Controlled(slices_s=tuple(times), stalled_s=stalled, length_s=after.at_s - before.at_s)


def usual_s(*controls: Controlled) -> float:
    """Seconds of a slice that nothing short has hit: the lower quartile of them all."""
    times = sorted(one for control in controls for one in control.slices_s)
    return times[len(times) // 4]


def look() -> Look:
    """The counters now."""
    times = psutil.cpu_times()
    return Look(busy=busy(), steal_s=getattr(times, "steal", 0.0), all_s=sum(times), throttled=_throttled())


def host(before: Look, after: Look, controls: tuple[Controlled, Controlled], *, sees_others: bool) -> Host:
    """What the machine did besides. `sees_others`: False where the target is a process that is not ours, whose work
    would count as somebody else's."""
    all_s = after.all_s - before.all_s
    waited = [one.stalled_s for one in controls if one.stalled_s is not None]
    length_s = sum(one.length_s for one in controls)
    throttled = None
    if before.throttled is not None and after.throttled is not None:
        throttled = max(0, after.throttled - before.throttled)
    return Host(
        others_cores=round(others(before.busy, after.busy), 4) if sees_others else None,
        cpu_pressure=round(min(1.0, sum(waited) / length_s), 4)
        if len(waited) == len(controls) and length_s > 0
        else None,
        steal=round(max(0.0, after.steal_s - before.steal_s) / all_s, 4) if all_s > 0 else None,
        throttled=throttled,
    )


def _throttled() -> int | None:
    """Throttled periods of the tool's own group and of those around it; an arm's quota is in a group of its own."""
    place = groups.place_of(os.getpid(), "cpu")
    if place is None:
        return None
    total, found = 0, False
    folder = place.folder
    while True:
        number = groups.counts(groups.Place(version=place.version, folder=folder, mount=place.mount), "cpu")
        if "num_throttled" in number:
            total, found = total + int(number["num_throttled"]), True
        if folder == place.mount or folder == folder.parent:
            return total if found else None
        folder = folder.parent
