"""Helpers that work against the target: they take processor time, or memory. Started by `Hands.helper`.

    python -m contextlab.lab.host.hogs spin
    python -m contextlab.lab.host.hogs balloon BYTES
    python -m contextlab.lab.host.hogs join CGROUP_PROCS COMMAND…        enters a control group, then becomes COMMAND

The standard library only, so that a start costs milliseconds. A keeper ends them when the tool is gone.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Sequence

CHUNK_BYTES = 8 << 20
TOUCH_EVERY_S = 1.0
FIRST_TO_GO = "1000"
"""oom_score_adj of who is killed before everybody else (proc(5))."""


def spin() -> None:
    """Use a processor for good."""
    while True:
        pass


def balloon(size_bytes: int) -> None:
    """Hold so much memory for good, each page written to, again and again; the kernel's OOM killer takes us first."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(FIRST_TO_GO)
    held: list[mmap.mmap] = []
    for begin in range(0, size_bytes, CHUNK_BYTES):
        held.append(mmap.mmap(-1, min(CHUNK_BYTES, size_bytes - begin), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        touch(held[-1])
    while True:
        time.sleep(TOUCH_EVERY_S)
        for chunk in held:
            touch(chunk)


def touch(chunk: mmap.mmap) -> None:
    """Write to every page."""
    chunk[:: mmap.PAGESIZE] = b"x" * len(range(0, len(chunk), mmap.PAGESIZE))


def main(words: Sequence[str]) -> None:
    """What the words say; never returns."""
    if words[0] == "join":
        with open(words[1], "w", encoding="ascii") as file:
            file.write("0")
        os.execvp(words[2], list(words[2:]))  # noqa: S606 - no shell is the point
    if words[0] == "spin":
        spin()
    balloon(int(words[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
