"""Everything that looks at the target while an arm lasts, and after it, behind one face."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from contextlab.deeds import Reading, Victim
from contextlab.experiment import GaugeSample
from contextlab.lab.observe.gauges import GaugeWatch
from contextlab.lab.observe.health import HealthWatch
from contextlab.lab.observe.machine import MachineWatch
from contextlab.lab.observe.process import ProcessWatch
from contextlab.lab.observe.release import ReleaseWatch
from contextlab.lab.observe.watch import Watch
from contextlab.lab.tier.tier import RunningTier
from contextlab.model import Knowledge, TargetSpec


class Observer(Protocol):
    """Looks while it is entered; `taken`: what is new since the last look."""

    def taken(self) -> list[Reading]: ...


class Watching:
    """The observers of one arm, entered before its load begins and left when everything of it is over."""

    def __init__(
        self,
        spec: TargetSpec,
        known: Knowledge,
        zero_s: float,
        *,
        root: Callable[[], Victim | None],
        client_pids: Callable[[], Sequence[int]],
        tier: RunningTier | None,
        health: bool,
        release_within_s: float | None,
        on: bool,
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._tier = tier if on else None
        self._release = (
            ReleaseWatch(spec, known, zero_s, root=root, within_s=release_within_s)
            if on and release_within_s is not None
            else None
        )
        self._gauges = GaugeWatch(spec, known, zero_s, on=on)
        self._health = HealthWatch(spec, known, zero_s) if on and health else None
        self._observers: list[Watch[Reading]] = [self._health] if self._health is not None else []
        if on:
            self._observers.append(MachineWatch(zero_s))
        if on and root() is not None:
            self._observers.append(ProcessWatch(root, zero_s, client_pids=client_pids))

    def taken(self) -> list[Reading]:
        """The readings since the last look, of all of them."""
        parts: list[Observer] = [*self._observers, *(one for one in (self._release, self._tier) if one is not None)]
        return [reading for part in parts for reading in part.taken()]

    def gauges(self) -> list[GaugeSample]:
        """The readings of the target's own gauges since the last look."""
        return self._gauges.taken()

    def release(self) -> None:
        """The load is over: look until what it took is free again, or the time for that is up.

        Nobody asks the target for anything else by then: that would hold its slots.
        """
        self._gauges.end()
        if self._health is not None:
            self._health.end()
        if self._release is not None:
            self._release.wait()

    def __enter__(self) -> Self:
        if self._release is not None:  # first: its baseline is of a target that nobody asks anything
            self._stack.enter_context(self._release)
        self._stack.enter_context(self._gauges)
        for observer in self._observers:
            self._stack.enter_context(observer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
