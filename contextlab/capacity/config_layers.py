"""The cache of each layer of a Hugging Face config: first its kind, then its size.

Kinds come from, in this order: a list in the file, a pattern in the file, the model type's own rule (`families`),
and otherwise full attention, or the sliding window where one is set.
"""

from __future__ import annotations

from contextlab.capacity.families import (
    ASKS_FOR_WINDOW,
    FULL_ATTENTION_INTERVALS,
    LIGHTNING,
    PARALLEL_HYBRIDS,
    PURE_RECURRENT,
    WINDOW_PERIODS,
)
from contextlab.capacity.fields import MAX_HEADS, MAX_LAYERS, MAX_TEXT, MAX_TOKENS, MAX_WIDTH, Fields
from contextlab.capacity.shape import (
    FullAttention,
    LatentAttention,
    LayerCache,
    NoCache,
    ParallelHybrid,
    RecurrentState,
    SharedKv,
    SlidingAttention,
)

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LAYER_LISTS = ("layer_types", "layers_block_type")

_FULL, _SLIDING, _CHUNKED, _LINEAR, _HYBRID, _NOTHING = "full", "sliding", "chunked", "linear", "hybrid", "nothing"
_KINDS = {
    "full_attention": _FULL,
    "attention": _FULL,
    "indexed_attention": _FULL,
    "deepseek_sparse_attention": _FULL,
    "sliding_attention": _SLIDING,
    "chunked_attention": _CHUNKED,
    "linear_attention": _LINEAR,
    "mamba": _LINEAR,
    "mamba2": _LINEAR,
    "conv": _LINEAR,
    "hybrid": _HYBRID,
    "moe": _NOTHING,
    "mlp": _NOTHING,
    # letters of `hybrid_override_pattern` and `sliding_window_pattern`
    "M": _LINEAR,
    "*": _FULL,
    "-": _NOTHING,
    "E": _NOTHING,
    "L": _SLIDING,
    "G": _FULL,
}


def config_layers(fields: Fields, family: str, num_layers: int, hidden: int) -> tuple[LayerCache, ...]:
    """One cache a layer, first to last."""
    kinds = _kinds(fields, family, num_layers)
    first_shared = num_layers - (fields.integer("num_kv_shared_layers", low=0, high=num_layers - 1) or 0)
    sizes = {kind: _cache(fields, family, kind, hidden) for kind in dict.fromkeys(kinds)}
    return tuple(
        SharedKv() if index >= first_shared and kind in {_FULL, _SLIDING} else sizes[kind]
        for index, kind in enumerate(kinds)
    )


# ── the kind of each layer ───────────────────────────────────────────────────────────────────────


def _kinds(fields: Fields, family: str, num_layers: int) -> list[str]:
    return (
        _listed_kinds(fields, num_layers)
        or _hybrid_kinds(fields, family, num_layers)
        or _window_kinds(fields, family, num_layers)
    )


def _listed_kinds(fields: Fields, num_layers: int) -> list[str] | None:
    """Kinds that the file spells out, one word or letter a layer."""
    name = next((name for name in LAYER_LISTS if fields.has(name)), "")
    if name:
        items = fields.items(name, length=num_layers) or ()
        return [_kind(fields, f"{name}[{index}]", item) for index, item in enumerate(items)]
    name = "hybrid_override_pattern"
    pattern = fields.find(name)
    if pattern is None:
        return None
    if not isinstance(pattern[1], str) or len(pattern[1]) != num_layers:
        raise fields.error(name, pattern[1], f"must have one letter for each of the {num_layers} layers")
    return [_kind(fields, f"{name}[{index}]", letter) for index, letter in enumerate(pattern[1])]


def _kind(fields: Fields, name: str, word: object) -> str:
    kind = _KINDS.get(word) if isinstance(word, str) and len(word) <= MAX_TEXT else None
    if kind is None:
        raise fields.error(name, word, "is no kind of layer that contextlab knows")
    return kind


def _hybrid_kinds(fields: Fields, family: str, num_layers: int) -> list[str] | None:
    """Kinds of models that mix attention with recurrent layers and say so with a number or a list of indices."""
    if family in PURE_RECURRENT:
        return [_LINEAR] * num_layers
    if family in PARALLEL_HYBRIDS:
        return [_HYBRID] * num_layers
    linear = fields.table("linear_attn_config")
    for table, name, first in (
        (fields, "full_attn_idxs", 0),
        (fields, "attn_layer_indices", 0),
        (linear, "full_attn_layers", 1),
    ):
        items = None if table is None else table.items(name)
        if table is not None and items is not None:
            full = {table.whole(name, item, low=first, high=num_layers - 1 + first) - first for item in items}
            return [_FULL if index in full else _LINEAR for index in range(num_layers)]
    flags = fields.items("attn_type_list", length=num_layers)
    if flags is not None:
        return [_FULL if fields.whole("attn_type_list", flag, low=0, high=1) else _LINEAR for flag in flags]
    period = fields.integer("attn_layer_period", high=MAX_LAYERS)
    if period is not None:
        offset = fields.integer("attn_layer_offset", low=0, high=period - 1) or 0
        return [_FULL if index % period == offset else _LINEAR for index in range(num_layers)]
    interval = fields.integer("full_attention_interval", high=MAX_LAYERS) or FULL_ATTENTION_INTERVALS.get(family)
    if interval is not None:
        return [_LINEAR if (index + 1) % interval else _FULL for index in range(num_layers)]
    return None


