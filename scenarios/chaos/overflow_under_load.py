"""Over-long prompts come in between: they may be refused, but do the others notice?

`too-long` sends twice the window, which a good engine refuses before it computes anything. `large` sends what fits
into one window, and yet may not fit into a KV cache that the others use as well.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.loads import experiment, usual_load
from contextlab.analysis.prompts import role_of, usual_api
from contextlab.experiment import (
    Arrivals,
    Asked,
    ChaosPlan,
    ChaosScenario,
    Experiment,
    Extra,
    Load,
    Mixed,
    Pace,
    Trial,
)
from contextlab.model import Judgement, Knowledge, Layer, Message, Outcome, Request, Stretch

SIZES = {"too-long": 2.0, "large": 0.75}
EVERY_S = 2.0


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """The usual load in both arms; in the second, prompts of one size on top of it, every other second."""
    window = known.limits.context_tokens or 0
    load = usual_load(known, asked)
    for name, share in SIZES.items():
        api = usual_api(known)
        request = Request(
            name=name,
            messages=(Message(role=role_of(api), parts=("Read this list.", Stretch(), " That was the list. It said")),),
            api=api,
            size_tokens=int(share * window),
            reply_tokens=4,
            words_seed=rng.getrandbits(16),
        )
        arrivals = Arrivals(pace=Pace.CONSTANT, rate_per_s=1 / EVERY_S)
        large = Load(
            arrivals=arrivals,
            duration_s=round(load.duration_s / 3, 3),
            mix=(Mixed(request=request),),
            timeout_s=load.timeout_s,
        )
        extra = Extra(load=large, start_s=round(load.duration_s / 3, 3), counts=False)
        yield experiment(name, known, asked, load=replace(load), extra=extra)


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """What became of the over-long prompts themselves: a refusal has a status of the client's fault."""
    arm = trial.fault
    if arm is None or experiment.name != "too-long":
        return
    answers = [sample.status for sample in arm.uncounted if sample.status is not None]
    good = sum(status in (400, 413, 422) for status in answers)
    evidence = {"over_long": len(arm.uncounted), "refused_clearly": good, "answered": answers.count(200)}
    if arm.uncounted and good < len(arm.uncounted):
        why = (
            f"{len(arm.uncounted) - good} of {len(arm.uncounted)} prompts of twice the window were not refused clearly"
        )
        yield Judgement(outcome=Outcome.REJECTED_BADLY, why=why, layer=Layer.ENGINE, evidence=evidence)


SCENARIO = ChaosScenario(
    name="overflow-under-load",
    summary="over-long prompts come in between: do the others notice?",
    plan=plan,
    judge=judge,
    needs=("window",),
    order=60,
)
