"""Alarms ring in order, on time, whatever rings or fails before them, with the kernel's timer and without."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import pytest

from contextlab.lab.alarm import Alarms


@pytest.fixture(params=["linux", "elsewhere"])
def _platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "elsewhere":
        monkeypatch.setattr(sys, "platform", "elsewhere")


def rung(plan: Callable[[Alarms, Callable[[str], Callable[[], None]]], None]) -> tuple[list[str], list[float], int]:
    """What rang within 250 ms, how late each was, and how often the loop was told of an error."""
    loop = asyncio.new_event_loop()
    names: list[str] = []
    times: list[float] = []
    errors: list[object] = []
    loop.set_exception_handler(lambda loop, context: errors.append(context))

    def named(name: str) -> Callable[[], None]:
        def ring() -> None:
            names.append(name)
            times.append(time.monotonic())

        return ring

    alarms = Alarms(loop)
    plan(alarms, named)
    loop.run_until_complete(asyncio.sleep(0.25))
    alarms.close()
    loop.close()
    return names, times, len(errors)


@pytest.mark.usefixtures("_platform")
def test_alarms_ring_in_the_order_of_their_times() -> None:
    began_s = time.monotonic()

    def plan(alarms: Alarms, named: Callable[[str], Callable[[], None]]) -> None:
        for name, after_s in (("third", 0.14), ("first", -1.0), ("second", 0.02), ("never", 9.0)):
            alarms.at(began_s + after_s, named(name))
        alarms.at(began_s + 0.04, lambda: alarms.at(time.monotonic() + 0.01, named("set by another")))

    names, times, num_errors = rung(plan)
    assert (names, num_errors) == (["first", "second", "set by another", "third"], 0)
    assert 0.02 <= times[1] - began_s < 0.05
    assert times[3] - began_s >= 0.14


@pytest.mark.skipif(sys.platform != "linux", reason="timerfd")
def test_the_kernels_timer_is_never_early_and_soon_there() -> None:
    began_s = time.monotonic()
    due_s = [began_s + 0.01 + n * 0.00337 for n in range(30)]

    def plan(alarms: Alarms, named: Callable[[str], Callable[[], None]]) -> None:
        for at_s in due_s:
            alarms.at(at_s, named(""))

    _, times, _ = rung(plan)
    late_s = sorted(rang_s - at_s for rang_s, at_s in zip(times, due_s, strict=True))
    assert late_s[0] >= 0
    assert late_s[15] < 0.02


@pytest.mark.usefixtures("_platform")
def test_an_alarm_that_fails_does_not_silence_the_others() -> None:
    def fail() -> None:
        raise RuntimeError("mine")

    def plan(alarms: Alarms, named: Callable[[str], Callable[[], None]]) -> None:
        alarms.at(time.monotonic() + 0.01, fail)
        alarms.at(time.monotonic() + 0.01, named("a"))
        alarms.at(time.monotonic() + 0.03, named("b"))

    names, _, num_errors = rung(plan)
    assert (names, num_errors) == (["a", "b"], 1)
