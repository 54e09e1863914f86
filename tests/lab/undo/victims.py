"""Processes to be stopped and limited, and tools that are killed at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contextlab.lab.undo.steps import started_of

KILLED = """
import os, signal, sys
from contextlab.lab.undo import steps
from contextlab.lab.undo.ledger import Ledger
pid, started = map(int, sys.argv[1:3])
ledger = Ledger(run="killed", target="a sleeper")
ledger.add(steps.resume(pid, started), lease_s=60)
os.kill(pid, signal.SIGSTOP)
if "watchdog too" in sys.argv:
    os.kill(ledger.watchdog_pid, signal.SIGKILL)
if "forks" in sys.argv and os.fork() == 0:
    import time
    time.sleep(4)
    os._exit(0)
if "stays" in sys.argv:
    print("stays", flush=True)
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def sleeper() -> Iterator[tuple[int, int]]:
    """A process that does nothing: its id and its start."""
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]) as process:
        try:
            yield process.pid, started_of(process.pid) or 0
        finally:
            process.kill()


def state_of(pid: int) -> str:
    """The letter that /proc/PID/stat has for a process: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def killed_tool(victim: tuple[int, int], state: Path, *, watchdog_too: bool = False, forks: bool = False) -> None:
    """A tool that stops a process with its undo on record, and is killed with SIGKILL before it undoes that.

    `forks`: a child that has all that was open then outlives it for four seconds.
    """
    words = [str(number) for number in victim] + ["watchdog too"] * watchdog_too + ["forks"] * forks
    subprocess.run([sys.executable, "-c", KILLED, *words], env={**os.environ, "CONTEXTLAB_STATE": str(state)})


@contextmanager
def running_tool(victim: tuple[int, int], state: Path) -> Iterator[subprocess.Popen[str]]:
    """A tool that has stopped a process and goes on running; killed at the end."""
    words = [*(str(number) for number in victim), "stays"]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *words],
        env={**os.environ, "CONTEXTLAB_STATE": str(state)},
        stdout=subprocess.PIPE,
        text=True,
    ) as tool:
        try:
            assert tool.stdout is not None
            assert tool.stdout.readline() == "stays\n"
            yield tool
        finally:
            tool.kill()
