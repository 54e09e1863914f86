"""A process and its descendants, read from /proc, and what the kernel has counted of each. Linux only.

Whoever is gone while we look is left out; nothing here raises for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from contextlab.deeds import Victim
from contextlab.model import UnableError

TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One process as /proc/PID/stat counts it: seconds of CPU, threads that ended included, and pages from the disk."""

    victim: Victim
    parent: int
    cpu_s: float
    major_faults: int
    num_threads: int
    rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One thread as /proc/PID/task/TID/schedstat counts it: how long it ran, and was ready to but did not."""

    victim: Victim
    run_s: float
    wait_s: float


def counted(pid: int) -> Counted | None:
    """What is counted of a process now; None where there is none of that number, or only its corpse."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    words = tail.split()  # from field 3 (state) on; proc(5)
    if words[0] in "ZX":
        return None
    return Counted(
        victim=Victim(pid=pid, started=int(words[19]), name=head.partition("(")[2]),
        parent=int(words[1]),
        cpu_s=(int(words[11]) + int(words[12])) / TICKS_PER_S,
        major_faults=int(words[9]),
        num_threads=int(words[17]),
        rss_bytes=int(words[21]) * PAGE_BYTES,
    )


def tree(root: Victim) -> tuple[Counted, ...]:
    """The process and its descendants, parents before children; empty where it is gone.

    Raises UnableError where we are among them ourselves: then nothing may be done to this tree.
    """
    first = counted(root.pid)
    if first is None or first.victim.started != root.started:
        return ()
    below: dict[int, list[Counted]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (one := counted(int(name))) is not None:
            below.setdefault(one.parent, []).append(one)
    found = [first]
    for parent in found:  # grows while it is walked
        found += below.get(parent.victim.pid, ())
    if any(one.victim.pid == os.getpid() for one in found):
        raise UnableError(
            f"process {root.pid} is an ancestor of contextlab itself", "name the server's own process, not its shell"
        )
    return tuple(found)


def threads(pid: int) -> tuple[int, ...]:
    """The numbers of a process's threads."""
    with suppress(OSError):
        return tuple(sorted(int(name) for name in os.listdir(f"/proc/{pid}/task")))
    return ()


def started_threads(pid: int) -> Iterator[Victim]:
    """The threads of a process, each told from a later one of its number."""
    for tid in threads(pid):
        if (one := counted(tid)) is not None:
            yield one.victim


def ran(pid: int) -> Iterator[Ran]:
    """How long each thread of a process ran and waited; nothing on a kernel that does not count it."""
    for thread in started_threads(pid):
        with suppress(OSError, ValueError):
            words = Path(f"/proc/{pid}/task/{thread.pid}/schedstat").read_text(encoding="ascii").split()
            yield Ran(victim=thread, run_s=int(words[0]) / NS_PER_S, wait_s=int(words[1]) / NS_PER_S)
