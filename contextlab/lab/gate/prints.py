"""The fingerprint of an arm: where it was measured, of what, and under which requests."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

import psutil

from contextlab import registry
from contextlab.analysis.gate.load import GateLoad, digest
from contextlab.analysis.gate.nouns import Facts, Fingerprint
from contextlab.lab.provenance import versions, without_secrets
from contextlab.model import Knowledge, TargetSpec

ENDS_BYTES = 4 << 20
"""Of a large file, its size and both ends are hashed."""
NO_FLAGS = frozenset({"port", "api_key_env", "ready_timeout_s", "connect_timeout_s"})


def fingerprint(spec: TargetSpec, known: Knowledge, load: GateLoad, seed: int) -> Fingerprint:
    """What must be equal for two records to be comparable."""
    flags: dict[str, str | int | float | None] = {
        name: value if isinstance(value, str | int | float) and not isinstance(value, bool) else str(value).lower()
        for name, value in spec.settings.items()
        if value is not None and name not in NO_FLAGS
    }
    flags |= {"scheme": spec.scheme}
    if spec.scheme == "run":
        flags |= {"command": without_secrets(spec.address)}
    elif spec.scheme not in ("gguf", "http", "https"):
        flags |= {"address": without_secrets(spec.address)}
    return Fingerprint(
        machine=machine(),
        engine={"name": known.flavour, "version": known.version or None},
        model={"name": known.model, "digest": _digest(spec)},
        flags=flags,
        scenario=scenario(load, seed),
    )


def scenario(load: GateLoad, seed: int) -> Facts:
    """What is sent, and by which version."""
    return {
        "requests": digest(load, seed),
        "num_requests": load.num_requests,
        "num_warmup": load.num_warmup,
        "concurrency": load.concurrency,
        "prompt_tokens": load.prompt_tokens,
        "reply_tokens": load.reply_tokens,
        "contextlab": versions().get("contextlab"),
    }


def machine() -> Facts:
    """What a machine is, without what changes on it by itself."""
    return {
        "system": platform.system(),
        "kernel": ".".join(platform.release().split("-")[0].split(".")[:2]),
        "processor": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "virtualisation": _virtual(),
    }


def _cpu() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or None


def _virtual() -> str | None:
    """The name that a hypervisor gives its machines; "none" where there is none."""
    with suppress(OSError):
        return Path("/sys/class/dmi/id/product_name").read_text(encoding="utf-8", errors="replace").strip()
    return None


def _digest(spec: TargetSpec) -> str | None:
    """Of the model's file, where the target names one."""
    module = registry.targets()[spec.scheme]
    path = getattr(module, "model_file", lambda spec: None)(spec)
    if path is None:
        return None
    found = hashlib.sha256()
    with suppress(OSError), Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for start in (0, max(0, size - ENDS_BYTES)):
            file.seek(start)
            found.update(file.read(ENDS_BYTES))
        return f"{found.hexdigest()[:16]}-{size}"
    return None
