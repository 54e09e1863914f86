"""What is computed of a run once, although several writers and several parts of a page ask for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from contextlab.model import Run

T = TypeVar("T")
KEPT = 32
"""Runs whose results are kept."""


class _Same:
    """A run as a key: itself, and nothing that only looks like it."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __hash__(self) -> int:
        return id(self.run)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.run is self.run


def once(make: Callable[[Run], T]) -> Callable[[Run], T]:
    """The same function, which looks at a run only when it is asked for it the first time."""

    @lru_cache(maxsize=KEPT)
    def kept(same: _Same) -> T:
        return make(same.run)

    @wraps(make)
    def asked(run: Run) -> T:
        return kept(_Same(run))

    return asked
