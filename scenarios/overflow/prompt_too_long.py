"""Prompts that just fit the window, and prompts that do not, on every endpoint, streamed and not.

A well-behaved target answers the first kind and refuses the second before generating. Dropping an end in
silence, failing with the wrong status, crashing or hanging is what this scenario finds.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.ends import about_control, judge_reading, recalled
from contextlab.analysis.prompts import PLACES, marked, slack_tokens
from contextlab.model import FITS, REFUSES, Api, Judgement, Knowledge, Observation, Plan, Probe, Scenario


def plan(known: Knowledge, rng: Random) -> Plan:
    """For each endpoint and way of replying: one token of room, none, one too many, and twice the window."""
    window = known.limits.context_tokens or 0
    seed, slack = rng.randrange(1 << 30), slack_tokens(known)
    edges = {"fits": window - 1 - slack, "full": window + slack, "one-over": window + 1 + slack, "twice": 2 * window}
    for api in (api for api in Api if api in known.powers):
        about: dict[str, int | float | str] = {}
        told = False
        for stream in (False, True):
            way = f"{api}-{'stream' if stream else 'whole'}"
            if not told:
                asks = tuple(
                    marked(f"ask:{ask}", window * 5 // 8, ask, seed=seed, api=api, stream=stream) for ask in PLACES
                )
                seen = yield Probe(name=f"{way}-control", requests=asks, allowed=FITS, neighbour=False)
                about = dict(about_control(recalled(seen.exchanges if seen else ())))
                told = seen is None or bool(about)
            for label, size in edges.items():
                fits = size < window
                asks = tuple(
                    marked(f"ask:{ask}", size, ask, seed=seed, api=api, stream=stream)
                    for ask in (PLACES if not fits else PLACES[:1])
                )
                if fits:  # there is room for one token only, no code can come back
                    asks = tuple(replace(request, reply_tokens=1, expects="") for request in asks)
                seen = yield Probe(
                    name=f"{way}-{label}",
                    requests=asks,
                    allowed=FITS if fits else REFUSES,
                    about={**about, "size_tokens": size},
                )
                if fits and seen and all(exchange.done and not exchange.failure for exchange in seen.exchanges):
                    about["accepted_tokens"] = size


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """Refused, or read: which marked end of the prompt came back."""
    yield judge_reading(probe, seen.exchanges, seen.knowledge)


SCENARIO = Scenario(
    name="prompt-too-long",
    summary="prompts of one token less than the window, the window, one more, and twice as many",
    needs=("window",),
    plan=plan,
    judge=judge,
    order=20,
)
