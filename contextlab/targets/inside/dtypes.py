"""The task about types that do not match: a cache, a mask or one layer in another type than the model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from contextlab.model import Evidence
from contextlab.targets.inside.caches import compared, dtype_name, random_ids
from contextlab.targets.inside.library import words_of
from contextlab.targets.inside.load import Loaded

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
    yield {"own": dtype_name(own), "other": dtype_name(other)}
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
    yield {"became": dtype_name(cache.layers[0].keys.dtype), **compared(expected, got)}


def _static_cache(loaded: Loaded, ids: list[int], other: Any, expected: Any) -> Iterator[Evidence]:
    """A cache that was allocated in the other type."""
    cache = loaded.static_cache(len(ids))
    loaded.logits(ids[:-STEPS], cache=cache)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.to(other), layer.values.to(other)
    got = loaded.logits(ids[-STEPS:], cache=cache, keep=STEPS)
    yield {"became": dtype_name(cache.layers[0].keys.dtype), **compared(expected, got)}


def _mask(loaded: Loaded, ids: list[int], other: Any, expected: Any) -> Iterator[Evidence]:
    """A mask made by hand: the whole causal one, or, where the model takes no such mask, one number for each token."""
    try:
        loaded.logits(ids, keep=STEPS, attention_mask=causal_mask(loaded, len(ids), loaded.model.dtype))
        mask, shape = causal_mask(loaded, len(ids), other), "(1, 1, T, T)"
    except Exception:
        mask, shape = loaded.torch.ones(1, len(ids), dtype=other, device=loaded.model.device), "(1, T)"
    yield {"mask_shape": shape}
    got = loaded.logits(ids, keep=STEPS, attention_mask=mask)
    yield {"became": dtype_name(loaded.model.dtype), **compared(expected, got)}


def causal_mask(loaded: Loaded, size: int, dtype: Any) -> Any:
    """(1, 1, T, T): nothing for what is seen, the lowest number of the model's type for what is hidden."""
    torch, device = loaded.torch, loaded.model.device
    hidden = torch.ones(size, size, dtype=torch.bool, device=device).triu(1)
    lowest = torch.finfo(loaded.model.dtype).min
    return torch.zeros(size, size, dtype=dtype, device=device).masked_fill(hidden, lowest)[None, None]


def _layer(loaded: Loaded, ids: list[int], other: Any, expected: Any) -> Iterator[Evidence]:
    """The last layer of the model in the other type."""
    layer = last_layer(loaded)
    own, weights = loaded.model.dtype, copy.deepcopy(layer.state_dict())
    layer.to(other)
    try:
        got = loaded.logits(ids, keep=STEPS)
    finally:
        layer.to(own).load_state_dict(weights)
    yield {"became": dtype_name(other), **compared(expected, got)}


def last_layer(loaded: Loaded) -> Any:
    """The last decoder layer: of the list of modules that has as many as the model has layers."""
    modules = loaded.torch.nn.ModuleList
    lists = [one for one in loaded.model.modules() if isinstance(one, modules) and len(one) == loaded.shape.num_layers]
    return lists[0][-1]


PIECES: Mapping[str, Callable[[Loaded, list[int], Any, Any], Iterator[Evidence]]] = {
    "growing cache": _growing_cache,
    "static cache": _static_cache,
    "mask": _mask,
    "layer": _layer,
}
