"""The same text in one prefill, and step by step through the KV cache: are the logits the same?

They are for plain RoPE, at any length. Scalings that choose their frequencies by the length (dynamic NTK, longrope)
leave keys in the cache that were rotated by other ones: from the edge on, the answer depends on how the text came in.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.inside import error_of, memory_limit_bytes, positions_tokens
from contextlab.capacity.limits import ROPE_ORIGINAL
from contextlab.model import FITS, Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario, Skip

MAX_STEPS = 64
TIMEOUT_FLOOR_S, TIMEOUT_RATIO, ORDINARY_TOKENS_PER_S = 60.0, 6.0, 100.0
TOLERANCES = {"float32": 0.01}
"""Largest difference of a logit, in spreads of the logits, that rounding alone explains."""
ROUGH_TOLERANCE = 0.5


def plan(known: Knowledge, rng: Random) -> Plan:
    """Well inside; then across each edge: the length before RoPE scaling, and the model's positions."""
    positions, seed = positions_tokens(known), rng.randrange(1 << 30)
    original = min(
        (limit.tokens for limit in known.limits.declared if limit.name == ROPE_ORIGINAL and limit.tokens),
        default=positions,
    )
    steps = min(MAX_STEPS, min(original, positions) // 4)
    lengths = {"inside": min(original, positions) // 2}
    for edge in sorted({original, positions}):
        lengths[f"across-{edge}"] = edge + steps // 2
    for name, tokens in lengths.items():
        foretold_s = 2 * tokens / (known.prefill_tokens_per_s or ORDINARY_TOKENS_PER_S)
        seen = yield Probe(
            name=name,
            task="cache-consistency",
            allowed=FITS,
            neighbour=False,
            memory_limit_bytes=memory_limit_bytes(known),
            timeout_s=round(TIMEOUT_FLOOR_S + TIMEOUT_RATIO * foretold_s, 1),
            about={"tokens": tokens, "steps": steps, "seed": seed},
        )
        if name == "inside" and seen is not None and seen.measured.get("position_kind") == "table":
            yield Skip(
                scenario="cache-consistency",
                probe=f"across-{positions}",
                reason="past a table of positions there is nothing to compare: see position-out-of-range",
            )
            return


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """By the largest difference, and by how many choices are the same."""
    measured = seen.measured
    if (judged := error_of(seen)) is not None:
        yield replace(judged, why=f"at {probe.about['tokens']} tokens: {judged.why}")
        return
    if measured.get("max_difference") is None:
        why = "the two ways could not be compared: nothing came back"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.KV_CACHE, evidence=measured)
        return
    difference, relative = float(measured["max_difference"] or 0), float(measured.get("relative_difference") or 0)
    agreement, count = float(measured.get("agreement") or 0), measured.get("compared")
    how = (
        f"{probe.about['tokens']} tokens, the last {count} step by step: logits differ by {difference:.2g} at most "
        f"({relative:.2g} of their spread), the choice is the same in {agreement:.0%}"
    )
    if relative <= TOLERANCES.get(str(measured.get("dtype")), ROUGH_TOLERANCE):
        yield Judgement(outcome=Outcome.OK, why=how, layer=Layer.KV_CACHE, evidence=measured)
    else:
        rope = measured.get("rope") or "no"
        why = f"{how}: with {rope} RoPE the answer depends on how the text came in, and nothing says so"
        yield Judgement(outcome=Outcome.DEGRADED, why=why, layer=Layer.POSITIONS, evidence=measured)


SCENARIO = Scenario(
    name="cache-consistency",
    summary="the same text in one prefill and step by step through the cache: the same answer?",
    needs=("tasks",),
    plan=plan,
    judge=judge,
    order=61,
)
