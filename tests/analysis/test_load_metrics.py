"""The metrics of a phase, on streams whose every number is known, and what failures do to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.analysis.bounds import parse_bound, parse_bounds
from contextlab.analysis.integrity import Integrity, Noticed, judge_all
from contextlab.analysis.load_metrics import COUNTED, Measured, Share, expected_events, slo_of
from contextlab.analysis.phases import Peak, Span
from contextlab.analysis.replies import TIMES, answered, cause, gaps_s, itl_s
from contextlab.experiment import Ending, Phase, Sample
from contextlab.model import Failure, Usage
from tests.analysis.trial_samples import (
    PIECES,
    REFERENCES,
    broken_off,
    changed,
    late,
    refused,
    steady,
    timed_out,
    unavailable,
    unsent,
    whole,
    with_text,
)

EXPECTED = {0: len(PIECES), 1: len(PIECES)}
QUANTILES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
FAILED: Sequence[Callable[[Sample], Sample]] = (
    refused,
    timed_out,
    unavailable,
    unsent,
    lambda one: broken_off(one, 0, Ending.RESET),
    lambda one: broken_off(one, 4),
    lambda one: broken_off(one, 9, Ending.TIMEOUT),
    lambda one: replace(one, error_frames=(Failure(where="stream", message="x"),)),
    lambda one: replace(one, num_done=0),
    lambda one: replace(one, finish_reason=None),
)


ALL = Span(0.0, 30.0)


def measured(samples: Sequence[Sample], span: Span = ALL, **fields: Any) -> Measured:
    return Measured(
        **{
            "phase": Phase.DURING,
            "span": span,
            "samples": samples,
            "everyone": samples,
            "readings": judge_all(samples, REFERENCES),
            "expected": EXPECTED,
            **fields,
        }
    )


# ── times ────────────────────────────────────────────────────────────────────────────────────────


def test_response_times_count_from_when_it_was_due_and_service_times_from_when_it_was_sent() -> None:
    found = measured([whole(0, 1.0, sent_s=1.5, connected_s=1.7, ttft_s=0.8)])
    times = {name: found.times(name).ordered for name in TIMES}
    assert times["ttft"] == pytest.approx([0.8])
    assert times["service_ttft"] == pytest.approx([0.3])
    assert times["queue"] == pytest.approx([0.5])
    assert times["connect"] == pytest.approx([0.2])
    assert times["e2e"] == pytest.approx([0.8 + 8 * 0.02 + 0.001])
    assert times["service_e2e"] == pytest.approx([0.3 + 8 * 0.02 + 0.001])
    assert times["itl"] == pytest.approx([0.02] * 8)
    assert times["gap"] == pytest.approx([0.02] * 8 + [0.3])


def test_a_connection_used_again_has_no_time_to_connect() -> None:
    assert measured([whole(connected_s=None)]).times("connect").ordered == []
    assert measured([refused(whole())]).times("connect").ordered == [math.inf]


def test_what_came_before_a_failure_keeps_its_time() -> None:
    cut = broken_off(whole(), 4)
    found = measured([cut])
    assert found.times("ttft").ordered == pytest.approx([0.05])
    assert found.times("e2e").ordered == [math.inf]
    assert found.times("itl").ordered == pytest.approx([0.02] * 3 + [math.inf] * 5)


def test_a_failed_request_owes_every_gap_that_is_missing_and_at_least_one() -> None:
    assert len(itl_s(whole(), 9)) == len(itl_s(refused(whole()), 9)) == 8
    assert len(gaps_s(whole(), 9)) == len(gaps_s(refused(whole()), 9)) == 9
    assert itl_s(refused(whole())) == [math.inf]
    assert itl_s(broken_off(whole(), 9), 9)[-1] == math.inf
    assert itl_s(whole(pieces=["all at once"]), 9) == []


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.001, 1.0)), min_size=1, max_size=12), st.data())
def test_turning_a_success_into_a_failure_never_improves_anything(
    rows: list[tuple[float, float]], data: st.DataObject
) -> None:
    samples = [whole(index, 0.1 * index, ttft_s=first, itl_s=step) for index, (first, step) in enumerate(rows)]
    place = data.draw(st.integers(0, len(samples) - 1))
    fail = data.draw(st.sampled_from(FAILED))
    worse = [fail(one) if number == place else one for number, one in enumerate(samples)]
    before, after = measured(samples), measured(worse)
    for name in TIMES:
        if name == "connect":
            continue  # where there was no connection there is nothing to time
        for q in QUANTILES:
            assert after.times(name).at(q) >= before.times(name).at(q) - 1e-12
    assert (after.errors.value or 0.0) > (before.errors.value or 0.0)
    assert (after.integrity.value or 0.0) <= (before.integrity.value or 0.0)
    assert (after.throughput_per_s or 0.0) <= (before.throughput_per_s or 0.0)
    assert (after.goodput_per_s or 0.0) <= (before.goodput_per_s or 0.0)


# ── shares ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sample", "name"),
    [
        (whole(), ""),
        (whole(num_frames=0, num_done=0), ""),  # no stream: one JSON body
        (refused(whole()), "refused"),
        (replace(refused(whole()), ending=Ending.UNREACHED), "unreached"),
        (broken_off(whole(), 3, Ending.RESET), "reset"),
        (broken_off(whole(), 3), "fin early"),
        (broken_off(whole(), 3, Ending.TIMEOUT), "timeout"),
        (broken_off(whole(), 3, Ending.GARBLED), "garbled"),
        (timed_out(whole()), "timeout"),
        (unavailable(whole()), "http 503"),
        (unavailable(whole(), 400), "http 400"),
        (whole(error_frames=(Failure(where="stream", message="x"),)), "error frame"),
        (whole(num_done=0), "no [DONE]"),
        (whole(finish_reason=None), "no finish_reason"),
        (whole(num_done=0, failure=Failure(where="protocol", message="x")), "no [DONE]"),
        (
            whole(finish_reason=None, num_frames=0, failure=Failure(where="protocol", message="x")),
            "not an answer",
        ),
        (unsent(whole()), "unsent"),
        (replace(unsent(whole()), sent_s=1.0), "given up"),
        (whole(ending=Ending.TIMEOUT), ""),  # it had ended before
        (whole(ending=Ending.FIN, num_frames=0, num_done=0), "fin early"),
    ],
)
def test_every_failure_has_one_cause(sample: Sample, name: str) -> None:
    assert cause(sample) == name
    assert answered(sample) is (name == "")


def test_causes_name_damage_that_was_taken_for_an_answer() -> None:
    samples = [whole(0), refused(whole(1)), refused(whole(2)), with_text(whole(3), PIECES[:4] + PIECES[5:])]
    found = measured(samples)
    assert found.causes == {"refused": 2, "events missing": 1}
    assert (found.errors.count, found.errors.total) == (2, 4)
    assert (found.integrity.count, found.integrity.total) == (1, 2)  # streams that began
    assert found.damage == {Integrity.MISSING: 1}
    assert found.names[Integrity.REFUSED] == 2
    assert found.noticed == {Noticed.TRANSPORT: 2, Noticed.NOBODY: 1}


def test_a_share_has_wilsons_interval_and_none_of_nothing() -> None:
    low, high = Share(1, 100).interval
    assert 0.0 < low < 0.01 < high < 0.06
    assert Share(0, 0).value is None


def test_of_nothing_there_is_nothing() -> None:
    found = measured([])
    assert found.n == 0
    assert found.errors.value is None
    assert found.integrity.value is None
    assert found.throughput_per_s == 0.0
    assert found.backlog == Peak(0, 0, 0)
    assert found.tokens_per_event is None
    assert math.isnan(found.times("ttft").quantile(0.5).value)
    assert measured([whole()], Span(1.0, 1.0)).throughput_per_s is None


def test_streams_that_nobody_judged_count_nowhere() -> None:
    found = measured([whole()], readings={})
    assert found.integrity == Share(0, 0)
    assert found.damage == {}


# ── rates ────────────────────────────────────────────────────────────────────────────────────────


def test_throughput_counts_what_ended_inside_the_span() -> None:
    samples = steady()
    during = [one for one in samples if 10.0 <= one.due_s < 20.0]
    found = measured(during, Span(10.0, 20.0), everyone=samples)
    assert found.throughput_per_s == pytest.approx(20.0, abs=0.2)
    assert found.tokens_per_s == pytest.approx(20.0 * len(PIECES), rel=0.02)
    delayed = changed(samples, 10.0, 20.0, lambda one: late(one, 30.0))
    assert measured(during, Span(10.0, 20.0), everyone=delayed).throughput_per_s == pytest.approx(0.5, abs=0.3)


def test_goodput_leaves_out_what_is_late_or_damaged() -> None:
    samples = [*steady(20.0, 1.0), late(whole(20, 0.5), 0.9), with_text(whole(21, 0.5), PIECES[:4] + PIECES[5:])]
    slo = slo_of(parse_bounds(["p99 ttft < 800ms", "p50 ttft < 1ms", "errors < 1%", "p90 ttft < 2x before"]))
    assert [bound.text for bound in slo] == ["p99 ttft < 800ms"]
    found = measured(samples, Span(0.0, 10.0), slo=slo)
    assert found.throughput_per_s == pytest.approx(2.2)
    assert found.goodput_per_s == pytest.approx(2.0)
    assert measured(samples, Span(0.0, 10.0)).goodput_per_s == pytest.approx(2.1)


def test_of_gaps_the_mean_decides_whether_an_answer_is_good() -> None:
    slo = slo_of([parse_bound("p99 itl < 30ms")])
    assert measured([whole(itl_s=0.02)], slo=slo).goodput_per_s == pytest.approx(1 / 30)
    assert measured([whole(itl_s=0.04)], slo=slo).goodput_per_s == 0.0


def test_tokens_per_event_are_measured_and_not_assumed() -> None:
    two_each = whole(usage=Usage(completion_tokens=2 * len(PIECES)))
    found = measured([two_each, replace(two_each, index=1)], Span(0.0, 1.0))
    assert found.tokens_per_event == 2.0
    assert found.tokens_per_s == pytest.approx(4 * len(PIECES))
    cut = replace(broken_off(two_each, 4), index=2)
    assert measured([two_each, cut], Span(0.0, 1.0)).tokens_per_s == pytest.approx(2 * len(PIECES) + 8)
    later = whole(5, 2.0, usage=Usage(completion_tokens=len(PIECES)))
    assert measured([two_each, later], Span(0.0, 1.0)).tokens_per_s == pytest.approx(2 * len(PIECES))
    untold = measured([whole(usage=None)], Span(0.0, 1.0))
    assert untold.tokens_per_event is None
    assert untold.tokens_per_s == pytest.approx(len(PIECES))


def test_every_counted_metric_has_a_value() -> None:
    found = measured(steady(), Span(2.0, 30.0))
    assert all(found.counted(name) is not None for name in COUNTED)
    with pytest.raises(KeyError):
        found.counted("nothing")


def test_a_pause_of_ten_seconds_yields_as_many_bad_requests_as_were_due_in_it() -> None:
    paused = [late(one, 20.0 - one.due_s) if 10.0 <= one.due_s < 20.0 else one for one in steady()]
    found = measured(paused)
    assert sum(value > 0.2 for value in found.times("ttft").ordered) == pytest.approx(200, abs=5)
    assert found.times("ttft").at(0.9) > 6.0
    assert found.backlog.total == pytest.approx(200, abs=5)


def test_how_many_events_a_whole_answer_has() -> None:
    assert expected_events([(("a", "b"), ("a",)), ()], [whole(mixed=1), broken_off(whole(1, mixed=1), 2)]) == {
        0: 2,
        1: 9,
    }
