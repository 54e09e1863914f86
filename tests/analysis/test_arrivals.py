"""Schedules against their definition: order, counts, gaps and shape within statistical bounds, and equal seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.arrivals import CLOSED_CYCLE, MAX_DUES, expected_requests, schedule
from contextlab.experiment import Arrivals, Due, Load, Mixed, Pace
from contextlab.model import Message, Request, UsageError

NAMES = ("short", "long", "other")
OPEN = (Pace.POISSON, Pace.CONSTANT, Pace.BURST, Pace.RAMP)
SIGMAS = 5.0
"""A bound that a right generator passes in all but one of two million tries."""
KS_STEPS = 2.23
"""Kolmogorov: √n·D stays below it in all but one of ten thousand samples."""


def mixed(*weights: float) -> tuple[Mixed, ...]:
    return tuple(
        Mixed(request=Request(name=name, messages=(Message(role="user", parts=("Hello",)),)), weight=weight)
        for name, weight in zip(NAMES, weights, strict=False)
    )


def load(
    pace: Pace = Pace.POISSON, *, duration_s: float = 10.0, weights: tuple[float, ...] = (1.0,), **how: object
) -> Load:
    return Load(arrivals=Arrivals(pace=pace, **how), duration_s=duration_s, mix=mixed(*weights))  # type: ignore[arg-type]


def times(one: Load, seed: int = 1) -> list[float]:
    return [due.at_s for due in schedule(one, seed)]


def ks_distance(values: list[float]) -> float:
    """The largest distance between the distribution of values in [0, 1) and the uniform one."""
    values, num = sorted(values), len(values)
    return max(max((place + 1) / num - value, value - place / num) for place, value in enumerate(values))


loads = st.builds(
    load,
    st.sampled_from(OPEN),
    duration_s=st.floats(0.5, 40),
    weights=st.sampled_from([(1.0,), (1.0, 3.0), (0.0, 1.0, 0.5)]),
    rate_per_s=st.floats(0.2, 100),
    factor=st.sampled_from([0.0, 0.3, 1.0, 4.0, 10.0]),
    burst_at_s=st.floats(0, 30),
    burst_s=st.floats(0, 10),
)


@given(loads, st.integers())
def test_schedules_are_sorted_counted_through_and_within_the_duration(one: Load, seed: int) -> None:
    dues = schedule(one, seed)
    assert [due.index for due in dues] == list(range(len(dues)))
    assert all(0 <= due.at_s < one.duration_s for due in dues)
    assert all(earlier.at_s <= later.at_s for earlier, later in pairwise(dues))
    assert all(one.mix[due.mixed].weight > 0 for due in dues)


@given(loads, st.integers(0, 10**9))
def test_the_number_of_requests_is_a_poisson_number_around_what_is_expected(one: Load, seed: int) -> None:
    expected = expected_requests(one, one.duration_s)
    num = len(schedule(one, seed))
    if one.arrivals.pace is Pace.CONSTANT:
        assert num == math.ceil(expected) or abs(num - expected) < 1e-6
    else:
        assert abs(num - expected) <= SIGMAS * math.sqrt(expected) + 12  # (a Poisson tail is longer than a normal one)


@given(loads, st.integers())
def test_equal_seeds_give_equal_schedules_and_others_do_not(one: Load, seed: int) -> None:
    assert repr(schedule(one, seed)) == repr(schedule(one, seed))
    if one.arrivals.pace is not Pace.CONSTANT and expected_requests(one, one.duration_s) > 50:
        assert times(one, seed) != times(one, seed + 1)


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_are_exponential_and_independent(seed: int) -> None:
    rate = 200.0
    arrived = times(load(rate_per_s=rate, duration_s=50), seed)
    gaps = [later - earlier for earlier, later in pairwise(arrived)]
    assert ks_distance([1 - math.exp(-rate * gap) for gap in gaps]) < KS_STEPS / math.sqrt(len(gaps))
    mean = sum(gaps) / len(gaps)
    covariance = sum((a - mean) * (b - mean) for a, b in pairwise(gaps)) / len(gaps)
    assert abs(covariance * rate**2) < SIGMAS / math.sqrt(len(gaps))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "one",
    [
        load(Pace.RAMP, rate_per_s=10, factor=30, duration_s=30),
        load(Pace.RAMP, rate_per_s=300, factor=0, duration_s=30),
        load(Pace.BURST, rate_per_s=40, factor=10, burst_at_s=10, burst_s=5, duration_s=30),
        load(Pace.BURST, rate_per_s=100, factor=0, burst_at_s=10, burst_s=5, duration_s=30),
    ],
    ids=["ramp up", "ramp to nothing", "burst", "pause"],
)
def test_where_requests_fall_follows_the_rate(one: Load, seed: int) -> None:
    whole = expected_requests(one, one.duration_s)
    places = [expected_requests(one, at_s) / whole for at_s in times(one, seed)]
    assert len(places) > 1000
    assert ks_distance(places) < KS_STEPS / math.sqrt(len(places))


def test_a_burst_is_ten_times_as_dense_inside_only() -> None:
    arrived = times(load(Pace.BURST, rate_per_s=20, factor=10, burst_at_s=10, burst_s=5, duration_s=30))
    inside = sum(10 <= at_s < 15 for at_s in arrived)
    assert abs(inside - 1000) < SIGMAS * math.sqrt(1000)
    assert abs(len(arrived) - inside - 500) < SIGMAS * math.sqrt(500)


def test_constant_times_do_not_drift() -> None:
    assert times(load(Pace.CONSTANT, rate_per_s=10, duration_s=1)) == [number / 10 for number in range(10)]
    assert times(load(Pace.CONSTANT, rate_per_s=3, duration_s=1000))[-1] == 2999 / 3


def test_a_trace_is_replayed_in_order_and_within_the_duration() -> None:
    trace_s = (3.0, 0.0, 0.5, 0.5, 99.0, -1.0)
    assert times(load(Pace.REPLAY, trace_s=trace_s)) == [0.0, 0.5, 0.5, 3.0]
    assert expected_requests(load(Pace.REPLAY, trace_s=trace_s), 10.0) == 4


def test_a_closed_loop_has_a_cycle_of_requests_all_due_at_once() -> None:
    dues = schedule(load(Pace.CLOSED, concurrency=3, weights=(1.0, 1.0)), 1)
    assert len(dues) == CLOSED_CYCLE
    assert {due.at_s for due in dues} == {0.0}
    assert {due.mixed for due in dues} == {0, 1}
    assert len(schedule(load(Pace.CLOSED, concurrency=CLOSED_CYCLE + 5), 1)) == CLOSED_CYCLE + 5


def test_the_mix_follows_its_weights() -> None:
    dues = schedule(load(rate_per_s=1000, weights=(1.0, 0.0, 3.0)), 7)
    counts = [sum(due.mixed == place for due in dues) for place in range(3)]
    assert counts[1] == 0
    assert abs(counts[2] / len(dues) - 0.75) < SIGMAS * math.sqrt(0.75 * 0.25 / len(dues))


def test_the_mix_and_the_times_do_not_know_each_other() -> None:
    plain, mixing = load(rate_per_s=50), load(rate_per_s=50, weights=(1.0, 1.0))
    assert times(plain) == times(mixing)
    faster = replace(mixing, arrivals=replace(mixing.arrivals, rate_per_s=500.0))
    assert [due.mixed for due in schedule(mixing, 1)] == [due.mixed for due in schedule(faster, 1)][
        : len(times(mixing))
    ]


def test_a_schedule_is_the_same_on_every_machine() -> None:
    assert schedule(load(rate_per_s=2, duration_s=2, weights=(1.0, 1.0)), 1) == (
        Due(index=0, at_s=0.015601009057020453, mixed=1),
        Due(index=1, at_s=0.20401790170155432, mixed=1),
        Due(index=2, at_s=1.2204141897107146, mixed=0),
    )


@pytest.mark.parametrize(
    ("one", "named"),
    [
        (load(rate_per_s=0), "rate=0"),
        (load(rate_per_s=-1), "rate=-1"),
        (load(rate_per_s=math.nan), "rate=nan"),
        (load(rate_per_s=1e9), str(MAX_DUES)),
        (load(duration_s=0), "duration=0"),
        (load(duration_s=math.inf), "duration=inf"),
        (load(weights=()), "mix="),
        (load(weights=(0.0,)), "mix="),
        (load(weights=(1.0, -1.0)), "mix="),
        (load(Pace.CLOSED), "concurrency=0"),
        (load(Pace.RAMP, factor=-1), "factor=-1"),
        (load(Pace.BURST, burst_s=-1), "burst"),
        (load(Pace.REPLAY, trace_s=(0.0, math.nan)), "trace"),
    ],
)
def test_what_cannot_be_meant_is_refused(one: Load, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        schedule(one, 1)
