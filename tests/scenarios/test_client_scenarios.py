"""The scenarios of misbehaving clients: what they plan, what their judges say, and a leak that a whole run finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from contextlab import registry
from contextlab.experiment import Arm, Asked, Experiment, FaultEvidence, Pace, Trial
from contextlab.model import Judgement, Knowledge, Limits, Outcome
from tests.analysis.trial_samples import KNOWN, LOAD, broken_off, whole
from tests.command import contextlab

NAMES = ("client-aborts", "slow-readers", "retry-storm")
SMALL = Knowledge(
    flavour="other",
    model="m",
    limits=Limits(context_tokens=512),
    powers=frozenset({"completions"}),
    decode_tokens_per_s=20.0,
    prefill_tokens_per_s=100.0,
)
UNKNOWN = replace(SMALL, limits=Limits(), decode_tokens_per_s=None, prefill_tokens_per_s=None)


def planned(name: str, known: Knowledge = SMALL) -> dict[str, Experiment]:
    """The experiments of a scenario by name."""
    plan = registry.scenarios("chaos")[name].plan(known, Asked(duration_s=12.0), Random(0))
    return {one.name: one for one in plan if isinstance(one, Experiment)}


def judged(name: str, *evidence: FaultEvidence, experiment: str = "x") -> list[Judgement]:
    """What the scenario's own judge says of an arm with a whole stream and a broken one."""
    judge = registry.scenarios("chaos")[name].judge
    assert judge is not None
    arm = Arm(name="fault", length_s=1.0, samples=(whole(0), broken_off(whole(1), 4)), evidence=evidence)
    one = Experiment(name=experiment, load=LOAD)
    found: Iterable[Judgement] = judge(one, Trial(experiment=one, knowledge=KNOWN, fault=arm))
    assert list(judge(one, Trial(experiment=one, knowledge=KNOWN))) == []
    return list(found)


def crowd(name: str, **tally: float) -> FaultEvidence:
    return FaultEvidence(name=name, engine="crowd", tally=tally)


@pytest.mark.parametrize("known", [SMALL, UNKNOWN], ids=["small", "unknown"])
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_asks_for_release_and_fits_into_the_window(name: str, known: Knowledge) -> None:
    for one in planned(name, known).values():
        assert one.release_within_s is not None
        [placed] = one.faults
        clients = int(placed.options.get("clients") or 2)
        assert clients * int(placed.options.get("reply_tokens") or 0) <= 512


def test_who_does_not_stream_leaves_beside_somebody_who_does() -> None:
    aborts = planned("client-aborts")
    assert aborts["no-stream"].load.arrivals.pace is Pace.CLOSED
    assert aborts["no-stream"].faults[0].length_s < aborts["stream"].faults[0].length_s
    assert aborts["prefill"].faults[0].options["wait_s"] == pytest.approx(
        0.25
    )  # a quarter of the second; 128 tokens take longer
    fast = planned("client-aborts", replace(SMALL, prefill_tokens_per_s=1000.0))["prefill"].faults[0]
    assert fast.options["wait_s"] == pytest.approx(0.032)  # a quarter of what 128 tokens take
    assert aborts["stream"].load == aborts["prefill"].load
    assert aborts["no-stream"].faults[0].options["wait_s"] == pytest.approx(0.5)
    fast = planned("client-aborts", replace(SMALL, decode_tokens_per_s=640.0))["no-stream"].faults[0]
    tokens = int(fast.options["reply_tokens"] or 0)
    assert fast.options["wait_s"] == pytest.approx(tokens / 640 / 2, abs=1e-3)  # half of what its answer takes


def test_no_try_of_a_storm_can_succeed() -> None:
    [storm] = planned("retry-storm").values()
    options = storm.faults[0].options
    assert float(options["timeout_s"] or 0) == pytest.approx(0.5 * float(options["reply_tokens"] or 0) / 20.0)


def test_what_aborts_cost_is_said() -> None:
    [found] = judged("client-aborts", crowd("abort", events=10.0, requests=5.0))
    assert found.outcome is Outcome.OK
    assert found.why == "61% of 23 generated tokens were used by nobody, by what came"
    assert found.evidence["tokens_delivered"] == 23


def test_a_half_closed_client_that_is_cut_off_is_reported_and_allowed() -> None:
    [found] = judged("slow-readers", crowd("half-open", half_closed=4.0, whole=1.0, cut=3.0))
    assert found.outcome is Outcome.CUT
    assert found.why.startswith("3 of 4 half-closed clients got no whole answer")
    assert judged("slow-readers", crowd("half-open", half_closed=4.0, whole=4.0, cut=0.0)) == []
    allowed = {name: Outcome.CUT in one.allowed for name, one in planned("slow-readers").items()}
    assert allowed == {"slow-reader": False, "never-reads": False, "half-open": True, "slow-loris": False}


def test_what_the_kernels_held_is_reported() -> None:
    tally = {"most_unread_bytes": 4000.0, "unread_bytes": 7000.0, "unsent_bytes": 20000.0}
    [found] = judged("slow-readers", crowd("never-reads", **tally))
    assert found.why == "up to 4000 bytes stood unread at one client; 27000 bytes in all were left in the kernels"
    assert judged("slow-readers", crowd("slow-loris", slow_bytes=9.0)) == []


def test_amplification_is_said() -> None:
    [found] = judged("retry-storm", crowd("retry-storm", asked=4.0, attempts=12.0, events=90.0))
    assert found.why.startswith("each question was asked 3.0 times, 91% of what was generated was used by nobody")
    assert found.evidence["retry_amplification"] == 3.0
    assert judged("retry-storm", crowd("retry-storm")) == []


@pytest.mark.process
@pytest.mark.timeout(150)
def test_a_planted_leak_is_found_by_a_whole_run(tmp_path: Path) -> None:
    settings = ("--set", "slots=64", "--set", "token_delay_s=0.02", "--timeout", "4s", "--rate", "8", "--json")
    ran = contextlab(
        "chaos", "fake:keeps-descriptor", "--scenario", "retry-storm", "--duration", "6s", *settings, cwd=tmp_path
    )
    assert ran.code == 1, ran.err
    found = [one for one in ran.document["findings"] if one["outcome"] == Outcome.NOT_RELEASED.name]
    assert len(found) == 1
    assert "file descriptors open" in found[0]["why"]
    assert found[0]["verdict"] == "FAIL"
