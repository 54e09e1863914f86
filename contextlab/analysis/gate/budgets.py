"""Budgets: bounds that the candidate must keep by itself, such as `ttft_p99 < 2s`; pure.

    [value of each block, in ln] ─▶ trimmed mean ─▶ broken: beyond the limit, as shown │ kept: inside it, as shown
                                                  ─▶ open: the interval holds the limit

A block with too few answers has no value, and no value in a block is no pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Literal

from contextlab.analysis import quantities
from contextlab.analysis.gate.nouns import Block, Budget, BudgetResult, BudgetVerdict, Measure, Plan
from contextlab.analysis.gate.trimmed import trimmed
from contextlab.analysis.quantities import count
from contextlab.model import UsageError

MEASURED = ("ttft", "itl", "e2e")
QUANTILES = (50, 90, 99)
NAMES = (*(f"{name}_p{q}_s" for name in MEASURED for q in QUANTILES), "tokens_per_s")
"""Every metric that a block has."""
SAMPLES = {50: 1, 90: 10, 99: 300}
"""Answers in a block that a quantile takes where nobody says otherwise."""
MIN_BLOCKS = 3
_FORM = re.compile(r"\s*([A-Za-z_0-9 ]+?)\s*([<>=!]+)\s*(\S.*?)\s*")
_EXAMPLE = "for example 'ttft_p99 < 2s' or 'tokens_per_s > 20'"


def metric_name(text: str, names: Collection[str] = NAMES) -> str:
    """The metric that the user means: `ttft_p99`, `ttft_p99_s` or `p99 ttft`. Raises UsageError with the likely one."""
    word = "_".join(text.lower().split())
    if found := re.fullmatch(r"(p\d+)_(\w+)", word):
        word = f"{found[2]}_{found[1]}"
    for name in (word, f"{word}_s"):
        if name in names:
            return name
    shown = [name.removesuffix("_s") if name != "tokens_per_s" else name for name in sorted(names)]
    close = get_close_matches(word, shown, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"metric={text!r}: there is no such metric", f"{hint}the metrics are {', '.join(shown)}")


def parse_budget(text: str, min_samples: int | None = None) -> Budget:
    """The budget that a text says; `min_samples` None: what its quantile takes. Raises UsageError."""
    found = _FORM.fullmatch(text)
    if found is None or found[2] not in ("<", ">", "<=", ">="):
        raise UsageError(f"budget {text!r}: must be a metric, < or >, and a value", _EXAMPLE)
    metric = metric_name(found[1])
    op: Literal["<", ">"] = "<" if found[2].startswith("<") else ">"
    better = "less" if metric.endswith("_s") and metric != "tokens_per_s" else "more"
    if (op == "<") != (better == "less"):
        raise UsageError(f"budget {text!r}: {better} is better, so this holds what is worse", _EXAMPLE)
    if better == "less" and re.fullmatch(r"[\d.]+", found[3]):
        raise UsageError(f"budget {text!r}: {found[3]} what?", f"say the unit: {found[3]}ms or {found[3]}s")
    try:
        limit = quantities.duration(found[3]) if better == "less" else float(found[3].removesuffix("/s"))
    except ValueError as error:
        raise UsageError(f"budget {text!r}: {found[3]!r}: must be {error}", _EXAMPLE) from None
    if not 0 < limit < math.inf:
        raise UsageError(f"budget {text!r}: {found[3]!r}: must be above 0", _EXAMPLE)
    if min_samples is not None and min_samples < 1:
        raise UsageError(f"budget {text!r}: min_samples={min_samples}: must be 1 or more", "leave it out, or say 300")
    usual = SAMPLES[int(quantile[1])] if (quantile := re.search(r"_p(\d+)_s$", metric)) else 1
    return Budget(text=" ".join(text.split()), metric=metric, op=op, limit=limit, min_samples=min_samples or usual)


def judge_budgets(
    budgets: Sequence[Budget], blocks: Sequence[Block], plan: Plan, *, contaminated: bool = False
) -> tuple[BudgetResult, ...]:
    """Each budget on these blocks, which count; `contaminated`: none of their times proves anything."""
    return tuple(_result(budget, blocks, plan, contaminated=contaminated) for budget in budgets)


def _result(budget: Budget, blocks: Sequence[Block], plan: Plan, *, contaminated: bool) -> BudgetResult:
    arms = [block.candidate for block in blocks if block.candidate is not None]
    values = [value for arm in arms if (value := _value(budget, arm)) is not None]
    num = len(values)
    found = BudgetResult(budget=budget, verdict=BudgetVerdict.NOT_MEASURED, why="", num_blocks=num)
    if num < MIN_BLOCKS:
        needs = f"{budget.min_samples} answers or more" if budget.min_samples > 1 else "an answer"
        return _with(found, f"{num} of {count(len(arms), 'block')} had {needs}: it takes {MIN_BLOCKS}")
    mean = trimmed([math.log(value) for value in values])
    low, high = (math.exp(end) for end in mean.ends(plan.alpha))
    found = replace(found, verdict=BudgetVerdict.OPEN, value=math.exp(mean.mean), low=low, high=high)
    if contaminated:
        return _with(found, "contaminated")
    limit = math.log(budget.limit)
    above, below = mean.p_above(limit) < plan.alpha, mean.p_below(limit) < plan.alpha
    if above if budget.op == "<" else below:
        return _with(found, f"beyond it in {count(num, 'block')}, as shown", BudgetVerdict.BROKEN)
    if num < len(arms):
        return _with(found, f"measured in {num} of {count(len(arms), 'block')}: what is not measured is no pass")
    if below if budget.op == "<" else above:
        return _with(found, f"kept in {count(num, 'block')}, as shown", BudgetVerdict.KEPT)
    return _with(found, "the interval reaches across the limit")


def _with(found: BudgetResult, why: str, verdict: BudgetVerdict | None = None) -> BudgetResult:
    return replace(found, why=why, verdict=verdict or found.verdict)


def _value(budget: Budget, arm: Measure) -> float | None:
    if arm.died or arm.num_requests - arm.num_failed < budget.min_samples:
        return None
    value = arm.metrics.get(budget.metric)
    return value if value is not None and 0 < value < math.inf else None
