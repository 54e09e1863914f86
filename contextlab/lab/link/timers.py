"""Wakes at absolute times of the monotonic clock, to some microseconds where the kernel has timerfd (Linux).

An event loop's own timers are rounded to milliseconds (libuv's are), which is as long as what a fault may ask for.
Elsewhere the loop's timers do, rounded up.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import heapq
import os
import sys
import time
from collections.abc import Callable
from itertools import count

_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1
_NONBLOCKING_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Span(ctypes.Structure):
    """struct itimerspec: no interval, and when."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class Alarms:
    """Calls back at `time.monotonic()` times, earliest first; one kernel timer for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._armed_s = float("inf")
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCKING_CLOEXEC)
        if self._fd >= 0:
            self._span = _Span()
            self._span_at = ctypes.byref(self._span)
            loop.add_reader(self._fd, self._ring)

    def at(self, due_s: float, call: Callable[[], None]) -> None:
        """Call at `due_s`, or at once after what is running where that is past. There is no taking it back."""
        heapq.heappush(self._heap, (due_s, next(self._numbers), call))
        if due_s < self._armed_s:
            self._arm(due_s)

    def close(self) -> None:
        """Call nothing any more."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _arm(self, due_s: float) -> None:
        self._armed_s = due_s
        if self._fd >= 0:
            ns = max(1, int(due_s * 1e9))
            self._span.at_s, self._span.at_ns = divmod(ns, 1_000_000_000)
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, self._span_at, None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, due_s - time.monotonic()) + 0.001, self._ring)

    def _ring(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self._fd, 8)
        self._armed_s = float("-inf")  # who asks meanwhile need not arm: it is done below
        now_s = time.monotonic()
        try:
            while self._heap and self._heap[0][0] <= now_s:
                heapq.heappop(self._heap)[2]()
        finally:
            self._armed_s = float("inf")
            if self._heap:
                self._arm(self._heap[0][0])
