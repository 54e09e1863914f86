"""Parallel requests that each fit the window and together do not fit the KV cache; and one larger than the cache.

Who waits, who is refused, who is preempted, whose stream is ended by somebody else's prompt? A queue that stands
still while the health endpoint is green is a hang.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.exchanges import answered, ttft_s
from contextlab.analysis.judging import read, worst
from contextlab.analysis.prompts import marked, usual_api
from contextlab.analysis.quantities import count
from contextlab.analysis.signatures import recognise
from contextlab.model import (
    FITS,
    Exchange,
    Judgement,
    Knowledge,
    Layer,
    Observation,
    Outcome,
    Plan,
    Probe,
    Request,
    Scenario,
    Skip,
)

PROMPT_SHARE, REPLY_SHARE = 0.6, 0.2
"""Parts of the window that each request's prompt and reply take: well inside it."""
USUAL_SLOTS = 4


def plan(known: Knowledge, rng: Random) -> Plan:
    """As many large requests as there are slots beside the neighbour's; more than that; one larger than the pool."""
    window, pool = known.limits.context_tokens or 0, known.limits.pool_tokens
    slots = known.limits.num_slots or USUAL_SLOTS
    size, reply = int(window * PROMPT_SHARE), max(4, int(window * REPLY_SHARE))

    def large(name: str, size: int, reply: int) -> Request:
        return marked(
            name,
            size,
            "TAIL",
            seed=rng.randrange(1 << 30),
            api=usual_api(known),
            reply_tokens=reply,
            ignore_eos="ignores-eos" in known.powers,
        )

    def crowd(count: int) -> Probe:
        requests = tuple(large(f"large-{n}", size, reply) for n in range(1, count + 1))
        about = {"window_tokens": window, "pool_tokens": pool or 0, "num_slots": slots, "crowd": count}
        return Probe(name=f"together-{count}", requests=requests, allowed=FITS, parallel=True, watch=True, about=about)

    yield crowd(max(2, slots - 1))
    yield crowd(slots + 2)
    if pool is None:
        yield Skip(
            scenario="kv-exhaustion",
            probe="larger-than-pool",
            reason="the target does not tell the size of its KV pool",
        )
    elif pool >= window:
        reason = f"the KV pool ({pool} tokens) is not smaller than the window ({window})"
        yield Skip(scenario="kv-exhaustion", probe="larger-than-pool", reason=reason)
    else:
        request = large("larger", (pool + window) // 2, 1)
        about = {"window_tokens": window, "pool_tokens": pool, "num_slots": slots, "crowd": 1}
        yield Probe(name="larger-than-pool", requests=(request,), watch=True, about=about)


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """Each request by its own end; one ended by the others' load is an aborted neighbour, whoever sent it."""
    known = seen.knowledge
    readings = [_reading(exchange, known) for exchange in seen.exchanges]
    waits = sorted(wait for wait in map(ttft_s, seen.exchanges) if wait is not None)
    numbers: dict[str, int | float | str | bool | None] = {
        "requests": len(readings),
        "answered": sum(answered(exchange) for exchange in seen.exchanges),
        "window_tokens": known.limits.context_tokens,
        "pool_tokens": known.limits.pool_tokens,
        "num_slots": known.limits.num_slots,
        "first_token_s": " ".join(f"{wait:.2f}" for wait in waits) or None,
    }
    before = known.gauges.preemptions if known.gauges else None
    after = seen.gauges.preemptions if seen.gauges else None
    if before is not None and after is not None and after > before:
        why = f"{after - before} requests were preempted and computed again"
        yield Judgement(
            outcome=Outcome.DEGRADED, why=why, layer=Layer.KV_CACHE, evidence={**numbers, "preemptions": after - before}
        )
    for outcome in sorted({reading.outcome for reading in readings} - FITS):
        same = [reading for reading in readings if reading.outcome is outcome]
        why = f"{len(same)} of {len(readings)} requests, each inside its window: {same[0].why}"
        yield Judgement(outcome=outcome, why=why, layer=same[0].layer, evidence={**same[0].evidence, **numbers})
    if all(reading.outcome in FITS for reading in readings):
        spread = f"; first tokens came after {waits[0]:.2f} to {waits[-1]:.2f} s" if waits else ""
        last = worst(readings)
        outcome = last.outcome if last else Outcome.UNKNOWN
        yield Judgement(outcome=outcome, why=f"all {len(readings)} requests were answered{spread}", evidence=numbers)


def _reading(exchange: Exchange, known: Knowledge) -> Judgement:
    """One request of the crowd; it is inside every limit of its own, so a full pool is somebody else's doing."""
    judged = read(exchange, known)
    failure = exchange.failure
    recognised = recognise(failure.message, flavour=known.flavour) if failure else None
    if (
        failure is not None
        and recognised is not None
        and recognised.kind == "pool"
        and exchange.request.name != "larger"
    ):
        got = len(exchange.token_s)
        when = f"ended after {count(got, 'token')}" if got else "refused before its first token"
        why = f"{when}, because all together were too large for the KV cache: {failure.message[:160]}"
        return Judgement(outcome=Outcome.NEIGHBOUR_ABORTED, why=why, layer=Layer.KV_CACHE, evidence=judged.evidence)
    return judged


SCENARIO = Scenario(
    name="kv-exhaustion",
    summary="parallel requests, each inside its window, together over the KV cache",
    needs=("window", "serves-many"),
    plan=plan,
    judge=judge,
    order=60,
)
