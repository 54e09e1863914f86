"""The prompt fits, but prompt and reply together do not: with a max_tokens past the window, and with none at all.

Honest ends: refused before generating, or capped at the window with finish_reason length. What this finds:
a window that slides (and what was lost), a reply that never stops, a stream without its end.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.exchanges import answered, completion_tokens
from contextlab.analysis.judging import ENDLESS_WINDOWS, read, shift
from contextlab.analysis.prompts import marked, usual_api
from contextlab.analysis.quantities import count
from contextlab.model import Judgement, Knowledge, Observation, Outcome, Plan, Probe, Request, Scenario

ROOM_TOKENS = 24
"""Room that the prompt leaves: little, so that the reply is soon past the window."""


def plan(known: Knowledge, rng: Random) -> Plan:
    """A streamed reply longer than the window's rest, one without max_tokens, and a whole one; not after a runaway."""
    window = known.limits.context_tokens or 0
    seed = rng.randrange(1 << 30)

    def request(name: str, reply_tokens: int | None, *, stream: bool) -> Request:
        most = ENDLESS_WINDOWS * window if reply_tokens is None else reply_tokens
        return marked(
            name,
            window - ROOM_TOKENS,
            "HEAD",
            seed=seed,
            api=usual_api(known),
            reply_tokens=reply_tokens,
            stream=stream,
            ignore_eos="ignores-eos" in known.powers,
            hang_up_after_tokens=most + ROOM_TOKENS if stream else None,
        )

    about = {"window_tokens": window}
    seen = yield Probe(name="max-tokens-past", requests=(request("reply", window, stream=True),), about=about)
    yield Probe(name="no-max-tokens", requests=(request("reply", None, stream=True),), about=about)
    if seen is None or not seen.exchanges or not seen.exchanges[0].hung_up:  # a whole runaway would look like a hang
        yield Probe(
            name="max-tokens-past-whole", requests=(request("reply", 4 * ROOM_TOKENS, stream=False),), about=about
        )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """How the reply met the window; a reply that ended before it by itself has tested nothing."""
    for exchange in seen.exchanges:
        judged = read(exchange, seen.knowledge, log_lines=seen.log_lines)
        if judged.outcome is Outcome.OK and answered(exchange) and completion_tokens(exchange) < ROOM_TOKENS - 1:
            length = count(completion_tokens(exchange), "token")
            why = f"the model ended its reply after {length}, before the window was full"
            yield Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=judged.evidence)
            continue
        slid = shift(exchange, seen.knowledge, log_lines=seen.log_lines)
        if judged.outcome is Outcome.RUNAWAY and slid is not None:  # how it can go on is part of the evidence
            judged = replace(judged, evidence={**slid.evidence, **judged.evidence})
        yield judged


SCENARIO = Scenario(
    name="reply-past-window",
    summary="the prompt fits, prompt and reply together do not; and no max_tokens at all",
    needs=("window",),
    plan=plan,
    judge=judge,
    order=30,
)
