"""Clients give up too soon and ask again at once: how much work is made of one question, and does it end with them?

Each try waits for a part of the time that the answer takes, so that no try can succeed: the worst case, in which the
target works for nobody. Afterwards it must serve as before.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.cost import cost
from contextlab.analysis.loads import experiment, middle_third, usual_load
from contextlab.deeds import Value
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Layer, Outcome

ATTEMPTS = 3
REPLY_TOKENS, WINDOW_SHARE = 64, 0.125
PATIENCE_SHARE, SHORTEST_S = 0.5, 0.1
"""A try waits for half of the time that its answer takes alone."""
RELEASE_WITHIN_S, RECOVERY_WITHIN_S = 5.0, 10.0
HYPOTHESIS = ("errors < 1% after", "integrity = 100%")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One storm, in the middle third."""
    load = usual_load(known, asked)
    start_s, length_s = middle_third(load.duration_s)
    reply_tokens = max(1, min(REPLY_TOKENS, int(WINDOW_SHARE * (known.limits.context_tokens or 8 * REPLY_TOKENS))))
    alone_s = reply_tokens / (known.decode_tokens_per_s or 2.0 * reply_tokens)
    timeout_s = round(max(SHORTEST_S, PATIENCE_SHARE * alone_s), 3)
    options: dict[str, Value] = {"attempts": ATTEMPTS, "timeout_s": timeout_s, "reply_tokens": reply_tokens}
    yield experiment(
        f"{ATTEMPTS}-tries",
        known,
        asked,
        Placed(name="retry-storm", start_s=start_s, length_s=length_s, options=options),
        load=load,
        hypothesis=asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS),
        recovery_within_s=asked.recovery_within_s or RECOVERY_WITHIN_S,
        release_within_s=RELEASE_WITHIN_S,
    )


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """The amplification, and what was generated for nobody."""
    for one in trial.fault.evidence if trial.fault is not None else ():
        asked, attempts = one.tally.get("asked", 0.0), one.tally.get("attempts", 0.0)
        if trial.fault is None or not asked:
            continue
        spent = cost(trial.fault)
        wasted = f", {spent.wasted_share:.0%} of what was generated was used by nobody" if spent.wasted_share else ""
        why = f"each question was asked {attempts / asked:.1f} times{wasted}"
        numbers = {**spent.numbers, "retry_amplification": round(attempts / asked, 3)}
        yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.ENGINE, evidence=numbers)


SCENARIO = ChaosScenario(
    name="retry-storm",
    summary="clients give up too soon and ask again at once",
    plan=plan,
    judge=judge,
    order=140,
)
