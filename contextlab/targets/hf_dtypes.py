"""The task about types that do not match: a cache, a mask or one layer in another type than the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from contextlab.model import Evidence
from contextlab.targets.hf_caches import compared, random_ids
from contextlab.targets.hf_library import words_of
from contextlab.targets.hf_load import Loaded

About = Mapping[str, int | float | str]

STEPS = 4


def dtype_mismatch(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """Make `piece` ("growing cache", "static cache", "mask", "layer") of another type, and run the model with it.

    Yields the types, then the error, or the type of what came out and how far it is from the answer without it.
    """
    piece, tokens = str(about["piece"]), int(about["tokens"])
    ids = random_ids(loaded, tokens, int(about.get("seed", 0)))
    torch, own = loaded.torch, loaded.model.dtype
    other = torch.bfloat16 if own == torch.float32 else torch.float32
    if piece == "mask":
        other = torch.float64
    yield {"own": _name(own), "other": _name(other)}
    expected = loaded.logits(ids, keep=STEPS)
    try:
        yield from PIECES[piece](loaded, ids, other, expected)
    except Exception as error:
        yield words_of(error)


def _growing_cache(loaded: Loaded, ids: list[int], other: Any, expected: Any) -> Iterator[Evidence]:
    """A cache that was filled, then turned, as one that another process has stored would be."""
    cache = loaded.dynamic_cache()
    loaded.logits(ids[:-STEPS], cache=cache)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.to(other), layer.values.to(other)
    got = loaded.logits(ids[-STEPS:], cache=cache, keep=STEPS)
    yield {"became": _name(cache.layers[0].keys.dtype), **compared(expected, got)}


def _static_cache(loaded: Loaded, ids: list[int], other: Any, expected: Any) -> Iterator[Evidence]:
    """A cache that was allocated in the other type."""
    cache = loaded.static_cache(len(ids))
    loaded.logits(ids[:-STEPS], cache=cache)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.to(other), layer.values.to(other)
    got = loaded.logits(ids[-STEPS:], cache=cache, keep=STEPS)
    yield {"became": _name(cache.layers[0].keys.dtype), **compared(expected, got)}


def _mask(loaded: Loaded, ids: list[int], other: Any, expected: Any) -> Iterator[Evidence]:
    """The causal mask made by hand, (1, 1, T, T), what is hidden at the type's lowest number."""
    torch, size = loaded.torch, len(ids)
    hidden = torch.ones(size, size, dtype=torch.bool, device=loaded.model.device).triu(1)
    mask = torch.zeros(size, size, dtype=other, device=loaded.model.device)
    mask = mask.masked_fill(hidden, torch.finfo(loaded.model.dtype).min)[None, None]
    got = loaded.logits(ids, keep=STEPS, attention_mask=mask)
    yield {"became": _name(loaded.model.dtype), **compared(expected, got)}


def _layer(loaded: Loaded, ids: list[int], other: Any, expected: Any) -> Iterator[Evidence]:
    """The last layer of the model in the other type."""
    layer = last_layer(loaded)
    own = loaded.model.dtype
    layer.to(other)
    try:
        got = loaded.logits(ids, keep=STEPS)
    finally:
        layer.to(own)
    yield {"became": _name(other), **compared(expected, got)}


def last_layer(loaded: Loaded) -> Any:
    """The last decoder layer: of the list of modules that has as many as the model has layers."""
    modules = loaded.torch.nn.ModuleList
    lists = [one for one in loaded.model.modules() if isinstance(one, modules) and len(one) == loaded.shape.num_layers]
    return lists[0][-1]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


PIECES: Mapping[str, Callable[[Loaded, list[int], Any, Any], Iterator[Evidence]]] = {
    "growing cache": _growing_cache,
    "static cache": _static_cache,
    "mask": _mask,
    "layer": _layer,
}
