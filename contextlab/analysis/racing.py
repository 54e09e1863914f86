"""The search for the frontier within a budget, as an object that is asked what to measure and told what came; pure.

    ask ─▶ tasks of one block (every so often the baseline) ─▶ the caller measures them ─▶ tell ─▶ ask …

Rungs: first a **screen**, once each, of settings that cover the grid (all of them where the budget is large). Then
blocks of what the frontier is least sure about:

1. settings never measured next to the likely frontier, first where it has the widest gaps;
2. repeats of settings that may be on it, up to `repeats`; a setting that is dominated for sure gets no more;
3. repeats of those whose membership, or being the knee, is undecided, up to `max_repeats`;
4. the rest of the grid.

A block is measured in random order, the settings of one server together. What is asked depends on the arguments and on
what was told, never on a clock or on the order of telling: a race that is told the results of a killed one first goes
on where that one was (with a budget that is a number; one that is a function says itself what is left).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from contextlab.analysis.axes import Lattice, config_hash, restarting_rarely, server_part
from contextlab.analysis.frontier import (
    Frontier,
    Interval,
    Membership,
    Objective,
    Point,
    Scaled,
    Status,
    check,
    frontier,
    quarantined,
    scaled,
)
from contextlab.analysis.growth import t_quantile
from contextlab.analysis.intervals import CONFIDENCE
from contextlab.analysis.noise import Vector
from contextlab.analysis.surrogate import Surrogate, net, promising, thinned
from contextlab.analysis.tradeoffs import Knee, knee
from contextlab.model import Settings, UsageError

SCREEN_SHARE = 0.18
"""Of the budget, for the first look at the grid."""
MIN_SCREEN = 5
BLOCK = 12
"""Most tasks of one block, without the baseline."""
UNLIKELY = 0.05
LEAST_GAIN = 0.015
FRESH = 1
GUESSED_NOISE = 0.05
RESERVE = 1.1
BASELINE_EVERY = 7
MIN_GUESSED = 4
MINOR = 0.02
STICKY = 2.0
QUICK = 200
"""Resamples while racing; the final frontier takes more."""
MAX_RETRIES = 2
"""How often a result that cannot be used is asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One evaluation to be made: a setting, in a block."""

    settings: Settings
    block: int
    baseline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one evaluation gave. `cost` is in the unit of the budget (seconds, with what a restart took).

    INVALID: this repeat cannot be used, and is asked for again. INFEASIBLE, CRASHED: of the setting as such.
    `at_s`: when it began, seconds since any fixed moment; for the drift.
    """

    settings: Settings
    block: int
    values: Vector = ()
    status: Status = Status.OK
    why: str = ""
    cost: float = 1.0
    at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Something that the race leaves open; `settings` None: of the race as a whole."""

    settings: Settings | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How the baseline changed over the run: relative change of one objective from the first repeat to the last, by the
    straight line through all, and its interval (Student's t). `shown`: the interval excludes 0."""

    objective: str
    change: Interval
    num_repeats: int

    @property
    def shown(self) -> bool:
        """Whether there is a drift."""
        return self.change.low > 0 or self.change.high < 0


