"""What a sweep of `pareto` asks and what it measured, as its record holds it, and what follows from that; pure.

    Sweep (axes, goals, SLOs) ─▶ racing.Race ─▶ Measurement … ─▶ record ─▶ conclude: frontier, knee, hypervolume, best

Every report concludes anew from the measurements on record: a run that was killed has its frontier too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from contextlab.analysis.axes import Axis, config_hash
from contextlab.analysis.frontier import Direction, Frontier, Interval, Objective, Point, Status, frontier
from contextlab.analysis.racing import Result
from contextlab.analysis.tradeoffs import (
    Knee,
    OneOf,
    Recommendation,
    Slo,
    feasibility,
    hypervolume,
    knee,
    one_of,
    recommend,
)
from contextlab.model import Record, Settings

SWEEP = "sweep"
"""The name that findings of a sweep have as their scenario."""
GIVEN_UP = "host"
"""The probe of a finding that says why a sweep was given up before its budget was used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An objective as the user wrote it: a bound's subject (`p99 ttft`, `tokens_per_s`), up or down.

    `metric` and `quantile` as in `experiment.Bound`; `unit` for reports.
    """

    text: str
    metric: str
    quantile: float | None
    direction: Direction
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is swept. `fixed`: the target's other settings. `slos` are on values by name, objectives or not.

    `budget_s` bounds the whole search. `baseline`: the setting that every block repeats.
    """

    axes: tuple[Axis, ...]
    goals: tuple[Goal, ...]
    slos: tuple[Slo, ...] = ()
    fixed: Settings = field(default_factory=dict)
    baseline: Settings = field(default_factory=dict)
    budget_s: float = 0.0
    num_configs: int = 0
    seed: int = 0
    confidence: float = 0.95
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One evaluation of one setting. `values` by name: the objectives', and every other metric that could be told.

    `num_requests` sent, `num_failed` of them, by cause in `failures`. `facts`: what stands beside it (real window,
    client's lateness and CPU, load and pressure of the host, Little's law, seconds of ramp and drain left out, …).
    `cost_s`: everything that it took, a restart and what was waited before it included. `baseline`: measured as the
    block's baseline. `final`: a repeat would come to the same.
    """

    settings: Settings
    block: int
    status: Status = Status.OK
    why: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)
    num_requests: int = 0
    num_failed: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, int | float | str | bool | None] = field(default_factory=dict)
    cost_s: float = 0.0
    began_s: float = 0.0
    baseline: bool = False
    final: bool = False

    @property
    def key(self) -> str:
        """The hash of its settings."""
        return config_hash(self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concluded:
    """What follows from the measurements. `reference`: of the hypervolume, in the objectives' units."""

    sweep: Sweep
    measurements: tuple[Measurement, ...]
    points: tuple[Point, ...]
    frontier: Frontier
    one_of: tuple[OneOf, ...]
    knee: Knee | None
    reference: tuple[float, ...] | None
    hypervolume: Interval | None
    recommended: Recommendation | None


def seed_of(seed: int, block: int, settings: Settings) -> int:
    """A seed of its own for each evaluation, the same in every process."""
    return Random(f"{seed}:{block}:{sorted(settings.items())}").getrandbits(31)


def objectives(sweep: Sweep) -> tuple[Objective, ...]:
    """The goals as the statistics know them."""
    return tuple(Objective(name=goal.text, direction=goal.direction, unit=goal.unit) for goal in sweep.goals)


def result_of(sweep: Sweep, measurement: Measurement) -> Result:
    """A measurement as the race is told of it; INVALID where an objective has no finite value."""
    values = [measurement.values.get(goal.text) for goal in sweep.goals]
    status, why = measurement.status, measurement.why
    finite = tuple(value for value in values if value is not None and math.isfinite(value))
    if status is Status.OK and len(finite) < len(values):
        missing = ", ".join(
            g.text for g, v in zip(sweep.goals, values, strict=True) if v is None or not math.isfinite(v)
        )
        status, why = Status.INVALID, f"no finite value of {missing}"
    return Result(
        settings=measurement.settings,
        block=measurement.block,
        values=finite if status is Status.OK else (),
        status=status,
        why=why,
        final=measurement.final,
        cost=measurement.cost_s,
        start_cost=float(measurement.facts.get("start_s") or 0.0),
        at_s=measurement.began_s,
    )


