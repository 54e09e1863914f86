"""The largest prompt that is really accepted and really read, beside every limit that is declared.

    control (well inside) ─▶ window − 1, window, window + 1 ─▶ bisection between what was read and what was not ─▶ edge

Reading is judged by what the target says it evaluated and, where the model can repeat them, by three codes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from contextlab.analysis.ends import about_control, judge_reading, recalled
from contextlab.analysis.judging import tokens_past_positions
from contextlab.analysis.prompts import CODE_TOKENS, PLACES, marked, slack_tokens, usual_api
from contextlab.model import (
    FITS,
    REFUSES,
    Exchange,
    Judgement,
    Knowledge,
    Observation,
    Outcome,
    Plan,
    Probe,
    Scenario,
)

CONTROL_TOKENS = 256
ONE_TOKEN = "one-token"
About = dict[str, int | float | str]
FIRST_GUESS_TOKENS = 1024
MAX_PROMPT_TOKENS = 32768
"""Where the search stops if the target declares nothing and refuses nothing."""
MAX_INSIDE_TOKENS = 2048
"""The same for a model inside the probe's own process: nothing but memory ends it there, which is another scenario."""


def plan(known: Knowledge, rng: Random) -> Plan:
    """A control, the declared edge from both sides, a bisection where it is elsewhere, and the edge once more.

    Where nothing is seen, the edge is foreseen where it is declared.
    """
    window, seed, api = known.limits.context_tokens, rng.randrange(1 << 30), usual_api(known)
    control_tokens = min(CONTROL_TOKENS, (window or CONTROL_TOKENS) * 5 // 8)

    def probe_at(
        size: int, name: str, role: str, asks: Iterable[str], numbers: About, *, allowed: frozenset[Outcome]
    ) -> Probe:
        requests = tuple(marked(f"ask:{ask}", size, ask, seed=seed, api=api, stream=False) for ask in asks)
        if role == "search":  # at the edge there may be room for no more than one token: the first asks for one
            first = marked(ONE_TOKEN, size, "HEAD", seed=seed, api=api, stream=False, reply_tokens=1)
            requests = (replace(first, expects=""), *requests)
        about = {"size_tokens": size, "role": role, **numbers}
        return Probe(name=name, requests=requests, allowed=allowed, neighbour=False, about=about)

    seen = yield probe_at(control_tokens, f"control-{control_tokens}", "control", PLACES, {}, allowed=FITS)
    if seen is not None and (not seen.exchanges or any(exchange.failure for exchange in seen.exchanges)):
        return  # not even that was answered: there is no edge to look for
    control = about_control(recalled(seen.exchanges if seen else ()))
    low, high = control_tokens, None
    most = min(MAX_PROMPT_TOKENS, 4 * window) if window else MAX_PROMPT_TOKENS
    if window is None and "tasks" in known.powers:
        most = MAX_INSIDE_TOKENS
    guesses = [window - 1, window, window + 1] if window else [FIRST_GUESS_TOKENS]
    while guesses:
        size = guesses.pop(0)
        asks = PLACES if window is None or size >= window else ()
        numbers: About = {**control, "accepted_tokens": low}
        probe = probe_at(size, f"prompt-{size}", "search", asks, numbers, allowed=REFUSES)
        seen = yield probe
        reading = _reading(probe, seen.exchanges, known) if seen is not None and seen.exchanges else None
        if reading is not None and reading.evidence.get("tokens_past"):
            high = size
            break  # it answers however far one goes past the model's positions: there is no edge to look for
        foreseen = seen is None and window is not None and size < window
        if foreseen or (reading is not None and reading.outcome in FITS):
            low = size
        else:
            high = size
        if high is None and not guesses and size < most:
            guesses = [size * 2]
        elif high is not None and high - low > 1:
            guesses = [(low + high) // 2]
        else:
            guesses = [] if high is not None else guesses
    found = "accepted_tokens" if high is None else "measured_tokens"  # what nothing ends is no window
    numbers = {**control, "accepted_tokens": low, found: low, "window_tokens": window or 0}
    yield probe_at(low - CODE_TOKENS, f"edge-{low}", "edge", PLACES, numbers, allowed=FITS)


def _reading(probe: Probe, exchanges: Sequence[Exchange], known: Knowledge) -> Judgement:
    """By the codes where all of them could be asked for, else by the request for one token alone.

    So too where only the replies with the codes went past the model's positions.
    """
    asked = [exchange for exchange in exchanges if exchange.request.name != ONE_TOKEN]
    if exchanges[0].request.name == ONE_TOKEN:
        alone = judge_reading(probe, exchanges[:1], known)
        past = alone.outcome in FITS and any(tokens_past_positions(exchange, known) for exchange in asked)
        if not asked or past or any(exchange.failure for exchange in asked):
            return alone
    return judge_reading(probe, asked, known)


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """Each size by what was read of it; the last probe also compares the measured with the declared limit."""
    judged = _reading(probe, seen.exchanges, seen.knowledge)
    if probe.about["role"] != "edge" or judged.outcome not in FITS:
        yield judged
        return
    measured, window = int(probe.about["accepted_tokens"]), int(probe.about["window_tokens"])
    declared = {f"declared_{limit.name}": limit.tokens for limit in seen.knowledge.limits.declared}
    numbers = {**judged.evidence, "accepted_tokens": measured, "window_tokens": window or None, **declared}
    if "measured_tokens" in probe.about:
        numbers |= {"measured_tokens": measured}
    if "measured_tokens" not in probe.about:
        why = f"prompts of up to {measured} tokens were read and none was refused; nothing larger was tried"
        yield replace(judged, outcome=Outcome.OK, why=why, evidence=numbers)
    elif not window:
        why = f"the largest prompt that was read has {measured} tokens; the target declares no window"
        yield replace(judged, outcome=Outcome.OK, why=why, evidence=numbers)
    elif measured < window - 1 - slack_tokens(seen.knowledge):
        why = f"the target declares a window of {window} tokens, but prompts are read only up to {measured}"
        yield replace(judged, outcome=Outcome.REJECTED, why=why, evidence=numbers)
    else:
        more = measured > window + slack_tokens(seen.knowledge)
        beside = f"more than the declared window of {window}" if more else f"as a window of {window} promises"
        why = f"the largest prompt that was read has {measured} tokens, {beside}; {judged.why}"
        yield replace(judged, outcome=Outcome.OK, why=why, evidence=numbers)


SCENARIO = Scenario(
    name="find-limit",
    summary="the largest prompt that is accepted and read, against every declared limit",
    plan=plan,
    judge=judge,
    order=10,
)
