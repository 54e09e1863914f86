"""The undo record: one file a run, a JSON object a line, written and synced before each deed.

    open      boot, tool [pid, started], watchdog [pid, started], run, target
    watchdog  [pid, started] of another one, after the first had died
    step      number, until_s (its lease, CLOCK_BOOTTIME), step
    undone    number, by ("tool", "watchdog", "recover")
    left      number, by, why: it could not be undone

A line that is cut short is a step whose deed was never done. Who undoes holds the file's lock. The record is removed
when all is undone; one that stays is open, and `contextlab recover` replays it. The standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contextlab.lab.undo import steps
from contextlab.lab.undo.steps import Step

SUFFIX = ".jsonl"
RETRY_S = 2.0
"""How long an undo is tried again before it counts as failed."""
PAUSE_S = 0.05


def state_folder() -> Path:
    """Where the tool keeps what outlives it: CONTEXTLAB_STATE, else contextlab/ below XDG_STATE_HOME."""
    if named := os.environ.get("CONTEXTLAB_STATE"):
        return Path(named)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "contextlab"


def records_folder(state: Path | None = None) -> Path:
    """The folder of the open records, whether it is there or not."""
    return (state or state_folder()) / "open"


def boot_id() -> str:
    """What tells this start of the machine from every other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def now_s() -> float:
    """Seconds since boot, those in which the machine slept included: what leases are counted in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Contents:
    """What a record says."""

    boot: str = ""
    tool: tuple[int, int] = (0, 0)
    watchdog: tuple[int, int] = (0, 0)
    run: str = ""
    target: str = ""
    steps: dict[int, Step] = field(default_factory=dict)
    until_s: dict[int, float] = field(default_factory=dict)
    undone_by: dict[int, set[str]] = field(default_factory=dict)

    @property
    def open_steps(self) -> dict[int, Step]:
        """What the tool has not undone itself, and nobody after its end. What a watchdog undid when a lease was over
        is among it: the tool may have done the deed late, when it could go on."""
        return {
            number: step
            for number, step in self.steps.items()
            if not self.undone_by.get(number, set()) & {"tool", "recover"}
        }

    @property
    def tool_lives(self) -> bool:
        """Whether the run that wrote this is still under way."""
        return self.boot == boot_id() and steps.is_alive(*self.tool)

    @property
    def watchdog_lives(self) -> bool:
        """Whether somebody is there to undo it."""
        return self.boot == boot_id() and steps.is_alive(*self.watchdog)

    def take(self, line: Mapping[str, Any]) -> None:
        """Add what one line says."""
        match line["kind"]:
            case "open":
                self.boot, self.run, self.target = line["boot"], line["run"], line["target"]
                self.tool, self.watchdog = tuple(line["tool"]), tuple(line["watchdog"])
            case "watchdog":
                self.watchdog = tuple(line["watchdog"])
            case "step":
                self.steps[line["number"]] = line["step"]
                self.until_s[line["number"]] = line["until_s"]
            case "undone":
                self.undone_by.setdefault(line["number"], set()).add(line["by"])


class Record:
    """A record's file, read as it grows: `contents` is what it said at the last `look`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents = Contents()
        self._offset, self._rest = 0, b""

    def look(self) -> Contents:
        """Read what is new. A record that is gone says nothing more."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):  # cut short: the deed that should have followed was not done
                    self.contents.take(json.loads(line))
        return self.contents

    def append(self, *lines: Mapping[str, Any], sync: bool = False) -> None:
        """Write lines in one go; with `sync` they are on the disk when this returns. Raises OSError.

        Each begins on a line of its own, whatever a dead writer left before it.
        """
        data = b"".join(b"\n" + json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(28, "the disk is full", str(self.path))
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the record's lock, waiting for it; False where the record has gone meanwhile."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield os.fstat(fd).st_nlink > 0
        finally:
            os.close(fd)

    def undo(self, chosen: Mapping[int, Step], *, by: str) -> dict[int, str]:
        """Undo steps, the latest first, again and again while something is left, and mark what is undone.

        Call it with the lock held. What is left at the end comes back, in words, by number.
        """
        until_s = time.monotonic() + RETRY_S
        left = dict.fromkeys(sorted(chosen, reverse=True), "")
        while True:
            left = {number: why for number in left if (why := steps.undone(chosen[number]))}
            if not left or time.monotonic() >= until_s:
                break
            time.sleep(PAUSE_S)
        marks = [{"kind": "undone", "number": number, "by": by} for number in chosen if number not in left]
        marks += [{"kind": "left", "number": number, "by": by, "why": why} for number, why in left.items()]
        with contextlib.suppress(OSError):  # without its marks the undo is only done once more
            self.append(*marks)
        return left

    def undo_open(self, *, by: str) -> dict[int, str]:
        """Undo all that is open in the record of a dead tool, and remove the record when nothing is left."""
        with self.locked() as is_there:
            if not is_there:
                return {}
            contents = self.look()
            left = self.undo(
                {
                    number: step
                    for number, step in contents.open_steps.items()
                    if contents.boot == boot_id() or steps.outlives_boot(step)
                },
                by=by,
            )
            if not left:
                self.path.unlink(missing_ok=True)
            return left


def open_records(state: Path | None = None) -> list[Record]:
    """Every record that is there, by name; each read once."""
    try:
        paths = sorted(records_folder(state).glob(f"*{SUFFIX}"))
    except OSError:
        paths = []
    records = [Record(path) for path in paths]
    for record in records:
        record.look()
    return records
