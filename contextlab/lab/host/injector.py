"""Lets host and tier faults act at their times: one thread a fault, from its start to its end, undone at once then.

    start(zero) ─▶ thread: wait ─▶ inflict(hands) ─▶ wait what it yields ─▶ … ─▶ window over ─▶ hands.undo() ─▶ evidence

A fault ends at its time, or when `close` is called, or when what it does raises. What the tool itself cannot undo any
more, because it is dead, the watchdog undoes (`lab/undo`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Protocol, Self, cast

from contextlab import registry
from contextlab.analysis.loads import rng_of
from contextlab.deeds import Death, Deed, Hands, HostFault
from contextlab.experiment import FaultEvidence, Landed, Placed
from contextlab.model import ContextlabError

LOOK_S = 0.25
"""So long before its start a fault's thread begins to read what the kernel has counted."""
SLACK_S = 30.0
"""A fault's own thread may need so long after its window, for a restart or an undo."""


class Held(Hands, Protocol):
    """Hands that can be told to let go. `undo` reverses everything they did, latest first, and may be called twice.

    Raises UndoFailed (exit 6) with what is left and the command that mends it.
    """

    def undo(self) -> None: ...


class Machine(Protocol):
    """Where hands come from: the target's tree, its undo record, and what the kernel counts of it."""

    def hands(self, placed: Placed, injector: Injector) -> Held:
        """Hands for one fault."""
        ...

    def counters(self) -> dict[str, float]:
        """What the kernel has counted until now; the names as in `deeds.HostFault`."""
        ...


class Injector:
    """The host and tier faults of one arm. `numbered` holds each fault with its place in the experiment.

    Deeds and deaths are kept until `taken` asks for them. `error` is the first that a fault's thread met: the arm then
    goes on without that fault, whose evidence says so.
    """

    def __init__(self, numbered: Sequence[tuple[int, Placed]], machine: Machine, seed: int) -> None:
        self._numbered, self._machine, self._seed = numbered, machine, seed
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._news: list[Deed | Death] = []
        self._evidence: dict[int, FaultEvidence] = {}
        self._killing = 0
        self._threads: list[threading.Thread] = []
        self._zero_s = 0.0
        self.error: ContextlabError | None = None

    def start(self, zero_s: float) -> None:
        """Let every fault begin at its time after `zero_s` (`time.monotonic`)."""
        self._zero_s = zero_s
        for number, placed in self._numbered:
            thread = threading.Thread(target=self._act, args=(number, placed), name=placed.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def now_s(self) -> float:
        """Seconds since zero."""
        return round(time.monotonic() - self._zero_s, 6)

    def rng(self, placed: Placed) -> Random:
        """The generator of one fault."""
        number = next(number for number, one in self._numbered if one is placed)
        return rng_of(self._seed, number, placed.name)

    def tell(self, news: Deed | Death) -> None:
        """Keep a deed or a death for the record."""
        with self._lock:
            self._news.append(news)

    def taken(self) -> list[Deed | Death]:
        """What was done since the last look."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def killing(self, change: int) -> None:
        """A fault is about to end a process of the target (+1), or that is over and it runs again (−1)."""
        with self._lock:
            self._killing += change

    @property
    def expects_death(self) -> bool:
        """Whether the target is dead, or about to die, by our own hand."""
        return self._killing > 0

    def evidence(self) -> Mapping[int, FaultEvidence]:
        """What each fault did, by its place; of those that are over."""
        return self._evidence

    def close(self) -> None:
        """End every fault now and wait until all is undone."""
        self._over.set()
        for thread in self._threads:
            thread.join(SLACK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _act(self, number: int, placed: Placed) -> None:
        fault = registry.make_fault(placed)
        wait_s = self._zero_s + placed.start_s - time.monotonic()
        if self._over.wait(max(0.0, wait_s - LOOK_S)):
            return
        until_s = self._zero_s + placed.end_s
        tally: dict[str, float] = {}
        kernel: dict[str, float] = {}
        trouble = ""
        try:
            before = self._machine.counters()  # takes a while: it walks the process tree
            if self._over.wait(max(0.0, self._zero_s + placed.start_s - time.monotonic())):
                return
            began_s = time.monotonic()
            hands = self._machine.hands(placed, self)
            tally = hands.tally
            try:
                if not fault.is_null:
                    self._play(cast("HostFault", fault).inflict(hands), until_s)
                self._over.wait(max(0.0, until_s - time.monotonic()))
            finally:
                try:
                    after = self._machine.counters()  # before the undo: a group takes its counts along
                    ended_s = time.monotonic()
                finally:
                    hands.undo()
            kernel = {name: after[name] - before.get(name, 0.0) for name in after}
            kernel["wall_s"] = ended_s - began_s
        except ContextlabError as error:
            trouble = error.message
            with self._lock:
                self.error = self.error or error
        except Exception as error:  # whatever it is, it must not look as if the fault's time had not come
            trouble = f"{type(error).__name__}: {error}"
        landed = fault.landed(tally, kernel)
        if trouble:
            landed = Landed(proven=False, why=trouble)
        self._evidence[number] = FaultEvidence(
            name=placed.name,
            engine=fault.PLANE.value,
            tally={name: round(value, 6) for name, value in tally.items()},
            kernel={name: round(value, 6) for name, value in kernel.items()},
            landed=landed,
        )

    def _play(self, acts: Iterator[float], until_s: float) -> None:
        """Let a fault act, wait as it says, and so on until its time is up."""
        for pause_s in acts:
            left_s = until_s - time.monotonic()
            if self._over.wait(max(0.0, min(pause_s, left_s))) or pause_s >= left_s:
                break
        if (close := getattr(acts, "close", None)) is not None:
            close()
