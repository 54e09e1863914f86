"""What a report shows of each chaos experiment, as numbers and rows; pure. The one place where trials become tables.

    run.records ─▶ analysis.trials ─▶ Trial ─▶ analysis.study ─▶ Study ─▶ Row (a metric, a figure for each phase)

How the numbers are written is for `chaos_table` and `chaos_words`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import msgspec

from contextlab.analysis.load_metrics import Measured, Share
from contextlab.analysis.quantiles import Quantile, Versus
from contextlab.analysis.study import Study, study
from contextlab.analysis.trials import trials
from contextlab.experiment import Arm, Phase, Trial
from contextlab.model import Finding, Run, Verdict
from contextlab.reports.chaos.words import fault_words, is_emulated, window_words
from contextlab.reports.parts import grouping

SHOWN_QUANTILES = {
    "ttft": (0.5, 0.9, 0.99),
    "itl": (0.5, 0.99),
    "e2e": (0.5, 0.9, 0.99),
    "service_e2e": (0.5, 0.9, 0.99),
    "queue": (0.99,),
}
"""The quantiles that a table shows of each time."""
CUT_SHORT = "the run ended there"
NAMES = {"ttft": "TTFT", "itl": "ITL", "service_e2e": "service"}


class Unit(Enum):
    """What a figure counts."""

    SECONDS = "s"
    SHARE = "share"
    PER_S = "/s"
    COUNT = ""
    RATIO = "×"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its interval. `value` is None of nothing, infinite where so many requests never got there.

    `enough`: there are requests enough for an interval; else `needs` says how many it takes. `low`, `high` are None
    where a number has no interval.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    enough: bool = True
    needs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A metric in every phase that was measured. `ratio`: during the faults, as a multiple of `Shown.against`."""

    name: str
    unit: Unit
    figures: Mapping[Phase, Figure]
    ratio: Figure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An experiment of a run as far as it came. `faults`: as the user wrote them. `whole`: both arms were over."""

    scenario: str
    study: Study
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    faults: tuple[str, ...] = ()
    seed: int | None = None
    whole: bool = True
    measured: Mapping[str, object] = field(default_factory=dict)

    @property
    def trial(self) -> Trial:
        """What was seen of it."""
        return self.study.trial

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.trial.experiment.name

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that hold a request, in the order of time."""
        return tuple(phase for phase in Phase if (there := self.study.measured.get(phase)) is not None and there.n)

    @property
    def against(self) -> Phase | None:
        """The phase without faults that the one with them is compared with; None where there is none."""
        return next((phase for phase in (Phase.CONTROL, Phase.BEFORE) if phase in self.phases), None)

    @property
    def is_emulated(self) -> bool:
        """Whether a fault was imitated where no packet could be touched."""
        engines = [each.engine for each in self.trial.fault.evidence] if self.trial.fault else []
        return any(map(is_emulated, [self.trial.path, *engines]))

    @property
    def arm(self) -> Arm | None:
        """The arm to draw: the one with the faults, else the control."""
        arms = (self.trial.fault, self.trial.control)
        return next((arm for arm in arms if arm is not None and arm.samples), None)


def shown(run: Run) -> tuple[tuple[Shown, ...], str]:
    """The experiments of a run, and why they cannot be read, "" where they can."""
    try:
        found = trials(run.records, run.knowledge)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        return (), f"the record of the experiments is damaged: {error}"
    verdicts, decided, over = grouping.verdicts(run), {}, set()
    for record in run.records:
        place = (str(record.get("scenario", "")), str(record.get("probe", "")))
        if record.get("kind") == "decisions":
            decided[place] = record
        elif record.get("kind") == "trial":
            over.add(place)
    return tuple(
        Shown(
            scenario=place[0],
            study=study(trial if place in over else _cut_short(trial)),
            verdict=verdicts.get(place, Verdict.UNKNOWN),
            findings=tuple(finding for finding in run.findings if grouping.place(finding) == place),
            faults=_faults(trial, decided.get(place, {})),
            seed=seed if isinstance(seed := decided.get(place, {}).get("seed"), int) else None,
            whole=place in over,
            measured=trial.measured,
        )
        for place, trial in found.items()
    ), ""