class Race:
    """A budgeted search. Not thread-safe; `ask` may be called as often as one likes.

    `budget`: evaluation units in all, or a function that says how many are left; `expected_cost`: units of one
    evaluation, until costs are told. `baseline`: measured again and again (default: the first setting). `restarts`:
    names
    of settings for which a server starts anew. Raises UsageError where the budget is too small for the first round.
    """

    def __init__(
        self,
        configs: Sequence[Settings],
        objectives: Sequence[Objective],
        *,
        budget: float | Callable[[], float],
        baseline: Settings | None = None,
        seed: int = 0,
        restarts: Collection[str] = (),
        repeats: int = 3,
        max_repeats: int = 10,
        confidence: float = CONFIDENCE,
        expected_cost: float = 1.0,
        restart_cost: float = 0.0,
    ) -> None:
        if not configs:
            raise UsageError("sweep=: there is no setting to measure", "give an axis, for example --sweep slots=1,2,4")
        if not 2 <= repeats <= max_repeats:
            raise UsageError(f"repeats={repeats}: must be from 2 to max_repeats={max_repeats}", "3 to 5 are usual")
        baseline = configs[0] if baseline is None else baseline
        self.configs = list(configs)
        if config_hash(baseline) not in {config_hash(config) for config in configs}:
            self.configs.insert(0, baseline)
        check([Point(settings=config) for config in self.configs], objectives, confidence)
        self.objectives, self.confidence = tuple(objectives), confidence
        self._places = {config_hash(config): place for place, config in enumerate(self.configs)}
        self._baseline = self._places[config_hash(baseline)]
        self._budget, self._seed, self._restarts = budget, seed, frozenset(restarts)
        self._repeats, self._max_repeats, self._expected = repeats, max_repeats, expected_cost
        self._restart_cost = restart_cost
        self._told: list[list[Result]] = [[] for _ in self.configs]
        self._plan: list[list[int]] = []
        self._block, self._now = -1, list[int]()
        self._lattice = Lattice(self.configs)
        self._order = self._lattice.screening(Random(f"{seed} screen"))
        self._screen = self._screened()

    # ── asking and telling ──

    def ask(self) -> list[Task]:
        """What to measure next, in this order: what is left of the present step, as far as the budget reaches."""
        while True:
            missing = self._missing()
            if missing:
                affordable = math.floor(self._left() / self._cost() + 1e-9)
                return [
                    Task(settings=self.configs[place], block=self._block, baseline=place == self._baseline)
                    for place in missing[: max(0, affordable)]
                ]
            chosen = self._next_step()
            if not chosen:
                return []
            self._plan.append(chosen)

    def tell(self, results: Iterable[Result]) -> None:
        """What came of some tasks, in any order; results of an earlier, killed race as well.

        Raises UsageError for settings that are not in the race and for values that do not fit the objectives.
        """
        for result in results:
            place = self._places.get(config_hash(result.settings))
            if place is None:
                raise UsageError(f"settings={dict(result.settings)}: not in this race", "resume with the same --sweep")
            if result.status is Status.OK and len(result.values) != len(self.objectives):
                raise UsageError(
                    f"values={result.values}: {len(self.objectives)} objectives", "resume with the same objectives"
                )
            self._told[place].append(result)
            self._told[place].sort(key=lambda one: one.block)

    def done(self) -> bool:
        """Whether there is nothing more to ask: all is decided, or the budget is used up."""
        return not self.ask()

    def points(self) -> list[Point]:
        """Every setting that was measured, with all that was told of it."""
        return [self._point(place, self._told[place]) for place in range(len(self.configs)) if self._told[place]]

    # ── what is known ──

    def _point(self, place: int, results: Sequence[Result]) -> Point:
        """A setting with its repeats. One crash or refusal is the setting's; unusable repeats are left out."""
        settings = self.configs[place]
        for result in results:
            if result.status in (Status.CRASHED, Status.INFEASIBLE):
                return Point(settings=settings, status=result.status, why=result.why)
        usable = tuple(result.values for result in results if result.status is Status.OK)
        if not usable:
            return Point(settings=settings, status=Status.INVALID, why=results[-1].why)
        return Point(settings=settings, repeats=usable)

    def _claims(self) -> list[list[Result]]:
        """By setting: as many of its results as tasks were planned, the oldest first."""
        planned = [0] * len(self.configs)
        for block in self._plan:
            for place in block:
                planned[place] += 1
        return [told[:count] for told, count in zip(self._told, planned, strict=True)]

    def _missing(self) -> list[int]:
        """What is left of the last block; the settings of earlier blocks have claimed their results first."""
        if not self._plan:
            return []
        earlier: dict[int, int] = {}
        for block in self._plan[:-1]:
            for place in block:
                earlier[place] = earlier.get(place, 0) + 1
        missing = []
        for place in self._plan[-1]:
            earlier[place] = earlier.get(place, 0) + 1
            if earlier[place] > len(self._told[place]):
                missing.append(place)
        return missing

    def _spent(self) -> float:
        return math.fsum(result.cost for told in self._told for result in told)

    def _left(self) -> float:
        return self._budget() if callable(self._budget) else self._budget - self._spent()

    def _cost(self) -> float:
        """What one evaluation costs: the mean of those told."""
        count = sum(map(len, self._told))
        return self._spent() / count if count else self._expected

    # ── what to measure ──

    def _screened(self) -> list[int]:
        """The settings of the first rung."""
        count = len(self.configs)
        units = (self._budget() if callable(self._budget) else self._budget) / self._expected
        least = min(count, MIN_SCREEN)
        if units < least + 1:
            raise UsageError(
                f"budget={units * self._expected:g}: one round of {least} settings and the baseline takes about "
                f"{(least + 1) * self._expected:g}",
                "give a larger budget, or shorter evaluations",
            )
        size = min(count, max(least, round(SCREEN_SHARE * units)))
        return self._order[:size]

    def _next_step(self) -> list[int]:
        """The next settings in order; empty if nothing is worth it or affordable."""
        rng = Random(f"{self._seed} step {len(self._plan)}")
        affordable = math.floor(self._left() / self._cost() + 1e-9)
        if affordable < 1:
            return []
        planned = {place for step in self._plan for place in step}
        fresh = [place for place in self._screen if place not in planned]
        if fresh:
            servers: dict[object, list[int]] = {}
            for place in fresh:
                servers.setdefault(self._server(place), []).append(place)
            grouped = [place for group in servers.values() for place in group]
            chosen = grouped[: math.ceil(len(grouped) / math.ceil(len(grouped) / BLOCK))]
            return self._opened(chosen, rng)
        chosen = self._wanted(affordable, planned)
        if not chosen:
            return []
        if len(self._now) + len(chosen) > BLOCK + 1 or any(place in self._now for place in chosen):
            return self._opened(chosen, rng) if affordable > 1 else []
        self._now += chosen
        return restarting_rarely(chosen, self._server, rng, self._running())

    def _opened(self, chosen: list[int], rng: Random) -> list[int]:
        """A step that begins a block."""
        recent = [place for step in self._plan for place in step][-BASELINE_EVERY:]
        if self._baseline not in chosen and (self._baseline not in recent):
            chosen = [*chosen, self._baseline]
        self._block += 1
        self._now = list(chosen)
        return restarting_rarely(chosen, self._server, rng, self._running())

    def _running(self) -> object:
        return self._server(self._plan[-1][-1]) if self._plan else None

    def _server(self, place: int) -> object:
        return server_part(self.configs[place], self._restarts)

    def _wanted(self, left: int, planned: Collection[int]) -> list[int]:
        """The settings most worth a measurement now; `left` evaluations can be afforded."""
        claims = self._claims()
        measured = [place for place, results in enumerate(claims) if results]
        points = [quarantined(self._point(place, claims[place]), len(self.objectives)) for place in measured]
        usable = {place: len(point.repeats) for place, point in zip(measured, points, strict=True)}
        again = [
            place
            for place, point in zip(measured, points, strict=True)
            if point.status is Status.INVALID and not point.repeats and len(claims[place]) <= MAX_RETRIES
        ]
        ready = scaled(points, self.objectives)
        if again or ready is None:
            return again[:BLOCK] or [place for place in self._order if place not in planned][:MIN_SCREEN]
        places = [measured[k] for k in ready.compared]
        models = self._models(ready, places)
        vectors = list(ready.noise.means)
        if models:
            vectors = [tuple(model.predict(self._lattice.spots[place])[0] for model in models) for place in places]
        front = thinned(vectors, self._blur(ready))
        shape = [ready.plain(vectors[k]) for k in front]
        lacking = self._lacking([places[k] for k in front], shape, usable)
        missing = [self._repeats - usable[place] for place in lacking]
        spare = math.floor(left - RESERVE * (sum(missing) + max(missing, default=0)))
        fresh = self._refined(ready, shape, models, planned, min(FRESH, spare))
        return fresh or lacking[:BLOCK] or self._doubtful(points, measured, planned, usable)

    def _models(self, ready: Scaled, places: Sequence[int]) -> list[Surrogate]:
        """A guess for each objective; none where too little was measured."""
        if len(places) < MIN_GUESSED:
            return []
        spots, noise, models = [self._lattice.spots[place] for place in places], ready.noise, []
        for j in range(len(self.objectives)):
            errors = []
            for deviation, degrees, count in zip(noise.deviations, noise.degrees, noise.counts, strict=True):
                seen = deviation[j] ** 2 * degrees[j] if degrees[j] else 0.0
                errors.append((seen + 4 * GUESSED_NOISE**2) / (degrees[j] + 4) / count)
            models.append(Surrogate(spots, [mean[j] for mean in noise.means], errors))
        return models

    def _blur(self, ready: Scaled) -> list[float]:
        """By objective: the difference that cannot be told with all repeats."""
        columns = zip(*ready.noise.deviations, strict=True)
        known = ready.noise.known
        return [(median(column) if known else GUESSED_NOISE) / math.sqrt(self._repeats) for column in columns]

    def _lacking(self, front: Sequence[int], shape: Sequence[Vector], usable: dict[int, int]) -> list[int]:
        """The settings that are still to be repeated, until those that were stand for what seems to be the frontier."""
        done = [i for i, place in enumerate(front) if usable[place] >= self._repeats]
        weights = [1.0 + STICKY * usable[place] / self._repeats for place in front]
        return [front[i] for i in net(shape, weights, done, MINOR)]

    def _refined(
        self, ready: Scaled, front: Sequence[Vector], models: Sequence[Surrogate], planned: Collection[int], room: int
    ) -> list[int]:
        """Settings never measured that would widen the frontier most for what they cost."""
        others = [place for place in range(len(self.configs)) if place not in planned]
        if not models or not others or room < 1:
            return []
        again = self._restart_cost / max(1e-9, self._cost() - self._restart_cost / 2)

        def dearer(i: int, last: int | None) -> float:
            running = self._running() if last is None else self._server(others[last])
            return 1.0 if self._server(others[i]) == running else 1.0 + again

        left = [self._lattice.spots[place] for place in others]
        rng = Random(f"{self._seed} refine {len(self._plan)}")
        found = promising(models, front, left, rng, room, dearer, ready.plain)
        return [others[i] for i, gain in found if gain > LEAST_GAIN]

    def _doubtful(
        self, points: Sequence[Point], measured: Sequence[int], planned: Collection[int], usable: dict[int, int]
    ) -> list[int]:
        """Settings whose membership, or being the knee, is undecided, the least sure first; then the rest of the
        grid."""
        now = frontier(
            points,
            self.objectives,
            confidence=self.confidence,
            seed=self._seed * 1000 + len(self._plan),
            resamples=QUICK,
        )
        bent = {config_hash(settings) for settings in _candidates(knee(now), self.confidence)}
        found = []
        for place, one in zip(measured, now.standings, strict=True):
            chance = 1.0 if one.probability is None else one.probability
            if one.membership is Membership.EXCLUDED or usable[place] >= self._max_repeats or chance <= UNLIKELY:
                continue
            if one.membership is Membership.UNDECIDED or one.point.key in bent or usable[place] < self._repeats:
                found.append((usable[place] >= self._repeats, abs(chance - 0.5), place))
        return [*(place for *_, place in sorted(found)), *(place for place in self._order if place not in planned)][
            :BLOCK
        ]

    # ── what is left open ──

    def why_undecided(self, result: Frontier | None = None) -> tuple[Undecided, ...]:
        """What the race leaves open and why: the budget, equal settings, settings that were never measured."""
        points = self.points()
        result = result or frontier(points, self.objectives, confidence=self.confidence, seed=self._seed)
        num_left = self._left() / self._cost()
        found = []
        for one in result.standings:
            if one.membership is Membership.UNDECIDED:
                count = len(one.point.repeats)
                if count >= self._max_repeats:
                    why = f"after {count} repeats the noise is still larger than its distance from the others"
                elif one.probability is not None and one.probability <= UNLIKELY:
                    why = f"unlikely (probability {one.probability:.2f}), but not excluded by {count} repeats"
                else:
                    why = f"{count} repeats; the budget left {max(0.0, num_left):.0f} evaluations"
                found.append(Undecided(settings=one.point.settings, why=why))
        never = [self.configs[place] for place, told in enumerate(self._told) if not told]
        if never:
            found.append(
                Undecided(settings=None, why=f"{len(never)} of {len(self.configs)} settings were never measured")
            )
        return tuple(found)

    def drift(self) -> tuple[Drift, ...]:
        """How the baseline changed over the run, by objective; empty with fewer than 3 usable repeats."""
        results = [
            one for one in self._told[self._baseline] if one.status is Status.OK and all(map(math.isfinite, one.values))
        ]
        if len(results) < 3:
            return ()
        return tuple(
            Drift(objective=objective.name, num_repeats=len(results), change=_change(results, j, self.confidence))
            for j, objective in enumerate(self.objectives)
        )


