"""How often the gate is wrong, and what it finds, on simulated launches; and what must change nothing.

The noise (`launches`): a drift that both arms share, effects of single launches, launches that take 1.5 to 3 times as
long (5 % of them), heavy tails. How it came out is printed (pytest -s).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.analysis.gate.judging import judge
from contextlab.analysis.gate.metrics import judge_metrics
from contextlab.analysis.gate.nouns import Block, GateResult, GateVerdict, Measure, Metric, MetricVerdict, Plan
from contextlab.analysis.gate.trimmed import trimmed_difference
from tests.quality.launches import CLEAN, FAMILY, ROUGH, Noise, Place, gated

NULL_EXPERIMENTS = 2000
EXPERIMENTS = 300
ONE_LOOK = Plan(max_blocks=10)
SLOW_TTFT = "ttft_p50_s"


def verdicts(
    name: str, num: int, noise: Noise, plan: Plan, slower: Mapping[str, float] | None = None
) -> list[GateResult]:
    """Whole runs of the gate, each on a place of its own."""
    found = [gated(Place(f"{name} {seed}", noise, slower), plan)[0] for seed in range(num)]
    print(name, Counter(str(one.verdict) for one in found))  # noqa: T201 - for whoever asks: pytest -s
    return found


def share(results: Sequence[GateResult], verdict: GateVerdict) -> float:
    """How many of them came out so."""
    return sum(one.verdict is verdict for one in results) / len(results)


# ── false alarms ─────────────────────────────────────────────────────────────────────────────────


def test_no_change_is_hardly_ever_called_a_regression() -> None:
    results = verdicts("no change, rough", NULL_EXPERIMENTS, ROUGH, Plan())
    assert share(results, GateVerdict.REGRESSED) <= 0.005
    assert all(one.exit_code in (0, 3) for one in results if one.verdict is not GateVerdict.REGRESSED)
    assert share(results, GateVerdict.UNCONFIRMED) <= 0.01
    assert share(results, GateVerdict.OK) > 0.25, "a gate that never says OK is not used"


def test_quiet_noise_shows_equivalence() -> None:
    results = verdicts("no change, 3 %", EXPERIMENTS, Noise(pair=0.03), Plan())
    assert share(results, GateVerdict.OK) > 0.95
    assert share(results, GateVerdict.REGRESSED) == 0


@pytest.mark.parametrize(("spikes", "num"), [(0.0, 10), (0.05, 10), (0.0, 20)])
def test_at_the_margin_a_single_test_is_wrong_as_often_as_it_says(spikes: float, num: int) -> None:
    """The hardest null: exactly as much worse as does not matter. Each tail is meant to be wrong in 5 %."""
    metric, plan = replace(FAMILY[0], floor=0.0), Plan(blocks=num, max_blocks=num, confirm=False)
    flagged = 0
    for seed in range(NULL_EXPERIMENTS):
        blocks = Place(f"margin {seed}", Noise(spikes=spikes), {metric.name: 1 + metric.margin}).blocks(num)
        (result,) = judge_metrics(blocks, (), [metric], plan)
        flagged += result.verdict is MetricVerdict.REGRESSED
    print(f"at the margin, {num} blocks, spikes {spikes:.0%}: {flagged / NULL_EXPERIMENTS:.1%}")  # noqa: T201 - as above
    assert 0.02 <= flagged / NULL_EXPERIMENTS <= 0.07


def test_two_sessions_are_wrong_as_often_as_they_say() -> None:
    """The same without pairs, and with arms that are not equally long or equally noisy."""
    random, flagged = Random(11), 0
    for _ in range(NULL_EXPERIMENTS):
        base = [random.gauss(0, 0.02) for _ in range(10)]
        candidate = [random.gauss(0, 0.06) for _ in range(16)]
        flagged += trimmed_difference(base, candidate).p_above(0.0) < 0.05
    assert 0.02 <= flagged / NULL_EXPERIMENTS <= 0.07


# ── what is found ────────────────────────────────────────────────────────────────────────────────


def test_a_fifth_more_is_found_in_ten_blocks() -> None:
    results = verdicts("+20 %, one look", EXPERIMENTS, CLEAN, ONE_LOOK, {SLOW_TTFT: 1.2})
    assert share(results, GateVerdict.REGRESSED) >= 0.95
    assert all(one.exit_code == 1 for one in results if one.verdict is GateVerdict.REGRESSED)


def test_fifteen_percent_are_found_among_spikes() -> None:
    results = verdicts("+15 %, 5 % spikes, one look", EXPERIMENTS, Noise(spikes=0.05), ONE_LOOK, {SLOW_TTFT: 1.15})
    assert share(results, GateVerdict.REGRESSED) >= 0.65
    extended = verdicts("+15 %, 5 % spikes, two looks", EXPERIMENTS, Noise(spikes=0.05), Plan(), {SLOW_TTFT: 1.15})
    assert share(extended, GateVerdict.REGRESSED) >= share(results, GateVerdict.REGRESSED)


def test_a_metric_of_which_more_is_better_is_found_as_well() -> None:
    results = verdicts("tokens/s a sixth less", EXPERIMENTS, CLEAN, Plan(), {"tokens_per_s": 1.2})
    assert share(results, GateVerdict.REGRESSED) >= 0.95
    for one in results:
        speeds = next(found for found in one.metrics if found.metric.name == "tokens_per_s")
        assert speeds.ratio is not None
        assert speeds.ratio < 0.95


def test_the_smallest_effect_that_is_named_is_found_about_as_often_as_it_says() -> None:
    metric = replace(FAMILY[0], floor=0.0)
    plan = Plan(max_blocks=10, confirm=False)
    named = []
    for seed in range(EXPERIMENTS):
        (result,) = judge_metrics(Place(f"named {seed}", CLEAN).blocks(10), (), [metric], plan)
        named.append(result.smallest_effect or 0.0)
    effect = sorted(named)[len(named) // 2]
    found = 0
    for seed in range(EXPERIMENTS):
        blocks = Place(f"effect {seed}", CLEAN, {metric.name: 1 + effect}).blocks(10)
        found += judge_metrics(blocks, (), [metric], plan)[0].verdict is MetricVerdict.REGRESSED
    assert 0.70 <= found / EXPERIMENTS <= 0.92


# ── what changes nothing ─────────────────────────────────────────────────────────────────────────

AT_ONCE = Plan(confirm=False)
MIRRORED = {
    MetricVerdict.REGRESSED: {MetricVerdict.IMPROVED},
    MetricVerdict.IMPROVED: {MetricVerdict.REGRESSED},
    MetricVerdict.OK: {MetricVerdict.OK, MetricVerdict.INCONCLUSIVE},
    MetricVerdict.INCONCLUSIVE: {MetricVerdict.OK, MetricVerdict.INCONCLUSIVE},
    MetricVerdict.NOT_MEASURED: {MetricVerdict.NOT_MEASURED},
}


def swapped(blocks: Sequence[Block]) -> list[Block]:
    """The candidate as the base, and the base as the candidate."""
    return [
        replace(
            block,
            base=block.candidate,
            candidate=block.base,
            first="base" if block.first == "candidate" else "candidate",
        )
        for block in blocks
    ]


def scaled(blocks: Sequence[Block], factor: float) -> list[Block]:
    """Every number of every metric times a factor, in both arms."""

    def arm(measure: Measure | None) -> Measure | None:
        if measure is None:
            return None
        return replace(measure, metrics={name: value * factor for name, value in measure.metrics.items()})

    return [replace(block, base=arm(block.base), candidate=arm(block.candidate)) for block in blocks]


LOGS = st.floats(-0.4, 0.4).map(lambda value: round(value, 6))
EFFECTS = st.sampled_from([-0.3, -0.12, -0.05, 0.0, 0.04, 0.05, 0.06, 0.12, 0.3])


@st.composite
def runs(draw: st.DrawFn) -> list[Block]:
    """Blocks of two arms with any noise and any effect, in a few of which something may be missing."""
    num, noise = draw(st.integers(7, 14)), draw(st.sampled_from([0.0, 0.01, 0.06, 0.3]))
    rng = Random(draw(st.integers(0, 2**32)))
    effects = {metric.name: draw(EFFECTS) for metric in FAMILY}
    level = draw(LOGS)
    missing = draw(st.sets(st.integers(1, num), max_size=2))
    found = []
    for number in range(1, num + 1):
        arms = []
        for arm in (0.0, 1.0):
            metrics = {
                name: 2.718 ** (level + arm * effect + rng.gauss(0, 1) * noise) for name, effect in effects.items()
            }
            if number in missing and arm:
                del metrics[SLOW_TTFT]
            arms.append(Measure(metrics=metrics, num_requests=100))
        found.append(Block(number=number, base=arms[0], candidate=arms[1]))
    return found


NO_FLOOR = tuple(replace(metric, floor=0.0) for metric in FAMILY)
WITH_FLOOR = tuple(replace(metric, floor=0.05) for metric in FAMILY)


@settings(max_examples=150)
@given(runs(), st.sampled_from([NO_FLOOR, WITH_FLOOR]), st.booleans())
def test_swapped_arms_swap_the_verdict(blocks: list[Block], metrics: tuple[Metric, ...], paired: bool) -> None:
    plan = replace(AT_ONCE, paired=paired)
    for one, other in zip(
        judge(blocks, metrics, plan).metrics, judge(swapped(blocks), metrics, plan).metrics, strict=True
    ):
        assert other.verdict in MIRRORED[one.verdict] or (one.why + other.why).count("missing")
        assert other.margin == pytest.approx(one.margin)
        if one.ratio is not None and other.ratio is not None and one.low is not None and other.high is not None:
            assert other.ratio * one.ratio == pytest.approx(1)
            assert other.high * one.low == pytest.approx(1)
        if one.smallest_effect is not None:
            assert other.smallest_effect == pytest.approx(one.smallest_effect)


@settings(max_examples=100)
@given(runs(), st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_blocks_changes_nothing(blocks: list[Block], random: Random, paired: bool) -> None:
    plan = replace(AT_ONCE, paired=paired)
    expected = judge(blocks, NO_FLOOR, plan)
    mixed = random.sample(blocks, len(blocks))
    assert judge(mixed, NO_FLOOR, plan) == expected
    renumbered = [replace(block, number=number) for number, block in enumerate(mixed, start=1)]
    for one, other in zip(judge(renumbered, NO_FLOOR, plan).metrics, expected.metrics, strict=True):
        assert replace(one, why="") == replace(other, why="")


@settings(max_examples=100)
@given(runs(), st.sampled_from([1e-3, 1000.0, 3.7, 60.0]), st.booleans())
def test_scale_and_units_change_nothing(blocks: list[Block], factor: float, paired: bool) -> None:
    plan = replace(AT_ONCE, paired=paired)
    for metrics in (NO_FLOOR, WITH_FLOOR):
        in_units = [replace(metric, floor=metric.floor * factor) for metric in metrics]
        one, other = judge(blocks, metrics, plan), judge(scaled(blocks, factor), in_units, plan)
        assert (other.verdict, other.exit_code) == (one.verdict, one.exit_code)
        for ours, theirs in zip(one.metrics, other.metrics, strict=True):
            assert theirs.verdict is ours.verdict
            assert theirs.ratio == pytest.approx(ours.ratio)
            assert theirs.p_holm == pytest.approx(ours.p_holm, abs=1e-9)


def test_a_whole_run_of_the_gate_is_mirrored() -> None:
    for seed in range(20):
        blocks = Place(f"mirror {seed}", CLEAN, {SLOW_TTFT: 1.3}).blocks(10)
        assert judge(blocks, FAMILY, AT_ONCE).verdict is GateVerdict.REGRESSED
        mirrored = judge(swapped(blocks), FAMILY, AT_ONCE)
        assert next(one for one in mirrored.metrics if one.metric.name == SLOW_TTFT).verdict is MetricVerdict.IMPROVED
        assert mirrored.exit_code in (0, 3)
