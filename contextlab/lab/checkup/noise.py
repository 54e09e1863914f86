"""How quiet this machine is: two seconds of looking, half of them with a fixed piece of work."""

from __future__ import annotations

import os
import time
from pathlib import Path

from contextlab.analysis.checkup import Noise
from contextlab.lab.contention import others, pressure
from contextlab.lab.gate import quiet

LOOK_S = 1.0
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def noise() -> Noise:
    """The machine as it is now. The work is ours, and so no disturbance; pressure is that of the second without it."""
    before = quiet.look()
    time.sleep(LOOK_S)
    rested = quiet.look()
    slices = quiet.control().slices_s + quiet.control().slices_s
    after = quiet.look()
    whole_s = after.all_s - before.all_s
    throttled = None
    if before.throttled is not None and after.throttled is not None:
        throttled = max(0, after.throttled - before.throttled)
    return Noise(
        cores=os.cpu_count() or 1,
        load=os.getloadavg()[0],
        others_cores=others(before.busy, after.busy),
        pressure=pressure(before.busy, rested.busy),
        steal=max(0.0, after.steal_s - before.steal_s) / whole_s if whole_s > 0 else None,
        throttled=throttled,
        slices_s=slices,
        governor=_governor(),
    )


def _governor() -> str:
    try:
        return _GOVERNOR.read_text(encoding="ascii").strip()
    except OSError:
        return ""