def _window_kinds(fields: Fields, family: str, num_layers: int) -> list[str]:
    """Kinds of models that have attention only: full, or sliding where a window is set and in force."""
    if fields.has("attention_chunk_size"):
        interval = fields.integer("no_rope_layer_interval", high=MAX_LAYERS) or 4
        rotary = fields.items("no_rope_layers", length=num_layers if fields.values.get("no_rope_layers") else None)
        rotary = rotary or [(index + 1) % interval for index in range(num_layers)]
        return [_CHUNKED if flag else _FULL for flag in rotary]
    in_force = fields.flag("use_sliding_window", default=family not in ASKS_FOR_WINDOW)
    if not in_force or not fields.has("sliding_window", "window_size"):
        return [_FULL] * num_layers
    if family in ASKS_FOR_WINDOW:
        first = fields.integer("max_window_layers", low=0, high=MAX_LAYERS)
        first = num_layers if first is None else first
        return [_SLIDING if index >= first else _FULL for index in range(num_layers)]
    found = fields.find("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
    if found is not None and isinstance(found[1], str):
        letters = found[1][:MAX_LAYERS]
        if not letters:
            raise fields.error(found[0], letters, "must have at least one letter")
        return [_kind(fields, found[0], letters[index % len(letters)]) for index in range(num_layers)]
    period = WINDOW_PERIODS.get(family)
    if found is not None:
        period = fields.whole(*found, low=1, high=MAX_LAYERS)
    if period is None:
        return [_SLIDING] * num_layers
    return [_SLIDING if (index + 1) % period else _FULL for index in range(num_layers)]


# ── the size of each kind ────────────────────────────────────────────────────────────────────────


def _cache(fields: Fields, family: str, kind: str, hidden: int) -> LayerCache:
    if kind == _NOTHING:
        return NoCache()
    if kind == _LINEAR:
        return _state(fields, family, hidden)
    if kind == _HYBRID:
        return ParallelHybrid(attention=_full(fields, family, hidden), state=_state(fields, family, hidden))
    if kind == _FULL and fields.has("kv_lora_rank"):
        return _latent(fields)
    full = _full(fields, family, hidden, everywhere=kind != _FULL)
    if kind == _FULL:
        return full
    name = "attention_chunk_size" if kind == _CHUNKED else "sliding_window"
    return SlidingAttention(
        kv_heads=full.kv_heads,
        head_dim_k=full.head_dim_k,
        head_dim_v=full.head_dim_v,
        window_tokens=fields.needed(*((name,) if kind == _CHUNKED else (name, "window_size")), high=MAX_TOKENS),
    )


def _full(fields: Fields, family: str, hidden: int, everywhere: bool = False) -> FullAttention:
    """Heads of a full layer; `everywhere`: those that also hold in sliding layers (gemma4 has wider full ones)."""
    num_heads = fields.needed(*HEADS, high=MAX_HEADS)
    kv_heads = _kv_heads(fields, family, num_heads)
    width = fields.integer("head_dim", "attention_head_dim", "kv_channels", high=MAX_WIDTH)
    if width is None:
        if hidden % num_heads:
            raise fields.error("hidden_size", hidden, f"is no multiple of the {num_heads} attention heads")
        width = hidden // num_heads
    if not everywhere:
        width = fields.integer("global_head_dim", high=MAX_WIDTH) or width
        if fields.flag("attention_k_eq_v", default=False):
            kv_heads = fields.integer("num_global_key_value_heads", high=num_heads) or kv_heads
    value_width = fields.integer("v_head_dim", high=MAX_WIDTH) or width
    return FullAttention(kv_heads=kv_heads, head_dim_k=width, head_dim_v=value_width)


def _kv_heads(fields: Fields, family: str, num_heads: int) -> int:
    """Heads that are cached: one for multi-query attention, every query head where nothing says otherwise."""
    nested = fields.table("attn_config")
    names = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    several = fields.flag("new_decoder_architecture", default=False)
    if fields.flag("multi_query", default=family in {"falcon", "gpt_bigcode"}) and not several:
        return 1
    for table, known in ((fields, names), (nested, ("kv_n_heads",))):
        found = None if table is None else table.find(*known)
        if table is not None and found is not None:
            kv_heads = table.whole(*found, low=1, high=MAX_HEADS)
            if num_heads % kv_heads:
                raise table.error(*found, f"does not divide the {num_heads} attention heads")
            return kv_heads
    return num_heads


def _latent(fields: Fields) -> LatentAttention:
    """Multi-head latent attention; the expanded key is the part without positions beside the rotary one."""
    rope_dim = fields.needed("qk_rope_head_dim", low=0, high=MAX_WIDTH)
    return LatentAttention(
        rank=fields.needed("kv_lora_rank", high=MAX_WIDTH),
        rope_dim=rope_dim,
        num_heads=fields.needed(*HEADS, high=MAX_HEADS),
        head_dim_k=fields.needed("qk_nope_head_dim", high=MAX_WIDTH) + rope_dim,
        head_dim_v=fields.needed("v_head_dim", high=MAX_WIDTH),
        index_dim=fields.integer("index_head_dim", low=0, high=MAX_WIDTH) or 0,
    )


def _state(fields: Fields, family: str, hidden: int) -> RecurrentState:
    """Numbers that one recurrent layer keeps for a sequence; the convolution keeps kernel − 1 columns.

    short convolution  (kernel − 1) × hidden
    gated delta rule   (kernel − 1) × (2 × key heads × key width + value heads × value width),
                       and value heads × key width × value width
    KDA                3 × (kernel − 1) × heads × width, and heads × width²
    lightning          no convolution, and heads × width²
    Mamba 1, 2         (kernel − 1) × (inner + 2 × groups × state), and inner × state; Mamba 1 has no groups
    """
    kernel = fields.integer("conv_L_cache", high=MAX_WIDTH)
    if kernel is not None:
        return RecurrentState(conv_elements=(kernel - 1) * hidden, state_elements=0)
    if fields.has("linear_num_value_heads"):
        return _delta_state(fields)
    kimi = fields.table("linear_attn_config") or fields
    if kimi is not fields or fields.has("linear_num_heads"):
        heads = kimi.needed("num_heads" if kimi is not fields else "linear_num_heads", high=MAX_HEADS)
        width = kimi.needed("head_dim" if kimi is not fields else "linear_head_dim", high=MAX_WIDTH)
        kernel = kimi.needed("short_conv_kernel_size", "linear_conv_kernel_dim", high=MAX_WIDTH)
        return RecurrentState(conv_elements=3 * (kernel - 1) * heads * width, state_elements=heads * width * width)
    if family in LIGHTNING:
        full = _full(fields, family, hidden)
        heads = fields.needed(*HEADS, high=MAX_HEADS)
        return RecurrentState(conv_elements=0, state_elements=heads * full.head_dim_k * full.head_dim_k)
    kernel = fields.needed("mamba_d_conv", "conv_kernel", high=MAX_WIDTH)
    state = fields.needed("mamba_d_state", "ssm_state_size", "state_size", high=MAX_WIDTH)
    groups = fields.integer("mamba_n_groups", "n_groups", "mamba_ngroups", low=0, high=MAX_HEADS) or 0
    inner = _mamba_inner(fields, hidden)
    return RecurrentState(conv_elements=(kernel - 1) * (inner + 2 * groups * state), state_elements=inner * state)


def _delta_state(fields: Fields) -> RecurrentState:
    kernel = fields.needed("linear_conv_kernel_dim", high=MAX_WIDTH)
    keys = fields.needed("linear_num_key_heads", high=MAX_HEADS)
    values = fields.needed("linear_num_value_heads", high=MAX_HEADS)
    key_width = fields.needed("linear_key_head_dim", high=MAX_WIDTH)
    value_width = fields.needed("linear_value_head_dim", high=MAX_WIDTH)
    return RecurrentState(
        conv_elements=(kernel - 1) * (2 * keys * key_width + values * value_width),
        state_elements=values * key_width * value_width,
    )


def _mamba_inner(fields: Fields, hidden: int) -> int:
    """Width inside a Mamba layer: given, or heads × head width, or expansion × hidden."""
    given = fields.integer("mamba_d_ssm", high=MAX_WIDTH)
    if given is not None:
        return given
    heads = fields.integer("mamba_num_heads", high=MAX_HEADS)
    width = fields.integer("mamba_head_dim", high=MAX_WIDTH)
    if heads is not None and width is not None:
        return heads * width
    expand = fields.number("mamba_expand", "expand")
    if expand is None:
        raise fields.missing("mamba_expand", "expand")
    return fields.whole("mamba_expand", int(expand * hidden), low=1, high=MAX_WIDTH)
