"""A trial of which nothing is in doubt is judged by what it broke, with the numbers that show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.analysis.bounds import parse_bounds
from contextlab.analysis.grounds import evidence
from contextlab.analysis.steadiness import judge_trial
from contextlab.analysis.study import study
from contextlab.experiment import (
    Arrivals,
    Ending,
    Extra,
    FaultEvidence,
    Pace,
    Phase,
    Sample,
    Trial,
)
from contextlab.model import Layer, Outcome
from tests.analysis.trial_samples import (
    FAULT,
    IDLE,
    LOAD,
    NULL,
    PIECES,
    PROVEN,
    REFERENCES,
    arm,
    changed,
    during,
    experiment,
    late,
    missing,
    outcomes,
    refused,
    reset,
    steady,
    timed_out,
    trial,
    unavailable,
    whole,
    with_arm,
)

OK, UNKNOWN, BROKEN = Outcome.OK, Outcome.UNKNOWN, Outcome.BOUND_BROKEN
DAMAGED, LOST = Outcome.STREAM_DAMAGED, Outcome.NOT_RECOVERED


# ── what holds ───────────────────────────────────────────────────────────────────────────────────


def test_a_fault_that_landed_and_broke_nothing_is_ok_with_the_numbers() -> None:
    (found,) = judge_trial(trial())
    assert found.outcome is OK
    assert found.why == "held during and after: errors < 1%, integrity = 100%, backlog < 50; it never left it"
    numbers = found.evidence
    assert numbers["control_n"] == 560
    assert (numbers["before_n"], numbers["during_n"], numbers["after_n"]) == (156, 204, 200)
    assert numbers["during_ttft_p50_s"] == pytest.approx(0.05, abs=0.003)
    assert numbers["during_ttft_p99_s"] == "insufficient"
    assert numbers["control_ttft_p99_s"] == pytest.approx(0.06, abs=0.001)
    assert numbers["during_errors"] == 0.0
    assert numbers["during_integrity"] == 1.0
    assert numbers["load"] == "open loop"
    assert numbers["before_vs_control_ttft_p50"] == pytest.approx(1.0, abs=0.05)
    assert numbers["before_vs_control_ttft_p50_low"] < 1.0 < numbers["before_vs_control_ttft_p50_high"]  # type: ignore[operator]
    assert numbers["during_vs_control_ttft_p90"] == pytest.approx(1.0, abs=0.05)
    assert numbers["reset_applied"] == 12.0
    assert numbers["recovery_s"] == 0.0


def test_a_null_fault_needs_no_proof() -> None:
    found = judge_trial(trial(with_arm(steady(seed=2), evidence=(NULL,))))
    assert outcomes(found) == [OK]
    assert "before_minus_control_ttft_p50_s" in found[0].evidence


def test_a_closed_loop_says_what_it_hides() -> None:
    load = replace(LOAD, arrivals=Arrivals(pace=Pace.CLOSED, concurrency=4))
    found = judge_trial(trial(experiment=experiment(load=load)))
    assert str(found[0].evidence["load"]).startswith("closed")


def test_numbers_that_nothing_reached_are_said_and_can_be_written_down() -> None:
    found = judge_trial(trial(during(timed_out)))
    numbers = next(one for one in found if one.outcome is BROKEN).evidence
    assert numbers["during_ttft_p50_s"] == "> all"
    assert numbers["failed_timeout"] == 200
    assert msgspec.json.decode(msgspec.json.encode(numbers)) == numbers


def test_a_load_without_any_fault_is_judged_as_a_whole() -> None:
    plain = experiment(faults=())
    (found,) = judge_trial(trial(arm("fault", steady(seed=2)), experiment=plain, control=None))
    assert found.outcome is OK
    assert found.layer is Layer.ENGINE
    assert found.evidence["during_n"] == 560
    bad = judge_trial(trial(arm("fault", during(refused)), experiment=plain, control=None))
    assert outcomes(bad) == [BROKEN]


def test_an_extra_load_is_the_disturbance() -> None:
    extra = Extra(load=replace(LOAD, duration_s=5.0), start_s=7.5)
    found = judge_trial(trial(arm("fault", steady(seed=2)), experiment=experiment(faults=(), extra=extra)))
    assert outcomes(found) == [OK]
    assert found[0].evidence["during_n"] == 104


# ── what is broken ───────────────────────────────────────────────────────────────────────────────


def test_a_bound_broken_by_a_proven_fault() -> None:
    found = judge_trial(trial(during(unavailable, every=4)))
    assert outcomes(found) == [BROKEN]
    assert found[0].why.startswith("'errors < 1%' does not hold during the faults: errors during: 24")
    assert found[0].evidence["failed_http_503"] == 50
    assert found[0].evidence["during_observed"] == pytest.approx(0.245, abs=0.005)
    assert found[0].layer is Layer.GATEWAY


def test_damaged_streams_are_counted_by_name_and_by_who_notices() -> None:
    samples = changed(during(reset, every=4), 10.0, 20.0, missing, every=7)
    found = {one.outcome: one for one in judge_trial(trial(samples))}
    assert set(found) == {BROKEN, DAMAGED}
    damaged = found[DAMAGED]
    assert "streams were damaged during the faults: " in damaged.why
    assert "RESET" in damaged.why
    assert "MISSING" in damaged.why
    assert damaged.evidence["noticed_by_nobody"] == damaged.evidence["damaged_events_missing"]
    assert damaged.evidence["noticed_by_transport"] == damaged.evidence["damaged_reset"]
    [one] = [found for found in judge_trial(trial(during(reset, every=1000))) if found.outcome is DAMAGED]
    assert " streams was damaged during the faults: 1 RESET" in one.why


def test_wrong_text_is_damage_also_where_the_hypothesis_does_not_speak_of_integrity() -> None:
    for texts in ((), ("errors < 50%",)):
        asked = replace(experiment(), hypothesis=parse_bounds(texts))
        assert outcomes(judge_trial(trial(during(missing, every=4), experiment=asked))) == [DAMAGED]
        assert outcomes(judge_trial(trial(during(reset, every=4), experiment=asked))) == [OK]  # who reads it is told
        bad = arm("control", changed(steady(), 5.0, 9.0, missing))
        assert outcomes(judge_trial(trial(control=bad, experiment=asked))) == [UNKNOWN]


def test_damage_counts_where_the_bound_on_integrity_must_hold() -> None:
    lenient = experiment("errors < 50%", "integrity > 50%")
    assert outcomes(judge_trial(trial(during(missing, every=4), experiment=lenient))) == [OK]
    later = experiment("errors < 50%", "integrity = 100% after")
    assert outcomes(judge_trial(trial(during(missing, every=4), experiment=later))) == [OK]


def test_where_nothing_is_asked_nothing_is_broken() -> None:
    asked = replace(experiment(), hypothesis=())
    for change in (refused, unavailable, lambda one: late(one, 2.0)):
        (found,) = judge_trial(trial(during(change, until_s=30.0), experiment=asked))
        assert (found.outcome, found.why) == (OK, "no bound was to hold; no text was wrong")


def test_a_bound_on_time_with_too_few_requests_is_unknown() -> None:
    found = judge_trial(trial(experiment=experiment("p99 ttft < 800ms", "errors < 1%")))
    assert outcomes(found) == [UNKNOWN]
    assert "needs 368" in found[0].why


def test_a_broken_bound_does_not_hide_behind_one_that_is_undecided() -> None:
    asked = experiment("p99 ttft < 800ms", "errors < 1%")
    assert set(outcomes(judge_trial(trial(during(refused, every=4), experiment=asked)))) == {BROKEN, UNKNOWN}


def test_no_request_in_the_fault_is_unknown() -> None:
    few = [one for one in steady(seed=2) if not 9.0 <= one.due_s < 20.0]
    found = judge_trial(trial(few))
    assert outcomes(found) == [UNKNOWN]
    assert "no request belongs to during" in found[0].why


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────


def test_a_steady_state_that_does_not_come_back() -> None:
    found = {one.outcome: one for one in judge_trial(trial(during(unavailable, until_s=30.0)))}
    assert set(found) == {BROKEN, LOST}
    assert found[LOST].why.startswith("it did not come back within 10s of the last fault")
    assert "'errors < 1%'" in found[LOST].why
    assert found[LOST].evidence["recovery_s"] == "never"


def test_what_is_broken_afterwards_alone_is_a_matter_of_recovery() -> None:
    samples = changed(steady(seed=2), 20.5, 30.0, unavailable)
    assert outcomes(judge_trial(trial(samples))) == [LOST]


@pytest.mark.parametrize(("within_s", "expected"), [(None, [BROKEN]), (5.0, [OK]), (2.0, [LOST])])
def test_the_time_granted_for_recovery(within_s: float | None, expected: list[Outcome]) -> None:
    samples = changed(steady(seed=2), 20.0, 23.0, unavailable)
    found = judge_trial(trial(samples, experiment=experiment(recovery_within_s=within_s)))
    assert outcomes(found) == expected
    assert found[0].evidence["recovery_s"] == 3.0


def test_slow_is_not_recovered_either() -> None:
    samples = changed(steady(seed=2), 20.0, 30.0, lambda one: late(one, 0.3))
    found = judge_trial(trial(samples))
    assert outcomes(found) == [LOST]
    assert "p90 ttft < 2x before" in found[0].why


def test_a_bound_that_never_holds_in_short_windows_says_nothing_of_recovery() -> None:
    noisy = changed(steady(), 0.0, 30.0, lambda one: late(one, 0.2), every=4)  # in every window, before the fault too
    found = judge_trial(trial(noisy, control=arm("control", noisy), experiment=experiment("p50 ttft < 80ms")))
    assert outcomes(found) == [OK]
    strict = study(trial(noisy, experiment=experiment("max ttft < 80ms after")))
    assert "max ttft < 80ms after" not in [bound.text for bound in strict.recovery_bounds]


def test_what_is_as_slow_at_that_time_without_any_fault_is_not_lost_by_the_faults() -> None:
    slow = changed(steady(seed=2), 20.0, 30.0, lambda one: late(one, 0.3))  # the schedule is dense there
    same = study(found := trial(slow, control=arm("control", slow)))
    assert outcomes(judge_trial(found)) == [OK]
    assert [bound.text for bound in same.recovery_bounds][-1] == "p90 ttft < 2x control after"
    slower = changed(steady(seed=2), 20.0, 30.0, lambda one: late(one, 2.0))
    assert outcomes(judge_trial(trial(slower, control=arm("control", slow)))) == [LOST]
    elsewhere = changed(steady(seed=2), 10.0, 20.0, lambda one: late(one, 0.3))
    assert outcomes(judge_trial(trial(slow, control=arm("control", elsewhere)))) == [LOST]


def test_too_short_a_time_after_the_fault_cannot_show_recovery() -> None:
    long = replace(FAULT, length_s=19.0)
    assert outcomes(judge_trial(trial(experiment=experiment(faults=(long,))))) == [OK]
    found = judge_trial(trial(experiment=experiment(faults=(long,), recovery_within_s=0.5)))
    assert outcomes(found) == [UNKNOWN]
    assert "too little was seen after the last fault" in found[0].why


# ── always ───────────────────────────────────────────────────────────────────────────────────────


CHANGES: dict[str, Callable[[Sample], Sample]] = {
    "nothing": lambda one: one,
    "refused": refused,
    "timed out": timed_out,
    "reset": reset,
    "missing": missing,
    "late": lambda one: late(one, 2.0),
    "unavailable": unavailable,
}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(list(CHANGES)),
    st.integers(1, 50),
    st.sampled_from([PROVEN, IDLE, NULL, None]),
    st.booleans(),
    st.sampled_from([(), ("p90 ttft < 800ms",), ("errors < 1%", "p50 ttft < 3x before"), ("goodput > 10/s during",)]),
    st.integers(0, 400),
)
def test_every_trial_is_judged_and_no_unproven_fault_passes(
    change: str, every: int, proof: FaultEvidence | None, control: bool, hypothesis: tuple[str, ...], num: int
) -> None:
    samples = changed(steady(20.0, 30.0, seed=3)[:num], 10.0, 20.0, CHANGES[change], every)
    fault = with_arm(samples, evidence=() if proof is None else (proof,))
    asked = replace(experiment(), hypothesis=parse_bounds(hypothesis))
    made = trial(fault, experiment=asked, control=arm("control", steady()) if control else None)
    found = judge_trial(made)
    assert found
    assert all(one.why for one in found)
    if proof in (IDLE, None):
        assert OK not in outcomes(found)
    if OK in outcomes(found):
        assert outcomes(found) == [OK]
    for one in found:
        msgspec.json.decode(msgspec.json.encode(dict(one.evidence)))


def test_references_are_learnt_where_none_were_taken() -> None:
    seen = study(replace(trial(during(missing, every=4)), references=()))
    assert seen.references == REFERENCES
    assert seen.measured[Phase.DURING].damage.total() == 50
    alone = study(replace(trial(), control=None, references=()))
    assert alone.references == REFERENCES
    early = replace(FAULT, start_s=0.0, length_s=20.0)
    assert "p90 ttft < 2x control after" in [
        bound.text for bound in study(trial(experiment=experiment(faults=(early,)))).recovery_bounds
    ]
    assert evidence(alone)["before_integrity"] == 1.0


def test_texts_that_cannot_be_compared_are_counted() -> None:
    variants = tuple((*PIECES[:2], f" {number}") for number in range(5))
    found = judge_trial(replace(trial(), references=(variants, REFERENCES[1])))
    assert outcomes(found) == [OK]
    assert found[0].evidence["texts_not_compared"] == 560


def test_one_long_stall_of_the_target_is_many_bad_requests() -> None:
    paused = tuple(late(one, 20.0 - one.due_s) if 10.0 <= one.due_s < 20.0 else one for one in steady(seed=2))
    found = judge_trial(trial(paused, experiment=experiment("p50 ttft < 1s", "backlog < 50")))
    assert outcomes(found) == [BROKEN, BROKEN]
    assert found[0].evidence["during_backlog"] == pytest.approx(200, abs=5)


def test_a_single_odd_sample_breaks_no_judge() -> None:
    bare = Sample(index=0, mixed=7, due_s=12.0, ending=Ending.UNSENT)
    assert judge_trial(trial([bare]))
    assert judge_trial(
        Trial(experiment=experiment(), knowledge=trial().knowledge, fault=arm("fault", [whole(0, 12.0)]))
    )
