"""The tables of Student's t and of the incomplete beta function."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.gate.student import beta_share, t_above, t_tail
from contextlab.analysis.growth import t_cdf

TABLED = [  # Abramowitz and Stegun, table 26.10: the value that is exceeded with this probability
    (0.05, 1, 6.314),
    (0.025, 1, 12.706),
    (0.005, 2, 9.925),
    (0.025, 5, 2.571),
    (0.01, 5, 3.365),
    (0.005, 5, 4.032),
    (0.05, 10, 1.812),
    (0.01, 10, 2.764),
    (0.025, 30, 2.042),
    (0.025, 120, 1.980),
]


@pytest.mark.parametrize(("tail", "degrees", "value"), TABLED)
def test_quantiles_are_those_of_the_table(tail: float, degrees: int, value: float) -> None:
    assert round(t_above(tail, degrees), 3) == value


@given(st.floats(-30, 30), st.integers(1, 60))
def test_tails_agree_with_the_finite_series_of_whole_degrees(value: float, degrees: int) -> None:
    assert t_tail(value, degrees) == pytest.approx(1 - t_cdf(value, degrees), abs=1e-12)


@given(st.floats(1e-6, 0.5), st.floats(0.8, 200))
def test_the_quantile_inverts_the_tail(tail: float, degrees: float) -> None:
    assert t_tail(t_above(tail, degrees), degrees) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize("degrees", [1.3, 2.5, 7.75])
def test_degrees_that_are_not_whole_agree_with_the_integral_of_the_density(degrees: float) -> None:
    front = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    num, end = 2000, 2.2
    points = [front * (1 + (end * i / num) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(num + 1)]
    simpson = end / num / 3 * (points[0] + points[-1] + 4 * sum(points[1:-1:2]) + 2 * sum(points[2:-1:2]))
    assert t_tail(end, degrees) == pytest.approx(0.5 - simpson, abs=1e-10)


def test_far_tails_are_not_lost() -> None:
    # Two degrees have a closed form: P(T > t) = ½ (1 − t / √(2 + t²)), here as its series for large t.
    assert t_tail(1e6, 2) == pytest.approx(0.5e-12, rel=1e-6)
    assert t_tail(-1e6, 2) == pytest.approx(1 - 0.5e-12, abs=1e-15)
    assert t_tail(math.inf, 3) == 0.0
    assert t_tail(-math.inf, 3) == 1.0


@given(st.floats(0, 1), st.integers(1, 12), st.integers(1, 12))
def test_the_beta_share_of_whole_numbers_is_a_binomial_tail(x: float, a: int, b: int) -> None:
    n = a + b - 1  # DLMF 8.17.5
    binomial = math.fsum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert beta_share(x, a, b) == pytest.approx(binomial, abs=1e-12)


@given(st.integers(0, 2**20).map(lambda part: part / 2**20), st.floats(0.05, 80), st.floats(0.05, 80))
def test_the_beta_share_reflects(x: float, a: float, b: float) -> None:
    assert 0 <= beta_share(x, a, b) <= 1 + 1e-12
    assert beta_share(x, a, b) + beta_share(1 - x, b, a) == pytest.approx(1, abs=1e-9)


def test_what_has_no_answer_is_refused() -> None:
    for x, a, b in ((-0.1, 1, 1), (1.1, 1, 1), (0.5, 0, 1), (0.5, 1, -1), (math.nan, 1, 1)):
        with pytest.raises(ValueError, match="must be"):
            beta_share(x, a, b)
    for tail in (0.0, 0.6):
        with pytest.raises(ValueError, match="tail"):
            t_above(tail, 5)
