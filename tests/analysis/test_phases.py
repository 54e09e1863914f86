"""Every request has its phase, the backlog its layers, and a recovery its moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.phases import (
    RECOVERY_WINDOWS,
    Backlog,
    Peak,
    Span,
    bin_length_s,
    disturbances,
    in_control,
    phase_of,
    recovery,
    server_peaks,
    spans,
    split,
    timeline,
    took_part,
)
from contextlab.analysis.replies import answered
from contextlab.experiment import Arrivals, Extra, GaugeSample, Pace, Phase, Placed, Sample
from contextlab.model import Gauges
from tests.analysis.trial_samples import (
    FAULT,
    LOAD,
    arm,
    changed,
    experiment,
    late,
    refused,
    steady,
    timed_out,
    unsent,
    whole,
)

WINDOWS = (Span(10.0, 20.0),)
TWO = (Placed(name="one", start_s=8.0, length_s=4.0), Placed(name="other", start_s=20.0, length_s=4.0))


def lasting(due_s: float, ended_s: float | None) -> Sample:
    return whole(0, due_s, ended_s=ended_s)


# ── phases ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("due_s", "ended_s", "phase"),
    [
        (1.9, 30.0, None),
        (2.0, 3.0, Phase.BEFORE),
        (9.0, 10.0, Phase.BEFORE),
        (9.0, 10.1, Phase.DURING),
        (10.0, 10.1, Phase.DURING),
        (19.99, 25.0, Phase.DURING),
        (20.0, 20.1, Phase.AFTER),
        (5.0, None, Phase.DURING),
        (25.0, None, Phase.AFTER),
    ],
)
def test_a_request_belongs_to_what_it_lived_through(due_s: float, ended_s: float | None, phase: Phase | None) -> None:
    assert phase_of(lasting(due_s, ended_s), WINDOWS, 2.0, 30.0) is phase


def test_between_two_faults_is_during() -> None:
    windows = disturbances(experiment(faults=TWO))
    assert phase_of(lasting(15.0, 15.2), windows, 2.0, 30.0) is Phase.DURING
    assert phase_of(lasting(24.5, 24.6), windows, 2.0, 30.0) is Phase.AFTER


def test_the_phases_divide_the_time() -> None:
    found = spans(experiment())
    assert found == {
        Phase.CONTROL: Span(2.0, 30.0),
        Phase.BEFORE: Span(2.0, 10.0),
        Phase.DURING: Span(10.0, 20.0),
        Phase.AFTER: Span(20.0, 30.0),
    }
    assert Phase.AFTER not in spans(experiment(faults=(replace(FAULT, length_s=20.0),)))
    assert Phase.BEFORE not in spans(experiment(faults=(replace(FAULT, start_s=0.0),)))
    assert spans(experiment(), until_s=15.0)[Phase.DURING] == Span(10.0, 15.0)


@given(st.floats(0, 30), st.floats(0, 30), st.floats(0, 6), st.floats(0.1, 30))
def test_every_request_after_the_warm_up_has_one_phase(
    start_s: float, due_s: float, lasted_s: float, length_s: float
) -> None:
    placed = replace(FAULT, start_s=start_s, length_s=length_s)
    sample = replace(whole(), due_s=due_s, ended_s=due_s + lasted_s)
    found = split(arm("fault", [sample]), experiment(faults=(placed,)))
    assert sum(map(len, found.values())) == (1 if due_s >= 2.0 else 0)


def test_an_extra_load_and_a_burst_disturb_as_faults_do() -> None:
    extra = Extra(load=replace(LOAD, duration_s=5.0), start_s=7.5)
    assert disturbances(experiment(faults=(), extra=extra)) == (Span(7.5, 12.5),)
    burst = replace(LOAD, arrivals=Arrivals(pace=Pace.BURST, factor=10.0, burst_at_s=12.0, burst_s=5.0))
    assert disturbances(experiment(faults=(), load=burst)) == (Span(12.0, 17.0),)


def test_without_a_disturbance_all_of_it_is_during() -> None:
    plain = experiment(faults=())
    assert disturbances(plain) == (Span(2.0, 30.0),)
    found = split(arm("fault", steady()), plain)
    assert len(found[Phase.DURING]) == 560
    assert found[Phase.BEFORE] == found[Phase.AFTER] == []


def test_the_control_is_judged_without_its_warm_up() -> None:
    assert len(in_control(arm("control", steady()), experiment())) == 560


def test_a_turn_that_never_came_is_no_failure_and_one_that_was_due_is() -> None:
    samples = (whole(0, 3.0), unsent(whole(1, 4.0)), unsent(whole(2, 8.0)))
    assert [one.index for one in took_part(samples, experiment(), 5.0)] == [0, 1]
    closed = experiment(load=replace(LOAD, arrivals=Arrivals(pace=Pace.CLOSED, concurrency=2)))
    assert [one.index for one in took_part(samples, closed, 5.0)] == [0]
    given_up = replace(unsent(whole(3, 8.0)), sent_s=8.0)
    assert took_part([given_up], closed, 5.0) == [given_up]


# ── backlog ──────────────────────────────────────────────────────────────────────────────────────


def test_the_backlog_is_counted_by_layer() -> None:
    samples = [
        whole(0, 1.0, sent_s=1.5, ended_s=3.0),
        whole(1, 1.0, sent_s=1.0, ended_s=2.0),
        replace(unsent(whole(2, 2.5))),
    ]
    backlog = Backlog(samples, 4.0)
    assert backlog.at(0.9) == Peak(0, 0, 0)
    assert backlog.at(1.2) == Peak(2, 1, 1)
    assert backlog.at(1.7) == Peak(2, 0, 2)
    assert backlog.at(2.7) == Peak(2, 1, 1)
    assert backlog.at(3.5) == Peak(1, 1, 0)
    assert backlog.at(4.1) == Peak(0, 0, 0)
    assert backlog.peak(Span(2.0, 4.0)) == Peak(2, 1, 1)
    assert backlog.peak(Span(1.0, 1.0)) == Peak(2, 1, 1)


def test_a_closed_loop_never_has_more_under_way_than_it_may() -> None:
    samples = [whole(index, float(index), sent_s=float(index), ended_s=index + 1.0) for index in range(10)]
    assert Backlog(samples, 10.0).peak(Span(0.0, 10.0)) == Peak(1, 1, 1)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 5), st.floats(0, 5)), max_size=40),
    st.floats(0, 60),
    st.floats(0, 9),
)
def test_the_backlog_is_what_counting_says(rows: list[tuple[float, float, float]], begin: float, length: float) -> None:
    samples = [
        replace(whole(index), due_s=due, sent_s=due + wait, ended_s=due + wait + work)
        for index, (due, wait, work) in enumerate(rows)
    ]
    backlog = Backlog(samples, 70.0)

    def counted(at_s: float) -> int:
        return sum(one.due_s <= at_s < (one.ended_s or 0.0) for one in samples)

    assert backlog.at(begin).total == counted(begin)
    span = Span(begin, begin + length)
    moments = [begin, *(one.due_s for one in samples if span.holds(one.due_s))]
    assert backlog.peak(span).total >= max(map(counted, moments))
    assert backlog.at(1000.0) == Peak(0, 0, 0)


def test_a_pause_of_the_target_shows_in_the_backlog_as_all_that_was_due() -> None:
    samples = [whole(n, n / 20, ended_s=max(n / 20, 20.0 if n >= 200 else 0.0) + 0.1) for n in range(600)]
    assert Backlog(samples, 31.0).peak(Span(10.0, 20.0)).total == pytest.approx(200, abs=4)


def test_the_targets_own_counts_are_taken_where_it_has_them() -> None:
    gauges = [
        GaugeSample(at_s=1.0, gauges=Gauges(waiting_requests=7, busy_slots=4)),
        GaugeSample(at_s=2.0, gauges=Gauges(waiting_requests=3, busy_slots=4, kv_usage_ratio=0.5)),
        GaugeSample(at_s=3.0, gauges=Gauges(waiting_requests=99)),
    ]
    assert server_peaks(gauges, Span(0.0, 3.0)) == {"waiting": 7.0, "running": 4.0, "kv_usage": 0.5}
    assert server_peaks([], Span(0.0, 3.0)) == {}


# ── bins ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("length_s", "bin_s"), [(3.0, 0.1), (30.0, 0.5), (60.0, 1.0), (3600.0, 60.0), (1e6, 16667.0)])
def test_bins_have_a_round_length(length_s: float, bin_s: float) -> None:
    assert bin_length_s(length_s) == bin_s


def test_the_timeline_shows_errors_where_they_were_due() -> None:
    samples = changed(steady(), 10.0, 20.0, timed_out, every=4)
    bins = timeline(arm("fault", samples), experiment(), 1.0)
    assert sum(one.due for one in bins) == 600
    assert sum(one.errors for one in bins) == 50
    assert sum(one.answered for one in bins) == 550
    assert [one.disturbed for one in bins[9:21]] == [False, *[True] * 10, False]
    assert all(one.errors == 5 for one in bins[10:20])
    assert bins[5].rate_per_s == pytest.approx(20, abs=2)
    assert bins[12].ttft_p90_s == float("inf")
    assert 0.03 < bins[12].ttft_p50_s < 0.07
    assert bins[19].backlog.in_flight >= 25


def test_an_empty_arm_has_no_timeline() -> None:
    assert timeline(arm("fault", []), experiment()) == ()
    assert len(timeline(arm("fault", [whole()]), experiment(), 1.0)) == 1
    assert not any(one.disturbed for one in timeline(arm("fault", steady()), experiment(faults=())))
    assert not any(one.disturbed for one in timeline(arm("control", steady()), experiment()))


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────


def no_errors(samples: Sequence[Sample], span: Span) -> bool:
    return all(map(answered, samples))


@pytest.mark.parametrize(
    ("bad_until_s", "after_s"), [(20.0, 0.0), (20.3, 0.5), (23.9, 4.0), (28.6, None), (30.0, None)]
)
def test_recovery_is_the_first_of_enough_windows_that_hold(bad_until_s: float, after_s: float | None) -> None:
    samples = changed(steady(), 20.0, bad_until_s, refused)
    found = recovery(samples, Span(20.0, 30.0), no_errors)
    assert found.window_s == 0.5  # ten requests at 20 a second
    assert found.after_s == after_s
    assert found.enough


def test_two_good_windows_between_bad_ones_are_no_recovery() -> None:
    bad = changed(steady(), 20.0, 22.0, refused)
    bad = changed(bad, 23.0, 24.0, refused)
    assert recovery(bad, Span(20.0, 30.0), no_errors).after_s == 4.0


def test_windows_are_long_enough_for_five_requests() -> None:
    slow = steady(2.0)
    found = recovery(slow, Span(20.0, 30.0), no_errors)
    assert found.window_s == 2.5
    assert len(found.held) == 4
    assert found.after_s == 0.0


def test_a_window_without_requests_says_nothing() -> None:
    samples = [one for one in steady() if not 20.5 <= one.due_s < 25.0]
    found = recovery(samples, Span(20.0, 30.0), no_errors)
    assert None in found.held
    assert found.after_s == 0.0
    assert not recovery([], Span(20.0, 30.0), no_errors).enough


def test_too_short_a_time_is_not_enough() -> None:
    found = recovery(steady(), Span(20.0, 20.0 + 0.5 * (RECOVERY_WINDOWS - 1)), no_errors)
    assert found.after_s is None
    assert not found.enough


def test_slow_requests_count_as_what_they_are() -> None:
    def quick(samples: Sequence[Sample], span: Span) -> bool:
        return all(one.content_s[0] - one.due_s < 0.5 for one in samples)

    samples = changed(steady(), 20.0, 22.2, lambda one: late(one, 1.0))
    assert recovery(samples, Span(20.0, 30.0), quick).after_s == 2.5
