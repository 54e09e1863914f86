"""The task about the tokenizer alone: what truncation=True does, which end it cuts, and what goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from contextlab.analysis.prompts import filler
from contextlab.model import Evidence
from contextlab.targets.inside.library import listening, words_of
from contextlab.targets.inside.load import Loaded

About = Mapping[str, int | float | str]


def tokenizer_truncation(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """Tokenize a text longer than `max_tokens` in the `way` "default" (truncation=True alone), "length", "chat", "pad".

    Yields what the tokenizer declares, how many tokens it was and is, and the end that is gone; or the error.
    """
    limit, way = int(about["max_tokens"]), str(about["way"])
    tokenizer = loaded.tokenizer
    declared = loaded.tokenizer_limit
    yield {
        "declared_tokens": declared.max_tokens,
        "unlimited": declared.unlimited,
        "side": str(tokenizer.truncation_side),
    }
    text = filler(limit // 4 if way == "pad" else 2 * limit, Random(int(about.get("seed", 0))))
    opening = ""
    if way == "chat":
        chat = [{"role": "user", "content": text}]
        text, closed = (
            tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=opens) for opens in (True, False)
        )
        opening = text[len(closed) :]  # the words that open the reply
    options: dict[str, Any] = {} if way == "default" else {"max_length": limit}
    options |= {"padding": "max_length", "pad_to_multiple_of": 8} if way == "pad" else {"truncation": True}
    whole = loaded.ids(text, special=way != "chat")
    yield {"whole_tokens": len(whole)}
    with listening() as warned:
        try:
            cut = list(tokenizer(text, add_special_tokens=way != "chat", **options)["input_ids"])
        except Exception as error:
            yield words_of(error)
            return
    yield {"cut_tokens": len(cut), "lost": lost_end(whole, cut, loaded.special_ids), "num_warnings": len(warned)}
    if opening:
        asked = loaded.ids(opening, special=False)
        yield {"generation_prompt_kept": cut[-len(asked) :] == asked}
    specials = [sum(token in loaded.special_ids - {tokenizer.pad_token_id} for token in some) for some in (whole, cut)]
    yield {"special_tokens_lost": specials[0] - specials[1]}


def lost_end(whole: Sequence[int], cut: Sequence[int], special: frozenset[int] = frozenset()) -> str:
    """Which end of `whole` is missing in `cut`: "head", "tail", "" if nothing is, "other" if it is neither."""
    before, after = ([token for token in some if token not in special] for some in (whole, cut))
    if len(after) >= len(before):
        return ""
    if after == before[: len(after)]:
        return "tail"
    return "head" if after == before[len(before) - len(after) :] else "other"
