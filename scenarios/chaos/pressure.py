"""As many requests a second as the plan says, however many the target can answer: it may be slow, it may refuse,
but it must not die, and afterwards it must serve as before.

Where its process is ours it is sampled with py-spy meanwhile, so that the report says what it was busy with.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.loads import experiment, usual_load
from contextlab.experiment import (
    Arrivals,
    Asked,
    ChaosPlan,
    ChaosScenario,
    Ending,
    Experiment,
    Extra,
    Pace,
    Trial,
)
from contextlab.model import Judgement, Knowledge, Outcome

FACTOR = 50.0
PRESSURE_S = 5.0
TIMEOUT_S = 5.0
HYPOTHESIS = ("errors < 1% after", "integrity = 100% after")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """The usual load in both arms; in the second, the pressure on top of it: `--rate`, or 50 times the usual load."""
    usual = usual_load(known, replace(asked, rate_per_s=None))
    rate = asked.rate_per_s or FACTOR * usual.arrivals.rate_per_s
    short = tuple(
        replace(mixed, request=replace(mixed.request, reply_tokens=1, ignore_eos=False)) for mixed in usual.mix
    )
    pressure = replace(
        usual,
        arrivals=Arrivals(pace=Pace.CONSTANT, rate_per_s=rate),
        duration_s=min(PRESSURE_S, asked.duration_s / 4),
        mix=short,
        timeout_s=asked.timeout_s or TIMEOUT_S,
        kept_connections=True,
    )
    extra = Extra(load=pressure, start_s=round(asked.duration_s / 4, 3), counts=False)
    hypothesis = asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS)
    yield experiment(
        f"{rate:g}-a-second", known, asked, load=usual, extra=extra, hypothesis=hypothesis, control=False, profile=True
    )


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """How many were answered, refused and given up; a crash is judged for every experiment."""
    arm = trial.fault
    if arm is None or not arm.uncounted:
        return
    answered = sum(sample.ending is Ending.WHOLE and sample.failure is None for sample in arm.uncounted)
    refused = sum(sample.failure is not None and sample.failure.where == "http" for sample in arm.uncounted)
    sent_s = sorted(sample.sent_s for sample in arm.uncounted if sample.sent_s is not None)
    span_s = sent_s[-1] - sent_s[0] if len(sent_s) > 1 else 0.0
    if arm.server is None:
        evidence = {
            "sent": len(sent_s),
            "sent_per_s": round((len(sent_s) - 1) / span_s, 1) if span_s else None,
            "answered": answered,
            "refused": refused,
            "given_up_or_cut": len(arm.uncounted) - answered - refused,
            **trial.measured,
        }
        why = f"{len(sent_s)} requests, {evidence['sent_per_s']} a second, {answered} answered, without a crash"
        yield Judgement(outcome=Outcome.OK, why=why, evidence=evidence)


SCENARIO = ChaosScenario(
    name="pressure", summary="far more requests than can be answered: it must not die", plan=plan, judge=judge, order=70
)
