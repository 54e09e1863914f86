"""The tool is killed with SIGKILL at random points of every fault, and nothing of the fault is left 2 s later.

A third of the times its watchdog is killed just before; then `recover` must mend all that the kernel does not. With
`--soak N` there are N times as many points.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from contextlab import registry
from contextlab.experiment import Plane
from contextlab.lab.undo import steps
from contextlab.lab.undo.record import open_records
from contextlab.lab.undo.recovery import recover
from tests.lab.processes import marked, new_mark
from tests.quality.undo_driver import LENGTH_S, WIRE

HERE = Path(__file__).parent
NUM_POINTS = 200
NUM_LANES = 6
CLEAN_WITHIN_S = 2.0
WAYS: dict[str, tuple[str, ...]] = {
    "balloon": ("of=group,size=8MB", "of=host,size=8MB"),
    "cpu": ("by=quota", "by=hogs", "by=duty"),
    "crash-loop": ("every=100ms",),
    "disk": ("what=full,dir={cache}", "what=read-only,dir={cache}", "what=slow,dir={cache},limit=1MB/s"),
    "memory": ("limit=1GB", "limit=64MB"),
    "pause": ("by=signal", "by=freezer"),
}
"""Options under which a fault takes another way, by its name; for the others their defaults. {cache}: a folder."""
OWNED = ("kill", "kill-worker", "crash-loop", "balloon:of=group,size=8MB", "memory:limit=64MB")
"""Ways that need a server of the tool's own: it ends, or its keeper has given it a memory limit."""

pytestmark = [
    pytest.mark.alone,
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="control groups, mounts and network namespaces need root"),
]


HEAVY = (WIRE, "redis-refused", "redis-restarted")
"""Ways for which the tool starts several processes of its own: they take a third of the points of the others."""


def kinds() -> list[str]:
    """Every way to harm a host, as the user writes it, then the wire's devices and, where there is one, Redis."""
    found = []
    for name, fault in registry.faults().items():
        if fault.PLANE is Plane.HOST:
            found += [f"{name}:{options}" if options else name for options in WAYS.get(name, ("",))]
    return found * 3 + list(HEAVY if shutil.which("redis-server") else HEAVY[:1])


# ── what must be as it was ───────────────────────────────────────────────────────────────────────


