"""Free memory: the host's own word, a cgroup that ends before it, and GPUs as NVML tells them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from contextlab.lab import memory
from contextlab.lab.memory import gpu_memories, host_memory, surroundings
from tests.lab.nvml import MIB, failing, two_gpus


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of cgroups, and this process in none of them."""
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_OWN_CGROUPS", tmp_path / "own")
    return tmp_path


def limit(folder: Path, **files: object) -> None:
    """A cgroup with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_the_host_without_a_limit(cgroups: Path) -> None:
    found = host_memory()
    assert (found.name, found.about, found.total_bytes) == ("host", "", psutil.virtual_memory().total)
    assert 0 < found.free_bytes <= psutil.virtual_memory().total


def test_a_limit_of_version_2_anywhere_above(cgroups: Path) -> None:
    (cgroups / "own").write_text("0::/a/b\n")
    limit(cgroups / "cgroup" / "a" / "b", memory__max="max", memory__current=1)
    limit(
        cgroups / "cgroup" / "a", memory__max=64 * MIB, memory__current=40 * MIB, memory__stat="inactive_file 8388608"
    )
    found = host_memory()
    assert (found.free_bytes, found.total_bytes, found.about) == (32 * MIB, 64 * MIB, "limited by its cgroup")


def test_a_limit_of_version_1(cgroups: Path) -> None:
    (cgroups / "own").write_text("12:pids:/x\n5:memory:/job\n0::/\n")
    files = {"memory__limit_in_bytes": 64 * MIB, "memory__usage_in_bytes": 80 * MIB}
    limit(cgroups / "cgroup" / "memory" / "job", **files, memory__stat="total_inactive_file 1\nbad")
    assert host_memory().free_bytes == 0, "over its limit, nothing is left"


def test_a_container_that_sees_its_own_group_as_the_root(cgroups: Path) -> None:
    (cgroups / "own").write_text("5:memory:/docker/4711\n")
    files = {"memory__limit_in_bytes": 64 * MIB, "memory__usage_in_bytes": 60 * MIB}
    limit(cgroups / "cgroup" / "memory", **files)
    assert host_memory().free_bytes == 4 * MIB


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "a:b"])
def test_odd_words_of_the_kernel_are_no_limit(text: str, cgroups: Path) -> None:
    (cgroups / "own").write_text(f"{text}\n")
    limit(cgroups / "cgroup", memory__max="many", memory__current="-")
    assert host_memory().about == ""


def test_no_limit_is_written_as_a_huge_one(cgroups: Path) -> None:
    (cgroups / "own").write_text("5:memory:/\n")
    files = {"memory__limit_in_bytes": 9_223_372_036_854_771_712, "memory__usage_in_bytes": 1}
    limit(cgroups / "cgroup" / "memory", **files)
    assert host_memory().about == ""


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────


def nvml(monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[str]:
    """An NVML with two GPUs; gives what was called at its end."""
    closed: list[str] = []
    module = two_gpus(nvmlShutdown=lambda: closed.append("shut down"), **more)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return closed


def test_each_gpu_with_its_own_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = nvml(monkeypatch)
    found = surroundings()
    assert [(gpu.name, gpu.free_bytes, gpu.total_bytes, gpu.about) for gpu in found.gpus] == [
        ("GPU 0", MIB, 8 * MIB, "A100"),
        ("GPU 1", 2 * MIB, 8 * MIB, "H200"),
    ]
    assert found.gpu_note == ""
    assert closed == ["shut down"]


def test_no_nvml_is_a_note_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_memories() == ((), "NVML is not installed; pip install nvidia-ml-py shows NVIDIA GPUs")


def test_no_driver_is_a_note_too(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, nvmlInit=failing)
    assert gpu_memories() == ((), "NVML finds none: Driver Not Loaded")


def test_a_gpu_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = nvml(monkeypatch, nvmlDeviceGetMemoryInfo=failing)
    assert gpu_memories() == ((), "NVML cannot tell: Driver Not Loaded")
    assert closed == ["shut down"]


def test_no_gpu_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, nvmlDeviceGetCount=lambda: 0)
    assert gpu_memories() == ((), "NVML finds none")
