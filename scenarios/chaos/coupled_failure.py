"""When does the loss of Redis, or a swinging network, become the target's trouble? Each at a low and at a high load.

Redis gone does no harm while the target can take the misses; a network that swings does none to the target, however
many wait: it only makes clients late. The model says beforehand which of the four degrades; the run says which did.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.caching import COLD, abreast, cache, expected_of, outage_rate_per_s, waits_longer
from contextlab.analysis.coupled import Thresholds
from contextlab.analysis.loads import experiment, middle_third
from contextlab.analysis.popularity import answer_s, popular_load, popular_mix
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Layer, Outcome

LOADS = {"low": 0.4, "high": 2.5}
"""Part of the target that the misses of an outage ask for."""
ROUND_TRIP_S = (0.02, 0.2)
HYPOTHESIS = ("errors < 1%",)


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """The four cells, a load at a time."""
    start_s, length_s = middle_third(asked.duration_s)
    least_s, most_s = (each / 2 for each in ROUND_TRIP_S)
    swing = {"delay_s": round((least_s + most_s) / 2, 6), "jitter_s": round((most_s - least_s) / 2, 6)}
    faults = {
        "redis-gone": Placed(name="redis-refused", start_s=start_s, length_s=length_s),
        "rtt-jitter": Placed(name="jitter", start_s=start_s, length_s=length_s, options=swing),
    }
    mix = asked.mix or popular_mix(known, asked.reply_tokens, rng)
    one_s = answer_s(known, asked.reply_tokens)
    for load_name, part in LOADS.items():
        weights = tuple(mixed.weight for mixed in mix)
        rate = outage_rate_per_s(weights, one_s, abreast(known), part)
        load = popular_load(known, asked, mix, rate_per_s=rate)
        for name, placed in faults.items():
            yield experiment(
                f"{name}-{load_name}-load",
                known,
                asked,
                placed,
                load=load,
                hypothesis=asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS),
                tier=cache(),
                allowed=COLD,
                about={"answer_s": round(one_s, 4)},
            )


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """Whether it degrades, foretold and seen: whether clients wait for half an answer more than without the fault.

    A network that swings costs each two round trips besides: to connect, and to ask.
    """
    one_s = float(experiment.about["answer_s"])
    model = expected_of(experiment, trial, one_s, Thresholds())
    if trial.control is None or trial.fault is None or model is None:
        return
    [placed] = experiment.faults
    longer_s = waits_longer(trial.control, trial.fault, placed)
    if longer_s is None:
        yield Judgement(outcome=Outcome.UNKNOWN, why="too few requests to tell whether it degrades")
        return
    allowance_s = one_s / 2 + (2 * ROUND_TRIP_S[1] if placed.name == "jitter" else 0.0)
    degrades = longer_s > allowance_s
    evidence: dict[str, float | str | bool] = {
        "degrades": degrades,
        "foretold_degrades": model.degrades,
        "ttft_p90_longer_s": round(longer_s, 3),
        "allowance_s": round(allowance_s, 3),
        "foretold_local": round(model.figures.local, 3),
        "foretold_misses_at_once": round(model.misses, 2),
        "foretold_utilisation": round(model.utilisation, 3),
        "thresholds_crossed": "; ".join(model.crossed),
    }
    change = f"{abs(longer_s):.2f} s {'longer' if longer_s >= 0 else 'shorter'}"
    words = f"p90 of TTFT is {change} (at most {allowance_s:.2f} s longer is no harm)"
    crossed = f"{len(model.crossed)} of 3 thresholds crossed" + "".join(f"; {one}" for one in model.crossed)
    if degrades is model.degrades:
        state = "it degrades" if degrades else "it does not degrade"
        why = f"{state}, as foretold ({crossed}): {words}"
        yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.GATEWAY, evidence=evidence)
    else:
        why = f"the model says otherwise ({crossed}): {words}"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.GATEWAY, evidence=evidence)


SCENARIO = ChaosScenario(
    name="coupled-failure",
    summary="Redis gone, or a swinging network, at a low and a high load: where do they add up?",
    plan=plan,
    judge=judge,
    order=220,
)
