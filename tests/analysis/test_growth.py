"""A known exponent is found again, and its interval covers it as often as it says."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.growth import PowerLaw, fit_power_law, t_cdf, t_quantile

EXPONENTS = st.floats(0.2, 3.0)
SCALES = st.floats(1e-6, 1e6)
LENGTHS = st.lists(st.integers(1, 1 << 20), min_size=3, max_size=12, unique=True).filter(
    lambda lengths: max(lengths) >= 2 * min(lengths)
)


def sampled(rng: Random, exponent: float, noise: float, num_points: int = 6) -> PowerLaw:
    """The fit of points at doubling lengths, each off by a factor of about `noise`."""
    lengths = [512 << step for step in range(num_points)]
    return fit_power_law([(x, 3.0 * x**exponent * math.exp(rng.gauss(0.0, noise))) for x in lengths])


@given(EXPONENTS, SCALES, LENGTHS)
def test_an_exact_law_is_found_exactly(exponent: float, scale: float, lengths: list[int]) -> None:
    law = fit_power_law([(x, scale * x**exponent) for x in lengths])
    assert law.exponent == pytest.approx(exponent, abs=1e-6)
    assert law.log_scale == pytest.approx(math.log(scale), abs=1e-4)
    assert law.low <= law.exponent <= law.high
    assert law.high - law.low < 1e-4
    assert law.scatter_ratio == pytest.approx(0.0, abs=1e-6)


@given(EXPONENTS, SCALES, LENGTHS, st.floats(1.0, 1e7))
def test_reaches_is_the_inverse_of_at(exponent: float, scale: float, lengths: list[int], x: float) -> None:
    law = fit_power_law([(length, scale * length**exponent) for length in lengths])
    assert law.reaches(law.at(x)) == pytest.approx(x, rel=1e-6)


@given(EXPONENTS, st.integers(0, 1 << 30), st.floats(0.001, 0.05), st.floats(0.5, 1000.0))
def test_units_change_the_scale_and_nothing_else(exponent: float, seed: int, noise: float, unit: float) -> None:
    rng = Random(seed)
    points = [(512 << n, (512 << n) ** exponent * math.exp(rng.gauss(0.0, noise))) for n in range(6)]
    law, other = fit_power_law(points), fit_power_law([(x * 7.0, y * unit) for x, y in points])
    assert other.exponent == pytest.approx(law.exponent, abs=1e-6)
    assert (other.low, other.high) == pytest.approx((law.low, law.high), abs=1e-6)


@given(EXPONENTS, st.integers(0, 1 << 30))
def test_a_noisy_law_is_found_nearly(exponent: float, seed: int) -> None:
    law = sampled(Random(seed), exponent, noise=0.03)
    assert law.exponent == pytest.approx(exponent, abs=0.12)  # standard error 0.01


def test_more_noise_widens_the_interval() -> None:
    widths = [sampled(Random(1), 2.0, noise) for noise in (0.01, 0.05, 0.2)]
    assert [law.high - law.low for law in widths] == sorted(law.high - law.low for law in widths)


@pytest.mark.parametrize(("num_points", "noise"), [(3, 0.05), (5, 0.02), (7, 0.3)])
def test_the_interval_covers_as_often_as_it_says(num_points: int, noise: float) -> None:
    rng, trials = Random(20), 3000
    laws = [sampled(rng, 1.9, noise, num_points) for _ in range(trials)]
    covered = sum(law.low <= 1.9 <= law.high for law in laws) / trials
    assert covered == pytest.approx(0.95, abs=0.016)  # four standard errors


def test_a_sum_of_two_powers_reads_as_something_between() -> None:
    law = fit_power_law([(x, x + x * x / 1000) for x in (512, 1024, 2048, 4096)])
    assert 1.3 < law.exponent < 1.8
    assert law.low < law.exponent < law.high


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1.0, 1.0), (2.0, 2.0)],
        [(1.0, 1.0), (2.0, 0.0), (3.0, 2.0)],
        [(1.0, 1.0), (2.0, -4.0), (3.0, 2.0)],
        [(1.0, 1.0), (2.0, math.inf), (3.0, 2.0)],
        [(1.0, math.nan), (2.0, 1.0), (3.0, 2.0)],
        [(5.0, 1.0), (5.0, 2.0), (5.0, 3.0)],
    ],
)
def test_what_is_no_curve_is_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError):
        fit_power_law(points)


def test_what_does_not_grow_reaches_nothing() -> None:
    law = fit_power_law([(1.0, 3.0), (2.0, 2.0), (4.0, 1.0)])
    with pytest.raises(ValueError, match="exponent"):
        law.reaches(10.0)


@pytest.mark.parametrize(
    ("degrees", "published"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_quantiles_equal_the_published_table(degrees: int, published: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(published, abs=0.0006)


@given(st.floats(-50.0, 50.0), st.integers(1, 60))
def test_the_distribution_is_symmetric(value: float, degrees: int) -> None:
    assert t_cdf(value, degrees) + t_cdf(-value, degrees) == pytest.approx(1.0, abs=1e-9)


@given(st.floats(0.5, 0.999), st.integers(1, 60))
def test_the_quantile_is_the_inverse(probability: float, degrees: int) -> None:
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize(("probability", "degrees"), [(0.2, 3), (1.0, 3), (0.9, 0)])
def test_impossible_quantiles_are_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError):
        t_quantile(probability, degrees)