def _candidates(found: Knee | None, confidence: float) -> list[Settings]:
    """The settings that may be the knee, where that is not sure."""
    if found is None or found.probability >= confidence:
        return []
    return [found.settings, *(settings for settings, share in found.others if share > UNLIKELY)]


def _change(results: Sequence[Result], objective: int, confidence: float) -> Interval:
    """Relative change along the least-squares line through (time, value), first repeat to last; blocks where no
    time."""
    timed = all(result.at_s is not None for result in results)
    times = [float(result.at_s or 0.0) if timed else float(result.block) for result in results]
    values = [result.values[objective] for result in results]
    count, span = len(values), max(times) - min(times)
    mean_t, mean_v = math.fsum(times) / count, math.fsum(values) / count
    spread = math.fsum((t - mean_t) ** 2 for t in times)
    if spread <= 0 or mean_v == 0:
        return Interval(value=0.0, low=-math.inf, high=math.inf)
    slope = math.fsum((t - mean_t) * (v - mean_v) for t, v in zip(times, values, strict=True)) / spread
    residuals = math.fsum((v - mean_v - slope * (t - mean_t)) ** 2 for t, v in zip(times, values, strict=True))
    reach = t_quantile((1 + confidence) / 2, count - 2) * math.sqrt(residuals / (count - 2) / spread)
    factor = span / abs(mean_v)
    return Interval(value=slope * factor, low=(slope - reach) * factor, high=(slope + reach) * factor)
