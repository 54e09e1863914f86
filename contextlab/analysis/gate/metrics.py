"""What can be said of each metric, from the ratios of its blocks; pure.

effect   d = ln(candidate / base) of each block, its sign turned where more is better: above 0 is worse
test     H₀ "d ≤ ln(1 + margin)", one-sided, Yuen's trimmed t (`trimmed`); better: the same of −d
family   Holm's step-down over the metrics that gate (S. Holm, Scand. J. Statist. 6 (1979), 65-70)
verdict  REGRESSED   Holm's p below the level, and again in fresh blocks
         IMPROVED    the mirrored test, with the same margin: swapped arms swap these two
         OK          the upper end of the interval is inside the margin: shown, not assumed
         else INCONCLUSIVE; a metric that is missing in a block is never OK
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from contextlab.analysis.gate.nouns import (
    CONFIRMING_LEVEL,
    MIN_BLOCKS,
    Block,
    Measure,
    Metric,
    MetricResult,
    MetricVerdict,
    Plan,
)
from contextlab.analysis.gate.trimmed import Estimate, reach, trimmed, trimmed_difference, with_blocks
from contextlab.analysis.quantities import count

MANY_BLOCKS = 200
"""More than this nobody runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the blocks hold of one metric. `harm`: of ln ratio, above 0 is worse; None of fewer than two blocks.

    `num`: blocks that have it; `missing`: numbers of those that should. `few`: why it cannot gate here at all.
    """

    metric: Metric
    harm: Estimate | None
    num: int
    missing: tuple[int, ...]
    base: float | None
    candidate: float | None
    few: str = ""

    @property
    def margin(self) -> float:
        """ln(1 + margin), or what the floor is of the smaller arm where that is more; so swapped arms have it too."""
        relative = self.metric.margin
        if self.base and self.candidate:
            relative = max(relative, self.metric.floor / min(self.base, self.candidate))
        return math.log1p(relative)


def value_of(measure: Measure | None, metric: Metric) -> float | None:
    """The metric of an arm, where it is a positive number and rests on enough answers."""
    if measure is None or measure.died or measure.num_requests - measure.num_failed < metric.min_requests:
        return None
    value = measure.metrics.get(metric.name)
    return value if value is not None and math.isfinite(value) and value > 0 else None


def seen(metric: Metric, blocks: Sequence[Block], plan: Plan) -> Seen:
    """One metric of all blocks, in whatever order they come."""
    pairs = [(block.number, value_of(block.base, metric), value_of(block.candidate, metric)) for block in blocks]
    missing = tuple(sorted(number for number, one, other in pairs if one is None or other is None))
    both = [(one, other) for _, one, other in pairs if one is not None and other is not None]
    sign = 1.0 if metric.better == "less" else -1.0
    harm = None
    if plan.paired:
        bases, candidates = [one for one, _ in both], [other for _, other in both]
        if len(both) > 1:
            harm = trimmed([sign * math.log(other / one) for one, other in both])
    else:
        bases = [one for _, one, _ in pairs if one is not None]
        candidates = [other for _, _, other in pairs if other is not None]
        missing = tuple(sorted(_lacking(metric, blocks)))
        if min(len(bases), len(candidates)) > 1:
            harm = trimmed_difference([sign * math.log(one) for one in bases], [sign * math.log(c) for c in candidates])
    due = [arm.num_requests for block in blocks for arm in (block.base, block.candidate) if arm is not None]
    few = ""
    if due and metric.min_requests > 1 and median(due) < metric.min_requests:
        few = f"takes {metric.min_requests} requests in each block, and these have {median(due):g}"
    return Seen(
        metric=metric,
        harm=harm,
        num=min(len(bases), len(candidates)),
        missing=missing,
        base=median(bases) if bases else None,
        candidate=median(candidates) if candidates else None,
        few=few,
    )


def _lacking(metric: Metric, blocks: Sequence[Block]) -> set[int]:
    """Blocks in which an arm was there but not the metric: stored records may differ in length."""
    return {
        block.number
        for block in blocks
        for arm in (block.base, block.candidate)
        if arm is not None and value_of(arm, metric) is None
    }


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each, in the order given: compare each with the level of the whole family."""
    found, most = [0.0] * len(ps), 0.0
    for step, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        most = max(most, min(1.0, (len(ps) - step) * ps[place]))
        found[place] = most
    return found


def judge_metrics(
    blocks: Sequence[Block], confirming: Sequence[Block], metrics: Sequence[Metric], plan: Plan
) -> tuple[MetricResult, ...]:
    """Every metric, in the order given. `blocks`, `confirming`: those that count, each with what it measured."""
    every = [seen(metric, blocks, plan) for metric in metrics]
    family = [place for place, one in enumerate(every) if _decidable(one) and one.metric.gating]
    worse = dict(zip(family, holm([_p(every[place]) for place in family]), strict=True))
    better = dict(zip(family, holm([_p(every[place], better=True) for place in family]), strict=True))
    return tuple(
        _result(one, worse.get(place), better.get(place), len(family), len(blocks), confirming, plan)
        for place, one in enumerate(every)
    )


def _decidable(one: Seen) -> bool:
    return one.harm is not None and one.num >= MIN_BLOCKS and not one.few


def _p(one: Seen, *, better: bool = False) -> float:
    if one.harm is None:
        return 1.0
    return one.harm.p_below(-one.margin) if better else one.harm.p_above(one.margin)


