"""From GGUF metadata to a `ModelShape`: which cache llama.cpp builds for each layer.

Keys are llama.cpp's (`llama-arch.cpp`, gguf-py `constants.py`), each with the architecture before it. Where a file does
not say which layers slide or recur, the rule is the one in llama.cpp's `llama-model.cpp` and `llama-hparams.cpp`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from contextlab.capacity.fields import MAX_HEADS, MAX_LAYERS, MAX_TOKENS, MAX_VOCAB, MAX_WIDTH, Fields
from contextlab.capacity.gguf import GgufFile
from contextlab.capacity.gguf_header import Skipped
from contextlab.capacity.shape import (
    FullAttention,
    LatentAttention,
    LayerCache,
    ModelShape,
    NoCache,
    ParallelHybrid,
    PositionKind,
    Positions,
    RecurrentState,
    Rope,
    SharedKv,
    SlidingAttention,
)
from contextlab.model import UnableError

_LEARNED = frozenset({"gpt2", "starcoder"})
_ALIBI = frozenset({"bloom", "mpt", "refact", "jais"})
_NO_POSITIONS = frozenset({"mamba", "mamba2", "jamba", "nemotron_h", "nemotron_h_moe", "rwkv6", "rwkv7"})
_ENCODERS = frozenset({"bert", "nomic-bert", "modern-bert", "jina-bert-v2", "gemma-embedding", "t5encoder", "clip"})

_WINDOW_PERIODS = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "cohere2": 4,
    "llama4": 4,
    "exaone4": 4,
    "olmo2": 4,
    "smallthinker": 4,
    "afmoe": 4,
    "plamo3": 8,
}
"""Layer i slides where i % period < period − 1 (`set_swa_pattern`), unless the file has a pattern of its own."""
_FULL_LAYER_FIRST = frozenset({"smallthinker"})
"""Here layer i slides where i % period > 0."""
_LLAMA4_CHUNK_TOKENS = 8192
_GEMMA3N_OWN_LAYERS = 20
"""The first layers keep a cache, the others share it; newer files say so in `shared_kv_layers`."""
_FULL_ATTENTION_INTERVALS = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4}
_PARALLEL_HYBRIDS = frozenset({"falcon-h1"})
_PURE_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv7"})


@dataclass(frozen=True, slots=True)
class _Model:
    """The metadata with the architecture's prefix taken off."""

    fields: Fields
    architecture: str
    num_layers: int
    hidden: int

    def per_layer(self, name: str, default: int | None, high: int = MAX_HEADS) -> list[int]:
        """A number for each layer, from a number or a list of them; lists may be longer (layers for speculation)."""
        found = self.fields.find(name)
        if found is None:
            if default is None:
                raise self.fields.missing(name)
            return [default] * self.num_layers
        value = found[1]
        if not isinstance(value, tuple):
            return [self.fields.whole(name, value, low=0, high=high)] * self.num_layers
        if len(value) < self.num_layers:
            raise self.fields.error(name, value, f"has {len(value)} entries for {self.num_layers} layers")
        return [self.fields.whole(name, item, low=0, high=high) for item in value[: self.num_layers]]


def from_gguf(file: GgufFile) -> ModelShape:
    """The shape that the metadata of `file` describes; raises UnableError naming the key that is missing or wrong."""
    general = Fields(file.path, file.metadata)
    architecture = general.text("general.architecture")
    if architecture is None:
        raise general.missing("general.architecture")
    if architecture in _ENCODERS:
        raise UnableError(
            f"{file.path}: general.architecture = {architecture!r}: an encoder keeps no KV cache",
            "Name the GGUF file of a model that generates text.",
        )
    fields = Fields(file.path, _without_prefix(file, architecture), f"{architecture}.")
    num_blocks = fields.needed("block_count", high=MAX_LAYERS)
    num_speculative = fields.integer("nextn_predict_layers", low=0, high=num_blocks - 1) or 0
    hidden = fields.needed("embedding_length", high=MAX_WIDTH)
    model = _Model(fields, architecture, num_blocks - num_speculative, hidden)
    whole = (general.integer("split.count", low=0, high=MAX_LAYERS) or 1) <= 1
    return ModelShape(
        source=file.path,
        architecture=architecture,
        layers=_layers(model),
        positions=_positions(model),
        rope=_rope(model),
        hidden=hidden,
        ffn=max(model.per_layer("feed_forward_length", 0, MAX_WIDTH)) or None,
        num_heads=max(model.per_layer("attention.head_count", 0)) or None,
        vocab=_vocab(general, fields),
        num_parameters=file.num_parameters if whole else None,
        weights_bytes=file.weights_bytes if whole else None,
        weights_type=_commonest_type(file),
    )


# ── layers ───────────────────────────────────────────────────────────────────────────────────────


