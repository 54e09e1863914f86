"""A static KV cache that is fed more than it holds: an error, a token dropped in silence, or an old one overwritten?

A cache that grows is fed the same tokens beside it: where nothing is refused, whether the logits differ tells.
Layers with a sliding window roll on purpose, in a static cache as in a growing one.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.inside import error_of, memory_limit_bytes, positions_tokens
from contextlab.model import Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario

CACHE_TOKENS, PAST_TOKENS = 64, 8
TOLERANCES = {"float32": 0.01}
ROUGH_TOLERANCE = 0.5
TIMEOUT_S = 60.0


def plan(known: Knowledge, rng: Random) -> Plan:
    """A few tokens too many: one after the other, and all at once."""
    length, seed = min(CACHE_TOKENS, positions_tokens(known) // 2), rng.randrange(1 << 30)
    for name, way in ("by-steps", "steps"), ("by-prompt", "prompt"):
        yield Probe(
            name=name,
            task="cache-overflow",
            neighbour=False,
            memory_limit_bytes=memory_limit_bytes(known),
            timeout_s=TIMEOUT_S,
            about={"cache_tokens": length, "tokens": length + PAST_TOKENS, "way": way, "seed": seed},
        )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """An error by its words; silence by whether the growing cache says the same."""
    measured, length = seen.measured, int(probe.about["cache_tokens"])
    tolerance = TOLERANCES.get(str(measured.get("dtype")), ROUGH_TOLERANCE)
    apart = {side: float(measured.get(f"{side}_relative_difference") or 0) for side in ("inside", "past")}
    if apart["inside"] > tolerance:
        why = f"inside its {length} tokens the static cache already answers otherwise than one that grows"
        yield Judgement(outcome=Outcome.DEGRADED, why=why, layer=Layer.KV_CACHE, evidence=measured)
    if (judged := error_of(seen)) is not None:
        held = f"a static cache of {length} tokens took {measured.get('ok_tokens')}"
        yield replace(judged, why=f"{held} and not {measured.get('error_tokens')}: {judged.why}")
        return
    if "past_relative_difference" not in measured:
        why = "nothing past the cache's end was compared"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.KV_CACHE, evidence=measured)
        return
    start = f"a static cache of {length} tokens took {measured.get('ok_tokens')} without an error"
    if apart["past"] > tolerance:
        why = f"{start}, and answers otherwise than one that grows: tokens were dropped or overwritten in silence"
        yield Judgement(outcome=Outcome.DEGRADED, why=why, layer=Layer.KV_CACHE, evidence=measured)
        return
    sliding, layers = measured.get("num_sliding_layers"), measured.get("num_layers")
    rolls = f": {sliding} of {layers} layers slide, and roll on purpose" if sliding else ""
    why = f"{start} and answers as one that grows{rolls}"
    yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.KV_CACHE, evidence=measured)


SCENARIO = Scenario(
    name="cache-overflow",
    summary="a static cache fed past its length: an error, a silent drop, or an overwrite",
    needs=("tasks",),
    plan=plan,
    judge=judge,
    order=62,
)
