"""How much memory is free now: on the host, under the cgroup limits that hold here, and on each GPU."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from contextlab.capacity.inspection import Surroundings
from contextlab.capacity.plan import Memory

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes a number of about this size where there is no limit."""


def surroundings() -> Surroundings:
    """The memory of this machine as it is now."""
    gpus, gpu_note = gpu_memories()
    return Surroundings(host=host_memory(), gpus=gpus, gpu_note=gpu_note)


def host_memory() -> Memory:
    """What the host has free, or less where a cgroup of ours ends before that."""
    memory = psutil.virtual_memory()
    rooms = list(_cgroup_rooms(_CGROUPS, _OWN_CGROUPS))
    free_bytes, limit_bytes = min(rooms, default=(memory.available, memory.total))
    if free_bytes >= memory.available:
        return Memory(name="host", free_bytes=int(memory.available), total_bytes=int(memory.total))
    return Memory(name="host", free_bytes=max(0, free_bytes), total_bytes=limit_bytes, about="limited by its cgroup")


def gpu_memories() -> tuple[tuple[Memory, ...], str]:
    """The memory of each GPU, as NVML tells it, and why there is none in the list."""
    module = _module()
    if module is None:
        return (), "NVML is not installed; pip install nvidia-ml-py shows NVIDIA GPUs"
    try:
        with _initialised(module) as found:
            gpus = tuple(_gpu(found, index) for index in range(found.nvmlDeviceGetCount()))
    except _Absent as error:
        return (), f"NVML finds none: {error}"
    except module.NVMLError as error:
        return (), f"NVML cannot tell: {error}"
    return gpus, "" if gpus else "NVML finds none"


@contextmanager
def nvml() -> Iterator[Any]:
    """NVML, ready to be asked while this is entered; None where it is not installed, or finds no driver."""
    with ExitStack() as stack:
        module = _module()
        try:
            found = stack.enter_context(_initialised(module)) if module is not None else None
        except _Absent:
            found = None
        yield found


class _Absent(Exception):
    """NVML is there, and what it needs is not."""


@contextmanager
def _initialised(module: Any) -> Iterator[Any]:
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        raise _Absent(str(error)) from error
    try:
        yield module
    finally:
        module.nvmlShutdown()


def _module() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old package of the same name warns of itself
            return importlib.import_module("pynvml")
    except (ImportError, OSError):
        return None


def _gpu(nvml: Any, index: int) -> Memory:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory, name = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetName(handle)
    about = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return Memory(name=f"GPU {index}", free_bytes=int(memory.free), total_bytes=int(memory.total), about=about)


def _cgroup_rooms(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """(bytes that are left, the limit) of each memory cgroup that this process is in, both versions.

    File pages that nobody has touched lately count as free: the kernel takes them back before the limit kills.
    """
    for line in _text(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        if not controllers:  # version 2
            names = ("memory.max", "memory.current", "inactive_file")
            tops = [root, root / "unified"]
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            tops = [root / "memory"]
        else:
            continue
        for top in tops:
            place = top / path.strip("/")  # not there in a container that sees its own group as the root
            for folder in (place, *place.parents):
                if folder.is_relative_to(top):
                    yield from _room(folder, *names)


def _room(folder: Path, limit_name: str, usage_name: str, cache_name: str) -> Iterator[tuple[int, int]]:
    limit, usage = _text(folder / limit_name).strip(), _text(folder / usage_name).strip()
    if not limit.isdigit() or not usage.isdigit() or int(limit) >= _NO_LIMIT_BYTES:
        return
    statistics = dict(line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    cached = statistics.get(cache_name, "0")
    yield int(limit) - int(usage) + (int(cached) if cached.isdigit() else 0), int(limit)


def _text(path: Path) -> str:
    """A small file of the kernel's; "" where it is not there, or not ours to read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
