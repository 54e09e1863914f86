"""Order-statistics intervals are exact, cover as often as they say, and failures only ever push up."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.analysis.quantiles import (
    Distribution,
    difference,
    interval_ranks,
    needed,
    rank,
    ratio,
    value_at,
)

QUANTILES = (0.5, 0.9, 0.99)
VALUES = st.floats(0.0, 1e3)


def singles(values: list[float]) -> Distribution:
    return Distribution([value] for value in values)


def ranks_by_definition(n: int, q: Fraction, tail: Fraction) -> tuple[int, int]:
    """The same ranks from the binomial's definition, in exact fractions."""
    weights = [math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)]
    low = max((k + 1 for k in range(n + 1) if sum(weights[: k + 1]) <= tail), default=0)
    high = min((k for k in range(n + 1) if sum(weights[k:]) <= tail), default=n + 1)
    return low, high


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10), Fraction(99, 100), Fraction(1, 10)])
@pytest.mark.parametrize("n", [1, 5, 6, 7, 35, 36, 80, 150])
def test_the_ranks_are_those_of_the_binomial(n: int, q: Fraction) -> None:
    assert interval_ranks(n, float(q)) == ranks_by_definition(n, q, Fraction(25, 1000))


@pytest.mark.parametrize(("q", "least"), [(0.5, 6), (0.9, 36), (0.99, 368), (0.1, 36), (0.999, 3688)])
def test_how_many_values_an_interval_needs(q: float, least: int) -> None:
    assert needed(q) == least
    assert singles([1.0] * least).quantile(q).enough
    assert not singles([1.0] * (least - 1)).quantile(q).enough


@pytest.mark.parametrize("n", [0, 5, 35, 367])
def test_too_few_values_have_a_value_and_no_interval(n: int) -> None:
    q = {0: 0.5, 5: 0.5, 35: 0.9, 367: 0.99}[n]
    found = singles([float(value) for value in range(n)]).quantile(q)
    assert not found.enough
    assert found.n == n
    assert found.needs == n + 1 or n == 0
    assert math.isnan(found.value) if n == 0 else found.value == rank(n, q) - 1
    assert found.high == math.inf


@pytest.mark.parametrize("q", QUANTILES)
def test_a_large_sample_is_quick_and_near_the_normal_approximation(q: float) -> None:
    interval_ranks.cache_clear()
    began_s = time.process_time()
    low, high = interval_ranks(100_000, q)
    assert time.process_time() - began_s < 0.5
    reach = 1.959964 * math.sqrt(100_000 * q * (1 - q))
    assert low == pytest.approx(100_000 * q - reach, abs=3)
    assert high == pytest.approx(100_000 * q + reach, abs=3)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 1.1])
def test_a_quantile_outside_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        interval_ranks(100, q)


@pytest.mark.parametrize(("q", "n"), [(0.5, 40), (0.9, 60), (0.99, 400)])
def test_the_interval_covers_as_often_as_it_says(q: float, n: int) -> None:
    rng, hits, rounds = Random(5), 0, 1000
    truth = -math.log(1 - q)  # of the exponential distribution
    for _ in range(rounds):
        found = singles([rng.expovariate(1.0) for _ in range(n)]).quantile(q)
        hits += found.low <= truth <= found.high
    assert 0.95 - 0.021 < hits / rounds <= 1.0  # three standard errors below the nominal


@given(st.lists(VALUES, min_size=1, max_size=60), st.sampled_from(QUANTILES), st.data())
def test_a_failure_never_lowers_a_quantile(values: list[float], q: float, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(values) - 1))
    worse = [math.inf if number == place else value for number, value in enumerate(values)]
    one, other = singles(values).quantile(q), singles(worse).quantile(q)
    assert other.value >= one.value
    assert other.low >= one.low
    assert other.high >= one.high


@given(st.lists(VALUES, min_size=1, max_size=200))
def test_quantiles_are_monotone_and_inside_their_interval(values: list[float]) -> None:
    found = [singles(values).quantile(q) for q in QUANTILES]
    assert [one.value for one in found] == sorted(one.value for one in found)
    assert all(one.low <= one.value <= one.high for one in found)
    assert all(one.value in values for one in found)


