"""Looks at the machine around the target twice a second while a load runs: its processors, its memory, its GPUs.

What is read is everybody's, not only the target's. A look costs some 0.1 ms, and as much again for each GPU.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import psutil

from contextlab.deeds import Reading
from contextlab.lab import memory
from contextlab.lab.contention import PRESSURE, used_s
from contextlab.lab.host.groups import stalled_s
from contextlab.lab.observe.watch import Watch

EVERY_S = 0.5
ENDING_S = 2.0


class MachineWatch(Watch[Reading]):
    """A thread that reads the machine while it is entered; times count from `zero_s`."""

    def __init__(self, zero_s: float) -> None:
        super().__init__("machine", ending_s=ENDING_S)
        self._zero_s = zero_s

    def look(self) -> None:
        """Look at once, then every `EVERY_S`."""
        with ExitStack() as stack:
            nvml = stack.enter_context(memory.nvml())
            while True:
                at_s = round(time.monotonic() - self._zero_s, 3)
                self.see(Reading(source="machine", at_s=at_s, values=machine_values()))
                if values := gpu_values(nvml):
                    self.see(Reading(source="gpu", at_s=at_s, values=values))
                if self.over.wait(EVERY_S):
                    return


def machine_values() -> dict[str, float]:
    """The machine now: host_cpu_s (used by everybody since the boot), host_available_bytes, and host_stalled_s (PSI:
    how long something that could have run waited for a CPU) where the kernel tells it."""
    found = {
        "host_cpu_s": round(used_s(psutil.cpu_times()), 3),
        "host_available_bytes": float(psutil.virtual_memory().available),
    }
    waited_s = stalled_s(PRESSURE)
    return found if waited_s is None else found | {"host_stalled_s": waited_s}


def gpu_values(nvml: Any) -> Mapping[str, float]:
    """All GPUs together: gpu_memory_bytes in use; gpu_busy_ratio of the busiest, 0 to 1, over NVML's own last sample
    (a sixth of a second to a second); gpu_power_w. What a GPU does not tell is left out; empty where there is none."""
    if nvml is None:
        return {}
    found: dict[str, float] = {}
    for index in range(_or_none(nvml, nvml.nvmlDeviceGetCount) or 0):
        handle = _or_none(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue
        if (held := _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)) is not None:
            found["gpu_memory_bytes"] = found.get("gpu_memory_bytes", 0.0) + held.used
        if (rates := _or_none(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)) is not None:
            found["gpu_busy_ratio"] = max(found.get("gpu_busy_ratio", 0.0), rates.gpu / 100)
        if (milliwatts := _or_none(nvml, nvml.nvmlDeviceGetPowerUsage, handle)) is not None:
            found["gpu_power_w"] = found.get("gpu_power_w", 0.0) + milliwatts / 1000
    return found


def _or_none(nvml: Any, call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except nvml.NVMLError:
        return None
