"""A chat that grows turn by turn past the window: which turn breaks, and is the system prompt still in force?

The system prompt, the first turn and the last one each hide a code. The history is the same text each time, so a
target with a prefix cache reads each turn once.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.ends import about_control, judge_reading, recalled
from contextlab.analysis.exchanges import prompt_tokens_read
from contextlab.analysis.prompts import CODE_TOKENS, PLACES, codes, filler, sentence
from contextlab.model import (
    FITS,
    REFUSES,
    Api,
    Judgement,
    Knowledge,
    Message,
    Observation,
    Plan,
    Probe,
    Request,
    Scenario,
)

TURNS_PER_WINDOW = 4
MAX_TURNS = 7
REPLY_TOKENS = 3 * CODE_TOKENS


def plan(known: Knowledge, rng: Random) -> Plan:
    """Turns of a quarter of the window each, until one is refused or the window is passed by half.

    Where the target cannot count a chat, its size is foreseen from what it said of the first two turns.
    """
    window = known.limits.context_tokens or 0
    hidden = codes(rng)
    words = max(4, int(window / TURNS_PER_WINDOW / known.tokens_per_word))
    turns = [filler(words, rng) for _ in range(MAX_TURNS)]
    about: dict[str, int | float | str] = {}
    sizes: list[int] = []
    for number in range(1, MAX_TURNS + 1):
        foreseen = sizes[0] + (number - 1) * (sizes[1] - sizes[0]) if len(sizes) > 1 else None
        past = foreseen is not None and foreseen + REPLY_TOKENS > window
        asks = PLACES if past or number == 1 else PLACES[:1]
        requests = tuple(_request(ask, turns[:number], hidden) for ask in asks)
        seen = yield Probe(
            name=f"turn-{number}",
            requests=requests,
            allowed=REFUSES if past or foreseen is None else FITS,
            neighbour=past,
            about={**about, "turn": number, "foreseen_tokens": foreseen or 0},
        )
        if seen is None or not seen.exchanges or seen.exchanges[0].failure is not None:
            return
        if number == 1:
            about |= about_control(recalled(seen.exchanges))
        read_tokens = seen.exchanges[0].prompt_tokens or prompt_tokens_read(seen.exchanges[0])
        if read_tokens is not None and len(sizes) < 2:
            sizes.append(read_tokens)


def _request(ask: str, turns: list[str], hidden: dict[str, str]) -> Request:
    history = [Message(role="system", parts=(f"{sentence('HEAD', hidden['HEAD'])} Answer in one short sentence.",))]
    for number, text in enumerate(turns, 1):
        first = f"{sentence('MIDDLE', hidden['MIDDLE'])}" if number == 1 else "Some more words:"
        history += [Message(role="user", parts=(first + text,)), Message(role="assistant", parts=("Noted.",))]
    question = f"{sentence('TAIL', hidden['TAIL'])} What is the secret code of {ask}?"
    return Request(
        name=f"ask:{ask}",
        messages=(*history, Message(role="user", parts=(question,))),
        api=Api.CHAT,
        reply_tokens=REPLY_TOKENS,
        expects=hidden[ask],
    )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """Each turn by what was read of it."""
    foreseen = int(probe.about.get("foreseen_tokens", 0)) or None
    exchanges = [
        exchange if exchange.prompt_tokens is not None else replace(exchange, prompt_tokens=foreseen)
        for exchange in seen.exchanges
    ]
    judged = judge_reading(probe, exchanges, seen.knowledge)
    yield replace(
        judged,
        why=f"turn {probe.about['turn']}: {judged.why}",
        evidence={**judged.evidence, "turn": probe.about["turn"]},
    )


SCENARIO = Scenario(
    name="conversation-growth",
    summary="a chat that grows over the window: which turn breaks, and does the system prompt survive",
    needs=("window", "chat"),
    plan=plan,
    judge=judge,
    order=40,
)
