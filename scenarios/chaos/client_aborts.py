"""Clients leave before their answers are there: is what they had taken free again, and what did it cost?

A server that does not notice goes on generating for nobody, in a slot that others wait for. Streams are the easy case.
Without a stream a server learns of a client's leaving only if it looks, and some look only while nothing else happens:
so another client's stream always runs meanwhile, and a client is there only for a moment: what is busy long after it
had left is busy for nobody.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.cost import cost
from contextlab.analysis.loads import experiment, middle_third, usual_load
from contextlab.deeds import Value
from contextlab.experiment import Arrivals, Asked, ChaosPlan, ChaosScenario, Experiment, Pace, Placed, Trial
from contextlab.model import Judgement, Knowledge, Layer, Outcome

RELEASE_WITHIN_S = 3.0
HYPOTHESIS = ("errors < 1%", "integrity = 100%")
LONGEST_REPLY_TOKENS, WINDOW_SHARE = 128, 0.25
"""Replies are long enough to be left, and short enough for several of them to fit into one window together."""
BRIEF_S = 1.0
USUAL_PREFILL_PER_S = 1000.0


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """Streams left in order and torn down, a prompt that is still being read; last, with a load of its own, an answer
    in one piece."""
    load = usual_load(known, asked)
    start_s, length_s = middle_third(load.duration_s)
    window = known.limits.context_tokens or 4 * LONGEST_REPLY_TOKENS
    reply_tokens = min(LONGEST_REPLY_TOKENS, int(WINDOW_SHARE * window))
    words = int(WINDOW_SHARE * window / max(1.0, known.tokens_per_word))
    reading_s = WINDOW_SHARE * window / (known.prefill_tokens_per_s or USUAL_PREFILL_PER_S)
    brief_s = min(BRIEF_S, length_s)
    answering_s = reply_tokens / known.decode_tokens_per_s if known.decode_tokens_per_s else brief_s
    neighbour = replace(load, arrivals=Arrivals(pace=Pace.CLOSED, concurrency=1))
    ways: dict[str, tuple[str, float, dict[str, Value]]] = {
        "stream": ("abort", length_s, {"reply_tokens": reply_tokens}),
        "stream-reset": ("abort", length_s, {"close": "reset", "reply_tokens": reply_tokens}),
        "prefill": (
            "abort-prefill",
            brief_s,
            {
                "clients": 1,
                "words": words,
                "wait_s": round(min(reading_s, brief_s) / 4, 3),
                "reply_tokens": reply_tokens,
            },
        ),
        "no-stream": (
            "abort",
            brief_s,
            {
                "clients": 1,
                "stream": False,
                "wait_s": round(min(answering_s, brief_s) / 2, 3),
                "reply_tokens": reply_tokens,
            },
        ),
    }
    for name, (fault, lasts_s, options) in ways.items():
        placed = Placed(name=fault, start_s=start_s, length_s=lasts_s, options=options)
        yield experiment(
            name,
            known,
            asked,
            placed,
            load=neighbour if name == "no-stream" else load,
            hypothesis=asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS),
            release_within_s=RELEASE_WITHIN_S,
        )


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """What was generated for nobody; whether it was freed is judged for every experiment that asks."""
    if trial.fault is None:
        return
    spent = cost(trial.fault)
    if spent.wasted_share is not None:
        more = "" if spent.counted else ", by what came"
        why = f"{spent.wasted_share:.0%} of {spent.generated_tokens} generated tokens were used by nobody{more}"
        yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.ENGINE, evidence=spent.numbers)


SCENARIO = ChaosScenario(
    name="client-aborts",
    summary="clients leave before their answers are there: is what they had taken free again?",
    plan=plan,
    judge=judge,
    order=120,
)