def _result(
    one: Seen,
    worse: float | None,
    better: float | None,
    family: int,
    num_blocks: int,
    confirming: Sequence[Block],
    plan: Plan,
) -> MetricResult:
    """One metric; `worse`, `better`: Holm's p of both sides, None where it does not gate."""
    metric, harm = one.metric, one.harm
    found = MetricResult(
        metric=metric,
        verdict=MetricVerdict.NOT_MEASURED,
        gating=metric.gating and not one.few,
        why=one.few,
        base=one.base,
        candidate=one.candidate,
        confidence=plan.confidence,
        margin=math.expm1(one.margin),
        num_blocks=one.num,
    )
    if one.few:
        return found
    if harm is None or one.num < MIN_BLOCKS:
        if one.num and num_blocks < MIN_BLOCKS:
            why = f"{count(one.num, 'block')}: it takes {MIN_BLOCKS} or more"
            return replace(found, verdict=MetricVerdict.INCONCLUSIVE, why=why)
        return replace(found, why=f"measured in {one.num} of {count(num_blocks, 'block')}")
    alpha, strict = plan.alpha, plan.alpha / max(1, family if found.gating else 1)
    low, high = (math.exp(end) for end in _as_ratio(metric, *harm.ends(alpha)))
    p, p_other = _p(one), _p(one, better=True)
    found = replace(
        found,
        ratio=math.exp(_as_ratio(metric, harm.mean, harm.mean)[0]),
        low=low,
        high=high,
        p=p,
        p_holm=worse,
        smallest_effect=smallest_effect(harm, one.margin, strict),
    )
    p_worse = p if worse is None else worse
    p_better = p_other if better is None else better
    if p_worse < alpha:
        return _confirmed(found, one.margin, confirming, plan)
    within = harm.p_below(one.margin) < alpha  # the interval's upper end is inside the margin
    if (within or p_better < alpha) and one.missing:
        why = f"missing in {_blocks(one.missing)}: what is not measured is no pass"
        return replace(found, verdict=MetricVerdict.INCONCLUSIVE, why=why)
    if p_better < alpha:
        return replace(found, verdict=MetricVerdict.IMPROVED, why="better by more than the margin")
    if within:
        return replace(found, verdict=MetricVerdict.OK, why="not worse by more than the margin, as shown")
    needed = blocks_to_decide(harm, one.margin, alpha, strict)
    why = "the interval reaches across the margin"
    if p < alpha:
        why = f"worse by more than the margin taken alone, but not as one of {family} metrics that gate"
    why += f"; about {count(needed, 'block')} would decide" if needed else f"; {MANY_BLOCKS} blocks would not decide"
    return replace(found, verdict=MetricVerdict.INCONCLUSIVE, why=why, blocks_to_decide=needed)


def _confirmed(found: MetricResult, margin: float, confirming: Sequence[Block], plan: Plan) -> MetricResult:
    """What was flagged, after a look at the fresh blocks: there it must be beyond the same margin again."""
    if not plan.confirm:
        return replace(found, verdict=MetricVerdict.REGRESSED, why="worse by more than the margin")
    again = seen(found.metric, confirming, plan)
    found = replace(found, verdict=MetricVerdict.UNCONFIRMED, num_confirming=again.num)
    if again.harm is None or again.num < MIN_BLOCKS:
        had = f"measured in {count(again.num, 'fresh block')}" if confirming else "no fresh block was run"
        return replace(found, why=f"worse by more than the margin, but not yet seen again: {had}")
    ratio = math.exp(_as_ratio(found.metric, again.harm.mean, again.harm.mean)[0])
    found = replace(found, confirmed_ratio=ratio)
    if again.harm.p_above(margin) < CONFIRMING_LEVEL:
        why = f"worse by more than the margin, and again in {count(again.num, 'fresh block')}"
        return replace(found, verdict=MetricVerdict.REGRESSED, why=why)
    return replace(found, why=f"worse by more than the margin, but not again in {count(again.num, 'fresh block')}")


def _as_ratio(metric: Metric, low: float, high: float) -> tuple[float, float]:
    """Ends on the scale of harm as ends of ln(candidate / base)."""
    return (low, high) if metric.better == "less" else (-high, -low)


def smallest_effect(harm: Estimate, margin: float, alpha: float) -> float:
    """The relative change for the worse that would be found with 80 %; `margin` is a logarithm."""
    return math.expm1(min(50.0, margin + reach(alpha, harm.degrees) * harm.error))


def blocks_to_decide(harm: Estimate, margin: float, alpha: float, strict: float) -> int | None:
    """How many blocks decide with 80 %, were the effect what it seems: at `strict` that it is beyond the margin (a
    logarithm), at `alpha` that it is inside; None for more than `MANY_BLOCKS`."""
    gap, level = abs(harm.mean - margin), strict if harm.mean > margin else alpha

    def decides(n: int) -> bool:
        one = with_blocks(harm, n)
        return gap >= reach(level, one.degrees) * one.error

    options = range(max(MIN_BLOCKS, harm.n + 1), MANY_BLOCKS + 1)
    place = bisect_left(options, True, key=decides)
    return options[place] if place < len(options) else None


def _blocks(numbers: Sequence[int]) -> str:
    return f"block{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
