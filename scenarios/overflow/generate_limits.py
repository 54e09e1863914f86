"""generate() at the model's positions and past them, in each of the library's ways to say how long a text may become.

The last token of a reply is never read, so a text of one token more than there are positions is still in order.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.inside import error_of, has_range, memory_limit_bytes, positions_tokens
from contextlab.capacity.limits import WINDOW
from contextlab.model import (
    FITS,
    REFUSES,
    Judgement,
    Knowledge,
    Layer,
    Observation,
    Outcome,
    Plan,
    Probe,
    Scenario,
    Skip,
)

ROOM_TOKENS, PAST_TOKENS = 4, 4
CACHE_TOKENS = 64
MAX_POSITIONS = 4096
"""Longer models take too long to be filled for each of the ways."""
TIMEOUT_S = 60.0


def plan(known: Knowledge, rng: Random) -> Plan:
    """Every way over the same edge; the control ends exactly at it."""
    positions, seed = positions_tokens(known), rng.randrange(1 << 30)
    near, new, cache = positions - ROOM_TOKENS, ROOM_TOKENS + PAST_TOKENS, min(CACHE_TOKENS, positions // 2)
    ways: dict[str, dict[str, int | str]] = {
        "max-new-tokens-to-the-edge": {"prompt_tokens": near, "max_new_tokens": ROOM_TOKENS + 1},
        "max-new-tokens-past": {"prompt_tokens": near, "max_new_tokens": new},
        "max-length-past": {"prompt_tokens": near, "max_length": positions + PAST_TOKENS},
        "no-length": {"prompt_tokens": positions + PAST_TOKENS},
        "static-past": {"prompt_tokens": near, "max_new_tokens": new, "cache": "static"},
    }
    if positions > MAX_POSITIONS:
        reason = f"filling {positions} positions once for each way takes too long: see position-out-of-range"
        yield Skip(scenario="generate-limits", probe="past the positions", reason=reason)
        ways = {}
    ways["static-cache-full"] = {
        "prompt_tokens": cache - ROOM_TOKENS,
        "max_new_tokens": new,
        "cache": f"static:{cache}",
    }
    sliding = min(
        (limit.tokens for limit in known.limits.declared if limit.name == WINDOW and limit.tokens), default=None
    )
    if sliding is not None and ROOM_TOKENS < sliding < min(positions, MAX_POSITIONS) - PAST_TOKENS:
        ways["sliding-window-past"] = {"prompt_tokens": sliding - ROOM_TOKENS, "max_new_tokens": new}
    for name, about in ways.items():
        fits = name in ("max-new-tokens-to-the-edge", "sliding-window-past")
        yield Probe(
            name=name,
            task="generate-limits",
            allowed=FITS if fits else REFUSES,
            neighbour=False,
            memory_limit_bytes=memory_limit_bytes(known),
            timeout_s=TIMEOUT_S,
            about={**about, "seed": seed, "positions": positions},
        )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """An error by its words; tokens by how far past the positions they were read."""
    measured, about = seen.measured, probe.about
    said = "".join(f", {name}={about[name]}" for name in ("max_new_tokens", "max_length", "cache") if name in about)
    call = f"generate() on {about['prompt_tokens']} tokens{said or ', no length given'}"
    if (judged := error_of(seen)) is not None:
        yield replace(judged, why=f"{call}: {judged.why}")
        return
    if measured.get("new_tokens") is None:
        why = f"{call}: nothing came back"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=measured)
        return
    total, new = int(measured.get("total_tokens") or 0), int(measured["new_tokens"] or 0)
    past = total - 1 - int(about["positions"]) if has_range(seen.knowledge) else 0
    warned = f"; warned: {measured['warned']}" if measured.get("warned") else "; without a warning"
    asked = about.get("max_new_tokens")
    if past > 0:
        why = f"{call}: {new} tokens, {past} of them read past the model's {about['positions']} positions{warned}"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.POSITIONS, evidence=measured)
    elif asked is not None and new < int(asked):
        why = f"{call}: ended after {new} tokens{warned}"
        yield Judgement(outcome=Outcome.CAPPED, why=why, layer=Layer.POSITIONS, evidence=measured)
    else:
        why = f"{call}: {new} tokens, {total} in all"
        yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.POSITIONS, evidence=measured)


SCENARIO = Scenario(
    name="generate-limits",
    summary="generate() at and past the positions: max_length, max_new_tokens, a static cache, a sliding window",
    needs=("tasks",),
    plan=plan,
    judge=judge,
    order=65,
)
