"""Budgets: what they say, and when they are kept, broken or neither."""

from __future__ import annotations

import pytest

from contextlab.analysis.gate.budgets import judge_budgets, metric_name, parse_budget
from contextlab.analysis.gate.judging import judge
from contextlab.analysis.gate.nouns import BudgetVerdict, GateVerdict, Plan
from contextlab.model import UsageError
from tests.analysis.gate.arms import TTFT, blocks, changed

PLAN = Plan(confirm=False)


@pytest.mark.parametrize(
    ("text", "metric", "op", "limit", "samples"),
    [
        ("ttft_p99 < 2s", "ttft_p99_s", "<", 2.0, 300),
        ("p90 itl <= 40ms", "itl_p90_s", "<", 0.04, 10),
        ("e2e_p50_s<1.5s", "e2e_p50_s", "<", 1.5, 1),
        ("tokens_per_s > 20/s", "tokens_per_s", ">", 20.0, 1),
    ],
)
def test_what_a_budget_says(text: str, metric: str, op: str, limit: float, samples: int) -> None:
    found = parse_budget(text)
    assert (found.metric, found.op, found.limit, found.min_samples) == (metric, op, limit, samples)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft_p98 < 2s", "did you mean ttft_p9"),
        ("ttft_p99", "must be a metric"),
        ("ttft_p99 < 2", "2 what?"),
        ("ttft_p99 > 2s", "holds what is worse"),
        ("tokens_per_s < 20", "holds what is worse"),
        ("tokens_per_s > 0", "must be above 0"),
        ("ttft_p50 < soon", "must be a duration"),
        ("ttft_p50 = 2s", "must be a metric, < or >"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_budget(text)
    assert words in f"{caught.value.message} {caught.value.next_step}"


def test_min_samples_is_at_least_one() -> None:
    with pytest.raises(UsageError, match="min_samples=0"):
        parse_budget("ttft_p99 < 2s", 0)


def test_a_metric_has_several_spellings() -> None:
    assert {metric_name(text) for text in ("ttft_p50", "ttft_p50_s", "p50 ttft", "P50 TTFT")} == {"ttft_p50_s"}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("ttft_p50 < 120ms", BudgetVerdict.KEPT),
        ("ttft_p50 < 90ms", BudgetVerdict.BROKEN),
        ("ttft_p50 < 100ms", BudgetVerdict.OPEN),
        ("itl_p50 < 100ms", BudgetVerdict.NOT_MEASURED),
    ],
)
def test_the_interval_decides(text: str, verdict: BudgetVerdict) -> None:
    [found] = judge_budgets([parse_budget(text)], blocks(), PLAN)
    assert found.verdict is verdict
    if found.value is not None and found.low is not None and found.high is not None:
        assert found.low < found.value < found.high


def test_more_is_better_for_tokens() -> None:
    every = blocks(name="tokens_per_s")
    kept, broken = judge_budgets(
        [parse_budget("tokens_per_s > 0.09"), parse_budget("tokens_per_s > 0.11")], every, PLAN
    )
    assert (kept.verdict, broken.verdict) == (BudgetVerdict.KEPT, BudgetVerdict.BROKEN)


def test_too_few_answers_are_no_pass() -> None:
    [found] = judge_budgets([parse_budget("ttft_p50 < 120ms", 101)], blocks(), PLAN)
    assert found.verdict is BudgetVerdict.NOT_MEASURED
    assert "101 answers" in found.why


def test_what_is_missing_in_a_block_is_no_pass_but_may_be_broken() -> None:
    every = changed(blocks(), (3,), metrics={})
    kept, broken = judge_budgets([parse_budget("ttft_p50 < 120ms"), parse_budget("ttft_p50 < 90ms")], every, PLAN)
    assert kept.verdict is BudgetVerdict.OPEN
    assert "9 of 10 blocks" in kept.why
    assert broken.verdict is BudgetVerdict.BROKEN


def test_a_broken_budget_fails_the_gate_although_nothing_regressed() -> None:
    result = judge(blocks(), [TTFT], PLAN, budgets=[parse_budget("ttft_p50 < 90ms")])
    assert (result.exit_code, result.verdict) == (1, GateVerdict.OVER_BUDGET)
    assert result.reasons[0][1].startswith("budget ttft_p50 < 90ms broken")


def test_a_budget_that_was_not_measured_is_no_pass() -> None:
    result = judge(blocks(), [TTFT], PLAN, budgets=[parse_budget("itl_p50 < 1s")])
    assert (result.exit_code, result.verdict) == (3, GateVerdict.NOT_MEASURED)


def test_contention_breaks_no_budget() -> None:
    budget = [parse_budget("ttft_p50 < 90ms")]
    [found] = judge_budgets(budget, blocks(), PLAN, contaminated=True)
    assert (found.verdict, found.why) == (BudgetVerdict.OPEN, "contaminated")
