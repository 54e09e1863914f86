"""The search for the frontier within a budget, as an object that is asked what to measure and told what came; pure.

    ask ─▶ tasks (a step of a block) ─▶ the caller measures them ─▶ tell ─▶ ask …

Rungs: first a **screen**, once each, of settings that cover the grid evenly. Then, step by step, what helps most:

1. settings never measured that would widen the frontier most for what they cost, in its gaps and at its ends, as long
   as the budget also reaches for 2 (`surrogate` guesses; where the server refused or died nearby, it counts for less);
2. repeats, up to `repeats`, of those settings that together stand for the likely frontier;
3. repeats, up to `max_repeats`, where membership or the knee is undecided; a setting that is dominated for sure, or is
   on the frontier with a probability of at most 5 %, gets no more;
4. the rest of the grid, next to the frontier first.

A block is at most `BLOCK` tasks: no setting is in it twice, and the baseline is in it unless it was measured just
before (`BASELINE_EVERY`), so that a drift is seen. A step is measured in random order, but server by server.

What is asked depends on the arguments and on what was told, never on a clock or on the order of telling: a race that is
told the results of a killed one first goes on where that one was, and asks for nothing twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, median

from contextlab.analysis import quantities
from contextlab.analysis.axes import Lattice, config_hash, restarting_rarely, server_part
from contextlab.analysis.frontier import (
    Frontier,
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
from contextlab.analysis.intervals import CONFIDENCE
from contextlab.analysis.noise import Drift as Drift
from contextlab.analysis.noise import Vector, drift
from contextlab.analysis.surrogate import Surrogate, guesses, net, promising, thinned
from contextlab.analysis.tradeoffs import Knee, knee
from contextlab.model import Settings, UsageError

SCREEN_SHARE = 0.18
"""Of the budget, for the first look at the grid."""
MIN_SCREEN = 5
MIN_GUESSED = 4
BLOCK = 12
BASELINE_EVERY = 7
LEAST_GAIN = 0.01
"""Settings that would widen the frontier by less of its extent are left for the end."""
APART = 0.02
"""Points of the frontier closer than this, of its extent, stand for each other."""
RESERVE = 1.1
"""Of what the missing repeats will cost, kept back for them."""
STICKY = 5.0
"""How much more a setting with repeats counts than one without, where either would do."""
UNLIKELY = 0.05
QUICK = 200
"""Resamples while racing; the final frontier takes more."""
GUESSED_NOISE = 0.05
"""Relative noise as long as little is known of it; it weighs as much as 5 repeats."""
MAX_RETRIES = 2
"""How often results of one setting that cannot be used are asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One evaluation to be made: a setting, in a block."""

    settings: Settings
    block: int
    baseline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one evaluation gave. `cost` is in the unit of the budget (seconds), and so is the part of it that the start
    of a server took, `start_cost`.

    INVALID: this repeat cannot be used, and is asked for again unless it is `final`: then another would come to the
    same. INFEASIBLE, CRASHED: of the setting as such.
    `at_s`: when it began, seconds since any fixed moment; for the drift.
    """

    settings: Settings
    block: int
    values: Vector = ()
    status: Status = Status.OK
    why: str = ""
    final: bool = False
    cost: float = 1.0
    start_cost: float = 0.0
    at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Something that the race leaves open; `settings` None: of the race as a whole."""

    settings: Settings | None
    why: str


class Race:
    """A budgeted search. Not thread-safe; `ask` may be called as often as one likes.

    `budget`: evaluation units in all. `expected_cost`: units of one evaluation, until costs are told; `restart_cost`:
    what another server adds to it, until starts are told; `unit`: how it is written behind a number. `baseline`:
    measured again and again (default: the first setting). `restarts`: names of settings for which a server starts anew.
    Raises UsageError where the budget is too small for the first round, and for settings or objectives that cannot be
    meant.
    """

    def __init__(
        self,
        configs: Sequence[Settings],
        objectives: Sequence[Objective],
        *,
        budget: float,
        baseline: Settings | None = None,
        seed: int = 0,
        restarts: Collection[str] = (),
        repeats: int = 5,
        max_repeats: int = 10,
        confidence: float = CONFIDENCE,
        expected_cost: float = 1.0,
        restart_cost: float = 0.0,
        unit: str = "",
    ) -> None:
        if not configs:
            raise UsageError("sweep=: there is no setting to measure", "give an axis, for example --sweep slots=1,2,4")
        if not 2 <= repeats <= max_repeats:
            raise UsageError(f"repeats={repeats}: must be from 2 to max_repeats={max_repeats}", "3 to 5 are usual")
        baseline = configs[0] if baseline is None else baseline
        known = {config_hash(config) for config in configs}
        self.configs = [*([] if config_hash(baseline) in known else [baseline]), *configs]
        check([Point(settings=config) for config in self.configs], objectives, confidence)
        self.objectives, self.confidence = tuple(objectives), confidence
        self._places = {config_hash(config): place for place, config in enumerate(self.configs)}
        self._baseline = self._places[config_hash(baseline)]
        self._budget, self._seed, self._restarts = budget, seed, frozenset(restarts)
        self._repeats, self._max_repeats = repeats, max_repeats
        self._expected, self._restart_cost, self._unit = expected_cost, restart_cost, unit
        self._told: list[list[Result]] = [[] for _ in self.configs]
        self._lattice = Lattice(self.configs)
        self._order = self._lattice.screening(Random(f"{seed} screen"))
        self._screen = self._screened()
        self._plan: list[list[int]] = []  # steps of places, in the order in which they are measured
        self._planned = [0] * len(self.configs)
        self._block, self._now = -1, list[int]()  # the block's number, and what is in it

    # ── asking and telling ──

    def ask(self) -> list[Task]:
        """What to measure next, in this order: what is left of the present step, as far as the budget reaches."""
        while True:
            missing = self._missing()
            if missing:
                return [
                    Task(settings=self.configs[place], block=self._block, baseline=place == self._baseline)
                    for place in missing[: self._affordable(cautious=True)]
                ]
            step = self._next_step()
            if not step:
                return []
            self._plan.append(step)
            for place in step:
                self._planned[place] += 1

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
                    f"values={result.values}: there are {len(self.objectives)} objectives",
                    "resume with the same objectives",
                )
            self._told[place].append(result)
            self._told[place].sort(key=lambda one: one.block)

    def done(self) -> bool:
        """Whether there is nothing more to ask: all is decided, or the budget is used up."""
        return not self.ask()

    def points(self) -> list[Point]:
        """Every setting that was measured, with all that was told of it."""
        return [self._point(place, told) for place, told in enumerate(self._told) if told]

    def drift(self) -> tuple[Drift, ...]:
        """How the baseline changed over the run, by objective; empty with fewer than 3 usable repeats."""
        told = self._told[self._baseline]
        usable = [one for one in told if one.status is Status.OK and all(map(math.isfinite, one.values))]
        timed = all(one.at_s is not None for one in usable)
        times = [float(one.at_s or 0.0) if timed else float(one.block) for one in usable]
        names = [objective.name for objective in self.objectives]
        return drift(times, [one.values for one in usable], names, self.confidence)

    def why_undecided(self, result: Frontier | None = None) -> tuple[Undecided, ...]:
        """What the race leaves open and why: noise, the budget, settings that were never measured."""
        result = result or frontier(self.points(), self.objectives, confidence=self.confidence, seed=self._seed)
        found = []
        for one in result.standings:
            if one.membership is Membership.UNDECIDED:
                count = len(one.point.repeats)
                if count >= self._max_repeats:
                    why = f"after {count} repeats the noise is still larger than its distance from the others"
                elif one.probability is not None and one.probability <= UNLIKELY:
                    why = f"unlikely (probability {one.probability:.2f}), but not excluded by repeats: {count}"
                else:
                    left = self._affordable()
                    why = f"repeats: {count}; the budget leaves {quantities.count(left, 'evaluation')}"
                found.append(Undecided(settings=one.point.settings, why=why))
        never = sum(not told for told in self._told)
        if never:
            why = f"{never} of {len(self.configs)} settings {'was' if never == 1 else 'were'} never measured"
            found.append(Undecided(settings=None, why=why))
        return tuple(found)

    # ── what is known ──

    def _point(self, place: int, results: Sequence[Result]) -> Point:
        """A setting with its repeats. A crash or refusal is the setting's; repeats that cannot be used are left out."""
        settings = self.configs[place]
        for result in results:
            if result.status in (Status.CRASHED, Status.INFEASIBLE):
                return Point(settings=settings, status=result.status, why=result.why)
        usable = tuple(result.values for result in results if result.status is Status.OK)
        if not usable:
            return Point(settings=settings, status=Status.INVALID, why=results[-1].why)
        return quarantined(Point(settings=settings, repeats=usable), len(self.objectives))

    def _claims(self) -> list[list[Result]]:
        """By setting: as many of its results as tasks were planned, the oldest first."""
        return [told[:count] for told, count in zip(self._told, self._planned, strict=True)]

    def _missing(self) -> list[int]:
        """What is left of the last step: the settings with fewer results than planned tasks."""
        return (
            [place for place in self._plan[-1] if self._planned[place] > len(self._told[place])] if self._plan else []
        )

    def _costs(self) -> list[float]:
        return sorted(result.cost for claimed in self._claims() for result in claimed) or [self._expected]

    def _affordable(self, *, cautious: bool = False) -> int:
        """How many evaluations the budget reaches for, at their mean cost; `cautious`: at that of a dear one."""
        costs = self._costs()
        spent = math.fsum(costs) if any(self._told) else 0.0
        cost = costs[int(0.8 * len(costs))] if cautious else math.fsum(costs) / len(costs)
        return max(0, math.floor((self._budget - spent) / max(cost, 1e-9) + 1e-9))

    def _dearer(self) -> float:
        """What the start of another server adds to an evaluation, in evaluations without one."""
        starts = [one.start_cost for claimed in self._claims() for one in claimed if one.start_cost]
        start, costs = fmean(starts) if starts else self._restart_cost, self._costs()
        share = len(starts) / len(costs) if starts else 0.5
        return start / max(1e-9, fmean(costs) - share * start)

    # ── what to measure ──

    def _screened(self) -> list[int]:
        """The settings of the first rung."""
        count = len(self.configs)
        least = min(count, MIN_SCREEN)
        if self._budget < (least + 1) * self._expected:
            needed = f"{(least + 1) * self._expected:g}{self._unit}"
            need = f"one round of {quantities.count(least, 'setting')} and the baseline takes about {needed}"
            raise UsageError(
                f"budget={self._budget:g}{self._unit}: {need}",
                f"give a larger budget, at least {needed}, or shorter evaluations",
            )
        return self._order[: min(count, max(least, round(SCREEN_SHARE * self._budget / self._expected)))]

    def _next_step(self) -> list[int]:
        """The next settings in the order of measuring; empty if nothing is worth it or affordable."""
        affordable = self._affordable()
        fresh = [place for place in self._screen if not self._planned[place]]
        if fresh:
            first: dict[object, int] = {}
            for rank, place in enumerate(fresh):
                first.setdefault(self._server(place), rank)
            fresh.sort(key=lambda place: first[self._server(place)])
            chosen = fresh[: math.ceil(len(fresh) / math.ceil(len(fresh) / BLOCK))]
        else:
            chosen = self._wanted(affordable)
        if not chosen or affordable < 1:
            return []
        chosen = chosen[:affordable]
        rng = Random(f"{self._seed} step {len(self._plan)}")
        if fresh or len(self._now) + len(chosen) > BLOCK or any(place in self._now for place in chosen):
            recent = [place for step in self._plan for place in step][-BASELINE_EVERY:]
            if self._baseline not in (*recent, *chosen) and self._open(self._baseline):
                chosen = [*chosen, self._baseline]
            self._block, self._now = self._block + 1, []
        self._now += chosen
        return restarting_rarely(chosen, self._server, rng, self._running())

    def _running(self) -> object:
        return self._server(self._plan[-1][-1]) if self._plan else None

    def _server(self, place: int) -> object:
        return server_part(self.configs[place], self._restarts)

    def _wanted(self, left: int) -> list[int]:
        """The settings most worth a measurement now, at most a block; `left` evaluations can be afforded."""
        claims = self._claims()
        measured = [place for place, results in enumerate(claims) if results]
        points = [self._point(place, claims[place]) for place in measured]
        again = [
            place
            for place, point in zip(measured, points, strict=True)
            if point.status is Status.INVALID
            and not point.repeats
            and len(claims[place]) <= MAX_RETRIES
            and self._open(place)
        ]
        ready = scaled(points, self.objectives)
        if again or ready is None:
            return again[:BLOCK] or [place for place in self._order if not self._planned[place]][:MIN_SCREEN]
        places = [measured[k] for k in ready.compared]
        usable = {place: len(points[k].repeats) for place, k in zip(places, ready.compared, strict=True)}
        spots = [self._lattice.spots[place] for place in places]
        models = guesses(ready.noise, spots, GUESSED_NOISE) if len(places) >= MIN_GUESSED else []
        vectors = [tuple(model.predict(spot)[0] for model in models) for spot in spots] if models else ready.noise.means
        blurs = (
            median(column) if ready.noise.known else GUESSED_NOISE
            for column in zip(*ready.noise.deviations, strict=True)
        )
        front = thinned(vectors, [blur / math.sqrt(self._repeats) for blur in blurs])
        shape = [ready.plain(vectors[k]) for k in front]
        done = [i for i, k in enumerate(front) if usable[places[k]] >= self._repeats]
        weights = [1.0 + STICKY * usable[places[k]] / self._repeats for k in front]
        lacking = [place for i in net(shape, weights, done, APART) if self._open(place := places[front[i]])]
        missing = [self._repeats - usable[place] for place in lacking]
        spare = math.floor(left - RESERVE * (sum(missing) + max(missing, default=0)))
        failed = [place for place, point in zip(measured, points, strict=True) if point.status is not Status.OK]
        fresh = self._refined(models, shape, ready, failed) if models and spare >= 1 else []
        return fresh or lacking[:BLOCK] or self._doubtful(points, measured, [places[k] for k in front])

    def _open(self, place: int) -> bool:
        """Whether a setting may be measured once more; those that keep giving what cannot be used are given up."""
        hopeless = any(result.final for result in self._claims()[place])
        return not hopeless and self._planned[place] < self._max_repeats + MAX_RETRIES

    def _refined(
        self, models: Sequence[Surrogate], shape: Sequence[Vector], ready: Scaled, failed: Sequence[int]
    ) -> list[int]:
        """The setting never measured that would widen the frontier most for what it costs; none if that is little."""
        others = [place for place, count in enumerate(self._planned) if not count]
        if not others:
            return []
        running, dearer = self._running(), self._dearer()
        weights = [
            self._lattice.trust(place, failed) / (1.0 if self._server(place) == running else 1.0 + dearer)
            for place in others
        ]
        rng = Random(f"{self._seed} refine {len(self._plan)}")
        best, gain = promising(
            models, shape, [self._lattice.spots[place] for place in others], weights, ready.plain, rng
        )
        return [others[best]] if gain > LEAST_GAIN else []

    def _doubtful(self, points: Sequence[Point], measured: Sequence[int], front: Sequence[int]) -> list[int]:
        """Settings whose membership, or being the knee, is undecided, the least sure for their cost first; then the
        rest."""
        seed = self._seed * 1000 + len(self._plan)
        now = frontier(points, self.objectives, confidence=self.confidence, seed=seed, resamples=QUICK)
        bent = {config_hash(settings) for settings in _candidates(knee(now), self.confidence)}
        found = []
        for place, one in zip(measured, now.standings, strict=True):
            count, chance = len(one.point.repeats), 1.0 if one.probability is None else one.probability
            if one.membership is Membership.EXCLUDED or count >= self._max_repeats or not self._open(place):
                continue
            if chance > UNLIKELY and (
                one.membership is Membership.UNDECIDED or one.point.key in bent or count < self._repeats
            ):
                found.append((count >= self._repeats, 0.5 - abs(chance - 0.5) + UNLIKELY, place))
        near = {other for place in front for other in self._lattice.neighbours(place)}
        failed = [place for place, point in zip(measured, points, strict=True) if point.status is not Status.OK]
        rest = [place for place in self._order if not self._planned[place]]
        rest.sort(key=lambda place: (self._lattice.trust(place, failed) < 0.5, place not in near))
        return [*self._cheaply(found), *rest][:BLOCK]

    def _cheaply(self, found: Sequence[tuple[bool, float, int]]) -> list[int]:
        """Settings, given as (has its repeats, what one more is worth, place), by worth for cost: one
        whose server runs, or is started for one before it, is cheaper."""
        dearer, servers, left, ordered = self._dearer(), {self._running()}, list(found), list[int]()
        while left:
            best = min(
                left,
                key=lambda one: (
                    one[0],
                    -one[1] / (1.0 if self._server(one[2]) in servers else 1.0 + dearer),
                    one[2],
                ),
            )
            left.remove(best)
            ordered.append(best[2])
            servers.add(self._server(best[2]))
        return ordered


def _candidates(found: Knee | None, confidence: float) -> list[Settings]:
    """The settings that may be the knee, where that is not sure."""
    if found is None or found.probability >= confidence:
        return []
    return [found.settings, *(settings for settings, share in found.others if share > UNLIKELY)]
