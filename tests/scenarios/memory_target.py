"""A target that does nothing but carry out the memory tasks, made known by an entry point as any plugin is."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contextlab.model import Event, Evidence, Knowledge, Limits, Request, Setting, TargetSpec
from contextlab.targets.inside.memory_tasks import TASKS
from tests.command import Ran, contextlab

SCHEME = "memory"
IN_PROCESS = True
SETTINGS: tuple[Setting, ...] = ()
ROOT = Path(__file__).parents[2]


class MemoryTarget:
    """Answers no requests."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Nothing."""
        events: tuple[Event, ...] = ()
        for event in events:
            yield event

    async def perform(self, task: str, about: Mapping[str, int | float | str]) -> AsyncGenerator[Evidence, None]:
        """One of the tasks."""
        for measured in TASKS[task](about):
            yield measured


@asynccontextmanager
async def open_target(spec: TargetSpec, knowledge: Knowledge | None = None) -> AsyncIterator[MemoryTarget]:
    """The target; it has one power."""
    known = Knowledge(flavour="other", model="none", limits=Limits(), powers=frozenset({"memory-tasks", "host-memory"}))
    yield MemoryTarget(knowledge or known)


def overflow(scenario: str, folder: Path) -> tuple[Ran, dict[str, list[dict[str, Any]]]]:
    """Run one scenario against this target by the command line; its findings by probe."""
    info = folder / "memory_target-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: memory-target\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[contextlab.targets]\nmemory = {__name__}\n", encoding="utf-8")
    env = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    words = ("overflow", "memory:", "--scenario", scenario, "--max-repeats", "20", "--json")
    ran = contextlab(*words, cwd=folder, env=env, timeout_s=200.0)
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in ran.document["findings"]:
        found.setdefault(finding["probe"], []).append(finding)
    return ran, found
