"""Means that a few odd launches do not move, and how sure they are: Yuen's trimmed t; pure.

    n values in order:  x₁ … x_g │ x_(g+1) … x_(n−g) │ …    g = ⌊n/5⌋ of each end, h = n − 2g remain
    mean     the mean of those that remain
    error²   SSD_w / (h (h − 1));  SSD_w: the squared deviations of all n values, winsorised (those that were cut pulled
             in to x_(g+1) and x_(n−g)), from the mean of these
    degrees  h − 1

Source: K. K. Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974), 165-170; of one
sample: J. W. Tukey and D. H. McLaughlin, Sankhyā A 25 (1963), 331-352, with Yuen's h (h − 1), which is also right where
n is no multiple of five. On clean data it costs a little power against the plain t; where one launch in twenty takes
twice as long, the plain t finds nothing any more.

What it does not cover: noise that all launches of a session share. That is what blocks with both arms are for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from contextlab.analysis.gate.student import t_above, t_tail

POWER = 0.8
"""How sure an effect of the size that is called the smallest would be found."""
_NO_NOISE = 1e-12
_SAME = 1e-9
"""Logarithms closer than this are the same number, rounded differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A trimmed mean (here: of logarithms), its standard error and the degrees of freedom of that; `n` values."""

    mean: float
    error: float
    degrees: float
    n: int

    def p_above(self, threshold: float) -> float:
        """One-sided p of "the mean is at most `threshold`"; without noise it is 0 or 1."""
        gap = self.mean - threshold
        if self.error <= _NO_NOISE:
            return 0.0 if gap > _SAME else 1.0
        return t_tail(gap / self.error, self.degrees)

    def p_below(self, threshold: float) -> float:
        """One-sided p of "the mean is at least `threshold`"."""
        return Estimate(mean=-self.mean, error=self.error, degrees=self.degrees, n=self.n).p_above(-threshold)

    def ends(self, alpha: float) -> tuple[float, float]:
        """The interval each of whose ends is a one-sided test at `alpha`."""
        reach = t_above(alpha, self.degrees) * self.error
        return self.mean - reach, self.mean + reach


def trimmed(values: Sequence[float]) -> Estimate:
    """The 20 %-trimmed mean of at least two values, in any order. Raises ValueError for fewer."""
    n = len(values)
    if n < 2:
        raise ValueError(f"values={n}: a mean with an error needs 2 or more")
    ordered, cut = sorted(values), n // 5
    kept = ordered[cut : n - cut]
    pulled = [kept[0]] * cut + kept + [kept[-1]] * cut
    middle = math.fsum(pulled) / n
    squares = math.fsum((value - middle) ** 2 for value in pulled)
    h = len(kept)
    return Estimate(mean=math.fsum(kept) / h, error=math.sqrt(squares / (h * (h - 1))), degrees=h - 1, n=n)


def trimmed_difference(base: Sequence[float], candidate: Sequence[float]) -> Estimate:
    """The trimmed mean of `candidate` less that of `base`, which are not paired: Yuen-Welch. `n`: of the smaller."""
    one, other = trimmed(base), trimmed(candidate)
    a, b = one.error**2, other.error**2
    below = a * a / one.degrees + b * b / other.degrees
    degrees = (a + b) ** 2 / below if below > 0 else one.degrees + other.degrees
    return Estimate(mean=other.mean - one.mean, error=math.sqrt(a + b), degrees=degrees, n=min(one.n, other.n))


# ── how much is enough ───────────────────────────────────────────────────────────────────────────


def reach(alpha: float, degrees: float) -> float:
    """How many standard errors beyond a margin an effect must lie to be found at `alpha` with `POWER`.

    t(1 − α) + t(power), the usual approximation of the noncentral t.
    """
    return t_above(alpha, degrees) + t_above(1 - POWER, degrees)


def with_blocks(estimate: Estimate, n: int) -> Estimate:
    """What the same noise gives in `n` blocks; `n` is at least 2."""
    before = estimate.n - 2 * (estimate.n // 5) - 1
    return Estimate(
        mean=estimate.mean,
        error=estimate.error * math.sqrt(estimate.n / n),
        degrees=estimate.degrees * (n - 2 * (n // 5) - 1) / before,
        n=n,
    )
