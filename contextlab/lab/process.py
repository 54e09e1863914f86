"""Starts a process under a keeper and tells how it ended. Linux and macOS.

The one place where the tool starts anything. See `keeper.py` for what holds when the tool itself is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from contextlab.model import ProcessEnd

KEEPER = Path(__file__).with_name("keeper.py")
MEMORY_SHARE = 0.75
"""Part of the free memory that a process of ours may use where nobody said how much."""
TAIL_LINES = 40


def default_memory_limit_bytes() -> int:
    """A limit that keeps the machine alive: three quarters of what is available now."""
    return int(psutil.virtual_memory().available * MEMORY_SHARE)


class KeptProcess:
    """A process of ours and its tree, from start to end.

    `log` receives its standard output and error; what stood in it before is not this process's.
    `pass_fds` reach the process and are closed here. `memory_limit_bytes` 0 sets no limit. `grace_s`: how long it
    may take to obey `stop`. Any thread may ask, stop and close it: a fault does while the main loop looks on.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        memory_limit_bytes: int = 0,
        grace_s: float = 5.0,
        stdin: int = subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> None:
        self.log = log
        self.log_start_bytes = log.stat().st_size if log.exists() else 0
        self._grace_s = grace_s
        life_read, self._life = os.pipe()
        self._status, status_write = os.pipe()
        os.set_blocking(self._status, False)
        config = {
            "life_fd": life_read,
            "status_fd": status_write,
            "memory_limit_bytes": memory_limit_bytes,
            "grace_ms": int(grace_s * 1000),
            "inherited_fds": list(pass_fds),
        }
        with log.open("ab") as sink:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER), json.dumps(config), "--", *argv],
                stdin=stdin,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                pass_fds=[life_read, status_write, *pass_fds],
                cwd=cwd,
            )
        for fd in (life_read, status_write, *pass_fds):
            os.close(fd)
        self._lock = threading.Lock()
        self._buffer = b""
        self._facts: dict[str, Any] = {}
        self._killed_late = False
        self._await("pid", timeout_s=10.0)

    @property
    def pid(self) -> int | None:
        """Process id of the kept process itself; None if it could not even be forked."""
        return self._facts.get("pid")

    @property
    def memory_limit(self) -> str:
        """What holds its memory: "cgroup", "rlimit" or "none"."""
        return str(self._facts.get("limit", "none"))

    @property
    def stdin(self) -> Any:
        """The pipe to its standard input, where one was asked for."""
        return self._keeper.stdin

    def poll(self) -> ProcessEnd | None:
        """How it ended, or None while it runs. Never waits."""
        self._read()
        if "exit_code" not in self._facts:
            if self._keeper.poll() is None:
                return None
            self._read()  # the keeper may have written between our look and its end
            if "exit_code" not in self._facts:  # the keeper was killed: the process went with it
                self._facts |= {"exit_code": None, "signal": "SIGKILL"}
                self._end_orphans()
        lines = self.log_lines(self.log_start_bytes)[-TAIL_LINES:]
        return process_end(self._facts, lines, timed_out=self._killed_late)

    def wait(self, timeout_s: float) -> ProcessEnd | None:
        """Wait until it ended; None if it still runs when the time is up."""
        self._await("exit_code", timeout_s)
        return self.poll()

    def stop(self) -> ProcessEnd:
        """End the whole tree: a request first, then, after its grace, force. Returns when nothing of it is left."""
        self._tell(b"T")
        end = self.wait(self._grace_s + 1.0)
        return end if end is not None else self.kill()

    def kill(self, *, timed_out: bool = False) -> ProcessEnd:
        """End the whole tree by force. `timed_out` goes on record as the reason."""
        self._killed_late = timed_out and self.poll() is None
        self._tell(b"K")
        end = self.wait(10.0)
        if end is None:  # the keeper itself stands still; its death takes the process along
            self._keeper.kill()
            end = self.wait(5.0)
        return end if end is not None else ProcessEnd(signal="SIGKILL", timed_out=timed_out)

    def close(self) -> None:
        """Release the pipes; kills the tree if it still runs. May be called again."""
        if self.poll() is None:
            self.kill()
        with self._lock:
            for fd in (self._life, self._status):
                with contextlib.suppress(OSError):
                    os.close(fd)
            self._life = self._status = -1  # these numbers may soon be somebody else's
        self._keeper.wait()
        if self._keeper.stdin is not None:
            with contextlib.suppress(OSError):
                self._keeper.stdin.close()

    def __enter__(self) -> KeptProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def log_lines(self, start_bytes: int = 0, max_bytes: int = 1 << 18) -> list[str]:
        """Lines of its log from a byte offset on; at most the last `max_bytes`."""
        return self.log_text(start_bytes, max_bytes).splitlines()

    def log_text(self, start_bytes: int = 0, max_bytes: int = 1 << 18) -> str:
        """The same as it stands, newlines and all."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start_bytes, size - max_bytes))
            return file.read().decode("utf-8", errors="replace")

    def log_size_bytes(self) -> int:
        """Where the log ends now; for `log_lines` of one probe alone."""
        return self.log.stat().st_size

    def memory_bytes(self) -> int | None:
        """Resident memory of the tree now; None once it is gone."""
        if self.pid is None:
            return None
        try:
            root = psutil.Process(self.pid)
            return sum(_resident_bytes(process) for process in [root, *root.children(recursive=True)]) or None
        except psutil.Error:
            return None

    def num_children(self) -> int:
        """How many processes it has started that run now, with theirs; 0 once it is gone."""
        try:
            return len(psutil.Process(self.pid).children(recursive=True)) if self.pid is not None else 0
        except psutil.Error:
            return 0

    def _tell(self, word: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):  # it has ended already
            os.write(self._life, word)

    def _end_orphans(self) -> None:
        """Kill what is left of the process's group; who had left that group outlives a killed keeper."""
        if self.pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def _read(self) -> None:
        with self._lock:
            with contextlib.suppress(BlockingIOError, OSError):
                while chunk := os.read(self._status, 65536):
                    self._buffer += chunk
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                self._facts |= json.loads(line)

    def _await(self, fact: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._read()
        while fact not in self._facts and (left_s := deadline - time.monotonic()) > 0:
            if (status := self._status) < 0:  # closed by another thread, which read all there was
                return
            readable: list[int] = []
            with contextlib.suppress(OSError):  # or it is closed just now
                readable, _, _ = select.select([status], [], [], min(left_s, 0.5))
            self._read()
            if readable and fact not in self._facts and self._keeper.poll() is not None:
                return


def process_end(facts: Mapping[str, Any], last_lines: Sequence[str], *, timed_out: bool) -> ProcessEnd:
    """How a process ended, by what its keeper (or the nursery) told of it and by its last words."""
    kills = facts.get("num_memory_kills")
    spoke_of_memory = any(_tells_of_memory(line) for line in last_lines)
    return ProcessEnd(
        exit_code=facts.get("exit_code"),
        signal=facts.get("signal"),
        timed_out=timed_out,
        out_of_memory=True if kills or spoke_of_memory else (False if kills == 0 else None),
        peak_memory_bytes=facts.get("peak_memory_bytes"),
        stderr_tail=tuple(last_lines),
    )


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _tells_of_memory(line: str) -> bool:
    from contextlab.analysis.signatures import recognise

    found = recognise(line)
    return found is not None and found.kind == "out-of-memory"


def with_last_event(end: ProcessEnd, last_event: str) -> ProcessEnd:
    """The same end, with the last thing that the process reported before it."""
    return replace(end, last_event=last_event)
