"""What a record tells of its origin: versions, machine, and the target without its secrets."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from contextlab.model import TargetSpec
from contextlab.targets.http import shown

_PRESSURE = Path("/proc/pressure")


def shown_target(spec: TargetSpec) -> TargetSpec:
    """The target as it may stand in a record: without a user and password in its URL."""
    return replace(
        spec,
        name=without_secrets(spec.name),
        address=without_secrets(spec.address),
        url=without_secrets(spec.url) if spec.url else None,
    )


def without_secrets(text: str) -> str:
    """A text that may be a URL, without the user and the password in it."""
    return shown(text) if "://" in text else text


def versions() -> dict[str, str]:
    """The versions of Python, of contextlab and of the engines that are installed."""
    found = {"python": platform.python_version()}
    for name in ("contextlab", "xllamacpp", "torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, object]:
    """The machine, and how busy it is now."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        **activity(),
        "python": sys.executable.rpartition("/")[2],
        "tcp": _congestion_control(),
    }


def activity() -> dict[str, float]:
    """How busy the machine is now: `load` (of one minute), and of the last ten seconds the share in which something
    waited for a CPU, for memory and for a disk (`pressure_…`, PSI), where the kernel tells it."""
    found = {"load": os.getloadavg()[0]}
    for name in ("cpu", "memory", "io"):
        with suppress(OSError, ValueError, IndexError):
            line = (_PRESSURE / name).read_text(encoding="ascii").split("\n")[0]
            found[f"pressure_{name}"] = round(float(line.split("avg10=")[1].split()[0]) / 100, 4)
    return found


def _congestion_control() -> str | None:
    """How this kernel's TCP answers loss (`cubic`, `bbr`), which decides what a lost packet costs."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()
    except OSError:
        return None