def points(sweep: Sweep, measurements: Iterable[Measurement]) -> tuple[Point, ...]:
    """Every setting that was measured, in the order of its first measurement, with its usable repeats.

    One crash or refusal is the setting's; repeats that cannot be used are left out, unless there is no other.
    """
    told: dict[str, list[Result]] = {}
    for measurement in measurements:
        told.setdefault(measurement.key, []).append(result_of(sweep, measurement))
    found = []
    for results in told.values():
        final = next((one for one in results if one.status in (Status.CRASHED, Status.INFEASIBLE)), None)
        usable = tuple(one.values for one in results if one.status is Status.OK)
        settings = results[0].settings
        if final is not None:
            found.append(Point(settings=settings, status=final.status, why=final.why))
        elif usable:
            found.append(Point(settings=settings, repeats=usable))
        else:
            found.append(Point(settings=settings, status=Status.INVALID, why=results[-1].why))
    return tuple(found)


def reference_point(sweep: Sweep, measurements: Sequence[Measurement]) -> tuple[float, ...] | None:
    """The point against which the hypervolume counts: for each objective, the worst of all first usable repeats.

    It is stored once, so that resumed and later sweeps count against the same point. None where nothing is usable.
    """
    first: dict[str, tuple[float, ...]] = {}
    for measurement in measurements:
        result = result_of(sweep, measurement)
        if result.status is Status.OK:
            first.setdefault(measurement.key, tuple(result.values))
    if not first:
        return None
    worst = (min if goal.direction is Direction.UP else max for goal in sweep.goals)
    return tuple(pick(vector[j] for vector in first.values()) for j, pick in enumerate(worst))


def conclude(
    sweep: Sweep, measurements: Sequence[Measurement], reference: tuple[float, ...] | None = None
) -> Concluded:
    """Frontier, knee, hypervolume and the best setting under the SLOs. Without `reference` it is made here."""
    found = points(sweep, measurements)
    names = objectives(sweep)
    result = frontier(found, names, confidence=sweep.confidence, seed=sweep.seed)
    reference = reference or reference_point(sweep, measurements)
    compared = bool(result.compared)
    return Concluded(
        sweep=sweep,
        measurements=tuple(measurements),
        points=found,
        frontier=result,
        one_of=one_of(result),
        knee=knee(result) if compared and len(names) >= 2 else None,
        reference=reference,
        hypervolume=hypervolume(result, reference) if compared and reference is not None else None,
        recommended=_recommended(sweep, measurements, result) if sweep.slos and compared else None,
    )


def _recommended(sweep: Sweep, measurements: Sequence[Measurement], result: Frontier) -> Recommendation:
    """The best setting under the SLOs; their feasibility comes from a frontier of their own metrics."""
    names = list(dict.fromkeys(slo.objective for slo in sweep.slos))
    metrics = tuple(Objective(name=name, direction=Direction.DOWN) for name in names)
    repeats: dict[str, list[tuple[float, ...]]] = {}
    for measurement in measurements:
        values = tuple(measurement.values.get(name) for name in names)
        if measurement.status is Status.OK and all(value is not None for value in values):
            repeats.setdefault(measurement.key, []).append(tuple(value for value in values if value is not None))
    same = [
        Point(
            settings=standing.point.settings,
            repeats=tuple(repeats.get(standing.point.key, ())),
            status=standing.point.status,
            why=standing.point.why,
        )
        for standing in result.standings
    ]
    beside = frontier(same, metrics, confidence=sweep.confidence, seed=sweep.seed)
    return recommend(result, sweep.slos, feasible=feasibility(beside, sweep.slos))


def read(records: Iterable[Record]) -> tuple[Sweep | None, tuple[Measurement, ...], tuple[float, ...] | None]:
    """(sweep, measurements, reference) on record. Raises msgspec.ValidationError where a record is not what it says."""
    sweep: Sweep | None = None
    reference: tuple[float, ...] | None = None
    measurements: list[Measurement] = []
    try:
        for record in records:
            match record.get("kind"):
                case "sweep":
                    sweep = msgspec.convert(record["sweep"], Sweep)
                case "measurement":
                    measurements.append(msgspec.convert(record["measurement"], Measurement))
                case "reference":
                    reference = tuple(map(float, record["reference"]))
    except (KeyError, TypeError, ValueError) as error:
        raise msgspec.ValidationError(str(error)) from None
    return sweep, tuple(measurements), reference
