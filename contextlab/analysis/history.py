"""Trends over many runs: series of one metric, whether they are autocorrelated, and where their level seems to change.

    entries, oldest first ─▶ series ─▶ autocorrelated? ── yes ─▶ no advice, and why
                                            └── no ─▶ largest step (CUSUM, permutation test) ─▶ both sides again

Advice, never a verdict: runs of a history were not interleaved, and one machine differs from day to day. The
permutation test holds whatever the values' distribution, but only where the runs are exchangeable. Where each run
resembles the one before it (drift, a warm cache, noisy neighbours) it is wrong far too often, so it is switched off.
Simulated, of series without any change: 1 to 2 % show one where runs are independent, whatever their distribution;
where they are autocorrelated (0.3 to 0.9), 5 to 17 % of short series (15 runs) and 3 to 10 % of 30 runs.

Sources: the scaled CUSUM of Page (1954) with its permutation test (Good, Permutation Tests, 2000), ended early as Besag
and Clifford (1991) do; binary segmentation (Scott and Knott, 1974); lag-1 autocorrelation with its permutation test
(Wald and Wolfowitz, 1943).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from statistics import median
from typing import Literal

from contextlab.model import Verdict

Better = Literal["less", "more", "neither"]
MIN_RUNS = 10
"""Of fewer no split can be told from chance at `LEVEL`: there are too few ways to arrange them."""
MAX_RUNS = 100
"""Older runs are shown, and not looked at."""
ROUNDING = 1e-12
"""Relative differences below this are those of the arithmetic."""
MIN_SIDE = 2
"""A change has to last: the last run alone is never one."""
LEVEL = 0.01
"""How often a series without any change may show one, as a whole."""
AUTOCORRELATED_LEVEL = 0.2
"""Strict on purpose: a weak correlation that goes unseen costs false changes, one that is wrongly seen only silence."""
LEAST_CHANGE = 0.02
"""A relative change below this is not worth a word, however sure."""
_DRAWS = 2000
_EXCEEDANCES = 40
"""As soon as so many draws were as extreme, the rest of them is not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What one run measured of one metric."""

    scenario: str
    metric: str
    value: float
    unit: str = ""
    better: Better = "less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run. Runs are compared where `command`, `target`, `asked` and `machine` are equal.

    `asked`: the command line without what changes nothing (a folder, a seed). `began_at`: ISO 8601, with a zone.
    """

    run: str
    began_at: str
    command: str
    target: str
    asked: str
    machine: str
    verdict: Verdict
    exit_code: int | None
    values: tuple[Value, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What must be equal."""
        return self.command, self.target, self.asked, self.machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a series."""

    run: str
    began_at: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The level before a run and from it on: medians of the stretches on either side. `place`: its point's number.

    `ratio` is after / before, None where before is 0. `worse`: by the direction of the metric; False where it has none.
    """

    place: int
    run: str
    began_at: str
    before: float
    after: float
    ratio: float | None
    p: float
    worse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric over the runs of a group, oldest first. `advice`: what was found, or why nothing was looked for."""

    scenario: str
    metric: str
    unit: str
    better: Better
    points: tuple[Point, ...]
    changes: tuple[Change, ...] = ()
    autocorrelation: float | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that can be compared, oldest first, and their series in the order in which the runs name them."""

    command: str
    target: str
    asked: str
    machine: str
    entries: tuple[Entry, ...]
    series: tuple[Series, ...]


def groups(entries: Sequence[Entry]) -> tuple[Group, ...]:
    """The entries by what they have in common, the group with the newest run first."""
    by_key: dict[tuple[str, str, str, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda each: (each.began_at, each.run)):
        by_key.setdefault(entry.key, []).append(entry)
    found = [
        Group(
            command=members[0].command,
            target=members[0].target,
            asked=members[0].asked,
            machine=members[0].machine,
            entries=tuple(members),
            series=_series(members),
        )
        for members in by_key.values()
    ]
    return tuple(sorted(found, key=lambda group: (group.entries[-1].began_at, group.asked), reverse=True))


def _series(members: Sequence[Entry]) -> tuple[Series, ...]:
    named: dict[tuple[str, str], list[tuple[Entry, Value]]] = {}
    for entry in members:
        for value in entry.values:
            if math.isfinite(value.value):
                named.setdefault((value.scenario, value.metric), []).append((entry, value))
    found = []
    for (scenario, metric), pairs in named.items():
        latest = pairs[-1][1]
        points = tuple(
            Point(run=entry.run, began_at=entry.began_at, value=value.value)
            for entry, value in pairs
            if value.unit == latest.unit
        )
        found.append(studied(scenario, metric, latest.unit, latest.better, points))
    return tuple(found)


def studied(scenario: str, metric: str, unit: str, better: Better, points: tuple[Point, ...]) -> Series:
    """A series with its changes, or with the reason why none are told."""
    series = Series(scenario=scenario, metric=metric, unit=unit, better=better, points=points)
    recent = points[-MAX_RUNS:]
    values = [point.value for point in recent]
    if len(values) < MIN_RUNS:
        return _with(series, advice=f"{len(values)} of the {MIN_RUNS} runs that it takes to look for changes")
    if max(values) == min(values):
        return _with(series, advice="the same in every run")
    steps = _steps(values, 0)
    left = _levelled(values, [place for place, _, _ in steps] or [_best_split(values)[0]])
    r = autocorrelation(left)
    if _p_of(left, autocorrelation, r, AUTOCORRELATED_LEVEL) <= AUTOCORRELATED_LEVEL:
        why = f"each run resembles the one before it (lag-1 autocorrelation {r:.2f}): changes are not looked for"
        return _with(series, advice=why, autocorrelation=r)
    offset = len(points) - len(recent)
    changes = tuple(_change(points, offset, place, ends, p, better) for place, ends, p in steps)
    told = tuple(one for one in changes if one.ratio is None or abs(one.ratio - 1) >= LEAST_CHANGE)
    return _with(series, advice="" if told else "no lasting change", autocorrelation=r, changes=told)


def _with(
    series: Series, *, advice: str, autocorrelation: float | None = None, changes: tuple[Change, ...] = ()
) -> Series:
    return Series(
        scenario=series.scenario,
        metric=series.metric,
        unit=series.unit,
        better=series.better,
        points=series.points,
        changes=changes,
        autocorrelation=autocorrelation,
        advice=advice,
    )


# ── statistics ───────────────────────────────────────────────────────────────────────────────────


def autocorrelation(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation: Σ (xₜ − x̄)(xₜ₊₁ − x̄) / Σ (xₜ − x̄)²; 0 where all values are equal, to `ROUNDING`."""
    mean = math.fsum(values) / len(values)
    centred = [value - mean for value in values]
    whole = math.fsum(each * each for each in centred)
    if whole <= len(values) * (ROUNDING * mean) ** 2:
        return 0.0
    return sum(a * b for a, b in pairwise(centred)) / whole


def cusum(values: Sequence[float]) -> float:
    """The largest |Sₖ − k·x̄| · √(n / (k(n − k))) over splits that leave `MIN_SIDE` values on either side."""
    return _best_split(values)[1]


def _best_split(values: Sequence[float]) -> tuple[int, float]:
    """(how many values stand before the split, the statistic)."""
    num = len(values)
    mean = math.fsum(values) / num
    best, place, so_far = -1.0, MIN_SIDE, 0.0
    for k in range(1, num - MIN_SIDE + 1):
        so_far += values[k - 1] - mean
        if k >= MIN_SIDE:
            found = abs(so_far) * math.sqrt(num / (k * (num - k)))
            if found > best:
                best, place = found, k
    return place, best


def _steps(values: Sequence[float], start: int) -> list[tuple[int, tuple[int, int], float]]:
    """(first place after the change, stretch [begin, end) that it splits, p) by binary segmentation, in order."""
    if len(values) < MIN_RUNS:
        return []
    place, statistic = _best_split(values)
    p = _p_of(values, cusum, statistic, LEVEL)
    if p > LEVEL:
        return []
    left, right = _steps(values[:place], start), _steps(values[place:], start + place)
    begin = left[-1][0] if left else start
    end = right[0][0] if right else start + len(values)
    return [*left, (start + place, (begin, end), p), *right]


def _p_of(values: Sequence[float], statistic: Callable[[Sequence[float]], float], seen: float, level: float) -> float:
    """The share of arrangements of the values whose statistic is as large; equal values give an equal answer."""
    shuffled, rng, exceeding = list(values), Random(len(values)), 0
    for draw in range(1, _DRAWS + 1):
        rng.shuffle(shuffled)
        exceeding += statistic(shuffled) >= seen * (1 - 1e-12)
        if exceeding >= _EXCEEDANCES and exceeding / draw > 2 * level:
            return exceeding / draw
    return (exceeding + 1) / (_DRAWS + 1)


def _levelled(values: Sequence[float], places: Sequence[int]) -> list[float]:
    """The values less the mean of their stretch between these places: a step is no autocorrelation."""
    found: list[float] = []
    for begin, end in pairwise([0, *places, len(values)]):
        mean = math.fsum(values[begin:end]) / (end - begin)
        found += [value - mean for value in values[begin:end]]
    return found


def _change(
    points: Sequence[Point], offset: int, place: int, ends: tuple[int, int], p: float, better: Better
) -> Change:
    recent = points[offset:]
    before = median([point.value for point in recent[ends[0] : place]])
    after = median([point.value for point in recent[place : ends[1]]])
    risen = after > before
    return Change(
        place=offset + place,
        run=recent[place].run,
        began_at=recent[place].began_at,
        before=before,
        after=after,
        ratio=after / before if before else None,
        p=p,
        worse=(better == "less" and risen) or (better == "more" and not risen),
    )
