"""A cache, a mask or one layer in another number type than the model: refused by name, or promoted in silence?

A cache that another process has stored, a mask made by hand, one layer left in another precision: an error that names
both types is a clear refusal. Silence costs precision, or memory, and nobody is told.
"""

import re
from collections.abc import Iterable
from random import Random

from contextlab.analysis.inside import memory_limit_bytes, positions_tokens
from contextlab.model import Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario

TOKENS = 32
TIMEOUT_S = 60.0
LAYERS = {
    "growing cache": Layer.KV_CACHE,
    "static cache": Layer.KV_CACHE,
    "mask": Layer.ATTENTION,
    "layer": Layer.ENGINE,
}
NAMES = {
    "float32": r"\bfloat(32)?\b",
    "float64": r"\b(double|float64)\b",
    "bfloat16": r"\bbfloat16\b",
    "float16": r"\b(half|float16)\b",
}
"""What torch's messages call the types."""
ROUNDING = 1e-4
"""A difference in spreads of the logits that means nothing."""


def plan(known: Knowledge, rng: Random) -> Plan:
    """One piece of another type at a time."""
    tokens, seed = min(TOKENS, positions_tokens(known) // 2), rng.randrange(1 << 30)
    for piece in LAYERS:
        yield Probe(
            name=piece.replace(" ", "-"),
            task="dtype-mismatch",
            neighbour=False,
            memory_limit_bytes=memory_limit_bytes(known),
            timeout_s=TIMEOUT_S,
            about={"piece": piece, "tokens": tokens, "seed": seed},
        )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """An error by whether it names both types; silence by what became of the answer."""
    measured, piece = seen.measured, str(probe.about["piece"])
    own, other, layer = str(measured.get("own")), str(measured.get("other")), LAYERS[piece]
    start = f"a {piece} in {other} in a model in {own}"
    if "error_type" in measured:
        words = f"{measured['error_type']}: {measured.get('error')}"
        if names_type(words, own) and names_type(words, other):
            why = f"{start} is refused, both types by name: {words[:240]}"
            yield Judgement(outcome=Outcome.REJECTED, why=why, layer=layer, evidence=measured)
        else:
            why = f"{start} ends in an error that does not name both types: {words[:240]}"
            yield Judgement(outcome=Outcome.REJECTED_BADLY, why=why, layer=layer, evidence=measured)
    elif measured.get("relative_difference") is None:
        why = f"{start}: nothing came back"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=layer, evidence=measured)
    else:
        apart = float(measured["relative_difference"] or 0)
        moved = f"the logits move by {apart:.2g} of their spread"
        if apart > ROUNDING:
            why = f"{start} is taken in silence and becomes {measured.get('became')}: {moved}"
            yield Judgement(outcome=Outcome.DEGRADED, why=why, layer=layer, evidence=measured)
        else:
            why = f"{start} is taken, and makes no difference: {moved}"
            yield Judgement(outcome=Outcome.OK, why=why, layer=layer, evidence=measured)


def names_type(words: str, dtype: str) -> bool:
    """Whether a message speaks of the type, by any of its names."""
    return re.search(NAMES.get(dtype, re.escape(dtype)), words, re.IGNORECASE) is not None


SCENARIO = Scenario(
    name="dtype-mismatch",
    summary="a cache, a mask or a layer of another number type: refused by name, or promoted in silence",
    needs=("tasks",),
    plan=plan,
    judge=judge,
    order=64,
)
