"""How busy the machine is with other things: what a sweep must know before it believes a number.

all CPU time that was used  −  ours (the tool, its children and their trees)  =  others'
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from contextlab.lab.host.groups import stalled_s

MOST_OTHERS = 0.25
"""Cores that others may use meanwhile; more makes a number theirs as well."""
LOOK_S = 0.4
PRESSURE = Path("/proc/pressure/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """CPU time used up to a moment: by everybody, and by ours. `stalled_us`: PSI's total, None where there is none."""

    at_s: float
    all_s: float
    ours_s: float
    stalled_us: int | None


def busy() -> Busy:
    """A look at the machine's clocks of work."""
    return Busy(
        at_s=time.monotonic(), all_s=used_s(psutil.cpu_times()), ours_s=_cpu_s(_ours()), stalled_us=_stalled_us()
    )


def used_s(times: Any) -> float:
    """CPU seconds that were used, of psutil's `cpu_times`: a guest's stand in them twice, and waiting is no work."""
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))


def _ours() -> Iterable[psutil.Process]:
    with suppress(psutil.Error):
        root = psutil.Process(os.getpid())
        return [root, *root.children(recursive=True)]
    return []


def _cpu_s(processes: Iterable[psutil.Process]) -> float:
    """CPU seconds of these processes and of what they have waited for."""
    total = 0.0
    for process in processes:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def _stalled_us() -> int | None:
    stalled = stalled_s(PRESSURE)
    return None if stalled is None else round(stalled * 1e6)


def others(before: Busy, after: Busy) -> float:
    """Cores that others used between two looks, on average; a process of ours that ended between them counts by what
    its parent had waited for."""
    length_s = after.at_s - before.at_s
    if length_s <= 0:
        return 0.0
    return max(0.0, (after.all_s - before.all_s) - max(0.0, after.ours_s - before.ours_s)) / length_s


def pressure(before: Busy, after: Busy) -> float | None:
    """Share of the time between two looks in which something that could have run waited for a CPU (PSI, `some`)."""
    if before.stalled_us is None or after.stalled_us is None or after.at_s <= before.at_s:
        return None
    share = (after.stalled_us - before.stalled_us) / 1e6 / (after.at_s - before.at_s)
    return min(share, 1.0)  # the kernel brings its total up to date at moments of its own


def calm(wait_s: float) -> tuple[bool, float]:
    """Wait up to `wait_s` until others use little; (whether they do, cores that they used at the last look)."""
    until = time.monotonic() + wait_s
    while True:
        before = busy()
        time.sleep(LOOK_S)
        used = others(before, busy())
        if used <= MOST_OTHERS or time.monotonic() >= until:
            return used <= MOST_OTHERS, used
