"""All the faults of one arm behind one face, whatever plane each acts on; their evidence in the order of the plan.

wire ─▶ Route (link process)      host, tier ─▶ Injector (threads of the tool)      client ─▶ Crowd (a process)
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
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
from contextlab.lab.undo.ledger import UndoFailedError
from contextlab.model import UnableError

NOT_RUN = Landed(proven=False, why="the arm was over before it could act")


class Acting:
    """The faults of an arm, entered before it and left after it. `order` is where the crowd of clients connects.

    `machines` say who gives hands to faults of the planes HOST and TIER. Raises UnableError where one is missing.
    """

    def __init__(
        self,
        faults: Sequence[Placed],
        route: Route | Direct,
        machines: Mapping[Plane, Machine],
        order: LoadOrder,
        *,
        seed: int,
        log: Path,
    ) -> None:
        self._faults, self._route = tuple(faults), route
        planes = [registry.plane_of(placed) for placed in self._faults]
        numbered = list(enumerate(self._faults))
        self._wire = [one for one in numbered if planes[one[0]].on_wire]
        clients = [one for one in numbered if planes[one[0]] is Plane.CLIENT]
        self._injectors: list[Injector] = []
        for plane in (Plane.HOST, Plane.TIER):
            mine = [one for one in numbered if planes[one[0]] is plane]
            if mine and plane not in machines:
                name = registry.shown_fault(mine[0][1])
                raise UnableError(f"fault {name!r}: there is no {plane} for it to act on", "leave it out")
            if mine:
                self._injectors.append(Injector(mine, machines[plane], seed))
        self._crowd = Crowd(clients, order, seed=seed, log=log) if clients else None
        self._stack = contextlib.ExitStack()

    @property
    def pids(self) -> list[int]:
        """The processes of misbehaving clients."""
        return [] if self._crowd is None else self._crowd.pids

    def arm(self, zero_s: float) -> None:
        """From now on each fault acts at its time after `zero_s` (`time.monotonic`)."""
        self._route.arm([placed for _, placed in self._wire], zero_s)
        if self._crowd is not None:
            self._crowd.start(zero_s)
        for injector in self._injectors:
            injector.start(zero_s)

    @property
    def expects_death(self) -> bool:
        """Whether the target is dead, or about to die, by our own hand."""
        return any(injector.expects_death for injector in self._injectors)

    def taken(self) -> list[Deed | Death]:
        """Deeds and deaths since the last look."""
        return [news for injector in self._injectors for news in injector.taken()]

    def end(self) -> None:
        """End what still acts; everything is undone when this returns."""
        for injector in self._injectors:
            injector.close()
        if self._crowd is not None:
            self._crowd.finish()

    def evidence(self) -> tuple[FaultEvidence, ...]:
        """What each fault did, in the order of the plan; call `end` first."""
        found = dict(zip((number for number, _ in self._wire), self._route.evidence(), strict=True))
        for injector in self._injectors:
            found |= injector.evidence()
        if self._crowd is not None:
            found |= self._crowd.evidence()
        return tuple(
            found.get(number) or FaultEvidence(name=placed.name, engine="none", landed=NOT_RUN)
            for number, placed in enumerate(self._faults)
        )

    def raise_failed_undo(self) -> None:
        """Raise the error of an undo that failed, if one did."""
        for injector in self._injectors:
            if isinstance(injector.error, UndoFailedError):
                raise injector.error

    def __enter__(self) -> Self:
        if self._crowd is not None:
            self._stack.enter_context(self._crowd)
        for injector in self._injectors:
            self._stack.enter_context(injector)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
