"""The alarm rings once for each set, never early, and also for times that have passed."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable

import pytest
import uvloop

from contextlab.lab.alarm import Alarm


def rung(sets: Callable[[Alarm, float], None], wait_s: float = 0.15) -> list[float]:
    """When it rang, in seconds since the beginning, after `sets` had set it from then on."""
    began_s = time.monotonic()
    times: list[float] = []

    async def wait() -> None:
        one = Alarm(asyncio.get_running_loop(), lambda: times.append(time.monotonic() - began_s))
        sets(one, began_s)
        await asyncio.sleep(wait_s)
        one.close()

    uvloop.run(wait())
    return times


@pytest.fixture(params=["timerfd", "the loop's timers"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "timerfd":
        monkeypatch.setattr(sys, "platform", "elsewhere")
    elif sys.platform != "linux":
        pytest.skip("there is no timerfd here")


def test_it_rings_once_and_never_early() -> None:
    for delay_s in (0.0101, 0.0107, 0.02):
        times = rung(lambda one, now_s, delay_s=delay_s: one.set(now_s + delay_s))  # type: ignore[misc]
        assert len(times) == 1
        assert times[0] >= delay_s


def test_a_later_set_takes_the_place_of_an_earlier_one() -> None:
    def sets(one: Alarm, now_s: float) -> None:
        one.set(now_s + 0.01)
        one.set(now_s + 0.05)

    (at_s,) = rung(sets)
    assert at_s >= 0.05


@pytest.mark.parametrize("before_s", [0.0, 1e-10, 0.5, 100.0])
def test_a_time_that_has_passed_rings_at_once(before_s: float) -> None:
    times = rung(lambda one, now_s: one.set(math.floor(now_s) - before_s), 0.05)
    assert len(times) == 1