def _cut_short(trial: Trial) -> Trial:
    """The trial of a run that ended in the middle: its last arm stopped there, and not where it was meant to end."""
    if trial.fault is not None:
        return replace(trial, fault=replace(trial.fault, stopped=trial.fault.stopped or CUT_SHORT))
    if trial.control is not None:
        return replace(trial, control=replace(trial.control, stopped=trial.control.stopped or CUT_SHORT))
    return trial


def _faults(trial: Trial, decided: Mapping[str, object]) -> tuple[str, ...]:
    """Each fault as the record names it, which is how it can be asked for again; else in words."""
    placed, told = trial.experiment.faults, decided.get("faults")
    names = [each.get("name") for each in told if isinstance(each, Mapping)] if isinstance(told, list) else []
    if len(names) == len(placed) and all(names):
        return tuple(str(name) for name in names)
    return tuple(f"{fault_words(fault)}, {window_words(fault)}" for fault in placed)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


def rows(one: Shown) -> list[Row]:
    """The metrics of an experiment, a row each; none where nothing was measured."""
    seen = one.study
    phases = {phase: seen.measured[phase] for phase in one.phases}
    if not phases:
        return []
    times = [_time(one, phases, metric, q) for metric, shares in SHOWN_QUANTILES.items() for q in shares]
    return [
        Row(name="requests", unit=Unit.COUNT, figures={name: Figure(value=each.n) for name, each in phases.items()}),
        Row(name="errors", unit=Unit.SHARE, figures={name: share(each.errors) for name, each in phases.items()}),
        *times,
        _rate(one, phases, "throughput"),
        _rate(one, phases, "goodput"),
        Row(
            name="backlog",
            unit=Unit.COUNT,
            figures={name: Figure(value=each.backlog.total) for name, each in phases.items()},
        ),
        Row(name="integrity", unit=Unit.SHARE, figures={name: share(each.integrity) for name, each in phases.items()}),
    ]


def _time(one: Shown, phases: Mapping[Phase, Measured], metric: str, q: float) -> Row:
    return Row(
        name=f"{NAMES.get(metric, metric)} p{q * 100:g}",
        unit=Unit.SECONDS,
        figures={name: quantile(each.times(metric).quantile(q)) for name, each in phases.items()},
        ratio=ratio(one, metric, q),
    )


def _rate(one: Shown, phases: Mapping[Phase, Measured], metric: str) -> Row:
    found = {name: each.counted(metric) for name, each in phases.items()}
    during, other = found.get(Phase.DURING), found.get(one.against) if one.against else None
    compared = Figure(value=during / other) if during is not None and other else None
    return Row(
        name=metric,
        unit=Unit.PER_S,
        figures={name: Figure(value=value) for name, value in found.items()},
        ratio=compared,
    )


def ratio(one: Shown, metric: str, q: float) -> Figure | None:
    """The quantile during the faults as a multiple of that without them; None where one of the two was not measured."""
    if one.against is None:
        return None
    return versus(one.study.versus(metric, q, Phase.DURING, one.against))


# ── figures ──────────────────────────────────────────────────────────────────────────────────────


def quantile(found: Quantile) -> Figure:
    """A quantile; infinite ends stay, for they say that the interval reaches to the failures."""
    return Figure(
        value=_known(found.value),
        low=_known(found.low) if found.enough else None,
        high=_known(found.high) if found.enough else None,
        enough=found.enough,
        needs=None if found.enough else found.needs,
    )


def share(found: Share) -> Figure:
    """A share with its interval; None of none."""
    low, high = found.interval
    if found.value is None:
        return Figure(value=None)
    return Figure(value=found.value, low=low, high=high)


def versus(found: Versus | None) -> Figure | None:
    """A ratio, or a difference."""
    if found is None:
        return None
    ends = (found.low, found.high) if found.enough else (None, None)
    return Figure(value=_known(found.value), low=ends[0], high=ends[1], enough=found.enough)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def has_unbegun(one: Shown) -> bool:
    """Whether a request never became a stream: the share of intact streams is of fewer than there were requests."""
    return any(there.integrity.total < there.n for phase in one.phases if (there := one.study.measured[phase]))
