"""Redis behind a cache is gone in the middle of the load: do hit rates, extra work and breaker behave as foretold?

Once with the cache's guards and once without, in the same run. The local tier holds a few of the prompts, Redis all of
them; when it is gone, the rest is the target's to answer again. The guards let one computation serve all who ask the
same meanwhile; without them each is one more request, which makes every miss longer.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.caching import COLD, abreast, cache, judged, outage_rate_per_s
from contextlab.analysis.coupled import measured
from contextlab.analysis.loads import experiment, middle_third
from contextlab.analysis.popularity import answer_s, popular_load, popular_mix
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Layer, Outcome

HYPOTHESIS = ("errors < 1%", "integrity = 100%")
BREAKS = COLD | {Outcome.BOUND_BROKEN}
"""What may happen without guards: to show it is what that experiment is for."""
GUARDED = "amplification_with_guards"


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """With guards, then without; the second is told what the first measured."""
    start_s, length_s = middle_third(asked.duration_s)
    gone = Placed(name="redis-refused", start_s=start_s, length_s=length_s)
    mix = asked.mix or popular_mix(known, asked.reply_tokens, rng)
    one_s = answer_s(known, asked.reply_tokens)
    rate = outage_rate_per_s(tuple(mixed.weight for mixed in mix), one_s, abreast(known))
    load = popular_load(known, asked, mix, rate_per_s=rate)
    about: dict[str, int | float | str] = {"answer_s": round(one_s, 4)}
    for name, guards in (("redis-gone", True), ("redis-gone-without-guards", False)):
        trial = yield experiment(
            name,
            known,
            asked,
            gone,
            load=load,
            hypothesis=asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS),
            tier=cache(guards=guards),
            control=asked.control and guards,
            allowed=COLD if guards else BREAKS,
            about=dict(about),
        )
        if trial is not None and trial.fault is not None and (seen := measured(trial.fault, start_s, length_s)):
            about[GUARDED] = round(seen.amplification, 4)


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """The model against what was measured; and that the guards are worth something."""
    yield from judged(experiment, trial, float(experiment.about["answer_s"]))
    guarded = experiment.about.get(GUARDED)
    [gone] = experiment.faults
    seen = measured(trial.fault, gone.start_s, gone.length_s) if trial.fault is not None else None
    if seen is None or guarded is None:
        return
    evidence = {GUARDED: guarded, "amplification": round(seen.amplification, 4)}
    words = f"{seen.amplification:.2f} origin requests for each key without guards, {guarded:.2f} with them"
    if seen.amplification > float(guarded):
        yield Judgement(outcome=Outcome.OK, why=words, layer=Layer.GATEWAY, evidence=evidence)
    else:
        why = f"{words}: they were worth nothing in this run"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.GATEWAY, evidence=evidence)


SCENARIO = ChaosScenario(
    name="cache-outage",
    summary="the Redis of a cache in front of the target is gone: does everything come as foretold?",
    plan=plan,
    judge=judge,
    order=200,
)
