"""The chaos experiments of a run as part of the JSON document: every phase has its key, null where it was not measured.

Times are in seconds, rates per second, shares from 0 to 1. A quantile is {value, low, high, enough}: where so many
requests never got there, value is null and enough true; where there are too few requests, enough is false.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from contextlab.analysis.checks import Check
from contextlab.analysis.cost import cost
from contextlab.analysis.deaths import how_it_ended, settled
from contextlab.analysis.honesty import of_trial
from contextlab.analysis.load_metrics import Measured, Share
from contextlab.analysis.phases import Peak, server_peaks
from contextlab.analysis.qos import Fate, Quality, losses, qualities
from contextlab.analysis.release import held
from contextlab.analysis.steadiness import lateness_limit_s
from contextlab.deeds import Death
from contextlab.experiment import Arm, FaultEvidence, GeneratorHealth, Load, Pace, Phase, Placed
from contextlab.model import Run
from contextlab.reports.chaos import beside as chaos_beside
from contextlab.reports.chaos import facts as chaos_facts
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.chaos.figures import Figure, Shown
from contextlab.reports.chaos.words import fault_words, is_emulated, load_words

DECIMALS = 6
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TIMES = ("ttft", "service_ttft", "itl", "gap", "e2e", "service_e2e", "queue")
COMPARED = ("ttft", "itl", "e2e", "service_e2e")
"""The times whose ratios are given."""


def experiments(run: Run) -> list[dict[str, Any]]:
    """One entry for each experiment that began, in order."""
    found, _ = chaos_figures.shown(run)
    return [_rounded(_experiment(one, was_killed=run.end is None)) for one in found]


def _rounded(thing: Any) -> Any:
    """The same with numbers to the microsecond, or millionth: no clock, and no sample, tells more."""
    match thing:
        case float():
            return round(thing, DECIMALS)
        case dict():
            return {name: _rounded(part) for name, part in thing.items()}
        case list() | tuple():
            return [_rounded(part) for part in thing]
    return thing


def _experiment(one: Shown, *, was_killed: bool) -> dict[str, Any]:
    made, trial = one.trial.experiment, one.trial
    arms = [arm for arm in (trial.control, trial.fault) if arm is not None]
    return {
        "name": made.name,
        "scenario": one.scenario,
        "verdict": one.verdict.name,
        "empty": chaos_facts.why_empty(one, was_killed),
        "load": _load(made.load),
        "extra": None if made.extra is None else {**_load(made.extra.load), "start_s": made.extra.start_s},
        "seed": one.seed,
        "path": trial.path,
        "emulated": one.is_emulated,
        "faults": [_fault(placed, text) for placed, text in zip(made.faults, one.faults, strict=True)],
        "hypothesis": [_check(check) for check in (*one.study.gate, *one.study.checks)],
        "phases": {str(phase): _phase(one, phase) for phase in Phase},
        "ratios": _ratios(one),
        "recovery_s": one.study.recovery.after_s if one.study.recovery else None,
        "stopped": {arm.name: arm.stopped for arm in arms if arm.stopped},
        "evidence": _evidence(one),
        "generators": [_generator(one, arm.name, worker) for arm in arms for worker in arm.generators],
        "control_difference": _difference(one),
        "measured": dict(trial.measured),
        **_beside(one, arms),
    }


def _load(load: Load) -> dict[str, Any]:
    arrivals = load.arrivals
    return {
        "text": load_words(load),
        "pace": str(arrivals.pace),
        "open": arrivals.pace is not Pace.CLOSED,
        "rate_per_s": None if arrivals.pace in (Pace.CLOSED, Pace.REPLAY) else arrivals.rate_per_s,
        "concurrency": arrivals.concurrency or None,
        "duration_s": load.duration_s,
        "timeout_s": load.timeout_s,
        "kept_connections": load.kept_connections,
    }


def _fault(placed: Placed, text: str) -> dict[str, Any]:
    fields = {"name": placed.name, "text": text, "start_s": placed.start_s, "end_s": placed.end_s}
    return {**fields, "options": dict(placed.options)}


def _check(check: Check) -> dict[str, Any]:
    return {
        "text": check.bound.text,
        "phase": str(check.phase),
        "state": str(check.state),
        "observed": check.observed,
        "low": check.low,
        "high": check.high,
        "n": check.n,
        "why": check.why,
    }


# ── phases ───────────────────────────────────────────────────────────────────────────────────────


def _phase(one: Shown, phase: Phase) -> dict[str, Any] | None:
    there = one.study.measured.get(phase)
    if there is None:
        return None
    return {
        "n": there.n,
        "length_s": there.span.length_s,
        "errors": {**_share(there.errors), "taxonomy": dict(there.causes.most_common())},
        **{metric: _quantiles(there, metric) for metric in TIMES},
        "throughput": there.throughput_per_s,
        "goodput": there.goodput_per_s,
        "tokens_per_s": there.tokens_per_s,
        "tokens_per_event": there.tokens_per_event,
        "backlog_max": there.backlog.total,
        "backlog": _layers(one, phase, there.backlog),
        "integrity": {
            **_share(there.integrity),
            "names": {name.name: count for name, count in there.names.most_common()},
            "noticed": {who.value: count for who, count in there.noticed.most_common()},
            "not_compared": there.num_uncompared,
        },
        "client_retransmits": there.retransmits,
    }


def _layers(one: Shown, phase: Phase, peak: Peak) -> dict[str, Any]:
    arm = one.trial.control if phase is Phase.CONTROL else one.trial.fault
    server = server_peaks(arm.gauges, one.study.measured[phase].span) if arm is not None else {}
    names = {"server_running": "running", "server_waiting": "waiting", "kv_usage": "kv_usage"}
    layers: dict[str, Any] = {"client_queue": peak.queued, "in_flight": peak.in_flight}
    return {**layers, **{name: server.get(told) for name, told in names.items()}}


def _share(found: Share) -> dict[str, Any]:
    figure = chaos_figures.share(found)
    return {"share": figure.value, "low": figure.low, "high": figure.high, "count": found.count, "of": found.total}


def _quantiles(there: Measured, metric: str) -> dict[str, Any]:
    times = there.times(metric)
    return {name: _figure(chaos_figures.quantile(times.quantile(q))) for name, q in QUANTILES.items()}


def _figure(figure: Figure) -> dict[str, Any]:
    ends = {"low": _finite(figure.low), "high": _finite(figure.high)}
    return {"value": _finite(figure.value), **ends, "enough": figure.enough}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# ── comparisons and proofs ───────────────────────────────────────────────────────────────────────


def _ratios(one: Shown) -> dict[str, Any]:
    """During the faults as a multiple of the phase without them."""
    found: dict[str, Any] = {"phase": str(Phase.DURING), "against": str(one.against) if one.against else None}
    for metric in COMPARED:
        figures = {name: chaos_figures.ratio(one, metric, q) for name, q in QUANTILES.items()}
        found[metric] = {name: None if figure is None else _figure(figure) for name, figure in figures.items()}
    return found


def _difference(one: Shown) -> dict[str, Any] | None:
    """A/A: the quantiles before the faults less those of the control, in seconds."""
    if not {Phase.CONTROL, Phase.BEFORE} <= set(one.phases):
        return None
    found = {}
    for metric in ("ttft", "e2e"):
        figures = {
            name: chaos_figures.versus(one.study.difference(metric, q, Phase.BEFORE, Phase.CONTROL))
            for name, q in QUANTILES.items()
        }
        found[f"{metric}_s"] = {name: None if figure is None else _figure(figure) for name, figure in figures.items()}
    return found


def _evidence(one: Shown) -> list[dict[str, Any]]:
    """One entry a fault, in their order; what was not recorded is not proven."""
    placed = one.trial.experiment.faults
    recorded: Iterable[FaultEvidence] = one.trial.fault.evidence if one.trial.fault is not None else ()
    return [
        {
            "name": found.name,
            "text": fault_words(placed[place]) if place < len(placed) else found.name,
            "engine": found.engine,
            "emulated": is_emulated(found.engine),
            "landed": found.landed.proven,
            "why": found.landed.why,
            "tally": dict(found.tally),
            "kernel": dict(found.kernel),
        }
        for place, found in enumerate(recorded)
    ]


# ── beside the wire ──────────────────────────────────────────────────────────────────────────────


def _beside(one: Shown, arms: Sequence[Arm]) -> dict[str, Any]:
    """What was done to the target, what became of it, and how well it served; what nobody looked at is empty."""
    fault, control = one.trial.fault, one.trial.control
    asks_release = fault is not None and one.trial.experiment.release_within_s is not None
    return {
        "deeds": [{"arm": arm.name, **dataclasses.asdict(deed)} for arm in arms for deed in arm.deeds],
        "deaths": [_death(arm, death) for arm in arms for death in settled(arm.deaths)],
        "process": {str(phase): dataclasses.asdict(used) for phase, used in chaos_beside.used(one).items()},
        "kernel": chaos_beside.kernel(one),
        "release": [dataclasses.asdict(each) for each in held(fault, control)] if fault and asks_release else [],
        "health": [{**dataclasses.asdict(each), "enough": each.enough} for each in of_trial(one.trial)],
        "cost": {arm.name: dict(cost(arm).numbers) for arm in arms},
        "qos": {
            "kinds": [_quality(each) for each in qualities(one.trial)],
            "losses": [dataclasses.asdict(each) for each in losses(one.trial)],
        },
        "tier": {arm.name: dict(counts) for arm in arms if (counts := chaos_beside.tier_counts(arm))},
    }


def _death(arm: Arm, death: Death) -> dict[str, Any]:
    end = death.end
    return {
        "arm": arm.name,
        "at_s": death.at_s,
        "ours": death.ours,
        "ready_s": death.ready_s,
        "signal": end.signal,
        "exit_code": end.exit_code,
        "out_of_memory": end.out_of_memory,
        "text": how_it_ended(end),
    }


def _quality(each: Quality) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "phase": str(each.phase),
        "n": each.n,
        **{fate.name.lower(): each.fates.get(fate, 0) for fate in Fate},
        "refused_clearly": each.num_clear,
        "ttft_p50": _figure(chaos_figures.quantile(each.ttft_p50)),
    }


def _generator(one: Shown, arm: str, worker: GeneratorHealth) -> dict[str, Any]:
    fields = dataclasses.asdict(worker)
    for name in ("lateness_s", "loop_lag_s"):
        fields[name] = dict(zip(("p50", "p90", "p99", "max"), fields[name], strict=True))
    limit_s = lateness_limit_s(one.study)
    return {"arm": arm, **fields, "kept_up": chaos_facts.kept_up(worker, limit_s), "lateness_limit_s": limit_s}