@given(st.lists(VALUES, min_size=1, max_size=40), st.sampled_from(QUANTILES))
def test_the_value_is_the_smallest_that_enough_do_not_exceed(values: list[float], q: float) -> None:
    value = value_at(sorted(values), q)
    assert sum(one <= value for one in values) >= q * len(values) - 1e-6
    assert sum(one < value for one in values) < q * len(values) + 1e-6


# ── groups ───────────────────────────────────────────────────────────────────────────────────────


def test_groups_of_one_change_nothing() -> None:
    values = [Random(1).random() for _ in range(100)]
    assert Distribution([value] for value in values).quantile(0.9).effective_n == 100


def test_copies_are_no_new_witnesses() -> None:
    rng = Random(2)
    values = [rng.random() for _ in range(50)]
    alone, copied = singles(values), Distribution([value] * 20 for value in values)
    assert len(copied) == 1000
    found = copied.quantile(0.5)
    assert found.effective_n == pytest.approx(50, abs=3)
    assert found.low == pytest.approx(alone.quantile(0.5).low, abs=0.06)
    assert not Distribution([value] * 20 for value in values[:30]).quantile(0.9).enough


def test_independent_values_in_groups_keep_nearly_all_their_weight() -> None:
    rng = Random(3)
    found = Distribution([rng.random() for _ in range(10)] for _ in range(200)).quantile(0.5)
    assert found.effective_n > 1400
    assert found.low < 0.5 < found.high


def test_grouped_intervals_cover_as_often_as_they_say() -> None:
    rng, hits, rounds = Random(6), 0, 400
    for _ in range(rounds):
        groups = []
        for _ in range(60):
            own = rng.gauss(0.0, 1.0)
            groups.append([own + rng.gauss(0.0, 1.0) for _ in range(8)])
        found = Distribution(groups).quantile(0.5)
        hits += found.low <= 0.0 <= found.high
    assert hits / rounds > 0.95 - 0.035


# ── means, ratios ────────────────────────────────────────────────────────────────────────────────


def test_a_mean_has_students_interval() -> None:
    mean, low, high = singles([1.0, 2.0, 3.0, 4.0, 5.0]).mean()
    assert mean == 3.0
    assert (low, high) == pytest.approx(
        (3 - 2.776445 * math.sqrt(2.5 / 5), 3 + 2.776445 * math.sqrt(2.5 / 5)), abs=1e-4
    )
    assert singles([1.0, math.inf]).mean() == (math.inf, math.inf, math.inf)
    assert math.isnan(singles([]).mean()[0])


def test_the_mean_of_groups_counts_groups() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert Distribution([value] * 7 for value in values).mean() == pytest.approx(singles(values).mean())


@settings(max_examples=40)
@given(st.floats(1.1, 20.0), st.integers(0, 1 << 30))
def test_a_ratio_is_found_and_lies_in_its_interval(factor: float, seed: int) -> None:
    rng = Random(seed)
    base = singles([rng.uniform(1.0, 2.0) for _ in range(100)])
    slow = singles([factor * value for value in base.ordered])
    found = ratio(slow, base, 0.5)
    assert found.enough
    assert found.value == pytest.approx(factor)
    assert found.low <= found.value <= found.high
    apart = difference(slow, base, 0.5)
    assert apart.low <= apart.value <= apart.high
    assert apart.value == pytest.approx((factor - 1) * base.at(0.5))


def test_a_ratio_carries_failures_and_says_when_nothing_can_be_said() -> None:
    good, bad = singles([1.0] * 20), singles([math.inf] * 20)
    assert ratio(bad, good, 0.5).value == math.inf
    assert ratio(bad, good, 0.5).low == math.inf
    assert ratio(good, bad, 0.5).value == 0.0
    assert math.isnan(ratio(bad, bad, 0.5).value)
    assert (ratio(bad, bad, 0.5).low, ratio(bad, bad, 0.5).high) == (0.0, math.inf)
    assert not ratio(singles([1.0] * 6), good, 0.5).enough  # each of the two needs 97.5 %: seven values
    assert ratio(singles([1.0] * 7), good, 0.5).enough


def test_two_samples_of_one_distribution_are_told_apart_as_rarely_as_it_says() -> None:
    rng, wrong, rounds = Random(8), 0, 300
    for _ in range(rounds):
        one, other = (singles([rng.lognormvariate(0.0, 0.4) for _ in range(80)]) for _ in range(2))
        found = ratio(one, other, 0.5)
        wrong += not found.low <= 1.0 <= found.high
    assert wrong / rounds < 0.05
