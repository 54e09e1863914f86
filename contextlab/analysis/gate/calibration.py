"""How noisy this place is, from blocks whose two arms are the same (A/A), and what it therefore cannot gate; pure.

A metric is resolved where the smallest effect that the plan's largest number of blocks would find is at most twice
the margin. One that is not would be inconclusive nearly always; it should not gate, and with which margin or with how
many blocks it could is said.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from statistics import stdev

from contextlab.analysis.gate.contention import contention
from contextlab.analysis.gate.exact import unstable_names
from contextlab.analysis.gate.metrics import MANY_BLOCKS, Seen, seen, smallest_effect, value_of
from contextlab.analysis.gate.nouns import METRICS, MIN_BLOCKS, Block, Calibration, Metric, MetricNoise, Plan
from contextlab.analysis.gate.trimmed import Estimate, reach, with_blocks
from contextlab.analysis.quantities import count

BIAS_LEVEL = 0.005
"""Of each side of the interval that must hold 0 where both arms are the same."""
MOST_BIAS = 0.5
"""Of a margin: a bias below it leaves room for the test."""


def calibrate(blocks: Sequence[Block], metrics: Sequence[Metric] = METRICS, plan: Plan | None = None) -> Calibration:
    """The noise of each metric, in the order given. Blocks that were disturbed do not count."""
    plan = replace(plan or Plan(), paired=True)
    found = contention(blocks)
    clean = [block for block in blocks if block.number not in found.left_out]
    family = max(1, sum(metric.gating for metric in metrics))
    return Calibration(
        metrics=tuple(_noise(metric, clean, plan, plan.alpha / (family if metric.gating else 1)) for metric in metrics),
        unstable=unstable_names(clean),
        contaminated=found.whole,
        num_blocks=len(clean),
    )


def _noise(metric: Metric, blocks: Sequence[Block], plan: Plan, alpha: float) -> MetricNoise:
    one = seen(metric, blocks, plan)
    if one.few or one.harm is None or one.num < MIN_BLOCKS:
        why = one.few or f"measured in {count(one.num, 'block')}: it takes {MIN_BLOCKS} or more"
        return MetricNoise(
            name=metric.name,
            num_blocks=one.num,
            sigma=None,
            smallest_effect=None,
            resolved=False,
            biased=False,
            why=why,
        )
    smallest = _smallest(one.harm, one.margin, plan.max_blocks, alpha)
    biased = _biased(one)
    resolved = smallest <= 2 * math.expm1(one.margin) and not biased
    why = ""
    if biased:
        change = math.expm1(one.harm.mean)
        why = f"two arms that are the same differ by {change:+.1%}: the order or a cache tells them apart"
    elif not resolved:
        margin = math.expm1(one.margin)
        why = f"{plan.max_blocks} blocks would find no less than {smallest:.1%}, and the margin is {margin:.0%}"
    return MetricNoise(
        name=metric.name,
        num_blocks=one.num,
        sigma=_sigma(metric, blocks),
        smallest_effect=smallest,
        resolved=resolved,
        biased=biased,
        margin_needed=None if resolved else _margin_needed(one.harm, plan.max_blocks, alpha),
        blocks_needed=None if resolved else _blocks_needed(one.harm, one.margin, alpha),
        why=why,
    )


def _sigma(metric: Metric, blocks: Sequence[Block]) -> float:
    """The sample's standard deviation of ln(ratio), with every odd launch in it."""
    pairs = ((value_of(block.base, metric), value_of(block.candidate, metric)) for block in blocks)
    return stdev(math.log(other / one) for one, other in pairs if one is not None and other is not None)


def _biased(one: Seen) -> bool:
    if one.harm is None:
        return False
    low, high = one.harm.ends(BIAS_LEVEL)
    return (low > 0 or high < 0) and abs(one.harm.mean) > MOST_BIAS * one.margin


def _smallest(harm: Estimate, margin: float, num_blocks: int, alpha: float) -> float:
    return smallest_effect(with_blocks(harm, num_blocks), margin, alpha)


def _margin_needed(harm: Estimate, num_blocks: int, alpha: float) -> float | None:
    """The smallest margin m, in whole percent, with (1 + m) · e^x − 1 ≤ 2m; x: from the margin to the effect, in ln."""
    more = with_blocks(harm, num_blocks)
    growth = math.exp(min(50.0, reach(alpha, more.degrees) * more.error))
    return math.ceil(100 * (growth - 1) / (2 - growth) - 1e-9) / 100 if growth < 2 else None


def _blocks_needed(harm: Estimate, margin: float, alpha: float) -> int | None:
    options = range(MIN_BLOCKS, MANY_BLOCKS + 1)
    most = 2 * math.expm1(margin)
    place = bisect_left(options, True, key=lambda n: _smallest(harm, margin, n, alpha) <= most)
    return options[place] if place < len(options) else None


def resolved(metrics: Sequence[Metric], calibration: Calibration) -> tuple[Metric, ...]:
    """The metrics, of which those that this place was shown not to resolve no longer gate."""
    unable = {noise.name for noise in calibration.metrics if not noise.resolved}
    return tuple(replace(metric, gating=False) if metric.name in unable else metric for metric in metrics)
