"""The tool's handle on the process in which misbehaving clients live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from contextlab.experiment import FaultEvidence, Placed
from contextlab.lab.load.order import LoadOrder


class Crowd:
    """The client faults of one arm. `numbered` holds each fault with its place in the experiment; `order` says where
    its clients connect and what they send."""

    def __init__(self, numbered: Sequence[tuple[int, Placed]], order: LoadOrder, *, seed: int, log: Path) -> None:
        self._numbered, self._order, self._seed, self._log = numbered, order, seed, log

    def start(self, zero_s: float) -> None:
        """Let every fault begin at its time after `zero_s` (`time.monotonic`)."""
        raise NotImplementedError

    def finish(self) -> None:
        """End what still acts, and wait for what each fault counted."""
        raise NotImplementedError

    def evidence(self) -> Mapping[int, FaultEvidence]:
        """What each fault did, by its place."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
