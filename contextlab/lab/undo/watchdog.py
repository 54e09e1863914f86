"""Undoes what a run did to the machine, when the run cannot: it has died, or a lease is over and it has not moved.

    tool ──pipe──▶ watchdog          a byte: look at the record; end of file: the tool is gone, undo all that is open
             record ──▶ steps, leases

A process in a session of its own that ignores INT, TERM and HUP. It is started as `python -S -P -m` with the package's
folder on the path: the standard library only. It ends when the record is undone, or cannot be.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from pathlib import Path

from contextlab.lab.undo import record, steps
from contextlab.lab.undo.record import Record

LAST_TO_GO = "-1000"
"""What the OOM killer never takes."""
LOOK_S = 1.0
"""At least so often it looks by itself: at clocks that jumped, and whether the tool lives, should the pipe not tell."""


def watch(path: Path, pipe: int, tool: tuple[int, int]) -> None:
    """Wait for the tool's end and for the ends of leases, and undo."""
    one = Record(path)
    over: set[int] = set()
    while True:
        contents = one.look()
        leases = {number: until_s for number, until_s in contents.until_s.items() if number not in over}
        next_s = min((until_s - record.now_s() for number, until_s in leases.items()), default=LOOK_S)
        readable, _, _ = select.select([pipe], [], [], min(max(0.0, next_s), LOOK_S))
        if (readable and not os.read(pipe, 4096)) or not steps.is_alive(*tool):
            one.undo_open(by="watchdog")
            return
        now_s = record.now_s()
        expired = {number for number, until_s in leases.items() if until_s <= now_s}
        over |= expired
        late = {number: contents.steps[number] for number in expired if number in one.look().open_steps}
        if late:
            with one.locked() as is_there:
                if is_there:
                    one.undo(late, by="watchdog")


def main() -> None:
    """Watch the record named first over the pipe named second, for the tool whose id and start follow."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    path, pipe, pid, started = sys.argv[1:5]
    os.chdir("/")  # no folder of the user's is busy because of us
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(LAST_TO_GO)  # only root may; for others a full memory may take us before it takes the target
    watch(Path(path), int(pipe), (int(pid), int(started)))


if __name__ == "__main__":
    main()
