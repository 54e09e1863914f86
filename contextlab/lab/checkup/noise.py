"""How quiet this machine is: two seconds of looking, half of them with a fixed piece of work."""

from __future__ import annotations

import os
import time
from pathlib import Path

from contextlab.analysis.checkup import Noise
from contextlab.lab.contention import pressure
from contextlab.lab.gate import quiet

LOOK_S = 1.0
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def noise() -> Noise:
    """The machine as it is now. The work is ours, and so no disturbance; pressure is that of the second without it."""
    before = quiet.look()
    time.sleep(LOOK_S)
    rested = quiet.look()
    controls = quiet.control(), quiet.control()
    host = quiet.host(before, quiet.look(), controls, sees_others=True)
    return Noise(
        cores=os.cpu_count() or 1,
        load=os.getloadavg()[0],
        others_cores=host.others_cores or 0.0,
        pressure=pressure(before.busy, rested.busy),
        steal=host.steal,
        throttled=host.throttled,
        slices_s=[one for control in controls for one in control.slices_s],
        governor=_governor(),
    )


def _governor() -> str:
    try:
        return _GOVERNOR.read_text(encoding="ascii").strip()
    except OSError:
        return ""
