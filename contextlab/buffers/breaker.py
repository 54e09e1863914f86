"""A circuit breaker around a store, and how long it was not closed.

closed ── so many failures in a row ─▶ open ── after its time, at the next ask ─▶ half open ── success ─▶ closed
                                        ▲────────────────────── failure ─────────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pybreaker


class Breaker(pybreaker.CircuitBreakerListener):
    """pybreaker's circuit breaker with a clock of ours for what is counted; its own is the wall clock.

    `openings`: how often it opened, after a trial that failed too. `benign`: errors that are no failure of the store.
    """

    def __init__(
        self, *, failures: int, reset_s: float, clock: Callable[[], float], benign: type[Exception] | None = None
    ) -> None:
        self.openings = 0
        self._clock = clock
        self._open_since_s: float | None = None
        self._open_s = 0.0
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=failures,
            reset_timeout=reset_s,
            exclude=[benign] if benign is not None else None,
            listeners=[self],
            throw_new_error_on_trip=False,
        )

    @property
    def is_closed(self) -> bool:
        """Whether every ask goes through."""
        return self._open_since_s is None

    def open_s(self) -> float:
        """Seconds until now in which it was not closed, half open included."""
        since_s = self._open_since_s
        return self._open_s + (0.0 if since_s is None else self._clock() - since_s)

    def trying(self) -> AbstractContextManager[None]:
        """One ask of the store: an exception inside is a failure. Raises BreakerOpenError at once while it is open."""
        trying: AbstractContextManager[None] = self._breaker.calling()
        return trying

    def state_change(
        self,
        cb: pybreaker.CircuitBreaker,
        old_state: pybreaker.CircuitBreakerState | None,
        new_state: pybreaker.CircuitBreakerState,
    ) -> None:
        """Told by pybreaker; an ask that began before it opened and fails afterwards opens it no second time."""
        old = old_state.name if old_state is not None else ""
        if new_state.name == pybreaker.STATE_OPEN and old != pybreaker.STATE_OPEN:
            self.openings += 1
        if new_state.name == pybreaker.STATE_CLOSED and self._open_since_s is not None:
            self._open_s += self._clock() - self._open_since_s
            self._open_since_s = None
        elif new_state.name != pybreaker.STATE_CLOSED and self._open_since_s is None:
            self._open_since_s = self._clock()


BreakerOpenError = pybreaker.CircuitBreakerError
