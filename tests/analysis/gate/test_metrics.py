"""What is said of a metric, and why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from contextlab.analysis.gate.metrics import blocks_to_decide, holm, judge_metrics, seen, value_of
from contextlab.analysis.gate.nouns import Block, Metric, MetricResult, MetricVerdict, Plan
from contextlab.analysis.gate.trimmed import Estimate
from contextlab.model import UsageError
from tests.analysis.gate.arms import SPEED, STEADY, TTFT, blocks, changed, measure

PLAN = Plan()
LOUD = tuple(8 * off for off in STEADY)


def judged(
    every: list[Block], metric: Metric = TTFT, plan: Plan = PLAN, confirming: list[Block] | None = None
) -> MetricResult:
    """One metric alone."""
    return judge_metrics(every, confirming or [], [metric], plan)[0]


def test_equal_arms_are_shown_to_be_equal() -> None:
    found = judged(blocks())
    assert found.verdict is MetricVerdict.OK
    assert found.ratio == pytest.approx(1.0, abs=0.01)
    assert found.low is not None
    assert found.ratio is not None
    assert found.high is not None
    assert 0.97 < found.low < found.ratio < found.high < 1.05
    assert found.num_blocks == 10
    assert found.confidence == pytest.approx(0.94)
    assert found.smallest_effect == pytest.approx(0.065, abs=0.01)


def test_worse_by_more_than_the_margin_must_come_again() -> None:
    fresh = blocks(1.2, start=11, confirming=True)
    once, twice = judged(blocks(1.2)), judged(blocks(1.2), confirming=fresh)
    assert once.verdict is MetricVerdict.UNCONFIRMED
    assert "no fresh block" in once.why
    assert twice.verdict is MetricVerdict.REGRESSED
    assert twice.confirmed_ratio == pytest.approx(1.2, rel=0.01)
    assert twice.num_confirming == 10
    gone = judged(blocks(1.2), confirming=blocks(1.0, start=11, confirming=True))
    assert gone.verdict is MetricVerdict.UNCONFIRMED
    assert "not again in 10 fresh blocks" in gone.why
    few = judged(blocks(1.2), confirming=fresh[:4])
    assert few.verdict is MetricVerdict.UNCONFIRMED
    assert "4 fresh blocks" in few.why
    assert judged(blocks(1.2), plan=Plan(confirm=False)).verdict is MetricVerdict.REGRESSED


def test_better_by_more_than_the_margin_is_improved() -> None:
    assert judged(blocks(0.8)).verdict is MetricVerdict.IMPROVED
    assert judged(blocks(0.98)).verdict is MetricVerdict.OK, "better by less than counts"


def test_where_more_is_better_less_is_worse() -> None:
    plan = Plan(confirm=False)
    slow = judged(blocks(0.8, name="tokens_per_s"), SPEED, plan)
    assert slow.verdict is MetricVerdict.REGRESSED
    assert slow.ratio == pytest.approx(0.8, rel=0.01)
    assert slow.low is not None
    assert slow.high is not None
    assert slow.low < 0.8 < slow.high < 0.9
    assert judged(blocks(1.2, name="tokens_per_s"), SPEED, plan).verdict is MetricVerdict.IMPROVED


def test_noise_that_reaches_across_the_margin_is_inconclusive_and_says_how_long() -> None:
    found = judged(blocks(1.0, noise=LOUD))
    assert found.verdict is MetricVerdict.INCONCLUSIVE
    assert found.blocks_to_decide is not None
    assert found.blocks_to_decide > 10
    assert f"{found.blocks_to_decide} blocks" in found.why
    at_margin = judged(blocks(1.05, noise=LOUD))
    assert at_margin.blocks_to_decide is None
    assert "200 blocks would not decide" in at_margin.why


def test_how_many_blocks_decide() -> None:
    harm = Estimate(mean=0.0, error=0.02, degrees=5, n=10)
    assert blocks_to_decide(harm, 0.05, 0.05, 0.0125) == 13  # (1.860 + 0.889) · 0.02 · √(10/13)
    assert blocks_to_decide(replace(harm, error=0.03), 0.05, 0.05, 0.0125) == 25
    assert blocks_to_decide(replace(harm, mean=0.0501), 0.05, 0.05, 0.0125) is None
    worse, better = replace(harm, mean=0.08), replace(harm, mean=0.02)
    assert (blocks_to_decide(worse, 0.05, 0.05, 0.01) or 0) > (blocks_to_decide(better, 0.05, 0.05, 0.01) or 999)


def test_the_floor_widens_the_margin_and_no_more() -> None:
    floored = replace(TTFT, floor=0.03)  # of 0.1 s that is 30 %
    found = judged(blocks(1.2), floored)
    assert found.verdict is MetricVerdict.OK
    assert found.margin == pytest.approx(0.3, rel=0.02)
    assert judged(blocks(1.5), floored).verdict is MetricVerdict.UNCONFIRMED
    assert judged(blocks(1.2), replace(TTFT, floor=0.001)).margin == pytest.approx(0.05)


def test_what_is_missing_is_no_pass() -> None:
    assert judged(changed(blocks(), range(1, 11), metrics={})).verdict is MetricVerdict.NOT_MEASURED
    assert judged([], TTFT).verdict is MetricVerdict.NOT_MEASURED
    four = judged(changed(blocks(), range(1, 5), metrics={}))
    assert four.verdict is MetricVerdict.NOT_MEASURED
    assert four.why == "measured in 6 of 10 blocks"
    two = judged(changed(blocks(), (3, 7), metrics={}))
    assert two.verdict is MetricVerdict.INCONCLUSIVE
    assert "missing in blocks 3, 7" in two.why
    assert judged(changed(blocks(0.5), (3,), metrics={})).verdict is MetricVerdict.INCONCLUSIVE
    assert judged(changed(blocks(1.5), (3,), metrics={})).verdict is MetricVerdict.UNCONFIRMED
    few = judged(blocks(noise=STEADY[:5]))
    assert few.verdict is MetricVerdict.INCONCLUSIVE
    assert "takes 7" in few.why


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_number_of_which_there_is_no_logarithm_is_not_measured(value: float) -> None:
    assert value_of(measure({"ttft_p50_s": value}), TTFT) is None
    found = judged(changed(blocks(), (2,), metrics={"ttft_p50_s": value}))
    assert (found.verdict, found.num_blocks) == (MetricVerdict.INCONCLUSIVE, 9)


def test_an_arm_that_died_or_answered_nothing_has_no_value() -> None:
    assert value_of(measure(died="SIGKILL"), TTFT) is None
    assert value_of(measure(num_failed=100), TTFT) is None
    assert value_of(None, TTFT) is None


def test_a_percentile_of_too_few_requests_does_not_gate() -> None:
    rare = replace(TTFT, min_requests=300)
    found = judged(blocks(2.0), rare)
    assert (found.verdict, found.gating) == (MetricVerdict.NOT_MEASURED, False)
    assert found.why == "takes 300 requests in each block, and these have 100"
    many = {"num_requests": 300}
    assert judged(blocks(2.0, base=many, candidate=many), rare).verdict is MetricVerdict.UNCONFIRMED
    failing = judged(blocks(2.0, base=many, candidate={**many, "num_failed": 1}), rare)
    assert (failing.verdict, failing.gating) == (MetricVerdict.NOT_MEASURED, True), "failures are no way out"


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_metric_that_only_its_company_saves_is_inconclusive_and_says_so() -> None:
    names = [f"metric_{number}" for number in range(8)]
    many = [Metric(name=name) for name in names]
    every = []
    for block in blocks(1.0):
        first = block.candidate.metrics["ttft_p50_s"] if block.candidate else 0.1
        candidate = dict.fromkeys(names, first) | {names[0]: 0.1 * (1.065 * (first / 0.1) ** 1.8)}
        every.append(replace(block, base=measure(dict.fromkeys(names, 0.1)), candidate=measure(candidate)))
    alone, among = judge_metrics(every, [], many[:1], PLAN)[0], judge_metrics(every, [], many, PLAN)[0]
    assert alone.verdict is MetricVerdict.UNCONFIRMED
    assert among.verdict is MetricVerdict.INCONCLUSIVE
    assert "as one of 8" in among.why
    assert among.p == alone.p
    assert among.p_holm == pytest.approx(8 * (alone.p or 0))


def test_a_metric_that_does_not_gate_costs_the_others_nothing() -> None:
    two = [TTFT, replace(SPEED, gating=False)]
    every = [
        replace(
            block,
            base=measure({"ttft_p50_s": 0.1, "tokens_per_s": 40}),
            candidate=measure({"ttft_p50_s": 0.13, "tokens_per_s": 20.0 + block.number / 100}),
        )
        for block in blocks()
    ]
    ttft, speed = judge_metrics(every, [], two, PLAN)
    assert ttft.p_holm == ttft.p
    assert (speed.p_holm, speed.gating, speed.verdict) == (None, False, MetricVerdict.UNCONFIRMED)


def test_stored_records_are_compared_without_pairs() -> None:
    plan = Plan(paired=False, confirm=False)
    every = blocks(1.2)
    longer = [*every, Block(number=11, candidate=measure({"ttft_p50_s": 0.121}))]
    found = judged(longer, plan=plan)
    assert (found.verdict, found.num_blocks) == (MetricVerdict.REGRESSED, 10)
    lacking = judged([*blocks(), Block(number=11, candidate=measure({"itl_p50_s": 1}))], plan=plan)
    assert lacking.verdict is MetricVerdict.INCONCLUSIVE
    assert "missing in block 11" in lacking.why
    assert seen(TTFT, longer[:1], plan).harm is None


def test_a_metric_or_a_plan_that_cannot_be_meant_is_refused() -> None:
    for facts in ({"margin": 0.0}, {"margin": 20.0}, {"floor": -1.0}, {"better": "smaller"}, {"min_requests": 0}):
        with pytest.raises(UsageError, match="metric x"):
            Metric(name="x", **facts)
    for num, most in ((6, 20), (12, 10)):
        with pytest.raises(UsageError, match=f"blocks={num}"):
            Plan(blocks=num, max_blocks=most)
    assert (Plan().alpha, Plan(max_blocks=10).alpha) == (0.03, 0.05)
