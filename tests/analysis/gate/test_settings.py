"""`[tool.contextlab.gate]`: what it may say, and that nothing else is taken in silence."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from contextlab.analysis.gate.nouns import METRICS
from contextlab.analysis.gate.settings import changed, read
from contextlab.model import UsageError

TODAY = date(2026, 11, 30)


def settings(**table: Any) -> Any:
    """The settings of a table."""
    return read(table, "gate", TODAY)


def test_nothing_said_is_the_usual() -> None:
    found = settings()
    assert found.metrics == METRICS
    assert (found.plan.blocks, found.plan.max_blocks, found.plan.confirm) == (10, 20, True)
    assert (found.budgets, found.waivers) == ((), ())


def test_everything_that_can_be_said() -> None:
    found = settings(
        blocks=8,
        max_blocks=16,
        confirm=False,
        requests=30,
        concurrency=2,
        metrics={
            "ttft_p50": {"margin": "8%", "floor": "3ms"},
            "itl_p90": {"margin": 0.2},
            "tokens_per_s": {"gating": False, "floor": 2},
        },
        budgets=[{"expr": "ttft_p99 < 2s", "min_samples": 300}],
        waivers=[{"metric": "itl_p50", "reason": "the new kernel", "expires": date(2026, 12, 31)}],
    )
    by_name = {one.name: one for one in found.metrics}
    assert (found.plan.blocks, found.plan.max_blocks, found.plan.confirm) == (8, 16, False)
    assert (found.load.num_requests, found.load.concurrency) == (30, 2)
    assert (by_name["ttft_p50_s"].margin, by_name["ttft_p50_s"].floor) == (0.08, 0.003)
    assert by_name["itl_p90_s"].gating
    assert not by_name["tokens_per_s"].gating
    assert found.budgets[0].min_samples == 300
    gated = {one.name for one in found.gated if one.gating}
    assert "itl_p50_s" not in gated
    assert "ttft_p50_s" in gated


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"block": 10}, "did you mean blocks?"),
        ({"blocks": "10"}, "must be a whole number"),
        ({"blocks": True}, "must be a whole number"),
        ({"blocks": 5}, "must be from 7"),
        ({"confirm": 1}, "must be true or false"),
        ({"requests": 2}, "must be from 5"),
        ({"metrics": []}, "must be a table"),
        ({"metrics": {"ttft_p51": {}}}, "did you mean ttft_p50?"),
        ({"metrics": {"ttft_p50": {"margn": "5%"}}}, "did you mean margin?"),
        ({"metrics": {"ttft_p50": {"margin": "a lot"}}}, "margin='a lot'"),
        ({"metrics": {"ttft_p50": {"margin": 0}}}, "must be above 0"),
        ({"metrics": {"ttft_p50": 5}}, "must be a table"),
        ({"budgets": {"expr": "ttft_p99 < 2s"}}, "must be a list of tables"),
        ({"budgets": [{"exp": "x"}]}, "did you mean expr?"),
        ({"budgets": [{}]}, "expr=None"),
        ({"waivers": [{"metric": "itl_p50", "expires": date(2027, 1, 1)}]}, "a waiver says why"),
        ({"waivers": [{"metric": "itl_p50", "reason": "x", "expires": "soon"}]}, "must be a day"),
        ({"waivers": [{"metric": "itl_p50", "reason": "x"}]}, "must be a day"),
        ({"waivers": [{"metric": "itl_p50", "reason": "x", "expires": "2026-11-29"}]}, "that day is over"),
        (
            {"waivers": [{"metric": "over.outcom", "reason": "x", "expires": "2027-01-01"}]},
            "did you mean over.outcome?",
        ),
        ({"waivers": [{"reason": "x", "expires": "2027-01-01"}]}, "must name what is waived"),
    ],
)
def test_what_cannot_be_meant_is_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(**table)
    assert words in f"{caught.value.message} {caught.value.next_step}"


def test_a_waiver_counts_on_its_last_day() -> None:
    [waiver] = settings(waivers=[{"metric": "over.outcome", "reason": "x", "expires": "2026-11-30"}]).waivers
    assert (waiver.name, waiver.expires) == ("over.outcome", "2026-11-30")


def test_the_command_line_wins() -> None:
    found = changed(settings(blocks=8, max_blocks=9), blocks=12, max_blocks=None, confirm=False, num_requests=9)
    assert (found.plan.blocks, found.plan.max_blocks, found.plan.confirm) == (12, 12, False)
    assert found.load.num_requests == 9
    assert changed(settings(), blocks=None, max_blocks=None) == settings()
