"""`contextlab` in processes that are forked from one that has loaded it: each a process of its own, without its start.

Forked ── one JSON line a run: words, folder, environment ──▶ this script ── fork ──▶ contextlab WORDS…
    ◀──────────────────── its exit code ─────────────────────────┘                        └─▶ out, err: files
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.command import COMMAND, MARK, PLAIN, Ran, orphans

ROOT = Path(__file__).parents[2]
REFUSED = (("overflow", "gguf:no.gguf", "--json"), ("report", "nope"), ("replay", "nope", "--probe", "x"))
"""What these load before they are refused is loaded once."""


class Forked:
    """The process with everything loaded. Runs one command after the other; what `tests.command` asserts holds here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        env = {**os.environ, **PLAIN, "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            argv, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=30.0)

    def __call__(self, *words: str, cwd: Path, env: Mapping[str, str]) -> Ran:
        """Run `contextlab WORDS…` in `cwd` to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        mark = uuid.uuid4().hex
        out, err = (self._folder / f"{mark}.{name}" for name in ("out", "err"))
        order = {"words": words, "cwd": str(cwd), "env": {**env, MARK: mark}, "out": str(out), "err": str(err)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        ran = Ran(int(self._process.stdout.readline()), out.read_text("utf-8"), err.read_text("utf-8"))
        assert "Traceback" not in ran.out + ran.err, ran.out + ran.err
        assert orphans(mark) == []
        return ran


def serve() -> None:
    """Fork for each order, and return in the forked process alone."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            become(json.loads(line))
            return
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    sys.exit()


def become(order: Mapping[str, Any]) -> None:
    """What the system would make of this process before the command begins."""
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    for number, path in enumerate((os.devnull, order["out"], order["err"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        os.dup2(file, number)
        os.close(file)
    sys.argv = [COMMAND, *order["words"]]


if __name__ == "__main__":
    from contextlab.cli import main

    sys.path.remove(str(ROOT))
    for words in REFUSED:
        with (
            open(os.devnull, "w", encoding="utf-8") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
            contextlib.suppress(SystemExit),
        ):
            sys.argv = [COMMAND, *words]
            main()
    del os.environ["PYTHONPATH"]
    serve()
    main()
