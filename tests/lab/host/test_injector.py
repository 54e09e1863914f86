"""Whatever a fault's thread meets: what was done is undone, and its evidence says what happened."""

from __future__ import annotations

import time
from typing import cast

import pytest

from contextlab import registry
from contextlab.deeds import Victim
from contextlab.experiment import Placed
from contextlab.lab.host.injector import Held, Injector

PAUSE = registry.parse_fault("pause", start_s=0.0, length_s=0.2)


class OddHands:
    """Hands that fail at what they are asked for."""

    def __init__(self, machine: OddMachine) -> None:
        self.tally: dict[str, float] = {}
        self._machine = machine

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(f"of {name}")

    def undo(self) -> None:
        self._machine.num_undone += 1


class OddMachine:
    """A machine whose hands fail, or whose counters do, from the second look on."""

    def __init__(self, *, counts: bool) -> None:
        self.num_undone = self._num_looks = 0
        self._counts = counts

    def hands(self, placed: Placed, injector: Injector) -> Held:
        return cast("Held", OddHands(self))

    def counters(self) -> dict[str, float]:
        self._num_looks += 1
        if not self._counts and self._num_looks > 1:
            raise ZeroDivisionError("of the counters")
        return {}

    def tree(self) -> tuple[Victim, ...]:
        return ()


@pytest.mark.parametrize(("counts", "says"), [(True, "ZeroDivisionError: of "), (False, "of the counters")])
def test_an_error_of_our_own_is_evidence_and_everything_is_undone(counts: bool, says: str) -> None:
    machine = OddMachine(counts=counts)
    with Injector([(0, PAUSE)], machine, seed=1) as injector:
        injector.start(time.monotonic())
        time.sleep(0.3)
    assert machine.num_undone == 1
    landed = injector.evidence()[0].landed
    assert landed.proven is False
    assert says in landed.why
