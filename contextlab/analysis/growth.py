"""How something grows with something else: a power law through a few measured points, with its interval; pure.

    y = scale · x^exponent      ln y = ln scale + exponent · ln x, a straight line through (ln x, ln y)

Least squares on the logarithms, so each point counts by its relative error. The interval is Student's t for the
slope of a line (n − 2 degrees of freedom). It covers scatter, not curvature: a sum of two powers is no power law,
and reads as something between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
MIN_POINTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """y = scale · x^exponent. The exponent lies between `low` and `high` with `confidence`.

    `log_scale`: the natural logarithm of the scale, which itself may be too large or too small for a float.
    `scatter_ratio`: by how much a point typically lies off the line (0.05 is 5 %).
    """

    exponent: float
    low: float
    high: float
    log_scale: float
    scatter_ratio: float
    num_points: int
    confidence: float = CONFIDENCE

    def at(self, x: float) -> float:
        """What y is there."""
        return math.exp(self.log_scale + self.exponent * math.log(x))

    def reaches(self, y: float) -> float:
        """Where y is reached. Raises ValueError where it never grows."""
        if self.exponent <= 0:
            raise ValueError(f"exponent={self.exponent:g}: what does not grow reaches nothing")
        return math.exp((math.log(y) - self.log_scale) / self.exponent)


def fit_power_law(points: Sequence[tuple[float, float]], confidence: float = CONFIDENCE) -> PowerLaw:
    """The power law through (x, y) points. Raises ValueError unless they are three or more, positive, at two x or more.

    Source of the interval: slope ± t · sqrt(residual sum of squares / (n − 2) / sum of squares of x).
    """
    if len(points) < MIN_POINTS:
        raise ValueError(f"points={len(points)}: a power law with an interval needs {MIN_POINTS} or more")
    if any(not (math.isfinite(value) and value > 0) for point in points for value in point):
        raise ValueError("every point of a power law must be a pair of positive numbers")
    logs = [(math.log(x), math.log(y)) for x, y in points]
    count = len(logs)
    mean_x, mean_y = (math.fsum(column) / count for column in zip(*logs, strict=True))
    spread = math.fsum((x - mean_x) ** 2 for x, _ in logs)
    if spread <= 1e-12 * max(1.0, mean_x * mean_x):
        raise ValueError("every point lies at the same x")
    exponent = math.fsum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    residuals = math.fsum((y - mean_y - exponent * (x - mean_x)) ** 2 for x, y in logs)
    variance = residuals / (count - 2)
    reach = t_quantile((1 + confidence) / 2, count - 2) * math.sqrt(variance / spread)
    return PowerLaw(
        exponent=exponent,
        low=exponent - reach,
        high=exponent + reach,
        log_scale=mean_y - exponent * mean_x,
        scatter_ratio=math.expm1(math.sqrt(variance)),
        num_points=count,
        confidence=confidence,
    )


# ── Student's t ──────────────────────────────────────────────────────────────────────────────────


def t_quantile(probability: float, degrees: int) -> float:
    """The value that a t-distributed number of `degrees` (1 or more) stays below with this probability (0.5 to 1)."""
    if not 0.5 <= probability < 1 or degrees < 1:
        raise ValueError(f"probability={probability:g}, degrees={degrees}: must be 0.5 to 1, and 1 or more")
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def t_cdf(value: float, degrees: int) -> float:
    """The probability that a t-distributed number of whole `degrees` is below `value`.

    The finite series of Abramowitz and Stegun, 26.7.3 (odd) and 26.7.4 (even).
    """
    angle = math.atan2(value, math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    odd = degrees % 2
    term, total = 1.0, 1.0
    if degrees == 1:
        return 0.5 + angle / math.pi
    for step in range(2 + odd, degrees - 1, 2):
        term *= (step - 1) / step * cosine_squared
        total += term
    if odd:
        return 0.5 + (angle + math.sin(angle) * math.cos(angle) * total) / math.pi
    return 0.5 + math.sin(angle) * total / 2
