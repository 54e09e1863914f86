"""Texts of equal length in characters and very different length in tokens.

Whoever checks a prompt by characters (four to a token is the usual estimate) lets some of these through that are
many times over the window. What the target does then is judged as for any prompt that is too long.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

from contextlab.analysis.ends import about_control, judge_reading, recalled
from contextlab.analysis.exchanges import prompt_tokens_read
from contextlab.analysis.prompts import CODE_TOKENS, WORDS, codes, question, role_of, sentence, usual_api
from contextlab.model import (
    Api,
    Exchange,
    Judgement,
    Knowledge,
    Message,
    Observation,
    Outcome,
    Plan,
    Probe,
    Request,
    Scenario,
)

CHARACTERS_PER_TOKEN = 4
"""The estimate that gateways and clients use."""
FILL_RATIO = 0.85
"""Part of the window that the estimate says these texts take."""
SAMPLE_PARTS = 16
"""Two samples, of one and of two such parts of the text (of parts as much smaller as its characters have bytes:
they must fit), foretell how many tokens the whole has where the target cannot count it."""
ASKS = ("HEAD", "TAIL")
SURE_RATIO = 0.8
"""Part of what samples foretell that a target must have read at least, or it has cut the text."""

BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
CODE = (
    "for i in range(n):\n",
    "    if x[i] != y:\n",
    "        z += f(x, i)\n",
    "    return {k: v}\n",
    "a->b[c] = *d & 0xFF;\n",
)
TEXTS: dict[str, Callable[[Random], str]] = {
    "prose": lambda rng: " " + rng.choice(WORDS),
    "code": lambda rng: rng.choice(CODE),
    "base64": lambda rng: rng.choice(BASE64),
    "whitespace": lambda rng: " " * rng.randint(2, 9) + "\n",
    "cjk": lambda rng: chr(rng.randint(0x4E00, 0x9FA0)),
    "emoji": lambda rng: chr(rng.randint(0x1F600, 0x1F64F)),
    "combining-marks": lambda rng: rng.choice("aeinou") + "".join(chr(rng.randint(0x0300, 0x036F)) for _ in range(4)),
}


def plan(known: Knowledge, rng: Random) -> Plan:
    """One probe for each kind of text: a small sample of it first where the target cannot count, then the whole."""
    window = known.limits.context_tokens or 0
    num_characters = int(window * FILL_RATIO * CHARACTERS_PER_TOKEN)
    hidden, api = codes(rng), usual_api(known)
    control: dict[str, int] = {}
    for kind, piece in TEXTS.items():
        text = ""
        while len(text) < num_characters:
            text += piece(rng)
        text = text[:num_characters]
        requests = tuple(_request(f"ask:{ask}", text, ask, hidden, api) for ask in ASKS)
        if "counts-tokens" not in known.powers:
            samples = (text[: num_parts * num_characters // _num_parts(text)] for num_parts in (1, 2))
            requests = (
                *(_request(f"sample-{n}", sample, "TAIL", hidden, api) for n, sample in enumerate(samples, 1)),
                *requests,
            )
        sizes = {
            "characters": num_characters,
            "estimate_tokens": num_characters // CHARACTERS_PER_TOKEN,
            "num_parts": _num_parts(text),
        }
        seen = yield Probe(name=kind, requests=requests, about={**sizes, **control})
        if not control and seen is not None:  # plain prose comes first, and really fits
            control = about_control(recalled(seen.exchanges))


def _request(name: str, text: str, ask: str, hidden: dict[str, str], api: Api) -> Request:
    head, tail = (sentence(place, hidden[place]) for place in ASKS)
    return Request(
        name=name,
        messages=(Message(role=role_of(api), parts=(f"{head}{text} {tail} {question(ask, api)}",)),),
        api=api,
        reply_tokens=CODE_TOKENS,
        expects=hidden[ask],
    )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """As any prompt of its real size; the evidence sets characters, their estimate and the tokens side by side."""
    samples = [exchange for exchange in seen.exchanges if exchange.request.name.startswith("sample")]
    asked = [exchange for exchange in seen.exchanges if exchange not in samples]
    if not asked:
        yield judge_reading(probe, samples, seen.knowledge)
        return
    foreseen = _foreseen_tokens(samples, int(probe.about.get("num_parts", SAMPLE_PARTS)))
    if samples and foreseen is None:
        why = "the size of this text could not be foretold: its samples were not counted, or were cut themselves"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=judge_reading(probe, asked, seen.knowledge).evidence)
        return
    tokens, estimate = asked[0].prompt_tokens or foreseen, int(probe.about["estimate_tokens"])
    if foreseen is not None:  # too rough to check the numbers of a refusal by, good enough to see a cut
        asked = [replace(one, prompt_tokens=foreseen) if _was_cut(one, foreseen) else one for one in asked]
    judged = judge_reading(probe, asked, seen.knowledge)
    about = f"about {tokens}" if foreseen else str(tokens or "unknown")
    size = f"{probe.about['characters']} characters, estimated {estimate} tokens, really {about}"
    yield replace(
        judged,
        why=f"{size}: {judged.why}",
        evidence={**judged.evidence, "characters": probe.about["characters"], "estimate_tokens": estimate},
    )


def _was_cut(exchange: Exchange, foreseen: int) -> bool:
    """Whether far fewer tokens were read than the samples foretell."""
    read_tokens = prompt_tokens_read(exchange)
    return exchange.failure is None and read_tokens is not None and read_tokens < foreseen * SURE_RATIO


def _num_parts(text: str) -> int:
    """Into how many parts a text is cut for its samples: the more bytes to a character, the more tokens it may have."""
    return SAMPLE_PARTS * round(len(text.encode()) / max(1, len(text)))


def _foreseen_tokens(samples: Sequence[Exchange], num_parts: int) -> int | None:
    """The whole text's tokens, foretold by samples of one and of two parts; None where they were not told apart."""
    sizes = [tokens for tokens in map(prompt_tokens_read, samples) if tokens is not None]
    if len(sizes) < 2 or sizes[1] <= sizes[0]:
        return None
    return sizes[0] + (num_parts - 1) * (sizes[1] - sizes[0])


SCENARIO = Scenario(
    name="token-blowup",
    summary="texts of equal characters and very different token counts: emoji, CJK, whitespace, base64, code",
    needs=("window",),
    plan=plan,
    judge=judge,
    order=50,
)
