"""The sweep of a run as part of the JSON document: the same keys whatever was measured, null where nothing was.

Values are in the unit that stands beside them, an unknown end of an interval is null. `facts` has one value for each
measurement of the setting, in the order in which they were made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from contextlab.analysis.frontier import Interval, Membership, Standing
from contextlab.analysis.sweeps import Measurement, Sweep
from contextlab.analysis.tradeoffs import Comparison
from contextlab.model import Run
from contextlab.reports.pareto import facts as pareto_facts
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.pareto.figures import Shown, slo_text, unit_named, unit_of

DIGITS = 9
EMPTY: Mapping[str, Any] = {
    "sweep": None,
    "points": (),
    "frontier": (),
    "one_of": (),
    "knee": None,
    "hypervolume": None,
    "recommended": None,
    "undecided": (),
    "drift": (),
    "comparison": None,
}


def fields(run: Run | None = None) -> dict[str, Any]:
    """What only `pareto` has, of a run or of nothing."""
    one, _ = pareto_figures.shown(run) if run is not None else (None, "")
    if one is None:
        return {name: list(part) if isinstance(part, tuple) else part for name, part in EMPTY.items()}
    found = {
        "sweep": _sweep(one),
        "points": _points(one),
        "frontier": [dict(row.settings) for row in one.of(Membership.MEMBER)],
        "one_of": [
            {"settings": [dict(settings) for settings in group.settings], "probability": group.probability}
            for group in one.concluded.one_of
        ],
        "knee": _knee(one),
        "hypervolume": _hypervolume(one),
        "recommended": _recommended(one),
        "undecided": [
            {"settings": None if each.settings is None else dict(each.settings), "why": each.why}
            for each in one.undecided
        ],
        "drift": [
            {
                "objective": each.objective,
                **_ends(each.change),
                "num_repeats": each.num_repeats,
                "shown": each.shown,
            }
            for each in one.drift or ()
        ],
    }
    rounded = {name: _rounded(part) for name, part in found.items()}
    return {**rounded, "comparison": None}


def comparison(old: str, new: str, found: Comparison, goals: Sequence[str] = ()) -> dict[str, Any]:
    """`comparison` of `contextlab pareto --compare OLD NEW`. Changes are relative: 0.1 is 10 % more."""
    told: dict[str, Any] = {
        "old": old,
        "new": new,
        "verdict": found.verdict,
        "goals": list(goals),
        "hypervolume": _ends(found.hypervolume),
        "shift": None if found.shift is None else _ends(found.shift),
        "joined": [dict(settings) for settings in found.joined],
        "left": [dict(settings) for settings in found.left],
        "missing": [dict(settings) for settings in found.missing],
    }
    return {name: _rounded(part) for name, part in told.items()}


def _sweep(one: Shown) -> dict[str, Any]:
    sweep = one.sweep
    return {
        "axes": [
            {"name": axis.name, "values": list(axis.values), "unit": axis.unit, "restarts": axis.restarts}
            for axis in sweep.axes
        ],
        "goals": [{"name": goal.text, "direction": str(goal.direction), "unit": unit_of(goal)} for goal in sweep.goals],
        "slos": _slos(sweep),
        "fixed": dict(sweep.fixed),
        "baseline": dict(sweep.baseline),
        "budget_s": sweep.budget_s,
        "used_s": one.used_s,
        "seed": sweep.seed,
        "confidence": sweep.confidence,
        "num_configs": sweep.num_configs,
        "num_measurements": len(one.measurements),
        "how": sweep.how,
    }


def _slos(sweep: Sweep) -> list[dict[str, Any]]:
    return [
        {
            "objective": slo.objective,
            "op": slo.op,
            "limit": slo.limit,
            "unit": unit_named(slo.objective, sweep),
            "text": slo_text(slo, sweep),
        }
        for slo in sweep.slos
    ]


def _points(one: Shown) -> list[dict[str, Any]]:
    """In the order of the table, then what was not compared."""
    measured: dict[str, list[Measurement]] = {}
    for each in one.measurements:
        measured.setdefault(each.key, []).append(each)
    standings = [*(row.standing for row in one.rows), *one.excluded]
    feasible = {row.key: row.feasible for row in one.rows}
    return [
        _point(one, standing, measured.get(standing.point.key, []), feasible.get(standing.point.key))
        for standing in standings
    ]


def _point(one: Shown, standing: Standing, measured: Sequence[Measurement], feasible: float | None) -> dict[str, Any]:
    causes: Counter[str] = Counter()
    for each in measured:
        causes.update(each.failures)
    return {
        "settings": dict(standing.point.settings),
        "n": len(standing.point.repeats),
        "objectives": _objectives(one, standing.values),
        "membership": str(standing.membership),
        "probability": standing.probability,
        "by": None if standing.by is None else dict(standing.by),
        "feasible": feasible,
        "status": str(standing.point.status),
        "why": standing.point.why,
        "failures": {
            "requests": sum(each.num_requests for each in measured),
            "failed": sum(each.num_failed for each in measured),
            "causes": dict(causes.most_common()),
        },
        "facts": _facts(measured),
    }


def _facts(measured: Sequence[Measurement]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for each in measured for name in each.facts)
    return {name: [each.facts.get(name) for each in measured] for name in names}


def _objectives(one: Shown, values: Sequence[Interval]) -> dict[str, Any]:
    nothing = {"value": None, "low": None, "high": None}
    return {
        goal.text: {**(_ends(values[place]) if place < len(values) else nothing), "unit": unit_of(goal)}
        for place, goal in enumerate(one.sweep.goals)
    }


def _ends(one: Interval) -> dict[str, float | None]:
    return {name: _finite(end) for name, end in (("value", one.value), ("low", one.low), ("high", one.high))}


def _knee(one: Shown) -> dict[str, Any] | None:
    found = one.concluded.knee
    if found is None:
        return None
    return {
        "settings": dict(found.settings),
        "objectives": {
            goal.text: {**_ends(each), "unit": unit_of(goal)}
            for goal, each in zip(one.sweep.goals[:2], found.values, strict=True)
        },
        "probability": found.probability if one.concluded.frontier.known else None,
        "none": found.none if one.concluded.frontier.known else None,
        "others": [{"settings": dict(settings), "probability": share} for settings, share in found.others],
        "ranges": {name: list(ends) for name, ends in found.ranges.items()},
    }


def _hypervolume(one: Shown) -> dict[str, Any] | None:
    found, reference = one.concluded.hypervolume, one.concluded.reference
    if found is None or reference is None:
        return None
    names = (goal.text for goal in one.sweep.goals)
    return {**_ends(found), "reference": dict(zip(names, reference, strict=True))}


def _recommended(one: Shown) -> dict[str, Any] | None:
    """The best setting under the SLOs; null without any. `settings` is null where none is proven to keep them."""
    if not one.sweep.slos:
        return None
    best = one.best
    return {
        "settings": None if best is None else dict(best.settings),
        "probability": None if best is None else best.feasible,
        "objectives": None if best is None else _objectives(one, best.standing.values),
        "slos": _slos(one.sweep),
        "why": pareto_facts.why_best(one),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded(thing: Any) -> Any:
    """The same with numbers to nine digits: nothing that is measured here tells more."""
    match thing:
        case float() if math.isfinite(thing):
            return float(f"{thing:.{DIGITS}g}")
        case dict():
            return {name: _rounded(part) for name, part in thing.items()}
        case list() | tuple():
            return [_rounded(part) for part in thing]
    return thing