def _layers(model: _Model) -> tuple[LayerCache, ...]:
    if model.architecture in _PURE_RECURRENT:
        return (_state(model),) * model.num_layers
    num_heads = model.per_layer("attention.head_count", None)
    kv_heads = _kv_heads(model, num_heads)
    recurrent = _recurrent_layers(model, kv_heads)
    widths = _widths(model, max(num_heads))
    window = _window(model)
    slides = _sliding_layers(model) if window else [False] * model.num_layers
    first_shared = model.num_layers - _num_shared(model)
    layers: list[LayerCache] = []
    for index in range(model.num_layers):
        if recurrent[index]:
            layers.append(_state(model))
        elif index >= first_shared:
            layers.append(SharedKv())
        elif not kv_heads[index]:
            layers.append(NoCache())
        else:
            layers.append(_attention(model, kv_heads[index], num_heads[index], widths, window * slides[index]))
    return tuple(layers)


def _attention(
    model: _Model, kv_heads: int, num_heads: int, widths: tuple[int, int, int, int], window: int
) -> LayerCache:
    key, value, sliding_key, sliding_value = widths
    latent = _latent(model, num_heads)
    if latent is not None:
        return latent
    attention: FullAttention | SlidingAttention = FullAttention(kv_heads=kv_heads, head_dim_k=key, head_dim_v=value)
    if window:
        attention = SlidingAttention(
            kv_heads=kv_heads, head_dim_k=sliding_key, head_dim_v=sliding_value, window_tokens=window
        )
    if model.architecture in _PARALLEL_HYBRIDS:
        return ParallelHybrid(attention=attention, state=_state(model))
    return attention


def _kv_heads(model: _Model, num_heads: list[int]) -> list[int]:
    name = "attention.head_count_kv"
    if not model.fields.has(name):
        return num_heads
    kv_heads = model.per_layer(name, None)
    for heads, shared in zip(num_heads, kv_heads, strict=True):
        if shared and (heads < shared or heads % shared):
            raise model.fields.error(
                name, shared, f"does not divide {model.fields.prefix}attention.head_count = {heads}"
            )
    return kv_heads


def _widths(model: _Model, num_heads: int) -> tuple[int, int, int, int]:
    """Key and value width of a head, then the same in sliding layers."""
    fields = model.fields
    key, value = (fields.integer(f"attention.{name}_length", high=MAX_WIDTH) for name in ("key", "value"))
    if key is None or value is None:
        if not num_heads or model.hidden % num_heads:
            raise fields.error("embedding_length", model.hidden, f"is no multiple of the {num_heads} attention heads")
        key, value = key or model.hidden // num_heads, value or model.hidden // num_heads
    sliding_key = fields.integer("attention.key_length_swa", high=MAX_WIDTH) or key
    return key, value, sliding_key, fields.integer("attention.value_length_swa", high=MAX_WIDTH) or value


def _latent(model: _Model, num_heads: int) -> LatentAttention | None:
    """Latent attention, where llama.cpp caches the latent.

    Files from before April 2025 have `kv_lora_rank` without `key_length_mla`; there it caches expanded keys and values.
    """
    fields = model.fields
    rank = fields.integer("attention.kv_lora_rank", high=MAX_WIDTH)
    key = fields.integer("attention.key_length_mla", high=MAX_WIDTH)
    if rank is None or key is None:
        return None
    return LatentAttention(
        rank=rank,
        rope_dim=fields.needed("rope.dimension_count", high=MAX_WIDTH),
        num_heads=num_heads,
        head_dim_k=key,
        head_dim_v=fields.needed("attention.value_length_mla", high=MAX_WIDTH),
        index_dim=fields.integer("attention.indexer.key_length", low=0, high=MAX_WIDTH) or 0,
    )


def _window(model: _Model) -> int:
    """The sliding window in tokens, 0 without one."""
    if model.architecture == "llama4":
        return _LLAMA4_CHUNK_TOKENS
    has_pattern = model.architecture in _WINDOW_PERIODS or model.fields.has("attention.sliding_window_pattern")
    window = model.fields.integer("attention.sliding_window", low=0, high=MAX_TOKENS) or 0
    return window if has_pattern else 0


def _sliding_layers(model: _Model) -> list[bool]:
    """Which layers slide: a flag for each, a period, or the architecture's own period."""
    name = "attention.sliding_window_pattern"
    found = model.fields.find(name)
    period = _WINDOW_PERIODS.get(model.architecture, 0)
    if found is not None:
        if isinstance(found[1], tuple):
            return _flags(model, name, found[1])
        period = model.fields.whole(name, found[1], low=0, high=MAX_LAYERS)
    if not period:
        return [True] * model.num_layers
    if model.architecture in _FULL_LAYER_FIRST:
        return [index % period > 0 for index in range(model.num_layers)]
    return [index % period < period - 1 for index in range(model.num_layers)]


def _flags(model: _Model, name: str, items: tuple[object, ...]) -> list[bool]:
    """A flag for each layer, from booleans or from 0 and 1; fewer than there are layers repeat."""
    if not items or not all(isinstance(item, int) and item in {0, 1} for item in items):
        raise model.fields.error(name, items, "must hold a flag for each layer")
    return [bool(items[index % len(items)]) for index in range(model.num_layers)]


