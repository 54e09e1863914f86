"""A stand-in for NVML: two GPUs, of which the second holds more and is busier."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

MIB = 1 << 20


class NvmlError(Exception):
    """What NVML raises."""


def failing(*_: object) -> None:
    """Raise as NVML does where it cannot tell something."""
    raise NvmlError("Driver Not Loaded")


def two_gpus(**more: Any) -> Any:
    """The module `pynvml`, with other functions in place where they are given."""
    module: Any = ModuleType("pynvml")
    module.NVMLError = NvmlError
    module.nvmlInit = module.nvmlShutdown = lambda: None
    module.nvmlDeviceGetCount = lambda: 2
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(
        free=(handle + 1) * MIB, total=8 * MIB, used=(handle + 1) * 1024
    )
    module.nvmlDeviceGetName = lambda handle: b"H200" if handle else "A100"
    module.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=30 + 60 * handle)
    module.nvmlDeviceGetPowerUsage = lambda handle: 150_000
    for name, thing in more.items():
        setattr(module, name, thing)
    return module
