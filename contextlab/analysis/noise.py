"""How sure the means of a few noisy repeats are, many points together; pure.

Of two to five repeats a plain percentile bootstrap is too narrow: it knows no spread beyond the values it has, is
short of √((n−1)/n), and takes a small standard deviation at its word. Three things mend that here:

1. **Pooled noise.** The points of one sweep are measured in the same way, so the variance of each is drawn towards
   that of all, by as much as their scatter shows them to be alike (moderated variance: Smyth 2004, "Linear models and
   empirical Bayes methods", eq. 3-5, 10-11, as limma's `fitFDist` and `squeezeVar`). A point with one repeat has it
   too.
2. **Student's t** with the degrees of freedom that this leaves, where a bound is decided.
3. **A bootstrap of pooled residuals**, scaled the same way, where the mean of every point is drawn at once.

What it does not cover: a bias that all repeats share (a drift is looked for elsewhere), repeats that depend on each
other, and a point that is noisy in another way than all others while it has few repeats itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from statistics import NormalDist, fmean

from contextlab.analysis.growth import t_quantile

MANY_DEGREES = 120
"""From here on Student's t is read as the normal distribution (its 97.5 % quantile is 1 % off)."""
PREPARED = 2000
"""How many sums of residuals a resample is drawn from."""
MIN_POOL = 24
"""Fewer residuals than this say little of a distribution's shape: it is taken to be normal."""
MIN_POINTS = 4
"""Fewer points with repeats than this do not show how alike their noise is: it is taken to be the same."""

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value and the ends between which it lies; infinite ends: nothing is known of its noise."""

    value: float
    low: float
    high: float


class Noise:
    """The means of points with repeats and how far off they may be. `samples[point][repeat][objective]`.

    The values are taken to scatter about as much at every point: give logarithms where noise is relative.
    `means`, `deviations` (moderated, of one repeat) and `degrees` are by point and objective, `counts` by point.
    `known` is False where no point has two repeats: then deviations are infinite.
    """

    def __init__(self, samples: Sequence[Sequence[Vector]]) -> None:
        self.counts = [len(repeats) for repeats in samples]
        self.means: list[Vector] = [
            tuple(fmean(column) for column in zip(*repeats, strict=True)) for repeats in samples
        ]
        size = len(self.means[0]) if self.means else 0
        self.known = any(count > 1 for count in self.counts)
        columns = [self._moderated(samples, objective) for objective in range(size)]
        self.deviations = [tuple(math.sqrt(columns[j][i][0]) for j in range(size)) for i in range(len(samples))]
        self.degrees = [tuple(columns[j][i][1] for j in range(size)) for i in range(len(samples))]
        self._pool = self._residuals(samples)

    def _moderated(self, samples: Sequence[Sequence[Vector]], objective: int) -> list[tuple[float, float]]:
        """(variance, degrees of freedom) of every point, drawn towards the common one."""
        degrees = [count - 1 for count in self.counts]
        sums = [
            math.fsum((repeat[objective] - mean[objective]) ** 2 for repeat in repeats)
            for repeats, mean in zip(samples, self.means, strict=True)
        ]
        total = sum(degrees)
        if total == 0:
            return [(math.inf, 0.0)] * len(samples)
        pooled = math.fsum(sums) / total
        own = [(squares / one, one) for squares, one in zip(sums, degrees, strict=True) if one]
        prior, prior_degrees = prior_variance(own) if pooled > 0 else (0.0, math.inf)
        found = []
        for squares, one in zip(sums, degrees, strict=True):
            if math.isinf(prior_degrees):
                found.append((pooled, float(total)))
            else:
                both = prior_degrees + one
                found.append(((prior_degrees * prior + squares) / both, min(both, float(total))))
        return found

    def _residuals(self, samples: Sequence[Sequence[Vector]]) -> list[Vector]:
        """What repeats are off their point's mean, in the point's moderated deviations; they have variance 1."""
        pool: list[Vector] = []
        for repeats, mean, deviation in zip(samples, self.means, self.deviations, strict=True):
            if len(repeats) > 1:
                widen = math.sqrt(len(repeats) / (len(repeats) - 1))
                pool += [
                    tuple(
                        (x - m) * widen / s if s > 0 else 0.0 for x, m, s in zip(repeat, mean, deviation, strict=True)
                    )
                    for repeat in repeats
                ]
        if not pool:
            return []
        sizes = [math.sqrt(fmean(value * value for value in column)) for column in zip(*pool, strict=True)]
        return [tuple(v / size if size > 0 else 0.0 for v, size in zip(row, sizes, strict=True)) for row in pool]

    def difference(self, one: int, other: int, objective: int) -> tuple[float, float, float]:
        """(mean of `one` − mean of `other`, its standard error, degrees of freedom by Welch and Satterthwaite)."""
        a = self.deviations[one][objective] ** 2 / self.counts[one]
        b = self.deviations[other][objective] ** 2 / self.counts[other]
        gap = self.means[one][objective] - self.means[other][objective]
        if not a + b > 0 or math.isinf(a + b):
            return gap, math.sqrt(a + b), math.inf if a + b == 0 else 0.0
        below = a * a / self.degrees[one][objective] + b * b / self.degrees[other][objective]
        return gap, math.sqrt(a + b), (a + b) ** 2 / below

    def draws(self, rng: Random, resamples: int) -> list[list[Vector]]:
        """Where the true means may be: `resamples` times one vector for every point, all objectives together.

        mean − deviation · √(degrees / χ²(degrees)) · mean of as many pooled residuals as the point has repeats; the
        objectives of one repeat stay together. Of noise that is not known: the means themselves.
        """
        if not self.known:
            return [list(self.means) for _ in range(resamples)]
        pool = self._pool if len(self._pool) >= MIN_POOL else _normal_like(self._pool, rng)
        sums = {n: _sums(pool, n, rng) for n in sorted(set(self.counts))}
        stretches = {d: _stretches(d, rng) for d in sorted({min(degrees) for degrees in self.degrees})}
        plan = [
            (mean, [one / n for one in deviation], sums[n], stretches[min(degrees)])
            for mean, deviation, degrees, n in zip(self.means, self.deviations, self.degrees, self.counts, strict=True)
        ]
        random, drawn = rng.random, []
        for _ in range(resamples):
            row: list[Vector] = []
            for mean, parts, offs, wider in plan:
                stretch, off = wider[int(random() * PREPARED)], offs[int(random() * PREPARED)]
                row.append(tuple([m - part * stretch * o for m, part, o in zip(mean, parts, off, strict=True)]))
            drawn.append(row)
        return drawn


def _sums(pool: Sequence[Vector], count: int, rng: Random) -> list[Vector]:
    """Sums of `count` residuals, drawn with replacement, to draw from."""
    return [tuple(map(sum, zip(*rng.choices(pool, k=count), strict=True))) for _ in range(PREPARED)]


def _stretches(degrees: float, rng: Random) -> list[float]:
    """√(degrees / χ²(degrees)), to draw from: by how much a deviation may be larger than it looks."""
    if degrees >= MANY_DEGREES:
        return [1.0] * PREPARED
    return [math.sqrt(degrees / max(1e-12, 2 * rng.gammavariate(degrees / 2, 1))) for _ in range(PREPARED)]


def _normal_like(pool: Sequence[Vector], rng: Random, size: int = 512) -> list[Vector]:
    """Normal numbers of variance 1 with the pool's correlation between objectives: mixtures of its own rows."""
    scale = math.sqrt(len(pool))
    width = len(pool[0])
    found = []
    for _ in range(size):
        weights = [rng.gauss(0.0, 1.0) / scale for _ in pool]
        found.append(tuple(math.fsum(w * row[j] for w, row in zip(weights, pool, strict=True)) for j in range(width)))
    return found