def _num_shared(model: _Model) -> int:
    shared = model.fields.integer("attention.shared_kv_layers", low=0, high=model.num_layers - 1)
    if shared is None and model.architecture == "gemma3n":
        return max(0, model.num_layers - _GEMMA3N_OWN_LAYERS)
    return shared or 0


# ── recurrent layers ─────────────────────────────────────────────────────────────────────────────


def _recurrent_layers(model: _Model, kv_heads: list[int]) -> list[bool]:
    """Which layers keep a state instead of keys and values (`recurrent_layer_arr`)."""
    fields = model.fields
    default = _FULL_ATTENTION_INTERVALS.get(model.architecture)
    interval = fields.integer("full_attention_interval", high=MAX_LAYERS) or default
    if interval and all(kv_heads):
        return [(index + 1) % interval > 0 for index in range(model.num_layers)]
    if not fields.has("ssm.state_size", "ssm.conv_kernel", "shortconv.l_cache", "kda.head_dim", "wkv.head_size"):
        return [False] * model.num_layers
    # A layer without KV heads recurs, unless it is a feed-forward block of its own (nemotron_h).
    ffn = model.per_layer("feed_forward_length", 0, MAX_WIDTH)
    varied = len(set(ffn)) > 1 and model.architecture.startswith("nemotron_h")
    return [not heads and not (varied and width) for heads, width in zip(kv_heads, ffn, strict=True)]


def _state(model: _Model) -> RecurrentState:
    """Numbers that one recurrent layer keeps for a sequence (`n_embd_r` and `n_embd_s` in `llama-hparams.cpp`).

    short convolution  embedding × (kernel − 1)
    RWKV               token shifts × embedding, and embedding × head size
    KDA                3 × (kernel − 1) × heads × head size, and heads × head size²
    Mamba, gated delta (kernel − 1) × (inner + 2 × groups × state), and inner × state
    """
    fields = model.fields
    kernel = fields.integer("shortconv.l_cache", high=MAX_WIDTH)
    if kernel is not None:
        return RecurrentState(conv_elements=model.hidden * (kernel - 1), state_elements=0)
    head = fields.integer("wkv.head_size", high=MAX_WIDTH)
    if head is not None:
        shifts = fields.integer("token_shift_count", high=MAX_HEADS) or 2
        return RecurrentState(conv_elements=shifts * model.hidden, state_elements=model.hidden * head)
    kernel = fields.needed("ssm.conv_kernel", high=MAX_WIDTH)
    head = fields.integer("kda.head_dim", high=MAX_WIDTH)
    if head is not None:
        width = max(model.per_layer("attention.head_count", None)) * head
        return RecurrentState(conv_elements=3 * (kernel - 1) * width, state_elements=width * head)
    inner = fields.needed("ssm.inner_size", high=MAX_WIDTH)
    state = fields.needed("ssm.state_size", high=MAX_WIDTH)
    groups = fields.integer("ssm.group_count", low=0, high=MAX_HEADS) or 0
    return RecurrentState(
        conv_elements=(kernel - 1) * (inner + 2 * groups * state),
        state_elements=inner * state,
    )


# ── positions and the rest ───────────────────────────────────────────────────────────────────────


def _positions(model: _Model) -> Positions:
    if model.architecture in _LEARNED:
        kind = PositionKind.LEARNED
    elif model.architecture in _ALIBI or model.fields.number("attention.max_alibi_bias"):
        kind = PositionKind.ALIBI
    elif model.architecture in _NO_POSITIONS:
        kind = PositionKind.NONE
    else:
        kind = PositionKind.ROTARY
    return Positions(
        kind=kind,
        max_tokens=model.fields.integer("context_length", high=MAX_TOKENS),
        name=f"{model.architecture}.context_length",
    )


def _rope(model: _Model) -> Rope | None:
    fields = model.fields
    scaling = fields.text("rope.scaling.type")
    if scaling is None and not fields.has("rope.freq_base", "rope.dimension_count"):
        return None
    return Rope(
        kind="default" if scaling in {None, "none"} else str(scaling),
        factor=fields.number("rope.scaling.factor"),
        original_tokens=fields.integer("rope.scaling.original_context_length", high=MAX_TOKENS),
        theta=fields.number("rope.freq_base"),
    )


def _vocab(general: Fields, fields: Fields) -> int | None:
    size = fields.integer("vocab_size", high=MAX_VOCAB)
    tokens = general.values.get("tokenizer.ggml.tokens")
    if size is None and isinstance(tokens, Skipped):
        return tokens.length
    return len(tokens) if size is None and isinstance(tokens, tuple) else size


def _commonest_type(file: GgufFile) -> str:
    """The element type that holds most of the weights."""
    elements: Counter[str] = Counter()
    for tensor in file.tensors:
        kind = tensor.element_type
        if kind is not None:
            elements[kind.name] += tensor.num_elements
    return max(elements, key=lambda name: elements[name], default="")


def _without_prefix(file: GgufFile, architecture: str) -> dict[str, object]:
    prefix = f"{architecture}."
    return {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
