"""Tasks about KV caches: is the same text the same through the cache, and what happens past a cache's end?

one prefill of a..z            ─▶ logits of the last steps ┐
prefill of a..m, then n, o, …  ─▶ logits of each step      ┴▶ largest difference, share of equal choices
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from contextlab.model import Evidence
from contextlab.targets.inside.library import words_of
from contextlab.targets.inside.load import Loaded

About = Mapping[str, int | float | str]


def random_ids(loaded: Loaded, length: int, seed: int) -> list[int]:
    """Tokens that are no special ones."""
    rng = Random(seed)
    ordinary = [token for token in range(loaded.vocab) if token not in loaded.special_ids]
    return rng.choices(ordinary, k=length)


def cache_consistency(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """The last `steps` logits of a text of `tokens`: in one prefill, and one step at a time through a growing cache."""
    tokens, steps = int(about["tokens"]), int(about["steps"])
    ids = random_ids(loaded, tokens, int(about.get("seed", 0)))
    yield {
        "position_kind": str(loaded.shape.positions.kind),
        "rope": loaded.shape.rope.kind if loaded.shape.rope else None,
        "dtype": dtype_name(loaded.model.dtype),
    }
    try:
        whole = loaded.logits(ids, keep=steps)  # (steps, V)
        cache, start = loaded.dynamic_cache(), tokens - steps
        if start:
            loaded.logits(ids[:start], cache=cache)
        stepped = loaded.torch.cat([loaded.logits([token], cache=cache) for token in ids[start:]])  # (steps, V)
    except Exception as error:
        yield words_of(error)
        return
    yield compared(whole, stepped)


def cache_overflow(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """A static cache of `cache_tokens`, fed `tokens` beside a growing one: by `way` "steps", or in one "prompt"."""
    length, tokens = int(about["cache_tokens"]), int(about["tokens"])
    ids = random_ids(loaded, tokens, int(about.get("seed", 0)))
    cache = loaded.static_cache(length)
    sliding = [bool(layer.is_sliding) for layer in cache.layers]
    yield {
        "num_layers": len(sliding),
        "num_sliding_layers": sum(sliding),
        "dtype": dtype_name(loaded.model.dtype),
    }
    yield from overfed(loaded, cache, ids, length, in_one=about.get("way") == "prompt")


def overfed(loaded: Loaded, cache: Any, ids: list[int], length: int, *, in_one: bool) -> Iterator[Evidence]:
    """Feed `cache`, which is said to hold `length` tokens, all of `ids`, and a growing cache beside it.

    Yields the last length that worked and the error of the next, or how far the two differ inside and past `length`.
    """
    truth = loaded.dynamic_cache()
    chunks = [ids] if in_one else [[token] for token in ids]
    inside: list[Any] = []
    past: list[Any] = []
    fed = 0
    for chunk in chunks:
        try:
            here = loaded.logits(chunk, cache=cache)
        except Exception as error:
            yield {"ok_tokens": fed, "error_tokens": fed + len(chunk), **words_of(error)}
            break
        fed += len(chunk)
        (past if fed > length else inside).append((loaded.logits(chunk, cache=truth), here))
    else:
        yield {"ok_tokens": fed}
    for name, pairs in ("inside", inside), ("past", past):
        if pairs:
            expected, got = (loaded.torch.cat(side) for side in zip(*pairs, strict=True))
            yield {f"{name}_{key}": value for key, value in compared(expected, got).items()}


def dtype_name(dtype: Any) -> str:
    """A type as settings name it: "float32"."""
    return str(dtype).removeprefix("torch.")


def compared(expected: Any, got: Any) -> dict[str, Any]:
    """How far two sets of logits (T, V) are apart: the largest difference, also in their spreads, and the choices."""
    difference = float((expected - got).abs().max())
    spread = float(expected.std())
    return {
        "max_difference": difference,
        "relative_difference": difference / spread if spread else None,
        "agreement": float((expected.argmax(-1) == got.argmax(-1)).float().mean()),
        "compared": int(expected.shape[0]),
    }