class Target:
    """A process tree that belongs to nobody here, and what it was like before anything was done to it."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", str(HERE / "tiny_server.py")], stdout=subprocess.PIPE, text=True, cwd=folder
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("READY")
        self.pids = [one.pid for one in psutil.Process(self.process.pid).children()] + [self.process.pid]
        self._had = self._now()

    def _now(self) -> tuple[dict[int, set[int]], dict[int, str]]:
        """The processors of its threads, the groups of its processes."""
        tids = [int(path.name) for pid in self.pids for path in Path(f"/proc/{pid}/task").iterdir()]
        groups = {pid: Path(f"/proc/{pid}/cgroup").read_text() for pid in self.pids}
        return {tid: os.sched_getaffinity(tid) for tid in tids}, groups

    def changes(self) -> list[str]:
        """What is not as it was."""
        found = [f"process {pid} is stopped" for pid in self.pids if _state(pid) == "T"]
        names = ("processors", "groups")
        changes = zip(names, self._had, self._now(), strict=True)
        return found + [f"{name}: {had} became {now}" for name, had, now in changes if had != now]

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _groups_of(tool: int) -> list[str]:
    folders = (folder for folder, _, _ in os.walk("/sys/fs/cgroup"))
    return [folder for folder in folders if Path(folder).name.startswith(f"contextlab-{tool}-")]


def _mounts_of(tool: int, folder: Path) -> list[str]:
    scratch = f"contextlab-disk-{tool}-"
    return [path for path in steps.mount_points() if path.startswith(f"{folder}/") or scratch in path]


# ── a lane: one driver, one target, one point after the other ────────────────────────────────────


class Lane:
    """Orders to a driver and a look at what each tool left behind."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.state, self.cache = folder, folder / "state", folder / "cache"
        self.cache.mkdir()
        (folder / "tools").mkdir()
        self.target = Target(folder)
        self.driver = subprocess.Popen(
            [sys.executable, str(HERE / "undo_driver.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        )
        assert self._said() == "ready\n"

    def _said(self) -> str:
        assert self.driver.stdout is not None
        return self.driver.stdout.readline()

    def tool(
        self,
        fault: str,
        *,
        at_line: tuple[str, int] | None = None,
        at_s: float | None = None,
        watchdog_too: bool = False,
    ) -> tuple[dict[str, Any], list[str]]:
        """Run one tool to its point; what the driver says of it, and what is left after the time that it has."""
        is_owned = fault in OWNED or fault.partition(":")[0] in OWNED
        root = self.target.process.pid
        mark = new_mark()
        order = {
            "fault": fault.format(cache=self.cache),
            "victim": None if is_owned else [root, steps.started_of(root)],
            "state": str(self.state),
            "log": str(self.folder / "tools" / "log"),
            "mark": mark,
            "at_line": at_line,
            "at_s": at_s,
            "watchdog_too": watchdog_too,
        }
        assert self.driver.stdin is not None
        self.driver.stdin.write(json.dumps(order) + "\n")
        self.driver.stdin.flush()
        answer = json.loads(self._said())
        died_s = time.monotonic()
        mended = list(recover(self.state)) if watchdog_too else []
        left = [why for one in mended for why in one.left]
        while left := left or self._left(answer["pid"], mark):
            if time.monotonic() - died_s > CLEAN_WITHIN_S:
                break
            left = []
            time.sleep(0.05)
        return answer, left

    def _left(self, tool: int, mark: dict[str, str]) -> list[str]:
        left = [f"process {one}" for one in marked(mark)]
        left += [f"group {one}" for one in _groups_of(tool)]
        left += [f"mount {one}" for one in _mounts_of(tool, self.folder)]
        left += [f"file {one}" for one in self.cache.iterdir()]
        # One without a step is of a tool that died before it did anything; the next `recover` sweeps it.
        left += [f"record {one.path}" for one in open_records(self.state) if one.contents.steps]
        return left + self.target.changes()

    def close(self) -> None:
        """Undo what is left after all, for it may hold the target, and end driver and target."""
        list(recover(self.state))
        self.driver.kill()
        self.driver.wait()
        self.target.close()
        for one in (self.driver.stdin, self.driver.stdout):
            assert one is not None
            one.close()


@contextmanager
def lanes(folder: Path) -> Iterator[list[Lane]]:
    """So many lanes, closed at the end."""
    made: list[Lane] = []
    try:
        made.extend(Lane(folder / f"lane{number}") for number in range(NUM_LANES))
        yield made
    finally:
        for lane in made:
            lane.close()


@dataclass(slots=True)
class Shot:
    """A tool that is to be killed, and what came of it."""

    fault: str
    by_time: bool
    watchdog_too: bool
    rng: random.Random
    point: str = "its end"
    left: Sequence[str] = ()
    error: str = ""

    def __str__(self) -> str:
        return f"{self.fault}, killed at {self.point}, watchdog_too={self.watchdog_too}: {self.error} {self.left}"


def shoot(lane: Lane, shots: Iterator[Shot], lock: threading.Lock, known: dict[str, dict[str, int]]) -> None:
    """Take shots until none is left, or one has left something. `known`: the lines of a fault, from its first run."""
    while True:
        with lock:
            shot = next(shots, None)
        if shot is None:
            return
        if shot.fault not in known:
            answer, shot.left = lane.tool(shot.fault)
            if "lines" not in answer or shot.left:
                shot.error = answer.get("error", "it was not killed, and yet did not end")
                return
            known[shot.fault] = answer["lines"]
        if shot.by_time:
            at_s = shot.rng.random() * LENGTH_S * 1.2
            shot.point = f"{at_s:.3f} s"
            answer, shot.left = lane.tool(shot.fault, at_s=at_s, watchdog_too=shot.watchdog_too)
        else:
            line, times = shot.rng.choice(sorted(known[shot.fault].items()))
            nth = shot.rng.randint(1, times)
            shot.point = f"{Path(line).name}, run {nth} of {times}"
            answer, shot.left = lane.tool(shot.fault, at_line=(line, nth), watchdog_too=shot.watchdog_too)
        shot.error = answer.get("error", "")
        if shot.left or shot.error:
            return  # the target is not what it was


@pytest.mark.timeout(0)
def test_nothing_is_left_of_a_fault_whose_tool_is_killed_at_any_point(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    rng = random.Random(20)
    ways = kinds()
    shots = [
        Shot(
            fault=ways[number % len(ways)],
            by_time=rng.random() < 1 / 4,
            watchdog_too=rng.random() < 1 / 3,
            rng=random.Random(rng.random()),
        )
        for number in range(NUM_POINTS * pytestconfig.getoption("--soak"))
    ]
    lock, known, queue = threading.Lock(), dict[str, dict[str, int]](), iter(shots)
    with lanes(tmp_path) as made:
        threads = [threading.Thread(target=shoot, args=(lane, queue, lock, known)) for lane in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    failed = [str(shot) for shot in shots if shot.left or shot.error]
    assert not failed, "\n".join(failed)
    assert next(queue, None) is None
    assert set(known) == set(ways)
