"""The task about the tokenizer alone: what truncation=True does, which end it cuts, and what goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from contextlab.analysis.prompts import filler
from contextlab.model import Evidence
from contextlab.targets.hf_library import listening, words_of
from contextlab.targets.hf_load import Loaded

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
    text = filler(2 * limit, Random(int(about.get("seed", 0))))
    if way == "chat":
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
    options = {"default": {}, "pad": {"max_length": limit, "padding": "max_length", "pad_to_multiple_of": 8}}.get(
        way, {"max_length": limit}
    )
    whole = loaded.ids(text, special=way != "chat")
    yield {"whole_tokens": len(whole)}
    with listening() as warned:
        try:
            cut = list(tokenizer(text, truncation=True, add_special_tokens=way != "chat", **options)["input_ids"])
        except Exception as error:
            yield words_of(error)
            return
    yield {"cut_tokens": len(cut), "lost": lost_end(whole, cut, loaded.special_ids), "num_warnings": len(warned)}
    if way == "chat":
        asked = loaded.ids(tokenizer.apply_chat_template([], tokenize=False, add_generation_prompt=True), special=False)
        yield {"generation_prompt_kept": cut[-len(asked) :] == asked if asked else None}
    yield {
        "special_tokens_lost": sum(token in loaded.special_ids for token in whole)
        - sum(token in loaded.special_ids for token in cut)
    }


def lost_end(whole: Sequence[int], cut: Sequence[int], special: frozenset[int] = frozenset()) -> str:
    """Which end of `whole` is missing in `cut`: "head", "tail", "" if nothing is, "other" if it is neither."""
    before, after = ([token for token in some if token not in special] for some in (whole, cut))
    if len(after) >= len(before):
        return ""
    if after == before[: len(after)]:
        return "tail"
    return "head" if after == before[len(before) - len(after) :] else "other"
