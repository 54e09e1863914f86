"""The frontier of measured settings, and how sure it is; pure.

    Point(settings, repeats) ─▶ quarantine ─▶ Noise (means, moderated deviations)
        ─▶ resamples ─▶ intervals, membership probability ─▶ MEMBER | DOMINATED | UNDECIDED ─▶ Frontier

**Scale.** An objective whose values are all positive is compared by its logarithm, so that noise and ties are relative;
any other one by its values, in units of their median size.

**Resamples** draw all true means at once from pooled residuals, scaled as Student's t (why: `noise`). The membership
probability of a point is the share of resamples in which no other dominates it by more than a tie: as good in every
objective, better by more than ε in one. All n − 1 comparisons are in it together, so that none needs a correction.

**Decisions**, with α = 1 − confidence: MEMBER from 1 − α/5 on, DOMINATED up to α/2, the rest UNDECIDED. More repeats
may decide those; points that are equal never are (`tradeoffs.one_of` says which stand together). That a decision is
wrong with at most α is plain where one other point is the rival; how it is among many near ties, `tests/quality`
measures. (Bounds of single differences with Bonferroni's correction missed nobody there, but called down to half as
many points dominated.)

**Ties.** Where two points are for sure within ε in an objective (Student's t, α/2), it does not count between them. So
a point held up by less than ε, and worse in the rest, is DOMINATED, by one that is not DOMINATED itself: where a
frontier is denser than ε it is thinned, never emptied.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from sys import float_info

from contextlab.analysis.axes import config_hash
from contextlab.analysis.intervals import CONFIDENCE
from contextlab.analysis.noise import Interval as Interval
from contextlab.analysis.noise import Noise, Vector, t_bound
from contextlab.model import Settings, UsageError

RESAMPLES = 1000
MEMBER_SHARE = 0.2
"""Part of 1 − confidence that a MEMBER may be wrong by: a bootstrap of three repeats is a little too sure of itself."""
EPSILON = 0.02


class Direction(StrEnum):
    """Which values of an objective are better."""

    UP = "up"
    DOWN = "down"


class Status(StrEnum):
    """What became of a point. Only OK ones are compared."""

    OK = "ok"
    INFEASIBLE = "infeasible"
    """The server refused the setting."""
    CRASHED = "crashed"
    INVALID = "invalid"
    """It was measured, but what was measured cannot be used: not finite, or the client was the limit."""


class Membership(StrEnum):
    """Whether a point is on the frontier, as far as that can be told (see above)."""

    MEMBER = "member"
    DOMINATED = "dominated"
    UNDECIDED = "undecided"
    EXCLUDED = "excluded"
    """Not compared: its status is not OK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One thing to be had much (UP) or little of (DOWN). `epsilon`: relative difference that counts as none."""

    name: str
    direction: Direction
    epsilon: float = EPSILON
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting and what was measured of it: a vector of objective values for each repeat, oldest first."""

    settings: Settings
    repeats: tuple[Vector, ...] = ()
    status: Status = Status.OK
    why: str = ""

    @property
    def key(self) -> str:
        """The hash of its settings."""
        return config_hash(self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one point stands. `values`: geometric mean of its repeats (mean, if a value is not positive) and interval
    of each objective. `probability`: of membership, None where no noise is known. `by`: who dominates it."""

    point: Point
    membership: Membership
    values: tuple[Interval, ...] = ()
    probability: float | None = None
    by: Settings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """All points in the order given, and how they stand.

    `draws[resample][k]` holds the objectives' values of the k-th point that is compared (`compared[k]`, a place in
    `standings`), and bit k of `on[resample]` says whether it is on the frontier there; what is said of the frontier as
    a whole (`tradeoffs`) comes from these.
    """

    objectives: tuple[Objective, ...]
    standings: tuple[Standing, ...]
    confidence: float
    known: bool
    compared: tuple[int, ...] = ()
    draws: Sequence[Sequence[Vector]] = field(default=(), repr=False, compare=False)
    on: Sequence[int] = field(default=(), repr=False, compare=False)

    def of(self, membership: Membership) -> tuple[Standing, ...]:
        """The points that stand so."""
        return tuple(one for one in self.standings if one.membership is membership)

    @property
    def means(self) -> list[Vector]:
        """The central values of the points that are compared, in the order of `compared`."""
        return [tuple(one.value for one in self.standings[place].values) for place in self.compared]


def frontier(
    points: Sequence[Point],
    objectives: Sequence[Objective],
    *,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Frontier:
    """The frontier of these points. Raises UsageError for objectives, points or a confidence that cannot be meant."""
    check(points, objectives, confidence)
    sound = [quarantined(point, len(objectives)) for point in points]
    standings = [Standing(point=point, membership=Membership.EXCLUDED) for point in sound]
    ready = scaled(sound, objectives)
    if ready is None:
        return Frontier(objectives=tuple(objectives), standings=tuple(standings), confidence=confidence, known=False)
    compared, noise, scales = ready.compared, ready.noise, ready.scales
    ties = [scale.tie for scale in scales]
    drawn = noise.draws(Random(seed), resamples)
    on = [0] * len(drawn)
    shares = _shares(noise, drawn, ties, 1 - confidence, on) if noise.known else [(math.nan, -1)] * len(compared)
    for k, place in enumerate(compared):
        share, by = shares[k]
        membership = _membership(share, 1 - confidence) if len(compared) > 1 else Membership.MEMBER
        standings[place] = Standing(
            point=sound[place],
            membership=membership,
            values=tuple(
                _interval(scale, mean, sorted(row[k][j] for row in drawn) if noise.known else [], confidence)
                for j, (scale, mean) in enumerate(zip(scales, noise.means[k], strict=True))
            ),
            probability=share if noise.known else None,
            by=sound[compared[by]].settings if membership is Membership.DOMINATED else None,
        )
    return Frontier(
        objectives=tuple(objectives),
        standings=tuple(standings),
        confidence=confidence,
        known=noise.known,
        compared=compared,
        draws=[[_raw(vector, scales) for vector in row] for row in drawn],
        on=on,
    )


def check(points: Iterable[Point], objectives: Sequence[Objective], confidence: float) -> None:
    """Raises UsageError for no or equal objectives, an ε or a confidence out of its range, and a point given twice."""
    names = [objective.name for objective in objectives]
    if not names or len(set(names)) < len(names):
        raise UsageError(
            f"objectives={','.join(names) or 'none'}: one or more, each once", "for example goodput and ttft"
        )
    for objective in objectives:
        if not 0 <= objective.epsilon < 1:
            raise UsageError(
                f"epsilon={objective.epsilon:g} of {objective.name}: must be from 0 to below 1", "0.02 is 2 %"
            )
    if not 0.5 < confidence < 1:
        raise UsageError(f"confidence={confidence:g}: must be between 0.5 and 1", "0.95 is 95 %")
    seen: set[str] = set()
    for point in points:
        if point.key in seen:
            raise UsageError(f"settings={dict(point.settings)}: given as two points", "give its repeats in one point")
        seen.add(point.key)


def quarantined(point: Point, size: int) -> Point:
    """The point, INVALID with the reason if it has no repeat, or one that is not `size` finite numbers.

    Nothing dominates what is not a number, so that it would float onto the frontier; and leaving out the one repeat
    that failed would flatter the point.
    """
    if point.status is not Status.OK:
        return point
    if not point.repeats:
        return replace(point, status=Status.INVALID, why=point.why or "it was never measured")
    for number, repeat in enumerate(point.repeats, 1):
        if len(repeat) != size or not all(math.isfinite(value) for value in repeat):
            shown = ", ".join(f"{value:g}" for value in repeat)
            return replace(
                point, status=Status.INVALID, why=f"repeat {number} gave ({shown}), not {size} finite numbers"
            )
    return point


# ── scales ───────────────────────────────────────────────────────────────────────────────────────


class Scale:
    """Turns values of one objective so that more is better and noise is even, and back. `tie`: ε there. `least`: what
    is never negative (a rate, a share) is so in no interval either."""

    def __init__(self, objective: Objective, values: Sequence[float]) -> None:
        self.sign = 1.0 if objective.direction is Direction.UP else -1.0
        self.relative = min(values) > 0
        self.least = 0.0 if min(values) >= 0 else -math.inf
        sizes = sorted(abs(value) for value in values)
        self.size = 1.0 if self.relative else sizes[len(sizes) // 2] or sizes[-1] or 1.0
        self.tie = math.log1p(objective.epsilon) if self.relative else objective.epsilon

    def oriented(self, value: float) -> float:
        return self.sign * (math.log(value) if self.relative else value / self.size)

    def raw(self, value: float) -> float:
        if not self.relative:
            return max(self.least, self.sign * value * self.size)
        try:
            return math.exp(self.sign * value)
        except OverflowError:
            return float_info.max


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The points that are compared (`compared`: their places) with their means and noise, more of everything better."""

    compared: tuple[int, ...]
    scales: tuple[Scale, ...]
    noise: Noise

    def plain(self, vector: Vector) -> Vector:
        """From these scales to the objectives' units, more of everything still better."""
        return tuple([scale.sign * scale.raw(value) for scale, value in zip(self.scales, vector, strict=True)])


