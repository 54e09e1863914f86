"""The machine of one target: its process tree, who gives hands to faults on it, and what the kernel counts of it.

Injector ─ hands(placed) ─▶ TargetHands ─ steps ─▶ Ledger          counters() before and after each fault
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from contextlab.deeds import Victim
from contextlab.experiment import Placed
from contextlab.lab.host import groups, tree
from contextlab.lab.host.counters import KernelCounts
from contextlab.lab.host.groups import ControlGroup
from contextlab.lab.host.hands import TargetHands
from contextlab.lab.host.tree import Counted
from contextlab.lab.undo.ledger import Ledger
from contextlab.lab.undo.steps import Step
from contextlab.model import ProcessEnd

if TYPE_CHECKING:
    from contextlab.lab.host.deaths import Deaths
    from contextlab.lab.host.injector import Injector

_NUMBERS = itertools.count(1)
"""One for each control group that this process makes."""


class TargetMachine:
    """`injector.Machine` of one target.

    `root`: its main process as it is now, another one after a restart; None where it is gone. `deaths` None: its
    processes are not ours to end. `client_pids`: the load's own processes, whose cost is counted beside. `end`: how the
    main process ended, where it is ours and it did.
    """

    def __init__(
        self,
        *,
        root: Callable[[], Victim | None],
        ledger: Ledger,
        deaths: Deaths | None = None,
        client_pids: Callable[[], Sequence[int]] = tuple,
        end: Callable[[], ProcessEnd | None] = lambda: None,
    ) -> None:
        self.ledger, self.deaths = ledger, deaths
        self._root = root
        self._counts = KernelCounts(self.tree, client_pids, end)

    def hands(self, placed: Placed, injector: Injector) -> TargetHands:
        """Hands for one fault."""
        return TargetHands(self, placed, injector)

    def counters(self, found: Sequence[Counted] | None = None) -> dict[str, float]:
        """What the kernel has counted until now; `found`: the tree, where it has just been looked at."""
        return self._counts.look(found)

    def tree(self) -> tuple[Counted, ...]:
        """The target's processes now; empty where it is gone."""
        root = self._root()
        return () if root is None else tree.tree(root)

    def group(self, controller: str, record: Callable[[Step], None]) -> ControlGroup | None:
        """The tree's own group of a controller, from now on among what is counted."""
        name = f"{groups.PREFIX}{os.getpid()}-{controller}-{next(_NUMBERS)}"
        found = groups.group_for(controller, self._pids, record, name=name)
        if found is not None:
            self._counts.watch(controller, found.place)
        return found

    def _pids(self) -> list[int]:
        return [one.victim.pid for one in self.tree()]
