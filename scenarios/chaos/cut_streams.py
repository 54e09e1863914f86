"""Some streams are cut, reset or silenced on their way: who notices?

The transport notices where HTTP promised more (a chunk, a length) or the connection was reset. The protocol notices
where finish_reason or `[DONE]` is missing. A time limit notices silence. Where none of them does, a client takes half
an answer for a whole one; and streams that were not touched must stay whole.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random

from contextlab.analysis.integrity import DAMAGE, Noticed, judge_all, norms
from contextlab.analysis.loads import experiment, middle_third
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Layer, Outcome

SHARE = 0.5
CUTS = {
    "cut-after-first-token": ("cut", "first-token"),
    "cut-inside-event": ("cut", "event:3"),
    "cut-before-done": ("cut", "done"),
    "reset-inside-event": ("reset", "event:3"),
    "silent-inside-event": ("blackhole", "event:3"),
}


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment for each way to lose a stream; half of the requests in the middle third are hit."""
    start_s, length_s = middle_third(asked.duration_s)
    for name, (fault, at) in CUTS.items():
        options: dict[str, int | float | str | bool | None] = {"at": at, "share": SHARE}
        placed = Placed(name=fault, start_s=start_s, length_s=length_s, options=options)
        yield experiment(name, known, asked, placed, hypothesis=())


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """Every damaged stream must be noticed by something that a client has; the others must be whole."""
    if trial.fault is None or trial.control is None:
        return
    readings = judge_all(trial.fault.samples, trial.references, norms(trial.control.samples))
    damaged = {index: reading for index, reading in readings.items() if reading.seen & DAMAGE}
    by_whom = Counter(str(reading.noticed) for reading in damaged.values())
    evidence = {
        "damaged": len(damaged),
        "streams": len(readings),
        **{f"noticed by {who}": n for who, n in by_whom.items()},
    }
    if unnoticed := sum(reading.noticed is Noticed.NOBODY for reading in damaged.values()):
        why = (
            f"{unnoticed} of {len(damaged)} damaged streams look whole to a client: nothing but the reference shows it"
        )
        yield Judgement(outcome=Outcome.STREAM_DAMAGED, why=why, layer=Layer.GATEWAY, evidence=evidence)
    elif damaged:
        who = ", ".join(f"{name} ({number})" for name, number in by_whom.most_common())
        why = f"all of {len(damaged)} damaged streams are noticed, by {who}"
        yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.GATEWAY, evidence=evidence)


SCENARIO = ChaosScenario(
    name="cut-streams",
    summary="streams are cut, reset or silenced on their way: who notices?",
    plan=plan,
    judge=judge,
    order=30,
)
