"""Runs the command line as a user would: in a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLAIN = {"NO_COLOR": "1", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}


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


def contextlab(*words: str, cwd: Path, timeout_s: float = 110.0, env: dict[str, str] | None = None) -> Ran:
    """Run `contextlab WORDS…` in `cwd` and wait for it; a traceback anywhere fails the test."""
    done = subprocess.run(
        [sys.executable, "-c", "from contextlab.cli import main; main()", *words],
        cwd=cwd,
        env={**os.environ, **PLAIN, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)
