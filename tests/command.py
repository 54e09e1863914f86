"""Runs the command line in a process of its own, and sees to it that nothing of it is left afterwards.

Every run carries a mark in its environment, which all that it starts inherits: what still has it when the command
has ended is an orphan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

COMMAND = str(Path(sys.executable).with_name("contextlab"))
MARK = "CONTEXTLAB_TEST_MARK"
PLAIN = {"NO_COLOR": "1", "_TYPER_FORCE_DISABLE_TERMINAL": "1", "COLUMNS": "80"}
ORPHANS_MAY_LIVE_S = 5.0
"""A server of ours may need a moment to die, no more."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Its standard output as the one JSON document that --json promises."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


class Running:
    """A command on its way; `ended` waits for it."""

    def __init__(
        self,
        words: tuple[str, ...],
        cwd: Path,
        *,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[bytes] = subprocess.PIPE,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            [COMMAND, *words],
            cwd=cwd,
            env={**os.environ, **PLAIN, **(env or {}), MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            preexec_fn=before,
        )

    @property
    def pid(self) -> int:
        """Process id of the command."""
        return self._process.pid

    def ended(self, timeout_s: float = 60.0) -> Ran:
        """Its end. Fails where it hangs, shows a traceback, or leaves a process."""
        try:
            out, err = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.communicate()
            raise
        ran = Ran(self._process.returncode, (out or b"").decode(), err.decode())
        assert "Traceback" not in ran.out + ran.err, ran.out + ran.err
        assert orphans(self.mark) == []
        return ran


def contextlab(*words: str, cwd: Path, timeout_s: float = 110.0, **how: Any) -> Ran:
    """Run `contextlab WORDS…` in `cwd` to its end."""
    return Running(words, cwd, **how).ended(timeout_s)


def orphans(mark: str) -> list[str]:
    """Command lines of the processes that carry the mark; waits a moment for those that are about to end."""
    needle, until = f"{MARK}={mark}".encode(), time.monotonic() + ORPHANS_MAY_LIVE_S
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if needle in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:  # it has ended, or is somebody else's
                continue
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)
