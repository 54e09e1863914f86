"""Quantiles with intervals that assume no distribution; pure.

    x(1) ≤ … ≤ x(low rank) ≤ … value … ≤ x(high rank) ≤ … ≤ x(n)

The number of n independent values below the true q-quantile is binomial (n, q), so two ranks can be chosen between
which it lies with 95 % whatever the values are (order statistics; equal tails of 2.5 % each). Where so few values
exist that not even the largest one bounds it, there is no interval, and that is said instead: two-sided for p50, p90
and p99 it takes 6, 36 and 368. Failures are +inf: they push quantiles up and never drop out.

The binomial is summed from its own recursion, normalised; no approximation, whatever n (about 1e-13 off).
What it does not cover: values that depend on each other in time, as in a growing queue, tell less than their number
says. Values that come in groups (the gaps of one stream) are weighed by how alike a group is: see `Distribution`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from contextlab.analysis.intervals import CONFIDENCE, mean_interval

_NEGLIGIBLE = 1e-25
"""Terms of a binomial below this part of its largest one are left out."""
BOTH_OF_TWO = (1 + CONFIDENCE) / 2
"""Confidence of each of two intervals that hold together with `CONFIDENCE` (Bonferroni)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """One quantile of `n` values. `low`, `high`: its interval; an end that does not exist is infinite.

    `value` is the smallest seen value with at least this share at or below it; inf where that is a failure, nan of no
    values. `enough`: both ends exist; else `needs` is how many (independent) values it takes.
    `effective_n`: how many independent values the `n` amount to.
    """

    q: float
    value: float
    low: float
    high: float
    n: int
    effective_n: int
    enough: bool
    needs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """A quantile compared with another one, as ratio or difference; `value` is nan where neither can be said.

    The interval is the quotient (difference) of the two intervals' far ends, each of them at 97.5 %, so that both hold
    with 95 %: wider than it must be, but it assumes nothing and carries failures. `enough`: both intervals exist.
    """

    value: float
    low: float
    high: float
    enough: bool


def rank(n: int, q: float) -> int:
    """The rank of the sample's q-quantile among n values, from 1: the smallest that q·n do not exceed."""
    return min(n, max(1, math.ceil(q * n - 1e-9)))


def value_at(ordered: Sequence[float], q: float) -> float:
    """The sample's q-quantile of values in order; nan of none."""
    return ordered[rank(len(ordered), q) - 1] if ordered else math.nan


