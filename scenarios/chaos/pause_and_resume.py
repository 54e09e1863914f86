"""The server stands still in the middle of its streams, for one second and for five, and goes on.

The kernel goes on taking connections in for it, so that a look at the port finds nothing. Clients have the patience to
wait: every stream must go on where it stood, and the backlog must go away.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.loads import experiment, middle_third
from contextlab.analysis.open_streams import open_at
from contextlab.analysis.quantities import shown_seconds
from contextlab.analysis.replies import answered, gaps_s
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Outcome

LENGTHS_S = (1.0, 5.0)
HYPOTHESIS = ("errors < 1%", "integrity = 100%")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment for each length that fits; they share the control, and have streams open when it stops."""
    start_s, within_s = middle_third(asked.duration_s)
    extra = open_at(start_s, known, asked)
    hypothesis = asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS)
    for length_s in sorted({min(length_s, within_s / 2) for length_s in LENGTHS_S}):
        pause = Placed(name="pause", start_s=start_s, length_s=within_s, options={"pause_s": length_s})
        name = f"stopped-for-{shown_seconds(length_s)}"
        yield experiment(name, known, asked, pause, extra=extra, hypothesis=hypothesis)


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """How long the streams that it met were silent, and whether they went on."""
    if trial.fault is None:
        return
    stopped_s = [deed.at_s for deed in trial.fault.deeds if deed.what == "stopped"]
    met = [
        sample
        for at_s in stopped_s
        for sample in trial.fault.samples
        if sample.sent_s is not None and sample.sent_s < at_s and (sample.ended_s is None or sample.ended_s > at_s)
    ]
    if not met:
        yield Judgement(outcome=Outcome.UNKNOWN, why="no stream was open when the server stopped")
        return
    went_on = [sample for sample in met if answered(sample)]
    silent_s = max((gap_s for sample in went_on for gap_s in gaps_s(sample)), default=0.0)
    evidence = {"met": len(met), "went_on": len(went_on), "longest_silence_s": round(silent_s, 6)}
    if len(went_on) == len(met):
        longest = shown_seconds(round(silent_s, 3))
        why = f"all of {len(met)} streams that it met went on; the longest silence was {longest}"
        yield Judgement(outcome=Outcome.OK, why=why, evidence=evidence)
    else:
        why = f"{len(met) - len(went_on)} of {len(met)} streams that were open when the server stopped did not go on"
        yield Judgement(outcome=Outcome.CUT, why=why, evidence=evidence)


SCENARIO = ChaosScenario(
    name="pause-and-resume",
    summary="the server stands still in the middle of its streams, and goes on",
    plan=plan,
    judge=judge,
    needs=("process",),
    order=120,
)
