"""What is installed here, where a record can be kept, and what killed runs have left."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from contextlab.analysis.checkup import Check, Grade
from contextlab.lab.tier import redis_server
from contextlab.lab.undo import steps
from contextlab.lab.undo.recovery import left_open
from contextlab.targets.gguf import smollm2_file

FEWEST_FILES = 1024
LEAST_FREE_BYTES = 1 << 30
EXTRAS = {
    "hf": ("torch", "transformers"),
    "tier": redis_server.PACKAGES,
    "optuna": ("optuna",),
    "parquet": ("pyarrow",),
}
"""By extra: the packages that it brings, as they are imported."""
WHAT_FOR = {
    "hf": "models inside the probe's own process (hf:)",
    "tier": "a cache tier in front of a target",
    "optuna": "pareto --optuna",
    "parquet": "report --as parquet",
}


def checks(runs: Path) -> Iterator[Check]:
    """Everything that does not depend on a target. `runs`: the folder that will hold the record."""
    yield _made("python", Grade.OK, f"{platform.python_version()}, contextlab {_version('contextlab')}")
    yield _system()
    yield _default_target()
    for extra, packages in EXTRAS.items():
        yield _extra(extra, packages)
    yield _room(runs)
    yield _descriptors()
    yield _left()


def _system() -> Check:
    name = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if sys.platform == "linux":
        return _made("system", Grade.OK, name)
    fix = "overflow, pareto and gate work; faults on packets and on hosts need Linux"
    return _made("system", Grade.WARN, name, fix)


def _default_target() -> Check:
    engine = find_spec("xllamacpp") is not None
    if engine and smollm2_file() is not None:
        return _made("smollm2", Grade.OK, f"llama.cpp from xllamacpp {_version('xllamacpp')}, and the model")
    lacks = "the model is not installed" if engine else "llama.cpp is not installed"
    fix = (
        "contextlab models add smollm2" if engine else "pip install 'contextlab[llama]'; contextlab models add smollm2"
    )
    return _made("smollm2", Grade.WARN, f"{lacks}: the default target cannot be started", fix)


def _extra(extra: str, packages: tuple[str, ...]) -> Check:
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return _made(extra, Grade.OK, ", ".join(f"{name} {_version(name)}" for name in packages))
    detail = f"not installed ({', '.join(missing)}): {WHAT_FOR[extra]}"
    return _made(extra, Grade.SKIP, detail, f"pip install 'contextlab[{extra}]'")


def _room(runs: Path) -> Check:
    place = runs.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        return _made("records", Grade.FAIL, f"{place} cannot be written to", "name another folder: --runs DIR")
    free = shutil.disk_usage(place).free
    words = f"{free / 2**30:.1f} GiB free for records in {runs}"
    if free < LEAST_FREE_BYTES:
        return _made("records", Grade.WARN, words, "free some space; a run that cannot write ends with exit 4")
    return _made("records", Grade.OK, words)


def _descriptors() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    words = f"{'no limit of' if soft == resource.RLIM_INFINITY else soft} open files"
    if soft != resource.RLIM_INFINITY and soft < FEWEST_FILES:
        more = "" if hard == resource.RLIM_INFINITY else f" (at most {hard} here)"
        return _made("files", Grade.WARN, f"{words}: each connection of a load takes one", f"ulimit -n 4096{more}")
    return _made("files", Grade.OK, words)


def _left() -> Check:
    left = left_open()
    if not left:
        return _made("undone", Grade.OK, "no killed run has left anything on this machine")
    first = left[0]
    words = "; ".join(steps.words(step) for step in first.open_steps.values())
    return _made("undone", Grade.FAIL, f"run {first.run} was killed and is not undone: {words}", "contextlab recover")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _made(name: str, grade: Grade, detail: str, fix: str = "") -> Check:
    return Check(section="environment", name=name, grade=grade, detail=detail, fix=fix)
