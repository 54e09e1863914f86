"""Redis behind a cache goes and comes back, empty, again and again: the breaker must not follow each time, nor stick.

Each return invites the tier to ask again, and each ask that is refused counts against the next return. What is lost is
work, never an answer.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.caching import COLD, abreast, cache, judged, outage_rate_per_s
from contextlab.analysis.loads import experiment, middle_third
from contextlab.analysis.popularity import answer_s, popular_load, popular_mix
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge

DOWN_S, UP_S = 1.0, 2.0
HYPOTHESIS = ("errors < 1%", "integrity = 100%")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment: down for a second, up for two, for a third of the run."""
    start_s, length_s = middle_third(asked.duration_s)
    options = {"down_s": DOWN_S, "up_s": UP_S}
    flaps = Placed(name="redis-restarted", start_s=start_s, length_s=length_s, options=options)
    mix = asked.mix or popular_mix(known, asked.reply_tokens, rng)
    one_s = answer_s(known, asked.reply_tokens)
    rate = outage_rate_per_s(tuple(mixed.weight for mixed in mix), one_s, abreast(known))
    yield experiment(
        "redis-flaps",
        known,
        asked,
        flaps,
        load=popular_load(known, asked, mix, rate_per_s=rate),
        hypothesis=asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS),
        tier=cache(),
        allowed=COLD,
        about={"answer_s": round(one_s, 4)},
    )


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """The model against what was measured."""
    yield from judged(experiment, trial, float(experiment.about["answer_s"]))


SCENARIO = ChaosScenario(
    name="cache-flap",
    summary="the Redis of a cache in front of the target goes and comes back, again and again",
    plan=plan,
    judge=judge,
    order=210,
)
