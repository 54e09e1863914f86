"""Yuen's trimmed t: worked examples, odd launches, and what noise it takes to see how much."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.gate.trimmed import Estimate, reach, trimmed, trimmed_difference, with_blocks


def test_a_worked_example() -> None:
    found = trimmed([4, 1, 9, 2, 10, 3, 8, 6, 5, 7])
    # Two of each end go: 3 … 8 remain. Winsorised: 3 3 3 4 5 6 7 8 8 8, about 5.5: 6 · 2.5² + 2 · 1.5² + 2 · 0.5².
    assert (found.mean, found.degrees, found.n) == (5.5, 5, 10)
    assert found.error == pytest.approx(math.sqrt(42.5 / (6 * 5)))


def test_of_few_values_nothing_is_cut() -> None:
    found = trimmed([1.0, 2.0, 6.0])
    assert (found.mean, found.degrees) == (3.0, 2)
    assert found.error == pytest.approx(math.sqrt(14 / 2 / 3))
    with pytest.raises(ValueError, match="2 or more"):
        trimmed([1.0])


def test_an_odd_launch_moves_nothing() -> None:
    steady = [0.01, -0.02, 0.0, 0.015, -0.005, 0.02, -0.01, 0.005, -0.015, 0.0]
    odd = [*steady[:-1], 30.0]
    assert abs(trimmed(odd).mean - trimmed(steady).mean) < 0.005
    assert trimmed(odd).error < 2 * trimmed(steady).error


def test_without_noise_there_is_no_doubt() -> None:
    flat = trimmed([0.1] * 8)
    assert (flat.p_above(0.09), flat.p_above(0.1), flat.p_above(0.11)) == (0.0, 1.0, 1.0)
    assert (flat.p_below(0.11), flat.p_below(0.1)) == (0.0, 1.0)
    assert flat.ends(0.05) == pytest.approx((0.1, 0.1))


@given(st.lists(st.floats(-2, 2), min_size=5, max_size=20), st.floats(-1, 1))
def test_the_ends_of_the_interval_are_the_tests(values: list[float], threshold: float) -> None:
    found = trimmed(values)
    if found.error < 1e-9:
        return
    low, high = found.ends(0.05)
    assert (found.p_above(threshold) < 0.05) == (low > threshold) or low == pytest.approx(threshold)
    assert (found.p_below(threshold) < 0.05) == (high < threshold) or high == pytest.approx(threshold)
    assert found.p_above(threshold) + found.p_below(threshold) == pytest.approx(1)


def test_two_samples_that_are_not_paired() -> None:
    base = [20.0, 21.0, 19.5, 22.0, 20.5, 18.0, 23.0, 21.5, 40.0, 20.2]
    candidate = [23.0, 24.0, 22.5, 25.0, 26.0, 21.0, 24.5]
    one, other, found = trimmed(base), trimmed(candidate), trimmed_difference(base, candidate)
    assert found.mean == pytest.approx(other.mean - one.mean)
    assert found.error == pytest.approx(math.hypot(one.error, other.error))
    a, b = one.error**2, other.error**2
    assert found.degrees == pytest.approx((a + b) ** 2 / (a * a / 5 + b * b / 4))
    assert found.n == 7
    assert trimmed_difference([1.0, 1.0], [1.0, 1.0]).degrees == 2


def test_more_blocks_see_smaller_effects() -> None:
    found = Estimate(mean=0.0, error=0.02, degrees=5, n=10)
    assert with_blocks(found, 10) == found
    assert with_blocks(found, 40).error == pytest.approx(0.01)
    assert with_blocks(found, 20).degrees == 11
    assert reach(0.05, 11) < reach(0.05, 5) < reach(0.0125, 5)


def test_the_reach_is_what_a_simulation_finds() -> None:
    random, found = Random(7), 0
    for _ in range(1500):
        values = [random.gauss(0, 1) for _ in range(10)]
        shift = reach(0.05, 5) * math.sqrt(1.13 / 10)  # the error of a trimmed mean of normal values is so much larger
        found += trimmed([value + shift for value in values]).p_above(0.0) < 0.05
    assert 0.72 < found / 1500 < 0.88
