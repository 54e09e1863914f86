"""What is read of the machine around the target while a load runs."""

from __future__ import annotations

import hashlib
import sys
import time
from typing import Any

import pytest

from contextlab.deeds import Reading
from contextlab.lab.memory import nvml
from contextlab.lab.observe import machine
from contextlab.lab.observe.machine import MachineWatch, gpu_values, machine_values
from tests.lab.nvml import failing, two_gpus
from tests.lab.processes import until


def test_work_of_anybody_shows_in_the_machines_clocks() -> None:
    before = machine_values()
    until_s = time.process_time() + 0.3
    while time.process_time() < until_s:
        hashlib.blake2b(b"\x5a" * 65536).digest()
    after = machine_values()
    assert after["host_cpu_s"] - before["host_cpu_s"] >= 0.25
    assert after["host_available_bytes"] > 0


def test_memory_and_power_are_summed_and_the_busiest_counts() -> None:
    assert gpu_values(two_gpus()) == {"gpu_memory_bytes": 3072.0, "gpu_busy_ratio": 0.9, "gpu_power_w": 300.0}


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    silent = {"nvmlDeviceGetUtilizationRates": failing, "nvmlDeviceGetPowerUsage": failing}
    assert gpu_values(two_gpus(**silent)) == {"gpu_memory_bytes": 3072.0}
    assert gpu_values(two_gpus(nvmlDeviceGetHandleByIndex=failing)) == {}
    assert gpu_values(two_gpus(nvmlDeviceGetCount=failing)) == {}


def test_no_nvml_and_no_driver_are_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_values(None) == {}
    for module in (None, two_gpus(nvmlInit=failing)):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        with nvml() as found:
            assert found is None


@pytest.mark.parametrize(
    ("module", "sources"), [(None, {"machine"}), (two_gpus(), {"machine", "gpu"})], ids=["none", "two"]
)
def test_readings_come_until_the_watch_ends(module: Any, sources: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(machine, "EVERY_S", 0.02)
    found: list[Reading] = []

    def enough() -> bool:
        found.extend(watch.taken())
        return len(found) >= 6

    with MachineWatch(time.monotonic()) as watch:
        until(enough, "six readings")
    watch.taken()
    time.sleep(0.1)
    assert watch.taken() == []
    assert {one.source for one in found} == sources
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
