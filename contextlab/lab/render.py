"""Brings a request to its size: fills its elastic parts until the target itself counts the right number of tokens.

Two ways to count, and the record says which was used (`exact`):
- the target has an endpoint for it: any size is exact;
- it only reports usage: the bare prompt is counted by a small request, the filler by its measured slope.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from contextlab.analysis.prompts import fill, is_elastic
from contextlab.model import Api, Message, Request, UnableError

Count = Callable[[Api, Sequence[Message]], Awaitable[int]]
MAX_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A request ready to be sent, and how many tokens its prompt has (None: not known)."""

    request: Request
    prompt_tokens: int | None
    exact: bool


async def render(request: Request, count: Count, *, counts_any_size: bool, tokens_per_word: float) -> Rendered:
    """Fill the request to `size_tokens`.

    `count` counts the tokens of whole messages; with `counts_any_size` False it may be asked about small
    prompts only. Raises UnableError where the fixed parts alone are larger than the size asked for.
    """
    if request.size_tokens is None or not is_elastic(request):
        filled = fill(request, 0)
        return Rendered(
            request=filled,
            prompt_tokens=await count(request.api, filled.messages) if counts_any_size else None,
            exact=counts_any_size,
        )
    bare = fill(request, 0)
    bare_tokens = await count(request.api, bare.messages)
    if bare_tokens > request.size_tokens:
        raise UnableError(
            f"size={request.size_tokens} tokens: the probe's own sentences already take {bare_tokens}",
            "probe a target with a larger window",
        )
    num_words = round((request.size_tokens - bare_tokens) / tokens_per_word)
    if not counts_any_size:
        return Rendered(request=fill(request, num_words), prompt_tokens=request.size_tokens, exact=False)
    best: tuple[int, int] | None = None
    too_few, too_many = -1, None  # words
    for _ in range(MAX_TRIES):
        tokens = await count(request.api, fill(request, num_words).messages)
        miss = request.size_tokens - tokens
        if best is None or abs(miss) < abs(request.size_tokens - best[1]):
            best = (num_words, tokens)
        if miss == 0:
            break
        if miss > 0:
            too_few = max(too_few, num_words)
        else:
            too_many = num_words if too_many is None else min(too_many, num_words)
        step = round(miss / tokens_per_word) or (1 if miss > 0 else -1)
        num_words = max(too_few + 1, num_words + step)
        if too_many is not None:
            num_words = min(num_words, too_many - 1)
        if num_words <= too_few:  # there is nothing between them: words of several tokens leave gaps
            break
    assert best is not None  # noqa: S101 - the loop ran at least once
    return Rendered(request=fill(request, best[0]), prompt_tokens=best[1], exact=True)
