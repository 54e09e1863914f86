"""A small process tree with a machine of its own, for faults and hands to be tried on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.deeds import Deed, Victim
from contextlab.experiment import FaultEvidence, Placed
from contextlab.lab.host.hands import TargetHands
from contextlab.lab.host.injector import Injector
from contextlab.lab.host.machine import TargetMachine
from contextlab.lab.process import KeptProcess
from contextlab.lab.undo.ledger import Ledger
from contextlab.lab.undo.steps import started_of
from tests.lab.processes import until

BURNER = Path(__file__).with_name("burner.py")
CGROUPS = Path("/sys/fs/cgroup")


def can_group() -> bool:
    """Whether this user can make control groups here."""
    try:
        for top in [CGROUPS / "cpu", CGROUPS]:
            if (top / "cgroup.procs").exists():
                path = top / "contextlab-can-group"
                path.mkdir()
                path.rmdir()
                return True
    except OSError:
        return False
    return False


needs_groups = pytest.mark.skipif(not can_group(), reason="control groups cannot be made here: run as root")
needs_v1_memory = pytest.mark.skipif(
    not (can_group() and (CGROUPS / "memory/memory.limit_in_bytes").exists()),
    reason="no memory controller of version 1 here",
)


class Bench:
    """The running tree, its machine, and its undo record."""

    def __init__(self, process: KeptProcess, ledger: Ledger) -> None:
        self.process, self.ledger = process, ledger
        self.machine = TargetMachine(root=self._root, ledger=ledger, end=process.poll)

    @property
    def root(self) -> Victim:
        """Its main process."""
        found = self._root()
        assert found is not None
        return found

    def _root(self) -> Victim | None:
        pid = self.process.pid
        started = None if pid is None else started_of(pid)
        return None if pid is None or started is None else Victim(pid=pid, started=started)

    def hands(self, length_s: float = 30.0) -> TargetHands:
        """Hands of a fault that acts from now on for so long."""
        placed = Placed(name="cpu", start_s=0.0, length_s=length_s)
        injector = Injector([(0, placed)], self.machine, seed=1)
        injector._zero_s = time.monotonic()
        return self.machine.hands(placed, injector)

    def inflicted(self, text: str, length_s: float) -> tuple[FaultEvidence, list[Deed]]:
        """One fault from now on to its end: what it proved, and what it did."""
        placed = registry.parse_fault(text, start_s=0.0, length_s=length_s)
        with Injector([(0, placed)], self.machine, seed=1) as injector:
            injector.start(time.monotonic())
            until(lambda: 0 in injector.evidence(), f"the end of {text}", length_s + 30.0)
        return injector.evidence()[0], [one for one in injector.taken() if isinstance(one, Deed)]

    def say(self, word: str = "") -> None:
        """A line to its standard input."""
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def groups(self, controller: str) -> str:
        """The control group in which it is, as the kernel tells it."""
        lines = Path(f"/proc/{self.root.pid}/cgroup").read_text(encoding="ascii").splitlines()
        return next(line for line in lines if controller in line.split(":")[1].split(",") or line.startswith("0:"))


@contextmanager
def running(mark: dict[str, str], folder: Path, *words: str, memory_limit_bytes: int = 0) -> Iterator[Bench]:
    """A tree that does what the words say; nothing of it is left afterwards, no control group either."""
    process = KeptProcess(
        [sys.executable, str(BURNER), *words],
        log=folder / "burner.log",
        env=mark,
        memory_limit_bytes=memory_limit_bytes,
        stdin=subprocess.PIPE,
    )
    with process, Ledger(run="test", target="burner", state=folder / "state") as ledger:
        until(lambda: "READY" in process.log_text(), "the burner's READY")
        yield Bench(process, ledger)
