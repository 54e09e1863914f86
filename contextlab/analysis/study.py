"""Everything that follows from a trial by computing alone: metrics by phase, readings, checks, recovery; pure.

Judges (`steadiness`) and reports see the same numbers, because both get them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contextlab.analysis.bounds import RECOVERY
from contextlab.analysis.checks import Check, evaluate, holds_in
from contextlab.analysis.integrity import Norms, Reading, Variants, judge_all, norms, references_of
from contextlab.analysis.load_metrics import Measured, expected_events, slo_of
from contextlab.analysis.phases import (
    Backlog,
    Recovery,
    Span,
    in_control,
    last_sent_s,
    recovery,
    spans,
    split,
)
from contextlab.analysis.quantiles import Distribution, Versus, difference, ratio
from contextlab.experiment import Arm, Bound, Experiment, Phase, Sample, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A trial, measured. `measured`: every phase that has a stretch of time, the control first.

    `gate`: the hypothesis in the control and before the faults; `checks`: during and after them. `settled` is AFTER
    without the time that the experiment grants for recovery: there its bounds are checked. `recovery`: None where
    nothing comes after the faults. `readings`: of each arm by its name. `references`: what texts were held against.
    """

    trial: Trial
    measured: Mapping[Phase, Measured]
    settled: Measured | None
    gate: tuple[Check, ...]
    checks: tuple[Check, ...]
    recovery: Recovery | None
    recovery_bounds: tuple[Bound, ...]
    references: tuple[Variants, ...]
    usual: Norms
    readings: Mapping[str, Mapping[int, Reading]]

    def versus(self, metric: str, q: float, phase: Phase, other: Phase) -> Versus | None:
        """The quantile of a metric of `replies.TIMES` in one phase as a multiple of another's; None without both."""
        pair = self._pair(metric, phase, other)
        return None if pair is None else ratio(*pair, q)

    def difference(self, metric: str, q: float, phase: Phase, other: Phase) -> Versus | None:
        """By how many seconds the quantile is above another phase's."""
        pair = self._pair(metric, phase, other)
        return None if pair is None else difference(*pair, q)

    def _pair(self, metric: str, phase: Phase, other: Phase) -> tuple[Distribution, Distribution] | None:
        one, two = self.measured.get(phase), self.measured.get(other)
        if one is None or two is None or not one.n or not two.n:
            return None
        return one.times(metric), two.times(metric)


def study(trial: Trial) -> Study:
    """Measure a trial. Arms may be missing, empty or cut short."""
    experiment, control, fault = trial.experiment, trial.control, trial.fault
    around = split(fault, experiment) if fault else {}
    undisturbed = list(control.samples) if control else around.get(Phase.BEFORE, [])
    references = _references(trial, undisturbed)
    usual, expected = norms(undisturbed), expected_events(references, undisturbed)
    readings = {arm.name: judge_all(arm.samples, references, usual) for arm in (control, fault) if arm is not None}
    bounds = experiment.hypothesis

    def measure(arm: Arm, phase: Phase, span: Span, samples: Sequence[Sample], backlog: Backlog) -> Measured:
        return Measured(
            phase=phase,
            span=span,
            samples=samples,
            everyone=arm.samples,
            readings=readings[arm.name],
            expected=expected,
            slo=slo_of(bounds),
            backlog_over_time=backlog,
        )

    measured: dict[Phase, Measured] = {}
    settled, after = None, None
    if control is not None and (span := _spans(control, experiment).get(Phase.CONTROL)):
        backlog = Backlog(control.samples, control.length_s)
        measured[Phase.CONTROL] = measure(control, Phase.CONTROL, span, in_control(control, experiment), backlog)
    if fault is not None:
        backlog, stretches = Backlog(fault.samples, fault.length_s), _spans(fault, experiment)
        for phase, samples in around.items():
            if phase in stretches:
                measured[phase] = measure(fault, phase, stretches[phase], samples, backlog)
        after = measured.get(Phase.AFTER)
        if after is not None:
            begin = min(after.span.end_s, after.span.start_s + (experiment.recovery_within_s or 0.0))
            late = [sample for sample in after.samples if sample.due_s >= begin]
            settled = measure(fault, Phase.AFTER, Span(begin, after.span.end_s), late, backlog)
    seen, restored = (None, ()) if after is None else _recovery(experiment, measured, after)
    return Study(
        trial=trial,
        measured=measured,
        settled=settled,
        gate=tuple(_gate(bounds, measured)),
        checks=tuple(_checks(bounds, measured, settled)),
        recovery=seen,
        recovery_bounds=restored,
        references=references,
        usual=usual,
        readings=readings,
    )


