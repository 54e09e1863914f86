"""What every watch is: a thread that looks at the target while it is entered, and keeps what it saw until asked."""

from __future__ import annotations

import threading
from abc import abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Watch(Generic[T]):
    """`look` runs in a thread of its own from entering to `end`, which waits up to `ending_s` for it; not where `on` is
    False. What it gives to `see` comes out of `taken`, oldest first."""

    def __init__(self, name: str, *, ending_s: float, on: bool = True) -> None:
        self.over = threading.Event()
        self._ending_s, self._on = ending_s, on
        self._seen: list[T] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.look, name=name, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Look again and again until `over` is set."""

    def see(self, thing: T) -> None:
        """Keep what was seen."""
        with self._lock:
            self._seen.append(thing)

    def taken(self) -> list[T]:
        """What was seen since this was last asked."""
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

    def end(self) -> None:
        """Look no longer. May be called again."""
        self.over.set()
        if self._on:
            self._thread.join(self._ending_s)

    def __enter__(self) -> Self:
        if self._on:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
