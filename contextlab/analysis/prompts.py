"""The texts that probes are made of: filler, marked prompts, the neighbour; pure, from a seed.

A marked prompt carries three sentences that can be asked for, at its head, middle and tail:

    HEAD's code · filler · MIDDLE's code · filler · TAIL's code · question

Which codes still come back tells which part of the prompt was read. Sentences of this form are what even a model of
135 M parameters repeats; word pairs, key=value lines and lines of their own for each code were tried, and are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from contextlab.model import Api, Knowledge, Message, Request, Stretch

WORDS = tuple(
    """
    time people water house river garden window paper music market winter summer morning evening school teacher doctor
    farmer village city road bridge forest mountain valley island ocean weather letter number story picture color green
    yellow simple quiet heavy light early later every other under after before around between small large young old
    happy careful ready open clear common public local
    """.split()  # noqa: SIM905 - words, to be read as words
)
"""Filler: with its leading space each is one token in the usual vocabularies (the slope is measured anyway)."""

PLACES = ("HEAD", "MIDDLE", "TAIL")
CODE_TOKENS = 8
"""Reply tokens in which a four-digit code and its full stop fit, whatever the vocabulary."""


def usual_api(known: Knowledge) -> Api:
    """The endpoint for everything that does not ask for one: completions if there is a choice (no template)."""
    return Api.COMPLETIONS if "completions" in known.powers else Api.CHAT


def role_of(api: Api) -> str:
    """The role of a lone message on an endpoint."""
    return "user" if api is Api.CHAT else "prompt"


def slack_tokens(known: Knowledge) -> int:
    """How far a prompt's real size may be from what was asked for: nothing where the target counts for us, or where
    a word is a whole number of its tokens; else a little, by which probes stay away from the edge."""
    if "counts-tokens" in known.powers or abs(known.tokens_per_word - round(known.tokens_per_word)) < 1e-9:
        return 0
    return 2 + (known.limits.context_tokens or 0) // 100


def filler(num_words: int, rng: Random) -> str:
    """That many words, each with a leading space."""
    return "".join(f" {rng.choice(WORDS)}" for _ in range(num_words))


def fill(request: Request, num_words: int) -> Request:
    """The request with `num_words` of filler shared among its elastic parts by weight; equal seeds, equal text."""
    rng = Random(request.words_seed)
    stretches = [part for message in request.messages for part in message.parts if isinstance(part, Stretch)]
    counts = iter(_shares(num_words, [stretch.weight for stretch in stretches]))
    messages = tuple(
        replace(
            message,
            parts=tuple(filler(next(counts), rng) if isinstance(part, Stretch) else part for part in message.parts),
        )
        for message in request.messages
    )
    return replace(request, messages=messages)


def is_elastic(request: Request) -> bool:
    """Whether the request has parts that can be filled to reach a size."""
    return any(isinstance(part, Stretch) for message in request.messages for part in message.parts)


def _shares(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers that sum to `total`, in proportion to the weights; the last takes the remainder."""
    if not weights:
        return []
    shares = [int(total * weight / sum(weights)) for weight in weights[:-1]]
    return [*shares, total - sum(shares)]


def sentence(place: str, code: str) -> str:
    """The sentence that hides a code."""
    return f"The secret code of {place} is {code}."


def question(place: str, api: Api) -> str:
    """What makes a target say the code of a place: the start of its sentence, or, in a chat, a question."""
    return f"What is the secret code of {place}?" if api is Api.CHAT else f"The secret code of {place} is"


def codes(rng: Random) -> dict[str, str]:
    """A four-digit code for each place, all different in their first digit, so that one token tells them apart."""
    firsts = rng.sample(range(1, 10), len(PLACES))
    return {place: f"{first}{rng.randrange(1000):03d}" for place, first in zip(PLACES, firsts, strict=True)}


def marked(
    name: str,
    size_tokens: int | None,
    ask: str,
    *,
    seed: int,
    api: Api = Api.COMPLETIONS,
    reply_tokens: int | None = CODE_TOKENS,
    stream: bool = True,
    ignore_eos: bool = False,
    hang_up_after_tokens: int | None = None,
) -> Request:
    """A marked prompt of `size_tokens` that asks for the code of one place.

    Requests of equal seed differ in their last words only: a target with a prefix cache reads the rest once.
    """
    hidden = codes(Random(seed))
    head, middle, tail = (sentence(place, hidden[place]) for place in PLACES)
    body: tuple[str | Stretch, ...] = (head, Stretch(), f" {middle}", Stretch(), f" {tail}")
    return Request(
        name=name,
        messages=(Message(role=role_of(api), parts=(*body, f" {question(ask, api)}")),),
        api=api,
        size_tokens=size_tokens,
        reply_tokens=reply_tokens,
        stream=stream,
        ignore_eos=ignore_eos,
        expects=hidden[ask],
        hang_up_after_tokens=hang_up_after_tokens,
        words_seed=seed,
    )


NEIGHBOUR_SECRET = "the copper violin sleeps under seven lanterns"
NEIGHBOUR_TOKENS = 24


def neighbour(api: Api, *, ignore_eos: bool) -> Request:
    """Another client's small stream. Its text is its own: seen in anybody else's reply, it has leaked."""
    text = f"Repeat after me: {NEIGHBOUR_SECRET}, {NEIGHBOUR_SECRET}, {NEIGHBOUR_SECRET},"
    return Request(
        name="neighbour",
        messages=(Message(role=role_of(api), parts=(text,)),),
        api=api,
        reply_tokens=NEIGHBOUR_TOKENS,
        ignore_eos=ignore_eos,
        secret=NEIGHBOUR_SECRET,
    )


def aftermath(api: Api) -> Request:
    """A normal small request: does the target still serve?"""
    return Request(
        name="aftermath",
        messages=(Message(role=role_of(api), parts=("The capital of France is",)),),
        api=api,
        reply_tokens=4,
    )


def companion(api: Api) -> Request:
    """A harmless request to run beside the neighbour: does company alone change its answer?"""
    return replace(aftermath(api), name="companion", reply_tokens=NEIGHBOUR_TOKENS)
