"""How quiet the machine is: the fixed work, and the counters between two looks."""

from __future__ import annotations

import pytest

from contextlab.lab.contention import Busy
from contextlab.lab.gate.quiet import Controlled, Look, control, host, look, usual_s


def at(at_s: float, all_s: float, ours_s: float, *, steal_s: float = 0.0, throttled: int | None = 0) -> Look:
    """A look at counters."""
    busy = Busy(at_s=at_s, all_s=all_s, ours_s=ours_s, stalled_us=None)
    return Look(busy=busy, steal_s=steal_s, all_s=at_s * 2, throttled=throttled)


REST = Controlled(slices_s=(0.02,), stalled_s=0.03, length_s=0.3)


def test_the_fixed_work_takes_time() -> None:
    found = control()
    assert 0 < usual_s(found) < sum(found.slices_s) <= found.length_s
    assert found.stalled_s is None or found.stalled_s >= 0


def test_a_burst_is_no_contention_and_a_slower_machine_is() -> None:
    even, burst = (0.02,) * 20, (0.02,) * 9 + (0.05,) * 11
    assert usual_s(controlled(even), controlled(burst)) == 0.02
    assert usual_s(controlled(burst), controlled(burst)) == 0.02
    assert usual_s(controlled((0.03,) * 20), controlled((0.03,) * 20)) == 0.03


def controlled(times: tuple[float, ...]) -> Controlled:
    """A control of these slices."""
    return Controlled(slices_s=times, stalled_s=None, length_s=sum(times))


def test_counters_between_two_looks() -> None:
    before, after = at(10.0, 100.0, 50.0), at(20.0, 112.0, 57.0, steal_s=0.4, throttled=3)
    found = host(before, after, (REST, REST), sees_others=True)
    assert found.others_cores == pytest.approx(0.5)
    assert found.cpu_pressure == pytest.approx(0.1)
    assert found.steal == pytest.approx(0.02)
    assert found.throttled == 3


def test_what_cannot_be_told_is_none() -> None:
    no_psi = Controlled(slices_s=(0.02,), stalled_s=None, length_s=0.3)
    found = host(at(10.0, 1.0, 1.0), at(11.0, 2.0, 1.0, throttled=None), (REST, no_psi), sees_others=False)
    assert (found.others_cores, found.cpu_pressure, found.throttled) == (None, None, None)


def test_pressure_is_a_share() -> None:
    pressed = Controlled(slices_s=(0.02,), stalled_s=0.4, length_s=0.3)
    assert host(at(1.0, 1.0, 1.0), at(2.0, 1.0, 1.0), (pressed, pressed), sees_others=True).cpu_pressure == 1.0


def test_this_machine_can_be_looked_at() -> None:
    before = look()
    after = look()
    assert after.busy.at_s >= before.busy.at_s
    assert after.all_s >= before.all_s