@lru_cache(maxsize=4096)
def interval_ranks(n: int, q: float, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """The ranks (from 1) of the two values that hold the true q-quantile between them; 0, or n + 1: there is none.

    Raises ValueError unless 0 < q < 1.
    """
    if not 0 < q < 1:
        raise ValueError(f"q={q:g}: must be between 0 and 1")
    if n <= 0:
        return 0, n + 1
    first, weights = _binomial(n, q)
    tail = (1 - confidence) / 2 * math.fsum(weights)
    low, below = first, 0.0  # the first `low` counts together are less likely than `tail`
    for weight in weights:
        below += weight
        if below > tail:
            break
        low += 1
    high, above = first + len(weights), 0.0
    for weight in reversed(weights):
        above += weight
        if above > tail:
            break
        high -= 1
    return low, high


@lru_cache(maxsize=256)
def needed(q: float, confidence: float = CONFIDENCE) -> int:
    """How many values a two-sided interval of the q-quantile takes: 6, 36, 368 for p50, p90, p99 at 95 %."""
    tail, side = (1 - confidence) / 2, max(q, 1 - q)
    n = max(1, math.floor(math.log(tail) / math.log(side)) - 1)
    while side**n > tail:
        n += 1
    return n


def _binomial(n: int, q: float) -> tuple[int, list[float]]:
    """The first count that matters, and from there the probabilities of every count, relative to the likeliest."""
    mode = min(n, int((n + 1) * q))
    odds = q / (1 - q)
    up, weight, count = [1.0], 1.0, mode
    while count < n and weight > _NEGLIGIBLE:
        weight *= (n - count) / (count + 1) * odds
        count += 1
        up.append(weight)
    down, weight, count = [], 1.0, mode
    while count > 0 and weight > _NEGLIGIBLE:
        weight *= count / (n - count + 1) / odds
        count -= 1
        down.append(weight)
    return count, down[::-1] + up


class Distribution:
    """The values of one metric, in order, failures as inf; each group is what one request gave.

    Values of one group are alike, so that ten gaps of one stream are not ten witnesses. Their weight is taken from the
    data: the variance of the share at or below the quantile, with groups as units (the ratio estimator of cluster
    samples), against that of independent values, gives `effective_n`; the interval's ranks are those of so many
    values, stretched to all (Woodruff's interval). Groups of one leave everything as it is.
    """

    def __init__(self, groups: Iterable[Sequence[float]]) -> None:
        self._groups = [group for group in groups if group]
        self.ordered = sorted(chain.from_iterable(self._groups))
        self._grouped = len(self._groups) < len(self.ordered)

    def __len__(self) -> int:
        return len(self.ordered)

    @property
    def num_failed(self) -> int:
        """How many values never came."""
        return len(self.ordered) - bisect_right(self.ordered, math.nextafter(math.inf, 0))

    @property
    def largest(self) -> float:
        """The largest value; nan of none."""
        return self.ordered[-1] if self.ordered else math.nan

    def at(self, q: float) -> float:
        """The sample's q-quantile without an interval."""
        return value_at(self.ordered, q)

    def quantile(self, q: float, confidence: float = CONFIDENCE) -> Quantile:
        """The q-quantile and its interval."""
        n, value = len(self.ordered), self.at(q)
        effective = self._effective(q, value) if self._grouped else n
        low, high = interval_ranks(effective, q, confidence)
        low_rank = (low - 1) * n // effective + 1 if low else 0
        high_rank = -(-high * n // effective) if high <= effective else n + 1
        return Quantile(
            q=q,
            value=value,
            low=self.ordered[low_rank - 1] if low_rank else -math.inf,
            high=self.ordered[high_rank - 1] if high_rank <= n else math.inf,
            n=n,
            effective_n=effective,
            enough=bool(low_rank) and high_rank <= n,
            needs=needed(q, confidence),
        )

    def mean(self, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
        """The mean and its interval (Student's t, groups as units); all inf where a value never came, nan of none."""
        if not self.ordered:
            return math.nan, -math.inf, math.inf
        if self.num_failed:
            return math.inf, math.inf, math.inf
        n, num = len(self.ordered), len(self._groups)
        mean = math.fsum(self.ordered) / n
        if num < 2:
            return mean, -math.inf, math.inf
        squares = math.fsum((math.fsum(group) - mean * len(group)) ** 2 for group in self._groups)
        deviation = num / n * math.sqrt(squares / (num - 1))
        return mean, *mean_interval(mean, deviation, num, confidence)

    def _effective(self, q: float, value: float) -> int:
        """How many independent values these amount to, for their q-quantile; never more than there are."""
        n, num = len(self.ordered), len(self._groups)
        if num < 2:
            return num
        below = [sum(one <= value for one in group) for group in self._groups]
        share = sum(below) / n
        squares = math.fsum((count - share * len(group)) ** 2 for count, group in zip(below, self._groups, strict=True))
        variance = num / (num - 1) * squares / n / n
        if variance <= 0:
            return n if 0 < share < 1 else num
        return max(1, min(n, int(share * (1 - share) / variance)))


def ratio(one: Distribution, other: Distribution, q: float) -> Versus:
    """The q-quantile of one distribution as a multiple of another's, both of values that are not negative."""
    a, b = one.quantile(q, BOTH_OF_TWO), other.quantile(q, BOTH_OF_TWO)
    return Versus(
        value=quotient(a.value, b.value, math.nan),
        low=quotient(max(0.0, a.low), b.high, 0.0),
        high=quotient(a.high, max(0.0, b.low), math.inf),
        enough=a.enough and b.enough,
    )


def difference(one: Distribution, other: Distribution, q: float) -> Versus:
    """By how much the q-quantile of one distribution is above another's."""
    a, b = one.quantile(q, BOTH_OF_TWO), other.quantile(q, BOTH_OF_TWO)
    return Versus(
        value=_minus(a.value, b.value, math.nan),
        low=_minus(a.low, b.high, -math.inf),
        high=_minus(a.high, b.low, math.inf),
        enough=a.enough and b.enough,
    )


def quotient(above: float, below: float, undefined: float) -> float:
    """above / below, neither of them negative; `undefined` for 0/0 and inf/inf, about which nothing can be said."""
    if math.isnan(above) or math.isnan(below) or above == below == 0 or (math.isinf(above) and math.isinf(below)):
        return undefined
    return math.inf if below == 0 else above / below


def _minus(one: float, other: float, undefined: float) -> float:
    return undefined if one == other and math.isinf(one) else one - other
