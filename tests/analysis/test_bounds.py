"""Bounds are read as people write them, refused with what to write instead, and decided with what n can carry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.bounds import (
    DEFAULT_HYPOTHESIS,
    METRICS,
    parse_bound,
    parse_bounds,
    parse_stop,
    shown,
    subject_of,
)
from contextlab.analysis.checks import Check, State, evaluate, holds_in, live_stop, point
from contextlab.analysis.integrity import judge_all
from contextlab.analysis.load_metrics import Measured
from contextlab.analysis.phases import Span
from contextlab.analysis.replies import TIMES
from contextlab.experiment import Bound, Due, Ending, Phase, Sample
from contextlab.model import UsageError
from tests.analysis.trial_samples import PIECES, REFERENCES, broken_off, late, refused, steady, whole, with_text

BEFORE, DURING, AFTER, CONTROL = Phase.BEFORE, Phase.DURING, Phase.AFTER, Phase.CONTROL
USUALLY = frozenset({BEFORE, DURING, AFTER})

# ── the grammar ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "metric", "quantile", "op", "value", "against", "phases"),
    [
        ("p99 ttft < 800ms", "ttft", 0.99, "<", 0.8, None, USUALLY),
        ("p99.9 itl <= 1.5 s after", "itl", 0.999, "<=", 1.5, None, {AFTER}),
        ("  median   e2e<2s ", "e2e", 0.5, "<", 2.0, None, USUALLY),
        ("max queue < 100ms", "queue", 1.0, "<", 0.1, None, USUALLY),
        ("mean gap < 300 ms during, after", "gap", None, "<", 0.3, None, {DURING, AFTER}),
        ("p90 SERVICE-TTFT < 1s before and during", "service_ttft", 0.9, "<", 1.0, None, {BEFORE, DURING}),
        ("p50 service_e2e < 2min control", "service_e2e", 0.5, "<", 120.0, None, {CONTROL}),
        ("p90 ttft < 3x before during", "ttft", 0.9, "<", 3.0, BEFORE, {DURING}),
        ("p90 ttft < 1.5 x control", "ttft", 0.9, "<", 1.5, CONTROL, {DURING, AFTER}),
        ("errors <= 2× before", "errors", None, "<=", 2.0, BEFORE, {DURING, AFTER}),
        ("errors < 1%", "errors", None, "<", 0.01, None, USUALLY),
        ("errors < 0.01", "errors", None, "<", 0.01, None, USUALLY),
        ("errors = 0", "errors", None, "=", 0.0, None, USUALLY),
        ("integrity = 100%", "integrity", None, "=", 1.0, None, USUALLY),
        ("integrity >= 99.5 % after", "integrity", None, ">=", 0.995, None, {AFTER}),
        ("backlog < 50", "backlog", None, "<", 50.0, None, USUALLY),
        ("goodput > 5/s", "goodput", None, ">", 5.0, None, USUALLY),
        ("throughput >= 5 rps", "throughput", None, ">=", 5.0, None, USUALLY),
        ("tokens_per_s > 100 tok/s during", "tokens_per_s", None, ">", 100.0, None, {DURING}),
    ],
)
def test_a_bound_is_what_it_says(
    text: str,
    metric: str,
    quantile: float | None,
    op: str,
    value: float,
    against: Phase | None,
    phases: Iterable[Phase],
) -> None:
    bound = parse_bound(text)
    assert (bound.metric, bound.quantile, bound.op) == (metric, quantile, op)
    assert bound.value == pytest.approx(value)
    assert (bound.against, bound.phases) == (against, frozenset(phases))
    assert parse_bound(bound.text) == bound


@pytest.mark.parametrize(
    ("text", "message", "next_step"),
    [
        ("p99 tfft < 800ms", "no metric 'tfft'", "did you mean ttft?"),
        ("eror < 1%", "no metric 'eror'", "did you mean errors?"),
        ("modian ttft < 1s", "no statistic 'modian'", "did you mean median?"),
        ("p999 ttft < 1s", "above p0 and below p100", "did you mean p99.9?"),
        ("p100 ttft < 1s", "above p0 and below p100", "did you mean max?"),
        ("p0 ttft < 1s", "above p0 and below p100", "p50"),
        ("ttft < 800ms", "say which of them", "p99 ttft"),
        ("p99 errors < 1%", "has no p99", "write 'errors < 1%'"),
        ("p99 < 3s", "p99 of what?", "ttft, itl"),
        ("errors", "compares nothing", "for example"),
        ("", "compares nothing", "for example"),
        ("a b c < 1", "before the comparison", "for example"),
        ("errors =< 1%", "'=<' is no comparison", "did you mean <=?"),
        ("errors == 0", "'==' is no comparison", "did you mean =?"),
        ("errors != 1%", "'!=' is no comparison", "<, <=, >, >=, ="),
        ("p99 ttft = 1s", "never equals", "compare with"),
        ("goodput = 5/s", "never equals", "compare with"),
        ("p99 ttft <", "a value is missing", "for example"),
        ("p99 ttft < abc", "a duration such as", "for example"),
        ("p99 ttft < 800", "800 what?", "800ms or 800s"),
        ("p99 ttft < 1..2", "a duration such as", "for example"),
        ("p99 ttft < -5ms", "a duration such as", "for example"),
        ("errors < 1", "1 is all of them", "1%, or 100%"),
        ("errors < 5", "a share", "did you mean 5%?"),
        ("integrity = 100", "a share", "did you mean 100%?"),
        ("backlog < many", "a number", "for example"),
        ("p99 ttft < 3x", "a factor of what?", "control, before"),
        ("p99 ttft < 3x bfore", "'bfore' is no phase without faults", "did you mean before?"),
        ("p99 ttft < 3x during", "no phase without faults", "compare with"),
        ("p99 ttft < 800ms durng", "'durng' is no phase", "did you mean during?"),
        ("p99 ttft < 800ms before 12", "'12' is no phase", "the phases are"),
        ("p90 ttft < 2x before before", "compares before with itself", "name another phase"),
    ],
)
def test_a_bound_that_cannot_be_meant_says_what_can(text: str, message: str, next_step: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bound(text)
    assert message in caught.value.message
    assert " ".join(text.split()) in caught.value.message
    assert next_step in caught.value.next_step


def attempt(text: str) -> Bound | UsageError:
    try:
        return parse_bound(text)
    except UsageError as error:
        return error


WORDS = st.sampled_from(
    ["p99", "p50", "mean", "ttft", "errors", "backlog", "<", ">=", "=", "1%", "3x", "800ms", "5", "before", "during"]
)


@given(st.text(max_size=40) | st.lists(WORDS, max_size=7).map(" ".join))
def test_any_text_is_a_bound_or_a_usage_error_with_a_next_step(text: str) -> None:
    found = attempt(text)
    if isinstance(found, UsageError):
        assert found.next_step
    else:
        assert found.metric in METRICS
        assert found.phases
        assert found.against not in found.phases
        assert parse_bound(found.text) == found


def test_a_stop_condition_knows_no_phases() -> None:
    assert parse_stop("errors > 50%").metric == "errors"
    for text in ("errors > 50% during", "p90 ttft > 3x before"):
        with pytest.raises(UsageError, match="knows no phases"):
            parse_stop(text)


def test_the_default_hypothesis() -> None:
    assert [bound.text for bound in DEFAULT_HYPOTHESIS] == ["errors < 1%", "integrity = 100%", "backlog < 50"]


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("p99 ttft < 1s", 0.0123, "12.3ms"),
        ("p99 ttft < 1s", math.inf, "> all"),
        ("errors < 1%", 0.025, "2.5%"),
        ("backlog < 50", 12.0, "12"),
        ("goodput > 5/s", 4.5, "4.5/s"),
        ("errors < 1%", None, "–"),
    ],
)
def test_values_are_shown_in_the_metrics_unit(text: str, value: float | None, words: str) -> None:
    assert shown(parse_bound(text), value) == words


def test_a_subject_in_words() -> None:
    texts = ("p99.9 ttft < 1s", "median itl < 1s", "max gap < 1s", "mean e2e < 1s", "errors < 1%")
    assert [subject_of(bound) for bound in parse_bounds(texts)] == [
        "p99.9 ttft",
        "p50 itl",
        "max gap",
        "mean e2e",
        "errors",
    ]


# ── deciding ─────────────────────────────────────────────────────────────────────────────────────


def phase(samples: Sequence[Sample], name: Phase = DURING, **fields: object) -> dict[Phase, Measured]:
    span = Span(0.0, 30.0)
    made = Measured(
        phase=name,
        span=span,
        samples=samples,
        everyone=samples,
        readings=judge_all(samples, REFERENCES),
        **fields,  # type: ignore[arg-type]
    )
    return {name: made}


def at_ttfts(values: Iterable[float]) -> list[Sample]:
    return [whole(index, 0.05 * index, ttft_s=value) for index, value in enumerate(values)]


def checked(text: str, samples: Sequence[Sample], **others: Sequence[Sample]) -> Check:
    measured = phase(samples)
    for name, more in others.items():
        measured |= phase(more, Phase(name))
    return evaluate(parse_bound(text), measured, DURING)


def test_a_quantile_is_held_broken_or_undecided_by_its_whole_interval() -> None:
    values = [0.001 * number for number in range(1, 101)]
    samples = at_ttfts(values)
    found = checked("p50 ttft < 80ms", samples)
    assert (found.state, found.n) == (State.HELD, 100)
    assert [found.low, found.observed, found.high] == pytest.approx([0.040, 0.050, 0.061])
    assert checked("p50 ttft < 62ms", samples).state is State.HELD
    assert checked("p50 ttft < 60.5ms", samples).state is State.UNDECIDED
    assert checked("p50 ttft < 45ms", samples).state is State.UNDECIDED
    assert checked("p50 ttft < 40.5ms", samples).state is State.UNDECIDED
    assert checked("p50 ttft < 39.5ms", samples).state is State.BROKEN
    assert checked("p50 ttft > 30ms", samples).state is State.HELD
    assert checked("p50 ttft > 70ms", samples).state is State.BROKEN


def test_too_few_requests_are_insufficient_and_say_how_many_it_takes() -> None:
    found = checked("p99 ttft < 800ms", at_ttfts([0.05] * 80))
    assert found.state is State.UNDECIDED
    assert found.needs == 368
    assert "n=80: insufficient, it needs 368" in found.why
    assert checked("p99 ttft < 800ms", at_ttfts([0.05] * 368)).state is State.HELD


def test_too_few_for_an_interval_can_still_be_enough_to_break() -> None:
    found = checked("p99 ttft < 800ms", at_ttfts([0.9] * 20 + [0.05] * 60))
    assert found.state is State.BROKEN
    assert checked("p99 ttft < 800ms", at_ttfts([0.9] * 1 + [0.05] * 79)).state is State.UNDECIDED


def test_too_close_to_call_says_how_many_would_tell() -> None:
    found = checked("p90 ttft < 100ms", at_ttfts([0.2] * 12 + [0.05] * 88))
    assert found.state is State.UNDECIDED
    assert found.needs is not None
    assert 500 < found.needs < 2000
    assert f"about {found.needs} would tell" in found.why
    exactly = checked("p90 ttft < 100ms", at_ttfts([0.2] * 10 + [0.05] * 90))
    assert (exactly.state, exactly.needs) == (State.UNDECIDED, None)


def test_requests_that_failed_push_a_quantile_beyond_all() -> None:
    samples = [refused(one) if one.index % 2 else one for one in at_ttfts([0.05] * 100)]
    found = checked("p90 ttft < 800ms", samples)
    assert (found.state, found.observed) == (State.BROKEN, math.inf)
    assert "> all" in found.why


def test_a_comparison_uses_the_interval_of_the_ratio() -> None:
    rng = Random(3)
    base = at_ttfts([rng.uniform(0.04, 0.06) for _ in range(100)])
    slow = [late(one, 0.15) for one in base]
    found = checked("p50 ttft < 3x before", slow, before=base)
    assert found.state is State.BROKEN
    assert found.observed == pytest.approx(4.0, abs=0.4)
    assert "x" in found.why
    assert checked("p50 ttft < 6x before", slow, before=base).state is State.HELD
    assert checked("p50 ttft < 4x before", slow, before=base).state is State.UNDECIDED
    few = checked("p90 ttft < 3x before", slow[:41], before=base[:41])
    assert (few.state, few.needs) == (State.UNDECIDED, 42)  # the other phase has no upper end either
    assert checked("p90 ttft < 2x before", slow[:42], before=base[:42]).state is State.BROKEN
    assert checked("mean ttft < 3x before", slow, before=base).state is State.BROKEN
    assert checked("mean ttft < 5x before", slow, before=base).state is State.HELD
    assert checked("errors <= 2x before", slow, before=base).state is State.HELD


def test_what_was_not_measured_is_undecided() -> None:
    assert checked("p50 ttft < 3x control", at_ttfts([0.05] * 50)).why == "control was not measured"
    assert evaluate(parse_bound("errors < 1%"), {}, DURING).why == "no request belongs to during"
    found = checked("integrity = 100%", [refused(whole(index)) for index in range(20)])
    assert (found.state, found.observed) == (State.UNDECIDED, None)


def test_shares_and_backlog_are_exact_whatever_n() -> None:
    samples = at_ttfts([0.05] * 10)
    assert checked("errors < 1%", samples).state is State.HELD
    one = [refused(samples[0]), *samples[1:]]
    found = checked("errors < 1%", one)
    assert (found.state, found.observed, found.n) == (State.BROKEN, 0.1, 10)
    assert found.low is not None
    assert found.high is not None
    assert 0.0 < found.low < 0.1 < found.high < 0.5
    assert checked("errors <= 10%", one).state is State.HELD
    assert checked("errors < 10%", one).state is State.BROKEN
    assert checked("integrity = 100%", one).state is State.HELD
    damaged = [with_text(samples[0], PIECES[1:]), *samples[1:]]
    assert checked("integrity = 100%", damaged).state is State.BROKEN
    assert checked("integrity >= 90%", damaged).state is State.HELD
    assert checked("backlog < 50", samples).state is State.HELD
    assert checked("backlog < 2", samples).state is State.BROKEN
    assert checked("throughput > 1/s", samples).state is State.BROKEN
    assert checked("max ttft < 60ms", samples).state is State.HELD
    assert checked("max ttft < 60ms", one).state is State.BROKEN


def test_a_mean_is_inferred_and_infinite_with_a_failure() -> None:
    samples = at_ttfts([0.04, 0.06] * 20)
    assert checked("mean ttft < 60ms", samples).state is State.HELD
    assert checked("mean ttft < 50.5ms", samples).state is State.UNDECIDED
    assert checked("mean ttft < 40ms", samples).state is State.BROKEN
    assert checked("mean ttft < 10s", [*samples, refused(whole(99))]).state is State.BROKEN


@given(
    st.lists(st.floats(0.001, 2.0), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]), st.floats(0.01, 2.0)
)
def test_a_failure_never_turns_broken_into_held(values: list[float], q: float, limit: float) -> None:
    bound = replace(parse_bound("p50 ttft < 1s"), quantile=q, value=limit)
    samples = at_ttfts(values)
    order = [State.HELD, State.UNDECIDED, State.BROKEN]
    before = evaluate(bound, phase(samples), DURING)
    after = evaluate(bound, phase([refused(samples[0]), *samples[1:]]), DURING)
    assert order.index(after.state) >= order.index(before.state)


def test_a_true_bound_is_rarely_called_broken() -> None:
    rng, broken, rounds = Random(11), 0, 300
    bound = parse_bound("p90 ttft <= 900ms")  # of values from 0 to 1: exactly true
    for _ in range(rounds):
        broken += evaluate(bound, phase(at_ttfts([rng.random() for _ in range(60)])), DURING).state is State.BROKEN
    assert broken / rounds < 0.025 + 0.03


def test_every_metric_can_be_evaluated() -> None:
    for metric in METRICS:
        text = f"p50 {metric} < 10s" if metric in TIMES else f"{metric} >= 0"
        assert checked(text, steady(20.0, 5.0)).state is State.HELD, metric


def test_short_windows_are_judged_by_what_was_seen() -> None:
    good, window = phase(at_ttfts([0.05] * 50), BEFORE), phase(at_ttfts([0.05] * 5))[DURING]
    bounds = parse_bounds(["p99 ttft < 60ms", "errors < 1%", "p90 ttft < 2x before", "throughput > 1000/s"])
    assert holds_in(bounds, window, good)
    slow = phase([late(one, 0.1) for one in at_ttfts([0.05] * 5)])[DURING]
    assert not holds_in(bounds[2:], slow, good)
    assert holds_in(bounds[2:], slow, {})  # nothing to compare with
    assert point(bounds[2], slow, good[BEFORE]) == pytest.approx(3.0)


# ── while it runs ────────────────────────────────────────────────────────────────────────────────

DUES = tuple(Due(index=number, at_s=number / 20, mixed=0) for number in range(600))


def until(now_s: float, samples: Sequence[Sample]) -> list[Sample]:
    """Those that had ended, in the order in which they did."""
    ended = [one for one in samples if one.ended_s is not None and one.ended_s <= now_s]
    return sorted(ended, key=lambda one: one.ended_s or 0.0)


def test_a_steady_load_is_not_stopped() -> None:
    bounds = parse_bounds(["errors > 50%", "p90 ttft > 1s", "backlog > 20", "integrity < 100%", "throughput < 10/s"])
    for now_s in (0.5, 1.0, 4.0, 12.0, 29.0):
        assert live_stop(bounds, until(now_s, steady()), DUES, now_s, REFERENCES) is None


def test_a_stop_condition_looks_at_the_last_seconds() -> None:
    samples = [refused(one) if one.due_s >= 10.0 else one for one in steady()]
    bound = parse_bounds(["errors > 50%"])
    assert live_stop(bound, until(12.0, samples), DUES, 12.0) is None
    said = live_stop(bound, until(13.5, samples), DUES, 13.5)
    assert said is not None
    assert said.startswith("errors > 50%: errors was ")
    assert said.endswith(" at 13.5 s")


def test_a_target_that_answers_nothing_shows_in_the_backlog_and_the_rate() -> None:
    samples = until(10.0, steady())
    assert live_stop(parse_bounds(["errors > 50%"]), samples, DUES, 16.0) is None
    said = live_stop(parse_bounds(["backlog > 100"]), samples, DUES, 16.0)
    assert said is not None
    assert said.startswith("backlog > 100: backlog was 12")
    assert live_stop(parse_bounds(["throughput < 1/s"]), samples, DUES, 16.0) is not None


def test_few_requests_stop_nothing_and_a_closed_loop_has_no_backlog() -> None:
    bound = parse_bounds(["errors > 1%"])
    assert live_stop(bound, [refused(whole(number)) for number in range(4)], DUES, 0.2) is None
    assert live_stop(bound, [refused(whole(number)) for number in range(5)], DUES, 0.2) is not None
    closed = [Due(index=number, at_s=0.0, mixed=0) for number in range(600)]
    assert live_stop(parse_bounds(["backlog > 5"]), until(9.0, steady()), closed, 9.0) is None


def test_the_ends_of_streams_are_watched_without_references() -> None:
    samples = [broken_off(one, 4, Ending.RESET) for one in steady()[:20]]
    said = live_stop(parse_bounds(["integrity < 90%"]), samples, DUES, 1.5)
    assert said is not None
    assert said.startswith("integrity < 90%: integrity was 0%")
