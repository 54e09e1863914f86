"""How two sweeps are compared in words, and how amounts, settings and SLOs of a sweep are written."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from contextlab.analysis.axes import Axis
from contextlab.analysis.frontier import Direction, Interval
from contextlab.analysis.frontier import frontier as frontier_of
from contextlab.analysis.sweeps import Goal, objectives, points
from contextlab.analysis.tradeoffs import Comparison, Slo, compare
from contextlab.model import Settings
from contextlab.reports.pareto import facts as pareto_facts
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.pareto import text as pareto
from contextlab.reports.pareto.figures import amount, changed, ends, probability, settings_words, slo_text
from tests.reports import pareto_sample as sample

INF = math.inf


# ── old and new ──────────────────────────────────────────────────────────────────────────────────


def test_comparison_of_two_sweeps() -> None:
    what = sample.sweep(axes=(sample.AXES[0], Axis(name="concurrency", values=(1, 4))))
    told = sample.blocks(what, 3, noise=0.005)
    faster = [
        replace(one, values={**one.values, "tokens_per_s": (one.values["tokens_per_s"] or 0.0) * 1.2}) for one in told
    ]
    old, new = (
        frontier_of(points(what, each), objectives(what), seed=seed) for seed, each in enumerate((told, faster))
    )
    lines = pareto.comparison_lines("runs/a", "runs/b", compare(old, new, (100.0, 1.2)), ["tokens_per_s", "p99 ttft"])
    assert lines[0] == "runs/b against runs/a: better"
    assert re.fullmatch(r"hypervolume: \+\d+\.\d% \(\+\d+\.\d% to \+\d+\.\d%\)", lines[1])
    assert re.fullmatch(r"shift: \+20\.0% \(\+\d+\.\d% to \+\d+\.\d%\) of tokens_per_s at equal p99 ttft", lines[2])
    assert len(lines) == 3


def test_comparison_names_what_moved_and_what_is_not_known() -> None:
    nothing = Interval(value=-0.031, low=-INF, high=INF)
    settings: tuple[Settings, ...] = tuple({"slots": slots, "kv": "f16"} for slots in range(6))
    found = Comparison(hypervolume=nothing, shift=None, joined=settings[:1], left=settings[:2], missing=settings)
    assert pareto.comparison_lines("a\x1b", "b", found) == [
        "b against a\\x1b: not told apart",
        "hypervolume: −3.1% (no interval: nothing is known of the noise)",
        "shift: not told: there is no level of the second that both reach",
        "joined: slots=0 kv=f16 (on the frontier now, dominated before)",
        "left: slots=0 kv=f16; slots=1 kv=f16 (dominated now, on the frontier before)",
        "missing: slots=0 kv=f16; slots=1 kv=f16; slots=2 kv=f16 and 3 more (in only one of the two)",
    ]


# ── words ────────────────────────────────────────────────────────────────────────────────────────

WHAT = sample.sweep()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (amount(0.182, "s"), "182 ms"),
        (amount(1.5, "s"), "1.50 s"),
        (amount(412.0, "tokens/s"), "412 tokens/s"),
        (amount(7.93, "/s"), "7.93/s"),
        (amount(3 * 2**29, "bytes"), "1.50 GiB"),
        (amount(0.025, "share"), "2.5%"),
        (amount(4.0, ""), "4.00"),
        (amount(-2.0, "s"), "-2.00 s"),
        (ends(Interval(value=0.18, low=0.17, high=0.2), "s"), "170–200"),
        (ends(Interval(value=-3.0, low=-4.0, high=1.0), ""), "−4.00 to 1.00"),
        (ends(Interval(value=1.0, low=-INF, high=INF), "s"), ""),
        (changed(Interval(value=0.0001, low=-0.02, high=0.02)), "0.0% (−2.0% to +2.0%)"),
        (changed(Interval(value=math.nan, low=-INF, high=0.5)), "– (−∞ to +50.0%)"),
        (probability(0.999), ">0.99"),
        (probability(0.001), "<0.01"),
        (probability(0.41), "0.41"),
        (probability(1.0), "1.00"),
        (probability(None), ""),
        (slo_text(Slo(objective="p99 ttft", op="<", limit=0.2), WHAT), "p99 ttft < 200ms"),
        (slo_text(Slo(objective="p90 e2e", op="<=", limit=2.0), WHAT), "p90 e2e <= 2s"),
        (slo_text(Slo(objective="errors", op="<", limit=0.01), WHAT), "errors < 1%"),
        (slo_text(Slo(objective="goodput", op=">", limit=3.0), WHAT), "goodput > 3/s"),
        (settings_words({"slots": 2, "context": 2048, "concurrency": 4}, WHAT), "slots=2 concurrency=4"),
        (settings_words({"kv": True, "share": 0.25}, WHAT), "kv=true share=0.25"),
        (pareto_facts.duration(59.96), "60 s"),
        (pareto_facts.duration(60), "1 min"),
        (pareto_facts.duration(3725), "1 h 2 min 5 s"),
    ],
)
def test_words(words: str, expected: str) -> None:
    assert words == expected


def test_goals_that_are_high_or_low_are_told() -> None:
    goal = Goal(text="goodput", metric="goodput", quantile=None, direction=Direction.UP)
    assert pareto_figures.unit_of(goal) == "/s"
    assert pareto_figures.goal_names(sample.sweep(goals=(goal,))) == "goodput"
