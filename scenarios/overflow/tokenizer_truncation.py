"""What the tokenizer's truncation=True does to a text that is too long: which end goes, what goes with it, who is told.

Its limit is its own (`model_max_length`), not the model's. Where it is a placeholder (10³⁰), nothing is cut at all, and
the model is handed whatever came.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.inside import has_range, memory_limit_bytes, positions_tokens
from contextlab.model import Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario

TIMEOUT_S = 60.0
MULTIPLE = 8
CUTS = {"tail": Outcome.TRUNCATED_TAIL, "head": Outcome.TRUNCATED_HEAD, "other": Outcome.TRUNCATED_MIDDLE}


def plan(known: Knowledge, rng: Random) -> Plan:
    """truncation=True alone; with the model's length; of a chat; and padding to a multiple, with its own length."""
    positions, seed = positions_tokens(known), rng.randrange(1 << 30)
    ways = {"default": "default", "pad-to-multiple": "pad"}
    if has_range(known):
        ways["to-the-positions"] = "length"
        if "chat" in known.powers:
            ways["chat-to-the-positions"] = "chat"
    for name, way in ways.items():
        limit = positions // MULTIPLE * MULTIPLE - 1 if way == "pad" else positions
        yield Probe(
            name=name,
            task="tokenizer-truncation",
            neighbour=False,
            memory_limit_bytes=memory_limit_bytes(known),
            timeout_s=TIMEOUT_S,
            about={"way": way, "max_tokens": limit, "positions": positions, "seed": seed},
        )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """What was cut, against what was asked for and what the model has."""
    measured, limit = seen.measured, int(probe.about["max_tokens"])
    if "error_type" in measured:
        words = f"{measured['error_type']}: {measured.get('error')}"
        outcome = Outcome.REJECTED if str(limit) in words else Outcome.REJECTED_BADLY
        yield Judgement(outcome=outcome, why=f"refused: {words[:300]}", layer=Layer.TOKENIZER, evidence=measured)
        return
    if measured.get("cut_tokens") is None:
        why = "the tokenizer gave nothing back"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.TOKENIZER, evidence=measured)
        return
    yield _judged(probe, seen, limit)


def _judged(probe: Probe, seen: Observation, limit: int) -> Judgement:
    measured = seen.measured
    whole, cut, lost = (measured.get(name) for name in ("whole_tokens", "cut_tokens", "lost"))
    declares = "no limit (a placeholder)" if measured.get("unlimited") else f"{measured.get('declared_tokens')} tokens"
    told = "with a warning" if measured.get("num_warnings") else "without a word"
    outcome, why = Outcome.OK, f"a text of {whole} tokens stays as it is, and the model has no range of positions"
    if probe.about["way"] == "pad":
        outcome, why = Outcome.OK, f"padded to {cut} of at most {limit} tokens"
        if int(cut or 0) > limit:
            outcome = Outcome.DEGRADED
            why = f"padding=max_length, max_length={limit}, pad_to_multiple_of={MULTIPLE} gives {cut} tokens, {told}"
    elif lost:
        gone = int(whole or 0) - int(cut or 0)
        outcome, why = CUTS[str(lost)], f"truncation=True cut {gone} of {whole} tokens, the {lost} of the text, {told}"
        if measured.get("generation_prompt_kept") is False:
            why += "; the words that open the reply went with it"
        if measured.get("special_tokens_lost"):
            why += f"; {measured['special_tokens_lost']} special tokens went with it"
    elif has_range(seen.knowledge):
        outcome = Outcome.DEGRADED
        why = (
            f"truncation=True cut nothing, {told}: the tokenizer declares {declares}, a text of {whole} tokens "
            f"stays as it is, and the model has {probe.about['positions']} positions"
        )
    return Judgement(outcome=outcome, why=why, layer=Layer.TOKENIZER, evidence=measured)


SCENARIO = Scenario(
    name="tokenizer-truncation",
    summary="truncation=True on a text that is too long: which end goes, what goes with it, or nothing at all",
    needs=("tasks",),
    plan=plan,
    judge=judge,
    order=63,
)
