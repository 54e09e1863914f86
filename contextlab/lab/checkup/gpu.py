"""The GPUs that NVML shows."""

from __future__ import annotations

from collections.abc import Iterator

from contextlab.analysis.checkup import Check, Grade
from contextlab.lab.memory import gpu_memories


def checks() -> Iterator[Check]:
    """One for each; SKIP where there is none: nothing here needs one."""
    gpus, note = gpu_memories()
    for gpu in gpus:
        total = "" if gpu.total_bytes is None else f" of {gpu.total_bytes / 2**30:.1f} GiB"
        yield Check(
            section="gpu",
            name=gpu.name,
            grade=Grade.OK,
            detail=f"{gpu.about}, {gpu.free_bytes / 2**30:.1f}{total} free",
        )
    if not gpus:
        yield Check(section="gpu", name="GPU", grade=Grade.SKIP, detail=f"{note}; nothing here needs one")
