"""The scenarios that take processors and memory: what they plan after what they saw, and what their judges say."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from contextlab import registry
from contextlab.experiment import Arm, Asked, Experiment, FaultEvidence, Trial
from contextlab.model import Gauges, Knowledge, Limits, Outcome, ProcessEnd, Skip
from contextlab.scenarios.chaos import cpu_throttle, memory_squeeze
from tests.analysis.trial_samples import whole

TARGET = Knowledge(
    flavour="llama-server",
    model="m",
    limits=Limits(context_tokens=512),
    powers=frozenset({"completions", "process", "threads"}),
    decode_tokens_per_s=50.0,
    gauges=Gauges(memory_bytes=165 << 20),
)
ASKED = Asked(duration_s=12.0)


def seen(experiment: Experiment, num_streams: int, *, busy_threads: float = 1.0) -> Trial:
    """A trial whose streams all came while the fault acted."""
    evidence = FaultEvidence(name="cpu", engine="host", tally={"busy_threads": busy_threads})
    samples = tuple(whole(index, 4.5) for index in range(num_streams))
    arm = Arm(name="fault", length_s=12.0, samples=samples, evidence=(evidence,))
    return Trial(experiment=experiment, knowledge=TARGET, fault=arm)


def test_two_threads_are_compared_with_the_target_as_it_is() -> None:
    plan = cpu_throttle.plan(TARGET, ASKED, Random(0))
    alone = plan.send(None)
    assert isinstance(alone, Experiment)
    assert alone.settings == {}
    assert registry.shown_fault(alone.faults[0]) == "cpu:quota=200m@4s+4s"
    before = seen(alone, 8)
    two = plan.send(before)
    assert isinstance(two, Experiment)
    assert two.settings == {"threads": 2}
    assert two.load == alone.load
    assert list(cpu_throttle.judge(alone, before)) == []
    num_tokens = len(whole(0, 4.5).content_s)
    assert two.about == {"by_itself_tokens_per_s": 8 * num_tokens / 4.0, "by_itself_threads": 1.0}
    [collapsed] = cpu_throttle.judge(two, seen(two, 3, busy_threads=2.0))
    [close] = cpu_throttle.judge(two, seen(two, 5, busy_threads=2.0))
    assert (collapsed.outcome, close.outcome) == (Outcome.DEGRADED, Outcome.OK)
    assert collapsed.outcome in two.allowed
    assert collapsed.evidence["busy_threads"] == 2
    with pytest.raises(StopIteration):
        plan.send(None)


@pytest.mark.parametrize(
    ("num_streams", "busy_threads", "reason"), [(8, 2.0, "2 threads were busy"), (0, 1.0, "nothing was read")]
)
def test_nothing_is_compared_where_there_is_nothing_to_compare(
    num_streams: int, busy_threads: float, reason: str
) -> None:
    plan = cpu_throttle.plan(TARGET, ASKED, Random(0))
    alone = plan.send(None)
    assert isinstance(alone, Experiment)
    step = plan.send(seen(alone, num_streams, busy_threads=busy_threads))
    assert isinstance(step, Skip)
    assert reason in step.reason


def test_a_target_whose_threads_cannot_be_set_is_throttled_as_it_is() -> None:
    known = replace(TARGET, powers=frozenset({"completions", "process"}))
    assert len(list(cpu_throttle.plan(known, ASKED, Random(0)))) == 1


def test_loss_and_throttle_act_at_once() -> None:
    scenario = registry.scenarios("chaos")["loss-and-throttle"]
    [one] = [step for step in scenario.plan(TARGET, ASKED, Random(0)) if isinstance(step, Experiment)]
    assert [registry.shown_fault(placed) for placed in one.faults] == ["loss:rate=10%@4s+4s", "cpu:quota=500m@4s+4s"]


def test_memory_is_crowded_up_to_what_the_target_holds_then_taken() -> None:
    crowded, squeezed = memory_squeeze.plan(TARGET, ASKED, Random(0))
    assert isinstance(crowded, Experiment)
    assert isinstance(squeezed, Experiment)
    assert [registry.shown_fault(placed) for placed in crowded.faults] == [
        "memory:limit=165MiB@4s+4s",
        "balloon:size=100%,of=group@4.5s+3s",
    ]
    assert Outcome.CRASHED in squeezed.allowed - crowded.allowed
    skip, _ = memory_squeeze.plan(replace(TARGET, gauges=None), ASKED, Random(0))
    assert isinstance(skip, Skip)


@pytest.mark.parametrize(
    ("end", "outcomes"),
    [
        (None, []),
        (ProcessEnd(signal="SIGKILL", out_of_memory=True), []),
        (ProcessEnd(signal="SIGKILL", out_of_memory=False), [Outcome.UNKNOWN]),
        (ProcessEnd(signal="SIGSEGV", out_of_memory=False), [Outcome.UNKNOWN]),
    ],
)
def test_a_death_of_something_else_than_want_of_memory(end: ProcessEnd | None, outcomes: list[Outcome]) -> None:
    _, squeezed = memory_squeeze.plan(TARGET, ASKED, Random(0))
    assert isinstance(squeezed, Experiment)
    trial = seen(squeezed, 3)
    assert trial.fault is not None
    trial = replace(trial, fault=replace(trial.fault, server=end))
    assert [found.outcome for found in memory_squeeze.judge(squeezed, trial)] == outcomes
