"""What a frontier says as a whole: which undecided settings stand for each other, its knee, its hypervolume, the best
setting under an SLO, and how it moved; pure.

Everything comes from the resamples of a `Frontier`, so it has an interval that carries the noise of all points. The
best of many noisy values is flattered: hypervolume and attained values of resamples are flattered twice, which is why
their intervals are turned round (the basic bootstrap, Davison and Hinkley 1997, §5.2: 2·value − the other end).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, pstdev

from contextlab.analysis.frontier import (
    MEMBER_SHARE,
    Direction,
    Frontier,
    Membership,
    Objective,
    Standing,
    best_of,
    percentile,
)
from contextlab.analysis.noise import Interval, Vector
from contextlab.model import NothingMeasured, Settings, UsageError

MIN_BEND = 0.05
"""A curve that is nowhere further than this above its chord (of 1) has no knee."""
LEVELS = 9


def more(vector: Vector, objectives: Sequence[Objective]) -> Vector:
    """The values with more of everything better."""
    return tuple(v if o.direction is Direction.UP else -v for v, o in zip(vector, objectives, strict=True))


# ── one of several ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """Settings that the noise does not tell apart, of which at least one is on the frontier with `probability`."""

    settings: tuple[Settings, ...]
    probability: float


def one_of(result: Frontier) -> tuple[OneOf, ...]:
    """Groups of UNDECIDED settings that hold one of the frontier for sure, as MEMBER is sure; the likeliest first.

    Equal settings dominate each other by turns, so that none is ever sure to be on the frontier; that one of them is
    can be. A group begins with the likeliest setting that is in none yet. The nearest of those that differ from it in
    no objective for sure come to it one by one, until the probability that any of them is on the frontier is reached.
    A group of more than half of all settings would tell nothing.
    """
    if not result.known:
        return ()
    enough = 1 - (1 - result.confidence) * MEMBER_SHARE
    reach = NormalDist().inv_cdf((1 + result.confidence) / 2)
    standing = [result.standings[place] for place in result.compared]
    free = [k for k, one in enumerate(standing) if one.membership is Membership.UNDECIDED]
    free.sort(key=lambda k: -(standing[k].probability or 0.0))
    centres = _centres(result, free)
    found, left = [], list(free)
    for first in free:
        if first not in left:
            continue
        apart = {k: _apart(centres[first], centres[k]) for k in left if k != first}
        group, share = [first], _any_on(result, [first])
        for k in sorted((k for k in apart if apart[k] <= reach), key=lambda k: apart[k]):
            if share >= enough:
                break
            if (wider := _any_on(result, [*group, k])) > share:
                group, share = [*group, k], wider
        if share >= enough and 2 * len(group) <= len(standing):
            left = [k for k in left if k not in group]
            found.append(OneOf(settings=tuple(standing[k].point.settings for k in group), probability=share))
    return tuple(found)


def _any_on(result: Frontier, group: Sequence[int]) -> float:
    """Share of resamples in which one of these is on the frontier."""
    mask = sum(1 << k for k in group)
    return sum(bool(on & mask) for on in result.on) / len(result.on)


def _centres(result: Frontier, places: Sequence[int]) -> dict[int, list[tuple[float, float]]]:
    """By place: (mean, standard deviation) of each objective in the draws; of logarithms where all is positive."""
    found: dict[int, list[tuple[float, float]]] = {k: [] for k in places}
    for objective in range(len(result.objectives)):
        columns = {k: [row[k][objective] for row in result.draws] for k in places}
        if all(value > 0 for column in columns.values() for value in column):
            columns = {k: [math.log(value) for value in column] for k, column in columns.items()}
        for k, column in columns.items():
            found[k].append((fmean(column), pstdev(column)))
    return found


def _apart(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> float:
    """The largest difference of two settings in any objective, in standard errors."""
    most = 0.0
    for (a, spread_a), (b, spread_b) in zip(one, other, strict=True):
        error = math.hypot(spread_a, spread_b)
        most = max(most, abs(a - b) / error if error > 0 else 0.0 if a == b else math.inf)
    return most


# ── knee ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Where the curve bends most: beyond it a little more of the first objective costs much of the second.

    `values`: its place and interval. `probability`: share of resamples with the knee at this setting; `others` with it
    elsewhere, most often first, `none` without any. `ranges`: least and greatest value of each number among the
    settings at which it is in `confidence` of the resamples.
    """

    settings: Settings
    values: tuple[Interval, Interval]
    probability: float
    none: float
    others: tuple[tuple[Settings, float], ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def knee(result: Frontier, first: int = 0, second: int = 1) -> Knee | None:
    """The knee of the frontier of two objectives (places in `objectives`); None: fewer than three points, or no bend.

    Kneedle (Satopää et al. 2011) on the curve of central values: scaled to 0…1, the point furthest above the chord.
    """
    if not result.compared or len(result.objectives) < 2:
        return None
    pair = (result.objectives[first], result.objectives[second])

    def place(vectors: Sequence[Vector]) -> int | None:
        return bend([more((vector[first], vector[second]), pair) for vector in vectors])

    own = place(result.means)
    if own is None:
        return None
    counts: dict[int | None, int] = {}
    seen: list[Vector] = []
    for row in result.draws:
        found = place(row)
        counts[found] = counts.get(found, 0) + 1
        if found is not None:
            seen.append((row[found][first], row[found][second]))
    total, tail = len(result.draws), (1 - result.confidence) / 2
    ranked = sorted(((k, n) for k, n in counts.items() if k is not None), key=lambda item: -item[1])
    columns = [sorted(column) for column in zip(*seen, strict=True)] or [[math.nan]] * 2
    known = result.known and bool(seen)
    likely, covered = [own], counts.get(own, 0)
    for k, n in ranked:
        if covered >= result.confidence * (total - counts.get(None, 0)):
            break
        if k != own:
            likely.append(k)
            covered += n
    settings = [result.standings[result.compared[k]].point.settings for k in likely]
    return Knee(
        settings=settings[0],
        values=tuple(  # type: ignore[arg-type]
            Interval(
                value=result.means[own][objective],
                low=percentile(column, tail) if known else -math.inf,
                high=percentile(column, 1 - tail) if known else math.inf,
            )
            for objective, column in zip((first, second), columns, strict=True)
        ),
        probability=counts.get(own, 0) / total,
        none=counts.get(None, 0) / total,
        others=tuple((result.standings[result.compared[k]].point.settings, n / total) for k, n in ranked if k != own),
        ranges=_ranges(settings),
    )


def bend(vectors: Sequence[Vector]) -> int | None:
    """The place of the knee among pairs of which more is better; None where there is none."""
    curve = best_of(vectors)
    if len(curve) < 3:
        return None
    tops = [max(vectors[i][j] for i in curve) for j in (0, 1)]
    spans = [top - min(vectors[i][j] for i in curve) for j, top in enumerate(tops)]
    if not all(span > 0 for span in spans):
        return None
    above = {i: sum((vectors[i][j] - tops[j]) / spans[j] for j in (0, 1)) + 1 for i in curve}
    furthest = max(above, key=lambda i: above[i])
    return furthest if above[furthest] > MIN_BEND else None


def _ranges(settings: Sequence[Settings]) -> dict[str, tuple[float, float]]:
    columns: dict[str, list[float]] = {}
    for one in settings:
        for name, value in one.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                columns.setdefault(name, []).append(value)
    return {name: (min(values), max(values)) for name, values in columns.items()}


# ── hypervolume ──────────────────────────────────────────────────────────────────────────────────


def volume(vectors: Sequence[Vector], objectives: Sequence[Objective], reference: Vector) -> float:
    """The area (two objectives) or volume (three) that the vectors dominate up to the reference, in their units.

    Vectors that are not better than the reference in every objective add nothing. Raises UsageError for other numbers
    of objectives and for a reference that is not finite.
    """
    if len(objectives) not in (2, 3) or len(reference) != len(objectives):
        raise UsageError(f"reference={reference}: a hypervolume is of 2 or 3 objectives", "give one number for each")
    if not all(math.isfinite(value) for value in reference):
        raise UsageError(f"reference={reference}: must be finite", "the worst values that are of interest")
    floor = more(reference, objectives)
    sides = [tuple(a - b for a, b in zip(more(v, objectives), floor, strict=True)) for v in vectors]
    inside = [side for side in sides if all(value > 0 for value in side)]
    inside = [inside[i] for i in best_of(inside)]
    if len(objectives) == 2:
        return _area(inside)
    layers = sorted(inside, key=lambda side: -side[2])
    total = 0.0
    for count, side in enumerate(layers, 1):
        below = layers[count][2] if count < len(layers) else 0.0
        if side[2] > below:
            slab = [(x, y) for x, y, _ in layers[:count]]
            total += _area([slab[i] for i in best_of(slab)]) * (side[2] - below)
    return total


def _area(curve: Sequence[Vector]) -> float:
    """The area below pairs in the order of `best_of`: the first falls, the second rises."""
    total, reached = 0.0, 0.0
    for x, y in curve:
        if y > reached:
            total += x * (y - reached)
            reached = y
    return total


def hypervolume(result: Frontier, reference: Vector) -> Interval:
    """The hypervolume of all compared points against a fixed reference (in the objectives' units), and its interval."""
    values = [volume(row, result.objectives, reference) for row in result.draws] if result.known else []
    return _turned(volume(result.means, result.objectives, reference), values, result.confidence, 0.0)


def _turned(value: float, resampled: Sequence[float], confidence: float, least: float) -> Interval:
    """The basic bootstrap's interval; infinite without resamples."""
    if not resampled:
        return Interval(value=value, low=-math.inf, high=math.inf)
    ordered, tail = sorted(resampled), (1 - confidence) / 2
    low, high = (2 * value - percentile(ordered, share) for share in (1 - tail, tail))
    return Interval(value=value, low=max(least, low), high=max(least, high))


# ── under an SLO ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a setting must keep: `objective` `op` (`<`, `<=`, `>`, `>=`) `limit`, in the objective's unit. `text`: as
    the user wrote it."""

    objective: str
    op: str
    limit: float
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The best setting that is proven to keep the SLOs; None with the reason in `why` where none is.

    `feasible[k]`: probability with which the k-th of the frontier's standings keeps them all, None where it was not
    compared or no noise is known.
    """

    standing: Standing | None
    why: str
    feasible: tuple[float | None, ...]


def feasibility(result: Frontier, slos: Sequence[Slo]) -> tuple[float | None, ...]:
    """For each standing the share of resamples in which it keeps every SLO.

    An SLO on something that is no objective: give a `Frontier` of the same settings with that as its objective.
    Raises UsageError for an objective or an operator that there is not.
    """
    names = [objective.name for objective in result.objectives]
    tests = []
    for slo in slos:
        if slo.objective not in names:
            raise UsageError(f"slo={slo.objective!r}: not measured here", f"choose from: {', '.join(names)}")
        if slo.op not in ("<", "<=", ">", ">="):
            raise UsageError(f"slo={slo.objective} {slo.op!r}: there is no such comparison", "one of < <= > >=")
        tests.append(
            (names.index(slo.objective), -1.0 if slo.op.startswith(">") else 1.0, slo.op.endswith("="), slo.limit)
        )
    shares: list[float | None] = [None] * len(result.standings)
    if result.known:
        for k, place in enumerate(result.compared):
            kept = 0
            for row in result.draws:
                gaps = [(sign * (row[k][j] - limit), closed) for j, sign, closed, limit in tests]
                kept += all(gap < 0 or (closed and gap == 0) for gap, closed in gaps)
            shares[place] = kept / len(result.draws)
    return tuple(shares)


def recommend(
    result: Frontier, slos: Sequence[Slo], *, best: int = 0, feasible: Sequence[float | None] = ()
) -> Recommendation:
    """The setting with the best central value of one objective among those that keep the SLOs with `confidence`.

    `feasible` takes the place of `feasibility(result, slos)`, where that came from other measurements.
    """
    shares = tuple(feasible) or feasibility(result, slos)
    sign = 1 if result.objectives[best].direction is Direction.UP else -1
    proven = [k for k in result.compared if (share := shares[k]) is not None and share >= result.confidence]
    words = " and ".join(slo.text or f"{slo.objective} {slo.op} {slo.limit:g}" for slo in slos) or "the SLO"
    if proven:
        chosen = result.standings[max(proven, key=lambda k: sign * result.standings[k].values[best].value)]
        why = f"best {result.objectives[best].name} of {len(proven)} that keep {words}"
        return Recommendation(standing=chosen, why=why, feasible=shares)
    if not result.known:
        return Recommendation(standing=None, why="one repeat each: nothing is known of the noise", feasible=shares)
    likeliest = max((share for share in shares if share is not None), default=0.0)
    asked = f"probability {likeliest:.2f}, not {result.confidence:g}"
    why = f"none is proven feasible: the likeliest keeps {words} with {asked}"
    return Recommendation(standing=None, why=why, feasible=shares)


# ── old and new ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a frontier moved. Changes are relative: 0.1 is 10 % more.

    `hypervolume`: of the new one against the old one's. `shift`: of the first objective at equal levels of the second,
    geometric mean over the levels that both reach; None where they share none, or where values are not positive.
    `joined`, `left`: settings that are MEMBER in one and DOMINATED in the other. `missing`: settings of only one.
    """

    hypervolume: Interval
    shift: Interval | None
    joined: tuple[Settings, ...] = ()
    left: tuple[Settings, ...] = ()
    missing: tuple[Settings, ...] = ()

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the hypervolume's interval excludes 0, else `not told apart`."""
        if self.hypervolume.low > 0:
            return "better"
        return "worse" if self.hypervolume.high < 0 else "not told apart"


def compare(old: Frontier, new: Frontier, reference: Vector) -> Comparison:
    """How the frontier moved from old to new, against one reference. Raises NothingMeasured where nothing compares."""
    for result in (old, new):
        measured(result)
    if [(o.name, o.direction) for o in old.objectives] != [(o.name, o.direction) for o in new.objectives]:
        names = " and ".join(", ".join(o.name for o in result.objectives) for result in (old, new))
        raise NothingMeasured(f"the two have different objectives: {names}", "measure both with the same --objective")
    before, after = (volume(result.means, result.objectives, reference) for result in (old, new))
    if before <= 0:
        raise NothingMeasured(f"no old setting is better than the reference {reference}", "take a worse reference")
    known, confidence = old.known and new.known, min(old.confidence, new.confidence)
    pairs = list(zip(old.draws, new.draws, strict=False)) if known else []
    logs = []
    for one, other in pairs:
        volumes = volume(one, old.objectives, reference), volume(other, new.objectives, reference)
        logs.append(math.log(max(volumes[1], 1e-300) / max(volumes[0], 1e-300)))
    change = _turned(math.log(max(after, 1e-300) / before), logs, confidence, -math.inf)
    standings = [{one.point.key: one for one in result.standings} for result in (old, new)]
    both = [(standings[0][key], standings[1][key]) for key in standings[0] if key in standings[1]]
    moved = [(a.membership, b.membership, a.point.settings) for a, b in both]
    return Comparison(
        hypervolume=_relative(change),
        shift=_shift(old, new, confidence, known),
        joined=tuple(s for a, b, s in moved if (a, b) == (Membership.DOMINATED, Membership.MEMBER)),
        left=tuple(s for a, b, s in moved if (a, b) == (Membership.MEMBER, Membership.DOMINATED)),
        missing=tuple(
            one.point.settings
            for own, other in (standings, standings[::-1])
            for key, one in own.items()
            if key not in other
        ),
    )


def _relative(logs: Interval) -> Interval:
    low, high = (math.expm1(end) if end < 700 else math.inf for end in (logs.low, logs.high))
    return Interval(value=math.expm1(logs.value), low=low, high=high)


def _shift(old: Frontier, new: Frontier, confidence: float, known: bool) -> Interval | None:
    """How much more of the first objective there is at equal levels of the second."""
    objectives = old.objectives
    if len(objectives) < 2 or any(v <= 0 for result in (old, new) for vector in result.means for v in vector[:2]):
        return None
    sign = 1 if objectives[1].direction is Direction.UP else -1
    curves = []
    for result in (old, new):
        oriented = [more(vector[:2], objectives[:2]) for vector in result.means]
        curves.append([sign * oriented[i][1] for i in best_of(oriented)])
    low, high = max(min(curve) for curve in curves), min(max(curve) for curve in curves)
    if not low < high:
        return None
    levels = [low * (high / low) ** (step / (LEVELS - 1)) for step in range(LEVELS)]
    value = _gain(old.means, new.means, objectives, levels)
    gains = [_gain(a, b, objectives, levels) for a, b in zip(old.draws, new.draws, strict=False)] if known else []
    if value is None:
        return None
    return _relative(_turned(value, [gain for gain in gains if gain is not None], confidence, -math.inf))


def _gain(
    old: Sequence[Vector], new: Sequence[Vector], objectives: Sequence[Objective], levels: Sequence[float]
) -> float | None:
    """Mean logarithm of new over old of the first objective, at the levels of the second that both reach."""
    up = objectives[0].direction is Direction.UP
    sign = 1 if objectives[1].direction is Direction.UP else -1
    found = []
    for level in levels:
        reached = []
        for vectors in (old, new):
            values = [v[0] for v in vectors if sign * v[1] >= sign * level * (1 - sign * 1e-12)]
            reached.append((max(values) if up else min(values)) if values else 0.0)
        if min(reached) > 0:
            found.append(math.log(reached[1] / reached[0]))
    return fmean(found) if found else None


def measured(result: Frontier) -> Frontier:
    """The frontier itself. Raises NothingMeasured where no point could be compared."""
    if not result.compared:
        reasons = sorted({f"{one.point.status}: {one.point.why}" for one in result.standings})
        raise NothingMeasured("no setting could be compared", "; ".join(reasons[:3]) or "nothing was measured")
    return result
