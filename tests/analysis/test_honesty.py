"""Seconds of false green and false red, from looks made by hand: what is known, what is possible, who is no liar."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis import honesty
from contextlab.analysis.honesty import Honesty, judgements
from contextlab.deeds import Reading
from contextlab.experiment import Arm, Trial
from contextlab.model import Outcome
from tests.analysis.trial_samples import KNOWN, outcomes, whole
from tests.analysis.trial_samples import experiment as made_experiment

ANSWERED_S, PATIENCE_S = 0.05, 10.0
State = Callable[[float], bool]


def always(at_s: float) -> bool:
    return True


def but(start_s: float, end_s: float) -> State:
    """True but in this stretch of time."""
    return lambda at_s: not start_s <= at_s < end_s


def health(at_s: float, value: float = 1.0, took_s: float = 0.002, **more: float) -> Reading:
    return Reading(source="health", at_s=at_s, values={"green": value, "health_s": took_s, **more})


def token(at_s: float, value: float = 1.0, took_s: float = ANSWERED_S, **more: float) -> Reading:
    return Reading(source="health", at_s=at_s, values={"completed": value, "completion_s": took_s, **more})


def looks(green: State, completes: State, *, until_s: float = 20.0) -> list[Reading]:
    """A look every half second in turn; a token that does not come is waited for until it does."""
    found = [health(at_s, float(green(at_s))) for at_s in _every(0.0, until_s)]
    at_s = 0.5
    while at_s < until_s:
        took_s = ANSWERED_S
        while not completes(at_s + took_s) and took_s < PATIENCE_S and at_s + took_s < until_s:
            took_s += 0.01
        done = completes(at_s + took_s)
        is_open = {} if done or took_s >= PATIENCE_S else {"open": 1.0}
        found.append(token(at_s, float(done), round(took_s, 6), **is_open))
        at_s = 0.5 + float(int(at_s + took_s + 0.5))
    return found


def _every(first_s: float, until_s: float) -> list[float]:
    return [first_s + place for place in range(int(until_s - first_s) + 1)]


def arm(readings: Iterable[Reading], name: str = "fault", **more: Any) -> Arm:
    return Arm(name=name, length_s=20.0, readings=tuple(readings), **more)


def seen(readings: Iterable[Reading], within_s: float = 1.0, **more: Any) -> Honesty:
    found = honesty.honesty(arm(readings, **more), within_s)
    assert found is not None
    return found


def trial(fault: Iterable[Reading], control: Iterable[Reading] | None = None) -> Trial:
    undisturbed = looks(always, always) if control is None else control
    return Trial(experiment=made_experiment(), knowledge=KNOWN, control=arm(undisturbed, "control"), fault=arm(fault))


# ── what is measured ─────────────────────────────────────────────────────────────────────────────


def test_two_that_agree_never_contradict() -> None:
    for green, completes in ((always, always), (but(5, 9), but(5, 9)), (but(0, 99), but(0, 99))):
        found = seen(looks(green, completes))
        assert (found.false_green.low_s, found.false_green.high_s) == (0.0, 0.0)
        assert (found.false_red.low_s, found.false_red.high_s) == (0.0, 0.0)


def test_green_while_nothing_completes_is_false_for_so_long() -> None:
    found = seen(looks(always, but(6.0, 14.0)))
    lie = found.false_green
    assert lie.low_s <= 8.0 <= lie.high_s
    assert lie.high_s - lie.low_s < 2.0
    assert lie.longest_s == lie.low_s
    assert lie.since_s == pytest.approx(6.5)
    assert found.false_red.high_s == 0.0


def test_red_while_tokens_come_is_false_for_so_long() -> None:
    found = seen(looks(but(6.0, 14.0), always))
    assert found.false_red.low_s <= 8.0 <= found.false_red.high_s
    assert found.false_red.high_s - found.false_red.low_s < 2.1
    assert found.false_green.high_s == 0.0


def test_an_endpoint_that_does_not_answer_is_not_green() -> None:
    silent = [one for one in looks(always, but(6.0, 14.0)) if not ("green" in one.values and 6 <= one.at_s < 14)]
    found = seen([*silent, health(6.0, -1.0, 10.0)])
    assert found.false_green.low_s == 0.0


def test_an_answer_of_health_that_comes_too_late_counts_as_none() -> None:
    found = seen([*(one for one in looks(always, but(6, 14)) if not 6 <= one.at_s < 14), health(6.0, 1.0, 8.0)])
    assert found.false_green.low_s == 0.0


def test_a_busy_server_is_no_liar() -> None:
    """Nobody answers us for 8 s, but streams of the load go on all the while."""
    readings = looks(always, but(6.0, 14.0))
    busy = tuple(whole(place, 5.9 + 0.4 * place, itl_s=0.05) for place in range(22))
    assert seen(readings, samples=busy).false_green.low_s == 0.0
    assert seen(readings, uncounted=busy).false_green.low_s == 0.0
    stopped = seen(readings, samples=busy[:5]).false_green
    assert 5.0 < stopped.low_s < 6.5
    assert seen(readings, samples=busy[:5], within_s=20.0).false_green.low_s == 0.0


def test_refusals_at_once_are_no_completions() -> None:
    readings = [*(health(at_s) for at_s in _every(0.0, 9.0)), *(token(at_s, 0.0, 0.01) for at_s in _every(0.5, 9.5))]
    assert seen(readings).false_green.low_s > 7.0


def test_a_token_that_was_open_at_the_end_shows_nothing_before_its_deadline() -> None:
    readings = looks(always, always, until_s=8.0)
    early, late = token(8.5, 0.0, 0.9, open=1.0), token(8.5, 0.0, 3.0, open=1.0)
    assert seen([*readings, early]).false_green.high_s == 0.0
    more = [health(at_s) for at_s in _every(9.0, 12.0)]
    assert seen([*readings, late, *more]).false_green.low_s > 2.0


def test_a_look_that_was_told_while_it_was_open_counts_once_as_it_ended() -> None:
    before = looks(always, always, until_s=8.0)
    told = [token(8.5, 0.0, float(took_s), open=1.0) for took_s in range(1, 6)]
    more = [health(at_s) for at_s in _every(9.0, 14.0)]
    assert seen([*before, *told, *more]).false_green.low_s > 4.0
    assert seen([*before, *told, token(8.5, 1.0, 5.2), token(14.5), *more], within_s=6.0).false_green.high_s == 0.0
    assert seen([*before, *told, *more]).num_completions == seen([*before, told[0], *more]).num_completions


def test_one_green_look_beside_a_failure_is_not_yet_a_lie() -> None:
    readings = [health(1.0), health(2.0, 0.0), health(3.0), token(1.5), token(2.5, 0.0), token(3.5)]
    found = seen(readings)
    assert (found.false_green.low_s, found.false_green.high_s) == (0.0, 0.0)


def test_the_deadline_is_that_of_the_undisturbed_target() -> None:
    slow = [token(0.5, took_s=0.4), token(1.5, took_s=0.1), token(2.5, 0.0, took_s=9.0)]
    assert honesty.deadline_s(arm(slow)) == pytest.approx(4.0)
    assert honesty.deadline_s(arm([token(0.5)])) == honesty.DEADLINE_FLOOR_S
    assert honesty.deadline_s(None) == 10.0


def test_without_looks_there_is_nothing() -> None:
    assert honesty.honesty(arm([]), 1.0) is None
    assert honesty.honesty(None, 1.0) is None
    other = Reading(source="process", at_s=1.0, values={"green": 1.0})
    assert honesty.honesty(arm([other]), 1.0) is None


stretch = st.tuples(st.floats(1, 19), st.floats(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(stretch, max_size=3), st.lists(stretch, max_size=3))
def test_the_truth_is_never_less_than_what_is_known(
    reds: list[tuple[float, float]], hangs: list[tuple[float, float]]
) -> None:
    """Whatever a server does, what is called known is possible, lies inside the arm, and never counts twice."""
    green: State = lambda at_s: all(but(*one)(at_s) for one in reds)  # noqa: E731
    completes: State = lambda at_s: all(but(*one)(at_s) for one in hangs)  # noqa: E731
    found = seen(looks(green, completes))
    for lie in (found.false_green, found.false_red):
        assert 0.0 <= lie.longest_s <= lie.low_s <= lie.high_s <= 32.0
        assert (lie.since_s is None) == (lie.low_s == 0.0)
        assert lie.low_s > 0 or lie.high_s == 0
    if not hangs:
        assert found.false_green.low_s == 0.0
    if not reds:
        assert found.false_red.low_s == 0.0


# ── what is judged ───────────────────────────────────────────────────────────────────────────────


def test_a_liar_is_named_with_its_seconds() -> None:
    [found] = judgements(trial(looks(always, but(6.0, 14.0))))
    assert found.outcome is Outcome.HEALTH_LIED
    assert "health was green and nothing was completed for 6." in found.why
    assert found.why.endswith("in the fault arm")
    assert float(found.evidence["fault_false_green_s"] or 0) > 6
    assert found.evidence["control_false_green_s"] == 0.0


def test_a_liar_in_both_directions_and_both_arms_is_named_each_time() -> None:
    both = looks(but(0, 9), but(10, 20))
    assert outcomes(judgements(trial(both, looks(but(5, 10), always)))) == [Outcome.HEALTH_LIED] * 3


def test_an_honest_one_is_ok() -> None:
    [found] = judgements(trial(looks(but(6, 14), but(6, 14))))
    assert found.outcome is Outcome.OK
    assert found.why.endswith("looks, wrong for less than 1s")


def test_what_the_looks_cannot_tell_is_unknown() -> None:
    wrong = looks(always, but(6.0, 7.6))
    lie = seen(wrong).false_green
    assert lie.low_s < 1.8 < lie.high_s
    assert outcomes(judgements(trial(wrong), threshold_s=1.8)) == [Outcome.UNKNOWN]
    assert outcomes(judgements(trial(wrong), threshold_s=lie.high_s)) == [Outcome.OK]
    assert outcomes(judgements(trial(wrong), threshold_s=lie.low_s - 0.01)) == [Outcome.HEALTH_LIED]


def test_too_few_looks_are_unknown() -> None:
    bare = trial([health(1.0), token(1.5)], control=[])
    for one in (bare, replace(bare, fault=None), trial([health(1.0), health(2.0)], control=[])):
        assert outcomes(judgements(one)) == [Outcome.UNKNOWN]
