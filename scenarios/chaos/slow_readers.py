"""Clients that are slow: to read, to ask, or to notice that they are half closed. They must cost nobody else anything.

The kernels on both sides hold megabytes, so that a server which writes short replies never feels a slow reader; how
much stood there is in the evidence. Whether a half-closed client is still served is the server's choice: it is
reported, and allowed.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.loads import experiment, middle_third, usual_load
from contextlab.deeds import Value
from contextlab.experiment import HELD, Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Layer, Outcome

RELEASE_WITHIN_S = 5.0
HYPOTHESIS = ("errors < 1%", "integrity = 100%")
LONGEST_REPLY_TOKENS, WINDOW_SHARE = 128, 0.25
HALF_OPEN = "half-open"
WAYS = ("slow-reader", "never-reads", HALF_OPEN, "slow-loris")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment for each way to be slow, in the middle third."""
    load = usual_load(known, asked)
    start_s, length_s = middle_third(load.duration_s)
    window = known.limits.context_tokens or 4 * LONGEST_REPLY_TOKENS
    reply_tokens = min(LONGEST_REPLY_TOKENS, int(WINDOW_SHARE * window))
    for name in WAYS:
        options: dict[str, Value] = {"reply_tokens": reply_tokens} if name in ("slow-reader", "never-reads") else {}
        placed = Placed(name=name, start_s=start_s, length_s=length_s, options=options)
        yield experiment(
            name,
            known,
            asked,
            placed,
            load=load,
            hypothesis=asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS),
            release_within_s=RELEASE_WITHIN_S,
            allowed=HELD | {Outcome.CUT} if name == HALF_OPEN else HELD,
        )


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """What stood unread in the kernels; whether half-closed clients were served."""
    for one in trial.fault.evidence if trial.fault is not None else ():
        count = {name: int(value) for name, value in one.tally.items()}
        if one.name == HALF_OPEN and (cut := count.get("cut", 0)):
            why = f"{cut} of {count.get('half_closed', 0)} half-closed clients got no whole answer: they pass for gone"
            yield Judgement(outcome=Outcome.CUT, why=why, layer=Layer.ENGINE, evidence=count)
        elif unread := count.get("most_unread_bytes", 0):
            behind = count.get("unread_bytes", 0) + count.get("unsent_bytes", 0)
            why = f"up to {unread} bytes stood unread at one client; {behind} bytes in all were left in the kernels"
            yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.ENGINE, evidence=count)


SCENARIO = ChaosScenario(
    name="slow-readers",
    summary="clients are slow to read or to ask: it must cost nobody else anything",
    plan=plan,
    judge=judge,
    order=130,
)
