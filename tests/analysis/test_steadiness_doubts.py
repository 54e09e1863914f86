"""What puts a trial in doubt, or ends it: no steady state before, no proof, a client that lagged, a death, a stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextlab.analysis.steadiness import gate, judge_trial
from contextlab.experiment import (
    GeneratorHealth,
)
from contextlab.model import Outcome, ProcessEnd
from tests.analysis.trial_samples import (
    FAULT,
    IDLE,
    NULL,
    PROVEN,
    arm,
    changed,
    during,
    experiment,
    healthy,
    late,
    missing,
    outcomes,
    refused,
    reset,
    steady,
    trial,
    unavailable,
    with_arm,
)

OK, UNKNOWN, BROKEN = Outcome.OK, Outcome.UNKNOWN, Outcome.BOUND_BROKEN
DAMAGED, CRASHED = Outcome.STREAM_DAMAGED, Outcome.CRASHED


# ── the gate ─────────────────────────────────────────────────────────────────────────────────────


def test_without_a_steady_state_nothing_is_concluded() -> None:
    bad = arm("control", changed(steady(), 5.0, 9.0, unavailable))
    found = judge_trial(trial(during(reset), control=bad))
    assert outcomes(found) == [UNKNOWN]
    assert found[0].why.startswith("nothing can be concluded about the faults: without them there is no steady state")
    assert "'errors < 1%'" in found[0].why
    assert found[0].evidence["control_failed_http_503"] == 80


def test_the_gate_is_also_before_the_faults() -> None:
    found = judge_trial(trial(changed(steady(seed=2), 4.0, 6.0, refused)))
    assert outcomes(found) == [UNKNOWN]
    assert "errors before" in found[0].why


def test_the_gate_can_be_asked_of_the_control_alone() -> None:
    assert gate(replace(trial(), fault=None)) is None
    alone = replace(trial(), fault=None, control=arm("control", changed(steady(), 5.0, 9.0, missing)))
    failed = gate(alone)
    assert failed is not None
    assert failed.outcome is UNKNOWN
    assert outcomes(judge_trial(alone)) == [UNKNOWN]
    died = gate(replace(alone, control=arm("control", steady(), server=ProcessEnd(signal="SIGKILL"))))
    assert died is not None
    assert died.outcome is CRASHED
    assert gate(replace(alone, control=arm("control", []))) is not None


def test_a_control_that_was_stopped_is_no_steady_state() -> None:
    stopped = arm("control", steady(), stopped="errors < 50%: errors was 60%")
    assert outcomes(judge_trial(trial(control=stopped))) == [UNKNOWN]


def test_an_arm_that_was_not_run_is_unknown() -> None:
    found = judge_trial(replace(trial(), fault=None))
    assert outcomes(found) == [UNKNOWN]
    assert "was not run" in found[0].why
    assert outcomes(judge_trial(replace(trial(), fault=arm("fault", [])))) == [UNKNOWN]
    assert outcomes(judge_trial(replace(trial(), fault=None, control=None))) == [UNKNOWN]


# ── proof and the client ─────────────────────────────────────────────────────────────────────────


def test_a_fault_that_is_not_proven_is_never_a_pass() -> None:
    found = judge_trial(trial(with_arm(steady(seed=2), evidence=(IDLE,))))
    assert outcomes(found) == [UNKNOWN]
    assert found[0].why == "the fault reset is not proven to have landed: no request reached that point"
    unrecorded = judge_trial(trial(with_arm(steady(seed=2), evidence=())))
    assert outcomes(unrecorded) == [UNKNOWN]
    assert "nothing was recorded of it" in unrecorded[0].why


def test_what_an_unproven_fault_would_explain_is_unknown_and_its_numbers_are_there() -> None:
    found = judge_trial(trial(with_arm(during(unavailable, every=4), evidence=(IDLE,))))
    assert outcomes(found) == [UNKNOWN]
    assert "so this stays unexplained: 'errors < 1%' does not hold" in found[0].why
    assert found[0].evidence["during_errors"] == pytest.approx(0.245, abs=0.005)
    cut = judge_trial(trial(with_arm(during(reset, every=4), evidence=(IDLE,))))
    assert outcomes(cut) == [UNKNOWN]


def test_wrong_text_is_damage_whatever_is_proven() -> None:
    found = judge_trial(trial(with_arm(during(missing, every=4), evidence=(IDLE,))))
    assert outcomes(found) == [DAMAGED, UNKNOWN]
    late_client = healthy(lateness_s=(0.1, 0.2, 0.3, 0.4))
    found = judge_trial(trial(with_arm(during(missing, every=4), generators=(late_client,))))
    assert outcomes(found) == [DAMAGED, UNKNOWN]


def test_one_unproven_fault_of_several_is_unknown_beside_the_others() -> None:
    two = experiment(faults=(FAULT, replace(FAULT, name="stall")))
    idle = replace(IDLE, name="stall")
    found = judge_trial(trial(with_arm(during(unavailable, every=4), evidence=(PROVEN, idle)), experiment=two))
    assert outcomes(found) == [BROKEN, UNKNOWN]
    quiet = judge_trial(trial(with_arm(steady(seed=2), evidence=(PROVEN, idle)), experiment=two))
    assert outcomes(quiet) == [UNKNOWN]
    none = judge_trial(trial(with_arm(during(unavailable, every=4), evidence=(NULL, idle)), experiment=two))
    assert outcomes(none) == [UNKNOWN]  # one that does nothing proves nothing of the other


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (healthy(lateness_s=(0.001, 0.01, 0.0201, 0.03)), "sent 20.1ms late (p99; at most 20ms)"),
        (healthy(cpu_s=27.6), "took 92% of a core"),
        (healthy(loop_lag_s=(0.001, 0.01, 0.06, 0.1)), "woke 60ms late"),
        (healthy(cpu_s=27.6, loop_lag_s=(0.001, 0.01, 0.06, 0.1)), "(and 1 more sign)"),
    ],
)
def test_a_client_that_lagged_measured_itself(health: GeneratorHealth, words: str) -> None:
    for made in (
        trial(with_arm(during(unavailable), generators=(healthy(), health))),
        trial(control=arm("control", steady(), generators=(health,))),
    ):
        found = judge_trial(made)
        assert outcomes(found) == [UNKNOWN]
        assert words in found[0].why
        assert "client_cpu_share" in found[0].evidence


def test_lateness_is_held_against_how_long_the_target_takes() -> None:
    slow = [late(one, 1.0) for one in steady(seed=2)]
    somewhat = healthy(lateness_s=(0.001, 0.01, 0.040, 0.1))
    made = trial(with_arm(slow, generators=(somewhat,)), control=arm("control", slow))
    assert outcomes(judge_trial(made)) == [OK]


# ── deaths and stops ─────────────────────────────────────────────────────────────────────────────


def test_a_crash_is_a_crash_whatever_else_is_not_known() -> None:
    end = ProcessEnd(signal="SIGKILL", out_of_memory=True, peak_memory_bytes=1 << 30)
    late_client = healthy(lateness_s=(0.1, 0.2, 0.3, 0.4))
    (found,) = judge_trial(trial(with_arm(during(refused), server=end, evidence=(IDLE,), generators=(late_client,))))
    assert found.outcome is CRASHED
    assert found.why.startswith("the server was killed by the kernel for want of memory")
    assert found.why.endswith(", in the arm with the faults")
    assert found.evidence["out_of_memory"] is True
    assert found.evidence["during_errors"] == pytest.approx(1.0, abs=0.03)
    (shell,) = judge_trial(trial(with_arm(steady(), server=ProcessEnd(exit_code=139))))
    assert "SIGSEGV" in shell.why
    (own,) = judge_trial(trial(control=arm("control", steady(), server=ProcessEnd(exit_code=1)), fault=None))
    assert own.why == "the server ended with exit code 1, without any fault"


def test_a_stop_for_safety_in_the_fault_is_a_broken_bound() -> None:
    cut_short = [one for one in during(refused) if one.due_s < 15.0]
    stopped = "errors < 50%: errors was 100% at 14.9 s"
    found = judge_trial(trial(with_arm(cut_short, stopped=stopped)))
    assert outcomes(found) == [BROKEN, BROKEN]
    assert found[0].why == f"the arm was stopped for safety: {stopped}"
    assert found[0].evidence["during_n"] == 104
    assert "after_n" not in found[0].evidence
    blind = judge_trial(trial(with_arm(cut_short, stopped=stopped, evidence=(IDLE,))))
    assert outcomes(blind) == [UNKNOWN]


def test_a_stop_before_the_fault_is_no_fault_of_it() -> None:
    early = [one for one in changed(steady(), 0.0, 9.0, refused) if one.due_s < 6.0]
    found = judge_trial(trial(with_arm(early, stopped="errors < 50%", evidence=(IDLE,))))
    assert outcomes(found) == [UNKNOWN]
    assert "stopped before the first of them" in found[0].why
