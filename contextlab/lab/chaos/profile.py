"""Where a process spends its time while a load runs: py-spy, a program of its own that samples it from outside."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from contextlab.lab.process import KeptProcess

RATE_PER_S = 50
SHOWN = 5
END_WAIT_S = 10.0


class Profiler:
    """Samples one process while it is open; nothing where `pid` is None. What could not be done is in `measured`."""

    def __init__(self, pid: int | None, length_s: float, folder: Path) -> None:
        self._pid, self._length_s = pid, length_s
        self._stacks = folder / "profile.txt"
        self._log = folder / "profile.log"
        self._process: KeptProcess | None = None
        self._why_not = ""

    def __enter__(self) -> Self:
        if self._pid is None:
            return self
        found = program()
        if found is None:
            self._why_not = "py-spy is not installed"
            return self
        argv = [found, "record", "--pid", str(self._pid), "--duration", str(max(1, round(self._length_s)))]
        argv += ["--rate", str(RATE_PER_S), "--format", "raw", "--output", str(self._stacks)]
        argv += ["--native", "--nonblocking"] if sys.platform == "linux" else ["--nonblocking"]
        self._process = KeptProcess(argv, log=self._log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if self._process.wait(END_WAIT_S) is None:
            self._process.stop()
        self._process.close()

    def measured(self) -> dict[str, int | float | str]:
        """The functions in which most samples ended, and in how many; or why there is no profile."""
        if self._pid is None:
            return {}
        try:
            lines = self._stacks.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            words = self._log.read_text(encoding="utf-8", errors="replace").strip() if self._log.exists() else ""
            return {"profile": self._why_not or f"none: {words.splitlines()[-1] if words else 'py-spy wrote nothing'}"}
        leaves: Counter[str] = Counter()
        for line in lines:
            stack, _, count = line.rpartition(" ")
            if count.isdigit():
                leaves[stack.rpartition(";")[2]] += int(count)
        total = sum(leaves.values())
        if not total:
            return {"profile": "none: the process was never seen to run"}
        shown = [f"{name} {100 * count / total:.0f}%" for name, count in leaves.most_common(SHOWN)]
        return {"profile": "; ".join(shown), "profile_samples": total, "profile_file": self._stacks.name}


def program() -> str | None:
    """The path of py-spy, this environment's first; None where it is not installed."""
    return shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
