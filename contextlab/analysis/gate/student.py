"""Student's t with degrees of freedom that need not be whole, as a comparison of two sessions has them; pure.

    P(T > t) = ½ · I_x(ν/2, ½),  x = ν / (ν + t²),  t ≥ 0       (DLMF 8.17, Abramowitz and Stegun 26.5.27, 26.7.1)

Tails are computed as tails: a p of 1e-30 is not lost in 1 − p. (`growth.t_cdf` is for whole degrees, and exact there.)
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_ENOUGH = 1e-15
_MOST_STEPS = 10_000


def beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for 0 ≤ x ≤ 1 and a, b > 0; raises ValueError otherwise.

    Continued fraction DLMF 8.17.22, evaluated by Lentz's method as Thompson and Barnett (1986) modified it; beyond
    (a + 1)/(a + b + 2) by the reflection I_x(a, b) = 1 − I_(1−x)(b, a), where the fraction converges quickly.
    """
    if not 0 <= x <= 1 or not a > 0 or not b > 0:
        raise ValueError(f"x={x:g}, a={a:g}, b={b:g}: must be 0 to 1, above 0 and above 0")
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_share(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """1/(1 + d₁/(1 + d₂/(1 + …))) with the coefficients of DLMF 8.17.23; a zero below a fraction is read as tiny."""
    above, below = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    value = below
    for m in range(1, _MOST_STEPS):
        twice = a + 2 * m
        even = m * (b - m) * x / ((twice - 1) * twice)
        below, above = 1 / ((1 + even * below) or _TINY), (1 + even / above) or _TINY
        value *= below * above
        odd = -(a + m) * (a + b + m) * x / (twice * (twice + 1))
        below, above = 1 / ((1 + odd * below) or _TINY), (1 + odd / above) or _TINY
        value *= below * above
        if abs(below * above - 1) < _ENOUGH:
            break
    return value


def t_tail(value: float, degrees: float) -> float:
    """The probability that a t-distributed number with so many degrees of freedom (above 0) exceeds `value`."""
    if math.isinf(value):
        return 0.0 if value > 0 else 1.0
    square = value * value
    if square < degrees:  # near the middle x is so close to 1 that 1 − x must be written out
        tail = 0.5 - 0.5 * beta_share(square / (degrees + square), 0.5, degrees / 2)
    else:
        tail = 0.5 * beta_share(degrees / (degrees + square), degrees / 2, 0.5)
    return tail if value >= 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_above(tail: float, degrees: float) -> float:
    """The value that a t-distributed number exceeds with probability `tail` (above 0, at most 0.5), by bisection.

    `degrees` above 0. Raises ValueError for another tail.
    """
    if not 0 < tail <= 0.5:
        raise ValueError(f"tail={tail:g}: must be above 0 and at most 0.5")
    low, high = 0.0, 1.0
    while t_tail(high, degrees) > tail:
        low, high = high, high * 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if t_tail(middle, degrees) > tail else (low, middle)
    return (low + high) / 2