def _references(trial: Trial, undisturbed: Iterable[Sample]) -> tuple[Variants, ...]:
    """The trial's references; for a request that has none, what it was answered with undisturbed."""
    num = len(trial.experiment.mix)
    own = references_of(undisturbed, num)
    given = (*trial.references, *(() for _ in range(num)))[:num]
    return tuple(variants or seen for variants, seen in zip(given, own, strict=True))


def _spans(arm: Arm, experiment: Experiment) -> dict[Phase, Span]:
    return spans(experiment, last_sent_s(arm) if arm.stopped else None)


def _gate(bounds: Iterable[Bound], measured: Mapping[Phase, Measured]) -> Iterable[Check]:
    for bound in bounds:
        alone = bound.against is None
        if Phase.CONTROL in measured and alone and bound.phases & {Phase.CONTROL, Phase.BEFORE}:
            yield evaluate(bound, measured, Phase.CONTROL)
        if (before := measured.get(Phase.BEFORE)) and before.n and Phase.BEFORE in bound.phases:
            yield evaluate(bound, measured, Phase.BEFORE)


def _checks(bounds: Iterable[Bound], measured: Mapping[Phase, Measured], settled: Measured | None) -> Iterable[Check]:
    for bound in bounds:
        for phase in (Phase.DURING, Phase.AFTER):
            if phase in bound.phases and phase in measured:
                there = {**measured, Phase.AFTER: settled} if settled is not None else measured
                yield evaluate(bound, there, phase)


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────


def _recovery(
    experiment: Experiment, measured: Mapping[Phase, Measured], after: Measured
) -> tuple[Recovery, tuple[Bound, ...]]:
    """When the bounds held again, and which were looked at: those of the hypothesis for AFTER, and `RECOVERY`.

    Windows are short, and a bound that does not even hold in three of them in a row before the faults, or at the same
    time in the control, tells nothing about a recovery: it is left out. `RECOVERY` is against what was before the
    faults; where that was quieter than the control is at that time, against the control.
    """
    bounds = [bound for bound in experiment.hypothesis if Phase.AFTER in bound.phases]
    bases = [phase for phase in (Phase.BEFORE, Phase.CONTROL) if phase in measured and measured[phase].n]
    if bases:
        quiet = [measured[bases[0]]]
        if Phase.CONTROL in bases:
            quiet.append(replace(measured[Phase.CONTROL], span=after.span))

        def usual(bound: Bound) -> bool:
            return all(_usually_holds(bound, there, measured) for there in quiet)

        bounds = [bound for bound in bounds if usual(bound)]
        for bound in RECOVERY:
            against = (replace(bound, against=base, text=bound.text.replace("before", base)) for base in bases)
            bounds += [one for one in against if usual(one)][:1]
    return _windows(bounds, after, measured), tuple(bounds)


def _usually_holds(bound: Bound, quiet: Measured, measured: Mapping[Phase, Measured]) -> bool:
    seen = _windows([bound], quiet, measured)
    return seen.after_s is not None or not seen.enough


def _windows(bounds: Sequence[Bound], there: Measured, measured: Mapping[Phase, Measured]) -> Recovery:
    def holds(samples: Sequence[Sample], span: Span) -> bool:
        window = replace(there, span=span, samples=samples, everyone=samples)
        return holds_in(bounds, window, measured)

    return recovery(there.samples, there.span, holds)