@lru_cache(maxsize=8192)
def _t(probability: float, degrees: int) -> float:
    return NormalDist().inv_cdf(probability) if degrees >= MANY_DEGREES else t_quantile(probability, degrees)


def t_bound(probability: float, degrees: float) -> float:
    """What Student's t stays below with this probability (0.5 to 1); degrees are rounded down, below 1 it is
    infinite."""
    if degrees < 1:
        return math.inf
    return _t(probability, MANY_DEGREES if degrees >= MANY_DEGREES else math.floor(degrees + 1e-9))


# ── drift ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How one setting, measured again and again, changed: relative change of an objective from the first repeat to the
    last along the least-squares line through all, and its interval (Student's t, n − 2 degrees of freedom)."""

    objective: str
    change: Interval
    num_repeats: int

    @property
    def shown(self) -> bool:
        """Whether there is a drift: the interval excludes 0."""
        return self.change.low > 0 or self.change.high < 0


def drift(
    times: Sequence[float], vectors: Sequence[Vector], names: Sequence[str], confidence: float
) -> tuple[Drift, ...]:
    """The drift of every objective; empty with fewer than 3 repeats, or all of them at one time."""
    count = len(times)
    if count < 3 or max(times) == min(times):
        return ()
    middle, span = fmean(times), max(times) - min(times)
    spread = math.fsum((t - middle) ** 2 for t in times)
    found = []
    for name, values in zip(names, zip(*vectors, strict=True), strict=True):
        mean = fmean(values)
        slope = math.fsum((t - middle) * (v - mean) for t, v in zip(times, values, strict=True)) / spread
        rest = math.fsum((v - mean - slope * (t - middle)) ** 2 for t, v in zip(times, values, strict=True))
        reach = t_quantile((1 + confidence) / 2, count - 2) * math.sqrt(rest / (count - 2) / spread)
        factor = span / abs(mean) if mean else 0.0
        change = Interval(value=slope * factor, low=(slope - reach) * factor, high=(slope + reach) * factor)
        found.append(Drift(objective=name, change=change, num_repeats=count))
    return tuple(found)


# ── how alike variances are ──────────────────────────────────────────────────────────────────────


def prior_variance(variances: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """(common variance, how many degrees of freedom it is worth) from (variance, its degrees) of several points.

    Smyth 2004, section 6.2: if s²/s₀² is F-distributed (d, d₀), then the mean and the variance of ln s² give both; d₀
    is infinite where they scatter no more than chance makes them.
    """
    pooled = math.fsum(variance * degrees for variance, degrees in variances) / sum(one for _, one in variances)
    if len(variances) < MIN_POINTS:
        return pooled, math.inf
    shifted = [
        math.log(max(variance, 1e-4 * pooled)) - digamma(degrees / 2) + math.log(degrees / 2)
        for variance, degrees in variances
    ]
    middle = fmean(shifted)
    excess = math.fsum((one - middle) ** 2 for one in shifted) / (len(shifted) - 1)
    excess -= fmean(trigamma(degrees / 2) for _, degrees in variances)
    if excess <= 0:
        return pooled, math.inf
    half = inverse_trigamma(excess)
    return math.exp(middle + digamma(half) - math.log(half)), 2 * half


def digamma(x: float) -> float:
    """ψ(x) for x > 0: recurrence up to 6, then the asymptotic series (Abramowitz and Stegun 6.3.5, 6.3.18)."""
    shift = 0.0
    while x < 6:
        shift -= 1 / x
        x += 1
    square = 1 / (x * x)
    return shift + math.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252))


def trigamma(x: float) -> float:
    """ψ'(x) for x > 0: recurrence up to 6, then the asymptotic series (Abramowitz and Stegun 6.4.6, 6.4.12)."""
    shift = 0.0
    while x < 6:
        shift += 1 / (x * x)
        x += 1
    square = 1 / (x * x)
    return shift + 1 / x + square / 2 + square / x * (1 / 6 - square * (1 / 30 - square / 42))


def inverse_trigamma(y: float) -> float:
    """The x > 0 at which ψ'(x) = y > 0, by bisection of ln x; at most 1e6."""
    low, high = math.log(1e-6), math.log(1e6)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if trigamma(math.exp(middle)) > y else (low, middle)
    return math.exp((low + high) / 2)
