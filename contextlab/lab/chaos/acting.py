"""All the faults of one arm behind one face, whatever plane each acts on; their evidence in the order of the plan.

wire ─▶ Route (link process)      host, tier ─▶ Injector (threads of the tool)      client ─▶ Crowd (a process)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from contextlab import registry
from contextlab.deeds import Death, Deed
from contextlab.experiment import FaultEvidence, Landed, Placed, Plane
from contextlab.lab.crowd.crowd import Crowd
from contextlab.lab.host.injector import Injector, Machine
from contextlab.lab.link.direct import Direct
from contextlab.lab.link.route import Route
from contextlab.lab.load.order import LoadOrder

NOT_RUN = Landed(proven=False, why="the arm was over before it could act")


class Acting:
    """The faults of an arm, entered before it and left after it. `order` is where the crowd of clients connects."""

    def __init__(
        self,
        faults: Sequence[Placed],
        route: Route | Direct,
        machine: Machine | None,
        order: LoadOrder,
        *,
        seed: int,
        log: Path,
    ) -> None:
        self._faults, self._route = tuple(faults), route
        planes = [registry.plane_of(placed) for placed in self._faults]
        numbered = list(enumerate(self._faults))
        self._wire = [one for one in numbered if planes[one[0]].on_wire]
        host = [one for one in numbered if planes[one[0]] in (Plane.HOST, Plane.TIER)]
        clients = [one for one in numbered if planes[one[0]] is Plane.CLIENT]
        if host and machine is None:
            raise ValueError("host faults need the target's machine")
        self._injector = Injector(host, machine, seed) if host and machine is not None else None
        self._crowd = Crowd(clients, order, seed=seed, log=log) if clients else None
        self._stack = contextlib.ExitStack()

    @property
    def injector(self) -> Injector | None:
        """Who acts on the host, if anybody does."""
        return self._injector

    def arm(self, zero_s: float) -> None:
        """From now on each fault acts at its time after `zero_s` (`time.monotonic`)."""
        self._route.arm([placed for _, placed in self._wire], zero_s)
        if self._crowd is not None:
            self._crowd.start(zero_s)
        if self._injector is not None:
            self._injector.start(zero_s)

    @property
    def expects_death(self) -> bool:
        """Whether the target is dead, or about to die, by our own hand."""
        return self._injector is not None and self._injector.expects_death

    def taken(self) -> list[Deed | Death]:
        """Deeds and deaths since the last look."""
        return [] if self._injector is None else self._injector.taken()

    def end(self) -> None:
        """End what still acts; everything is undone when this returns."""
        if self._injector is not None:
            self._injector.close()
        if self._crowd is not None:
            self._crowd.finish()

    def evidence(self) -> tuple[FaultEvidence, ...]:
        """What each fault did, in the order of the plan; call `end` first."""
        found = dict(zip((number for number, _ in self._wire), self._route.evidence(), strict=True))
        for part in (self._injector, self._crowd):
            found |= dict(part.evidence()) if part is not None else {}
        return tuple(
            found.get(number) or FaultEvidence(name=placed.name, engine="none", landed=NOT_RUN)
            for number, placed in enumerate(self._faults)
        )

    def __enter__(self) -> Self:
        if self._crowd is not None:
            self._stack.enter_context(self._crowd)
        if self._injector is not None:
            self._stack.enter_context(self._injector)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
