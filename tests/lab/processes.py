"""Finding the processes of one test, and no others: other people's runs on this machine must not count."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "CONTEXTLAB_TEST_MARK"
"""An environment variable that everything a test starts inherits, however often it forks."""
KEEPER = "keeper.py"
PATIENCE_S = 30.0
"""For what must happen, and takes a moment; a machine with other work to do may take long."""


def new_mark() -> dict[str, str]:
    """Environment that marks a process and all that it starts."""
    return {MARK: uuid.uuid4().hex}


def marked(mark: dict[str, str]) -> list[psutil.Process]:
    """Every living process with this mark; zombies do not count, they only wait to be reaped."""
    wanted = f"{MARK}={mark[MARK]}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and wanted in _environment(path):
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(path.name)))
    return found


def _environment(process: Path) -> bytes:
    """The environment that a process was started with; empty where it is gone, a zombie, or not ours to read."""
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def commands(processes: list[psutil.Process]) -> list[str]:
    """What they are, for a message."""
    return [" ".join(words(process))[:120] for process in processes]


def words(process: psutil.Process) -> list[str]:
    """The words that a process was started with; none where it is gone by now."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _leads_a_session(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == int(process.pid)
    except ProcessLookupError:
        return False


def keepers(mark: dict[str, str]) -> list[int]:
    """Process ids of the keepers with this mark: each leads a session (what it has just forked does not)."""
    return [
        process.pid
        for process in marked(mark)
        if _leads_a_session(process) and any(KEEPER in word for word in words(process))
    ]


def cgroups(keeper_pids: list[int]) -> list[Path]:
    """The memory cgroups that belong to these keepers."""
    return [path for pid in keeper_pids for path in Path("/sys/fs/cgroup").glob(f"**/contextlab-{pid}")]


def until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until something holds; a failure says what was waited for."""
    for _ in ticks(timeout_s):
        if condition():
            return
    raise AssertionError(f"waited {timeout_s:g} s in vain: {what}")


def ticks(timeout_s: float) -> Iterator[None]:
    """Looks at something, fifty a second, at least one."""
    deadline = time.monotonic() + timeout_s
    while True:
        yield
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def await_gone(mark: dict[str, str], timeout_s: float) -> None:
    """Wait until nothing with this mark lives."""
    until(lambda: not marked(mark), f"the end of {commands(marked(mark))}", timeout_s)
