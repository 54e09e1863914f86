"""What pairs of the same target tell of a place."""

from __future__ import annotations

from dataclasses import replace
from statistics import stdev

import pytest

from contextlab.analysis.gate.calibration import calibrate, resolved
from contextlab.analysis.gate.nouns import Host, Metric, MetricNoise, Plan
from tests.analysis.gate.arms import SPEED, STEADY, TTFT, blocks, changed


def noise(off: tuple[float, ...], ratio: float = 1.0, metric: Metric = TTFT, plan: Plan | None = None) -> MetricNoise:
    """One metric of a place with this noise."""
    return calibrate(blocks(ratio, noise=off), [metric], plan).metrics[0]


def test_a_quiet_place_resolves_its_metrics() -> None:
    found = noise(STEADY)
    assert found.resolved
    assert found.sigma == pytest.approx(stdev(STEADY), rel=0.02)
    assert found.smallest_effect == pytest.approx(0.059, abs=0.005)
    assert (found.margin_needed, found.blocks_needed, found.why, found.biased) == (None, None, "", False)


def test_a_noisy_place_says_what_it_would_take() -> None:
    loud = noise(tuple(9 * off for off in STEADY))
    assert not loud.resolved
    assert not loud.biased
    assert "20 blocks would find no less than" in loud.why
    assert loud.blocks_needed is not None
    assert loud.blocks_needed > 20
    assert loud.margin_needed is not None
    wider = noise(tuple(9 * off for off in STEADY), metric=replace(TTFT, margin=loud.margin_needed))
    assert wider.resolved
    narrow = noise(tuple(9 * off for off in STEADY), metric=replace(TTFT, margin=loud.margin_needed - 0.01))
    assert not narrow.resolved
    longer = noise(tuple(9 * off for off in STEADY), plan=Plan(max_blocks=loud.blocks_needed))
    assert longer.resolved
    hopeless = noise(tuple(0.9 * (-1) ** place for place in range(10)))
    assert (hopeless.margin_needed, hopeless.blocks_needed) == (None, None)


def test_the_margin_that_counts_is_the_one_that_is_said() -> None:
    found = noise(tuple(30 * off for off in STEADY), metric=replace(TTFT, floor=0.02))
    assert found.why.endswith("and the margin is 20%")  # 20 ms of 100


def test_arms_that_are_the_same_and_differ_are_biased() -> None:
    found = noise(STEADY, 1.04)
    assert (found.biased, found.resolved) == (True, False)
    assert "+4.1%" in found.why
    assert not noise(STEADY, 1.01).biased


def test_too_few_blocks_resolve_nothing() -> None:
    found = noise(STEADY[:5])
    assert (found.resolved, found.sigma) == (False, None)
    assert "5 blocks" in found.why
    rare = noise(STEADY, metric=replace(TTFT, min_requests=300))
    assert "takes 300 requests" in rare.why


def test_what_is_not_resolved_does_not_gate() -> None:
    found = calibrate(blocks(noise=tuple(9 * off for off in STEADY)), [TTFT])
    ttft, speed = resolved([TTFT, SPEED], found)
    assert (ttft.gating, speed.gating) == (False, True)
    assert resolved([TTFT], calibrate(blocks(), [TTFT])) == (TTFT,)


def test_exact_values_that_waver_are_named_and_busy_blocks_left_out() -> None:
    every = changed(blocks(base={"exact": {"n": 1}}, candidate={"exact": {"n": 1}}), (4,), exact={"n": 2})
    assert calibrate(every, [TTFT]).unstable == {"n"}
    busy = changed(every, (4,), host=Host(others_cores=1.0))
    assert (calibrate(busy, [TTFT]).unstable, calibrate(busy, [TTFT]).num_blocks) == (frozenset(), 9)
    assert calibrate(changed(every, range(1, 9), host=Host(others_cores=1.0)), [TTFT]).contaminated
