"""Hands that only write down what a host fault does with them, and a machine of as many processes as a test wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from contextlab.deeds import Value, Victim

READY_S = 0.5
"""How long a restart takes."""


class PaperGroup:
    """A control group on paper; it freezes after so many looks."""

    def __init__(self, version: int, looks: int = 0) -> None:
        self.version, self.looks = version, looks
        self.files: dict[str, str] = {}

    def set(self, name: str, text: str) -> None:
        self.files[name] = text

    def get(self, name: str) -> str:
        self.looks -= 1
        frozen = self.looks < 0 and bool(self.files)
        if name == "cgroup.events":
            return f"populated 1\nfrozen {int(frozen)}"
        return "FROZEN" if frozen else "FREEZING"


class PaperHands:
    """`deeds.Hands` on paper. `group_made`: what `group` gives."""

    def __init__(self, num_processes: int, *, length_s: float = 10.0, group: PaperGroup | None = None) -> None:
        self.tally: dict[str, float] = {}
        self.rng = Random(0)
        self.length_s = length_s
        self.done: list[str] = []
        self.notes: list[tuple[str, dict[str, Value]]] = []
        self.processes = [Victim(pid=100 + number, started=7, name=f"p{number}") for number in range(num_processes)]
        self.group_made = group
        self.cpu_s = 0.0
        self._at_s = 0.0

    def tree(self) -> tuple[Victim, ...]:
        return tuple(self.processes)

    def stop(self, *victims: Victim) -> None:
        self.done.append("stop")

    def resume(self, *victims: Victim) -> None:
        self.done.append("resume")

    def kill(self, *victims: Victim, signal: str = "SIGKILL") -> None:
        for victim in victims:
            self.done.append(f"{signal} {victim.pid}")
            self.processes.remove(victim)
        if any(victim.pid == 100 for victim in victims):
            self.processes.clear()

    def restart(self) -> float:
        self.done.append("restart")
        self.processes = [Victim(pid=100, started=8)]
        return READY_S

    def group(self, controller: str) -> PaperGroup | None:
        self.done.append(f"group {controller}")
        return self.group_made

    def look(self) -> dict[str, float]:
        """Ten seconds later than the last look."""
        self._at_s += 10.0
        return {"at_s": self._at_s, "cpu_s": self.cpu_s}

    def pin(self, cpus: Sequence[int]) -> None:
        raise NotImplementedError

    def helper(self, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> Victim:
        raise NotImplementedError

    def note(self, what: str, **about: Value) -> None:
        self.notes.append((what, about))


def waits(acts: Iterator[float], most: int = 20) -> list[float]:
    """How long a fault wants to wait each time, up to so many times; then its time is up, and it is closed."""
    found: list[float] = []
    for pause_s in acts:
        found.append(pause_s)
        if len(found) == most:
            break
    close = getattr(acts, "close", None)
    if close is not None:
        close()
    return found
