"""The overflow facts of one launch that must be equal in both arms: a prompt that fits, and one that does not.

    fits   ⅝ of the window: outcome, status, tokens; whether its codes come back
    over   the window and an eighth: refused, and how; or read, and which side of it was lost

Asked after the load, so that what they do to the server does not touch what was measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from contextlab import registry
from contextlab.analysis import prompts
from contextlab.analysis.ends import about_control, judge_reading, recalled
from contextlab.analysis.gate.nouns import Exact
from contextlab.analysis.prompts import PLACES, marked, role_of, usual_api
from contextlab.lab.child import Reporter, Talk
from contextlab.model import Exchange, Knowledge, Message, Outcome, Probe, TargetSpec, UnableError

LARGEST_WINDOW = 16384
"""A prompt over a larger window costs more than a block; its size alone is compared."""
SMALL_TOKENS = 160
"""Size of the prompt that fits, where the target declares no window."""
FEW, MANY = 16, 48
SIDES = {Outcome.TRUNCATED_HEAD: "head", Outcome.TRUNCATED_MIDDLE: "middle", Outcome.TRUNCATED_TAIL: "tail"}


async def facts(spec: TargetSpec, *, seed: int, timeout_s: float) -> dict[str, Exact]:
    """The facts by name (`analysis.gate.load.EXACT_NAMES`). Failures of the target are facts, too."""
    async with registry.open_target(spec) as target:
        known = target.knowledge
        window = known.limits.context_tokens
        found: dict[str, Exact] = {"window_tokens": "not told" if window is None else window}
        try:
            slope = await _slope(Talk(target, Reporter(-1, time.monotonic()), timeout_s), known)
        except UnableError as error:
            return {**found, "fits.outcome": f"not asked: {error.message[:120]}"}
    known = replace(known, tokens_per_word=slope)
    async with registry.open_target(spec, known) as target:
        talk = Talk(target, Reporter(-1, time.monotonic()), timeout_s)
        asks = await _asked(talk, known, SMALL_TOKENS if window is None else window * 5 // 8, seed)
        found |= _facts("fits", asks, known, {})
        if window is not None and window <= LARGEST_WINDOW:
            about = about_control(recalled(asks))
            asks = await _asked(talk, known, window + window // 8, seed + 1)
            found |= _facts("over", asks, known, about)
    return found


async def _slope(talk: Talk, known: Knowledge) -> float:
    """Tokens of one more word of filler."""
    api = usual_api(known)
    few, many = [
        await talk.count(api, (Message(role=role_of(api), parts=(prompts.filler(words, Random(0)).strip(),)),))
        for words in (FEW, MANY)
    ]
    if many <= few:
        raise UnableError(f"{FEW} words are {few} tokens, {MANY} words are {many}", "check usage.prompt_tokens")
    return (many - few) / (MANY - FEW)


async def _asked(talk: Talk, known: Knowledge, size: int, seed: int) -> list[Exchange]:
    """One marked prompt, asked for each of its codes in turn; a failure ends it."""
    found: list[Exchange] = []
    for place in PLACES:
        request = marked(f"ask:{place}", size, place, seed=seed, api=usual_api(known))
        exchange = await talk.exchange(await talk.render(request), quiet=True)
        found.append(exchange)
        if exchange.failure is not None:
            break
    return found


def _facts(name: str, asks: Sequence[Exchange], known: Knowledge, about: dict[str, int]) -> dict[str, Exact]:
    judged = judge_reading(Probe(name=name, about=about), asks, known)
    last = asks[-1]
    usage = last.usage
    failed = last.failure.status if last.failure is not None else None
    status = last.status if last.status is not None else failed
    said: dict[str, Exact | None] = {
        "outcome": judged.outcome.name,
        "status": "none" if status is None else status,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "reply_tokens": usage.completion_tokens if usage else None,
        "finish_reason": last.finish_reason,
        "side": SIDES.get(judged.outcome, "none"),
    }
    return {f"{name}.{fact}": "none" if value is None else value for fact, value in said.items()}
