"""The target's server dies again and again, each time shortly after it has come up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.analysis.quantities import num_of
from contextlab.deeds import Hands
from contextlab.experiment import Landed, Plane, option
from contextlab.faults import killing


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashLoop:
    """Kill the server, start it again, let it run for `every_s`, and so on; it runs when the fault is over."""

    NAME: ClassVar[str] = "crash-loop"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "the server dies again and again, each time shortly after it has come up"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"crash-loop", "kill", "pause"})
    ENDS_PROCESSES: ClassVar[bool] = True

    signal: str = killing.signal_option()
    every_s: float = option(2.0, "how long it runs between two deaths", kind="duration", low=0.1, high=600.0, unit="s")

    @property
    def is_null(self) -> bool:
        """A death is never nothing."""
        return False

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Kill, start again, wait, from the beginning."""
        while True:
            killing.kill(hands, killing.processes(hands)[0], self.signal)
            killing.restart(hands)
            yield self.every_s

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """It was seen to end more than once, and came back each time."""
        deaths, returns = tally.get("killed", 0), tally.get("restarted", 0)
        if deaths < 2:
            times = "ended only once" if deaths else "was not seen to end"
            return Landed(proven=False, why=f"it {times}: a loop takes a fault that lasts for several returns")
        if returns < deaths:
            return Landed(
                proven=False, why=f"it ended {deaths:.0f} times, and came back only {num_of(returns, 'times')}"
            )
        mean_s = tally["down_s"] / returns
        return Landed(proven=True, why=f"it ended {deaths:.0f} times and answered again after {mean_s:.2f} s (mean)")


FAULT = CrashLoop
