"""The target's server dies, and is started again at the same address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Hands
from contextlab.experiment import Landed, Plane, option
from contextlab.faults import killing


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """End the server's main process; what it had started goes with it. Streams that were open break off."""

    NAME: ClassVar[str] = "kill"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "the server dies of a signal and is started again at the same address"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"kill", "crash-loop", "pause"})
    ENDS_PROCESSES: ClassVar[bool] = True

    signal: str = killing.signal_option()
    restart: bool = option(True, "start it again, at the latest when the fault is over", kind="bool")
    after_s: float = option(
        0.0, "how long it stays dead before it is started again", kind="duration", low=0.0, high=600.0, unit="s"
    )

    @property
    def is_null(self) -> bool:
        """A death is never nothing."""
        return False

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Kill, wait, start again."""
        killing.kill(hands, killing.processes(hands)[0], self.signal)
        if not self.restart:
            return
        try:
            yield self.after_s
        finally:
            killing.restart(hands)

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """The server was seen to end, and to answer again if it was to."""
        if not tally.get("killed"):
            return Landed(proven=False, why="no process of the target was seen to end")
        if not self.restart:
            return Landed(proven=True, why=f"it ended of SIG{self.signal}, and was left dead")
        if not tally.get("restarted"):
            return Landed(proven=False, why=f"it ended of SIG{self.signal}, and did not answer again")
        return Landed(proven=True, why=f"it ended of SIG{self.signal} and answered again after {tally['down_s']:.2f} s")


FAULT = Kill