def scaled(points: Sequence[Point], objectives: Sequence[Objective]) -> Scaled | None:
    """Quarantined points on their scales; None where none can be compared."""
    compared = tuple(place for place, point in enumerate(points) if point.status is Status.OK)
    if not compared:
        return None
    scales = tuple(
        Scale(objective, [repeat[j] for place in compared for repeat in points[place].repeats])
        for j, objective in enumerate(objectives)
    )
    samples = [
        [
            tuple(scale.oriented(value) for scale, value in zip(scales, repeat, strict=True))
            for repeat in points[place].repeats
        ]
        for place in compared
    ]
    return Scaled(compared=compared, scales=scales, noise=Noise(samples))


def _raw(values: Vector, scales: Sequence[Scale]) -> Vector:
    return tuple([scale.raw(value) for scale, value in zip(scales, values, strict=True)])


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of them lies, between neighbours by distance."""
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 2) if len(ordered) > 1 else 0
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _interval(scale: Scale, mean: float, ordered: Sequence[float], confidence: float) -> Interval:
    if not ordered:
        return Interval(value=scale.raw(mean), low=-math.inf, high=math.inf)
    tail = (1 - confidence) / 2
    ends = sorted((scale.raw(percentile(ordered, tail)), scale.raw(percentile(ordered, 1 - tail))))
    return Interval(value=scale.raw(mean), low=ends[0], high=ends[1])


# ── dominance: vectors of which more is better ───────────────────────────────────────────────────


def best_of(vectors: Sequence[Vector]) -> list[int]:
    """Places of the vectors that none dominates (as good in all, better in one), best first objective first.

    Equal vectors are all kept.
    """
    order = sorted(range(len(vectors)), key=lambda i: vectors[i], reverse=True)
    kept: list[int] = []
    if order and len(vectors[order[0]]) == 2:
        top, ahead = -math.inf, None
        for i in order:
            if vectors[i][1] > top or vectors[i] == ahead:
                top, ahead = vectors[i][1], vectors[i]
                kept.append(i)
        return kept
    for i in order:
        vector = vectors[i]
        if not any(all(a >= b for a, b in zip(vectors[k], vector, strict=True)) and vectors[k] != vector for k in kept):
            kept.append(i)
    return kept


def _membership(share: float, alpha: float) -> Membership:
    """What a membership probability decides; one that is nan decides nothing."""
    if share >= 1 - alpha * MEMBER_SHARE:
        return Membership.MEMBER
    return Membership.DOMINATED if share <= alpha / 2 else Membership.UNDECIDED


def _tied(noise: Noise, ties: Sequence[float], alpha: float) -> list[dict[int, tuple[bool, ...]]]:
    """By point, which others are for sure within a tie of it, and in which objectives; not those tied in all."""
    level = 1 - alpha / 2
    found: list[dict[int, tuple[bool, ...]]] = [{} for _ in noise.means]
    for a in range(len(noise.means)):
        for b in range(a):
            flags = []
            for j, tie in enumerate(ties):
                gap, error, degrees = noise.difference(a, b, j)
                flags.append(abs(gap) + (t_bound(level, degrees) * error if error else 0.0) <= tie)
            if any(flags) and not all(flags):
                found[a][b] = found[b][a] = tuple(flags)
    return found


def _shares(
    noise: Noise, drawn: Sequence[Sequence[Vector]], ties: Sequence[float], alpha: float, on: list[int]
) -> list[tuple[float, int]]:
    """For each point the share of resamples in which no other dominates it by more than a tie, and who mostly does.

    Where two are for sure tied in an objective it does not count between them; the one that dominates so must not be
    dominated itself. In `on` the bit of each point is set in the resamples in which none dominates it.
    """
    tied = _tied(noise, ties, alpha)
    fronts = [_Front(row) for row in drawn]
    found = [(1.0, -1)] * len(noise.means)
    kept: set[int] = set()
    for b in sorted(range(len(noise.means)), key=lambda i: sum(noise.means[i]), reverse=True):
        equals = [(a, flags) for a, flags in tied[b].items() if a in kept]
        wins: dict[int, int] = {}
        for place, (row, front) in enumerate(zip(drawn, fronts, strict=True)):
            winner = front.dominator(row[b], ties)
            if winner is None:
                winner = next((a for a, flags in equals if _beyond(row[a], row[b], ties, flags)), None)
            if winner is None:
                on[place] |= 1 << b
            else:
                wins[winner] = wins.get(winner, 0) + 1
        found[b] = 1 - sum(wins.values()) / len(drawn), max(wins, key=lambda a: wins[a], default=-1)
        if found[b][0] > alpha / 2:
            kept.add(b)
    return found


class _Front:
    """The frontier of one resample, asked often who dominates a vector; with two objectives, two sorted lists."""

    def __init__(self, row: Sequence[Vector]) -> None:
        self._places = best_of(row)
        self._best = [row[k] for k in self._places]
        self._falling = [-vector[0] for vector in self._best]
        self._rising = [vector[1] for vector in self._best] if len(row[0]) == 2 else []

    def dominator(self, vector: Vector, ties: Sequence[float]) -> int | None:
        """The place of one that is as good in everything and better by more than a tie in one; None: there is none."""
        if not self._rising:
            return next(
                (k for k, one in zip(self._places, self._best, strict=True) if _beyond(one, vector, ties)), None
            )
        low, high = bisect_left(self._rising, vector[1]), bisect_right(self._falling, -vector[0])
        if low < high:  # these are as good in both: the first is best in one, the last in the other
            if -self._falling[low] > vector[0] + ties[0]:
                return self._places[low]
            if self._rising[high - 1] > vector[1] + ties[1]:
                return self._places[high - 1]
        return None


def _beyond(one: Vector, other: Vector, ties: Sequence[float], equal: Sequence[bool] = ()) -> bool:
    """Whether `one` is as good as the other in every objective and better by more than a tie in one of them."""
    beyond = False
    for j, (a, b) in enumerate(zip(one, other, strict=True)):
        if equal and equal[j]:
            continue
        if a < b:
            return False
        beyond = beyond or a > b + ties[j]
    return beyond
