"""The tool's own end of its undo record: what is about to be done goes on it first, and comes off when it is undone.

    add(step) ─▶ record, synced ─▶ watchdog told ─▶ [the deed] ─▶ undo([number]) ─▶ … ─▶ close(): record removed

The watchdog is started before the first step, and another in place of one that has died before the next.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import contextlab
from contextlab.lab.undo import record, steps
from contextlab.lab.undo.record import Record
from contextlab.lab.undo.steps import Step
from contextlab.model import ContextlabError, UnableError

WATCHDOG = "contextlab.lab.undo.watchdog"
END_S = 5.0
"""How long the watchdog may take to see that it is not needed any more."""


class UndoFailedError(ContextlabError):
    """Something that was done to the machine could not be undone (exit 6); `next_step` says how to mend it."""

    exit_code = 6


def undo_failed(left: dict[int, str], chosen: dict[int, Step]) -> UndoFailedError:
    """The error that says what is left and what mends it."""
    what = "; ".join(left[number] for number in sorted(left, reverse=True))
    by_hand = "; ".join(steps.command(chosen[number]) for number in sorted(left, reverse=True))
    return UndoFailedError(f"could not undo: {what}", f"contextlab recover, or by hand: {by_hand}")


class Ledger:
    """The undo record of one run, and its watchdog. May be used by several threads.

    `target` says what the run acts on, for messages; `state`: another folder than `state_folder()`.
    """

    def __init__(self, *, run: str, target: str, state: Path | None = None) -> None:
        self._run, self._target = run, target
        self._folder = record.records_folder(state)
        self._record: Record | None = None
        self._steps: dict[int, Step] = {}
        self._num_added = 0
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._lock = threading.Lock()

    @property
    def path(self) -> Path | None:
        """Where the record is; None before the first step and after the end."""
        return self._record.path if self._record is not None else None

    @property
    def watchdog_pid(self) -> int | None:
        """Process id of the watchdog, while there is one."""
        return self._watchdog.pid if self._watchdog is not None else None

    def add(self, step: Step, *, lease_s: float) -> int:
        """Put on record how something is undone, before it is done; the step's number.

        Without an undo the watchdog undoes it after `lease_s` seconds. Raises UnableError where the record cannot be
        written or the watchdog not be started: then do not do it.
        """
        with self._lock:
            try:
                one = self._opened()
                number = self._num_added
                one.append(
                    {"kind": "step", "number": number, "until_s": record.now_s() + lease_s, "step": step}, sync=True
                )
                self._num_added += 1
                self._steps[number] = step
                self._tell(one)
            except OSError as error:
                message = f"the undo record in {self._folder} cannot be kept: {error.strerror or error}"
                raise UnableError(message, "name a folder that can be written: CONTEXTLAB_STATE=DIR") from None
            return number

    def undo(self, numbers: Sequence[int]) -> None:
        """Undo steps, the latest first; those that are undone already count for nothing.

        Raises UndoFailedError with what is left after two seconds of trying.
        """
        with self._lock:
            chosen = {number: self._steps[number] for number in numbers if number in self._steps}
            one = self._record
        if not chosen or one is None:
            return
        with one.locked():  # also where somebody removed the record: what was done is undone all the same
            left = one.undo(chosen, by="tool")
        with self._lock:
            for number in chosen:
                if number not in left:
                    self._steps.pop(number, None)
        if left:
            raise undo_failed(left, chosen)

    def close(self) -> None:
        """Undo what is open, end the watchdog and remove the record. May be called again.

        Raises UndoFailedError; the record then stays for `contextlab recover`.
        """
        try:
            self.undo(list(self._steps))
            if self._record is not None:
                with self._record.locked():
                    self._record.path.unlink(missing_ok=True)
        finally:
            self._record = None
            self._end_watchdog()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> Record:
        """The record, with a watchdog that lives."""
        if self._record is None:
            self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            name = re.sub(r"[^A-Za-z0-9.]+", "-", self._run).strip("-.")[:60] or "run"
            path = self._folder / f"{name}-{os.getpid()}-{uuid.uuid4().hex[:8]}{record.SUFFIX}"
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            one = Record(path)
            try:
                watchdog = self._start_watchdog(one)
                one.append(
                    {
                        "kind": "open",
                        "boot": record.boot_id(),
                        "tool": [os.getpid(), steps.started_of(os.getpid())],
                        "watchdog": watchdog,
                        "run": self._run,
                        "target": self._target,
                    },
                    sync=True,
                )
                _sync_folder(self._folder)
            except BaseException:
                path.unlink(missing_ok=True)
                self._end_watchdog()
                raise
            self._record = one
        elif self._watchdog is None or self._watchdog.poll() is not None:
            self._record.append({"kind": "watchdog", "watchdog": self._start_watchdog(self._record)}, sync=True)
        return self._record

    def _tell(self, one: Record) -> None:
        """Let the watchdog look at the record; one that has just died is replaced."""
        try:
            with contextlib.suppress(BlockingIOError):  # it has looks enough before it
                os.write(self._pipe, b".")
        except BrokenPipeError:
            one.append({"kind": "watchdog", "watchdog": self._start_watchdog(one)}, sync=True)

    def _start_watchdog(self, one: Record) -> tuple[int, int]:
        """Start a watchdog for the record; its process id and start."""
        self._end_watchdog()
        reading, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            arguments = (one.path.absolute(), reading, os.getpid(), steps.started_of(os.getpid()))
            self._watchdog = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", WATCHDOG, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(Path(contextlab.__file__).parents[1])},
                pass_fds=[reading],
                start_new_session=True,
            )
        finally:
            os.close(reading)
        return self._watchdog.pid, steps.started_of(self._watchdog.pid) or 0

    def _end_watchdog(self) -> None:
        """Close the pipe and see the watchdog go: without a record there is nothing that it would do."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._watchdog is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._watchdog.wait(END_S)
            if self._watchdog.poll() is None:
                self._watchdog.kill()
                self._watchdog.wait()
            self._watchdog = None


def _sync_folder(folder: Path) -> None:
    """Let the name of a new file be on the disk too."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
