"""The task about generate(): each of the library's ways to say how long a text may become, at the edge and past it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from contextlab.model import Evidence
from contextlab.targets.inside.caches import random_ids
from contextlab.targets.inside.library import listening, words_of
from contextlab.targets.inside.load import Loaded

About = Mapping[str, int | float | str]


def generate_limits(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """Call generate() on a prompt of `prompt_tokens`, with `max_new_tokens`, `max_length` or neither.

    `cache`: "" (the library's choice), a name that generate() knows, or "static:N", a static cache of N tokens of our
    own. Yields how many tokens came, of what the library warned, or its error.
    """
    prompt = random_ids(loaded, int(about["prompt_tokens"]), int(about.get("seed", 0)))
    options: dict[str, Any] = {name: int(about[name]) for name in ("max_new_tokens", "max_length") if name in about}
    for most, least in ("max_new_tokens", "min_new_tokens"), ("max_length", "min_length"):
        if most in options:
            options[least] = options[most]  # whatever an end-of-text token says
    cache = str(about.get("cache", ""))
    with listening() as warned, loaded.torch.inference_mode():
        try:
            if cache.startswith("static:"):
                options["cache"] = loaded.static_cache(int(cache.removeprefix("static:")))
            elif cache:
                options["cache_implementation"] = cache
            inputs = loaded.tensor(prompt)
            mask = loaded.torch.ones_like(inputs)
            out = loaded.model.generate(
                inputs, attention_mask=mask, do_sample=False, pad_token_id=0, disable_compile=True, **options
            )
            yield {"new_tokens": int(out.shape[1]) - len(prompt), "total_tokens": int(out.shape[1])}
        except Exception as error:
            yield words_of(error)
    yield {"num_warnings": len(warned), "warned": " | ".join(warned)[:300] or None}
