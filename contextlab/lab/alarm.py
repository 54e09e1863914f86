"""Wakes an event loop at a time, to a fraction of a millisecond and without burning CPU.

asyncio's own timers count whole milliseconds (uvloop) or wait in them (epoll); a timerfd is a descriptor that becomes
readable when its time has come, and the loop watches it like any socket. Where there is none (macOS), the loop's
timers must do.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import struct
import sys
import time
from collections.abc import Callable
from itertools import count
from math import inf

CLOCK_MONOTONIC = 1
TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME = 0o4000, 0o2000000, 1


class Alarm:
    """Calls `ring` on the loop once after each `set`. One time at a time: a later `set` replaces an earlier one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            import ctypes

            libc = ctypes.CDLL(None, use_errno=True)
            self._settime = libc.timerfd_settime
            self._fd = libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._rung)

    def set(self, at_s: float) -> None:
        """Ring at a time of `time.monotonic()`; at once if that has passed. Never early."""
        if self._fd >= 0:
            seconds = int(at_s)
            rest_ns = min(
                int((at_s - seconds) * 1e9) + 1, 999_999_999
            )  # not early, and never zero: that would disarm it
            when = struct.pack("qqqq", 0, 0, seconds, rest_ns)
            self._settime(self._fd, TFD_TIMER_ABSTIME, when, None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, at_s - time.monotonic()), self._timer_rang, at_s)

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _rung(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # it was set anew since it rang
            return
        self._ring()

    def _timer_rang(self, at_s: float) -> None:
        if time.monotonic() < at_s:  # loops round their timers
            self.set(at_s)
        else:
            self._ring()


class Alarms:
    """Calls back at `time.monotonic()` times, earliest first; one alarm for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = Alarm(loop, self._ring)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._set_s = inf

    def at(self, due_s: float, call: Callable[[], None]) -> None:
        """Call at `due_s`, or at once after what is running where that is past. There is no taking it back."""
        heapq.heappush(self._heap, (due_s, next(self._numbers), call))
        if due_s < self._set_s:
            self._set(due_s)

    def close(self) -> None:
        """Call nothing any more."""
        self._heap.clear()
        self._alarm.close()

    def _set(self, due_s: float) -> None:
        self._set_s = due_s
        self._alarm.set(max(0.0, due_s))

    def _ring(self) -> None:
        self._set_s = -inf  # who asks meanwhile need not set it: it is done below
        now_s = time.monotonic()
        try:
            while self._heap and self._heap[0][0] <= now_s:
                heapq.heappop(self._heap)[2]()
        finally:
            self._set_s = inf
            if self._heap:
                self._set(self._heap[0][0])
