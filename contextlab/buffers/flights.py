"""One computation that many listen to: its parts as they come, to each from the first one on.

    asker ─┐
    asker ─┼─ listen ◀── parts ◀── add ── the computation, a task of its own
    asker ─┘

Who comes later hears what was said already, then goes on live. When the last listener leaves before the end, whoever
computes is told: nobody wants it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable


class Flight:
    """The parts of one answer, oldest first, and who waits for more of them. Lives on one event loop.

    `abandoned` is called when the last listener leaves before the end.
    """

    def __init__(self, abandoned: Callable[[], None]) -> None:
        self.parts: list[bytes] = []
        self._abandoned = abandoned
        self._num_listeners = 0
        self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def add(self, part: bytes) -> None:
        """One more part, for everybody."""
        self.parts.append(part)
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; with an error everybody who listens meets it after the parts that came."""
        self._ended, self._error = True, error
        self._wake()

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """All parts from the first one on, until the end. Raises what the computation ended with."""
        self._num_listeners += 1
        try:
            place = 0
            while True:
                news = self._news
                while place < len(self.parts):
                    place += 1
                    yield self.parts[place - 1]
                if self._ended:
                    break
                if place == len(self.parts):
                    await news.wait()
            if self._error is not None:
                raise self._error
        finally:
            self._num_listeners -= 1
            if not self._num_listeners and not self._ended:
                self._abandoned()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
