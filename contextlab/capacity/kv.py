"""How many bytes a context takes, and how long a context, or how many sequences, some bytes hold.

Symbols: n tokens of a sequence, s sequences, L layers, h heads, k KV heads, d head dimension, W window, b bytes of
an element. For one token in one layer:

    multi-head      2·h·d·b                 Vaswani et al. 2017
    multi-query     2·d·b                   Shazeer 2019 (k = 1)
    grouped-query   2·k·d·b                 Ainslie et al. 2023; k·(d_k + d_v)·b where keys and values differ
    latent          (rank + rope_dim)·b     DeepSeek-V2, 2024, section 2.1: once, not once for keys and once for values
    latent, expanded  h·(d_k + d_v)·b       what an engine keeps that does not absorb the latent
    sliding window  as above, of min(n, W) tokens
    recurrent       a fixed number of elements for a sequence, whatever n

What engines add to that (blocks, padding, one token less) is `CacheRules`. Everything is whole bytes, exact.
Not counted: what tensor parallelism replicates, scales of fp8, and fragmentation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from contextlab.capacity.elements import element_type
from contextlab.capacity.shape import (
    FullAttention,
    LatentAttention,
    LayerCache,
    ModelShape,
    ParallelHybrid,
    RecurrentState,
    SlidingAttention,
)
from contextlab.model import UsageError

UNBOUNDED_TOKENS = 1 << 48
"""A context of so many tokens that fits is not bounded by the cache."""

LLAMA_CPP_PAD_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """How an engine stores the cache. The default is the formula itself, nothing rounded.

    `block_tokens`: tokens are allocated in whole blocks of this many.
    `window_extra_tokens`: what a sliding layer keeps beside its window (negative: less).
    `window_extra_blocks`: blocks that it keeps beside that.
    `full_windows`: sliding layers keep every token all the same.
    `unified`: all sequences share one pool, and blocks are rounded for the pool instead of for each sequence.
    `expand_latent`: latent attention is kept as keys and values of every head.
    `conv_type`, `state_type`: of recurrent layers.
    """

    k_type: str = "f16"
    v_type: str = "f16"
    block_tokens: int = 1
    window_extra_tokens: int = 0
    window_extra_blocks: int = 0
    full_windows: bool = False
    unified: bool = False
    expand_latent: bool = False
    conv_type: str = "f16"
    state_type: str = "f32"

    def __post_init__(self) -> None:
        for name in (self.k_type, self.v_type, self.conv_type, self.state_type):
            element_type(name)
        if self.block_tokens < 1:
            raise UsageError(f"block_tokens={self.block_tokens}: must be at least 1")
        if self.window_extra_blocks < 0:
            raise UsageError(f"window_extra_blocks={self.window_extra_blocks}: must be at least 0")

    def typed(self, k_type: str, v_type: str | None = None) -> Self:
        """The same rules with other element types; values as keys where only one is given."""
        return replace(self, k_type=k_type, v_type=v_type or k_type)


EXACT = CacheRules()
"""The formulas, f16."""
TRANSFORMERS = CacheRules(window_extra_tokens=-1)
"""`DynamicCache` in transformers 5.24: sliding layers keep W − 1 tokens (`DynamicSlidingWindowLayer`)."""
EXLLAMA = CacheRules(block_tokens=256)
"""ExLlamaV2 and V3: pages of 256 tokens."""


def llama_cpp(ubatch_tokens: int = 512, unified: bool = False, swa_full: bool = False) -> CacheRules:
    """llama.cpp: cells in multiples of 256; sliding layers keep pad(W·s + ubatch), where s is 1 in split pools.

    Source: `llama_context` and `llama-kv-cache-iswa.cpp`. Recurrent states are f32, both parts.
    """
    return CacheRules(
        block_tokens=LLAMA_CPP_PAD_TOKENS,
        window_extra_tokens=ubatch_tokens,
        full_windows=swa_full,
        unified=unified,
        conv_type="f32",
    )


def vllm(max_batched_tokens: int = 8192, block_tokens: int = 16) -> CacheRules:
    """vLLM V1: blocks of 16 tokens; a sliding layer plans W − 1 + max_num_batched_tokens and one block more.

    Source: `SlidingWindowSpec.max_memory_usage_bytes`; the window may begin in the middle of a block.
    """
    return CacheRules(block_tokens=block_tokens, window_extra_tokens=max_batched_tokens - 1, window_extra_blocks=1)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────


def token_bytes(shape: ModelShape, rules: CacheRules = EXACT) -> int:
    """Bytes that a token adds in all layers while every sliding window still has room."""
    return sum(_Cost.of(shape, rules).row_bytes.values())


def growing_bytes(shape: ModelShape, rules: CacheRules = EXACT) -> int:
    """Bytes that a token adds once all sliding windows are full: those of the layers that keep every token."""
    return _Cost.of(shape, rules).row_bytes.get(None, 0)


def fixed_bytes(shape: ModelShape, rules: CacheRules = EXACT) -> int:
    """Bytes of one sequence's recurrent states, which do not grow."""
    return _Cost.of(shape, rules).state_bytes


def sequence_bytes(shape: ModelShape, num_tokens: int, rules: CacheRules = EXACT) -> int:
    """Bytes of the cache of one sequence of `num_tokens`."""
    return cache_bytes(shape, num_tokens, rules)


def cache_bytes(shape: ModelShape, num_tokens: int, rules: CacheRules = EXACT, num_sequences: int = 1) -> int:
    """Bytes of the cache of `num_sequences` sequences of `num_tokens` each."""
    if num_tokens < 0 or num_sequences < 0:
        raise UsageError(f"num_tokens={num_tokens}, num_sequences={num_sequences}: neither can be negative")
    return _Cost.of(shape, rules).total_bytes(num_tokens, num_sequences)


def weights_bytes(num_parameters: int, element: str = "f16") -> int:
    """Bytes of the weights if all had that element type."""
    return element_type(element).num_bytes(num_parameters)


def prefill_bytes(shape: ModelShape, num_tokens: int, attention: str = "sdpa", element: str = "f32") -> int | None:
    """An estimate of the activations at the peak of a prefill of one sequence, without weights and cache.

    One layer at a time is alive. Linear part, an upper estimate: the residual and, whichever is more, the attention's
    norm, queries, keys, values and output, or the feed-forward block's norm and three tensors of its width.
    attention="eager" adds the square part of transformers' `eager_attention_forward`:

        h·n²·(b + 4)        scores and their softmax, which is f32
        h·n²·4              the f32 copy of the scores, where b < 4
        n²·b                the causal mask

    Measured with torch 2.13 on CPU, h = 2: predicted 1280 MiB and seen 1299 at n = 8192 in f32, 5120 and 5149 at
    16384; 1408 and 1419 at 8192 in bf16. SDPA without a padding mask has no square part. None where the shape lacks
    a number. Logits are not counted: n·vocab·b for all positions, and engines that generate need one.
    """
    if attention not in {"eager", "sdpa"}:
        raise UsageError(f"attention={attention!r}: must be eager or sdpa")
    if shape.hidden is None or shape.ffn is None or shape.num_heads is None:
        return None
    b = element_type(element).num_bytes(1)
    heads = max((_projected(layer, shape.num_heads) for layer in shape.layers), default=0)
    linear = num_tokens * b * (2 * shape.hidden + max(heads, 3 * shape.ffn))
    if attention == "sdpa":
        return linear
    scores = shape.num_heads * num_tokens**2 * (b + 4 + (4 if b < 4 else 0))
    return linear + scores + num_tokens**2 * b


# ── what fits ────────────────────────────────────────────────────────────────────────────────────


def most_tokens(shape: ModelShape, budget_bytes: int, rules: CacheRules = EXACT, num_sequences: int = 1) -> int | None:
    """The longest context of `num_sequences` sequences at once whose cache fits into the budget.

    0 where not even the recurrent states fit; None where the cache never fills the budget.
    """
    cost = _Cost.of(shape, rules)
    return _most(lambda num_tokens: cost.total_bytes(num_tokens, num_sequences) <= budget_bytes)


def most_sequences(shape: ModelShape, budget_bytes: int, num_tokens: int, rules: CacheRules = EXACT) -> int | None:
    """The most sequences of `num_tokens` each whose cache fits into the budget; None where they take nothing."""
    cost = _Cost.of(shape, rules)
    return _most(lambda num_sequences: cost.total_bytes(num_tokens, num_sequences) <= budget_bytes)


def llama_cpp_slots(context_tokens: int, num_slots: int = 1, unified: bool = False) -> tuple[int, int]:
    """What llama.cpp makes of `--ctx-size` and `--parallel`: (tokens a slot, cells in all).

    The context is padded to 256; split pools divide it and pad each part again, so the total may grow; a unified pool
    gives every slot the whole of it. The model's own length, which caps a slot, is not applied.
    """
    if context_tokens < 1 or num_slots < 1:
        raise UsageError(f"context_tokens={context_tokens}, num_slots={num_slots}: both must be at least 1")
    total = _blocks(context_tokens, LLAMA_CPP_PAD_TOKENS)
    if unified:
        return total, total
    per_slot = _blocks(total // num_slots, LLAMA_CPP_PAD_TOKENS)
    return per_slot, per_slot * num_slots


def _most(fits: Callable[[int], bool]) -> int | None:
    """The largest number that fits, for a rule that no larger number fits after one that does not."""
    if fits(UNBOUNDED_TOKENS):
        return None
    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# ── the sum over layers ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a model's cache costs under some rules: `row_bytes` of one token in all layers of one window together."""

    rules: CacheRules
    row_bytes: Mapping[int | None, int]
    state_bytes: int

    @classmethod
    def of(cls, shape: ModelShape, rules: CacheRules) -> Self:
        """Add up the layers; those that keep every token are under None."""
        rows: dict[int | None, int] = {}
        state_bytes = 0
        for layer, count in Counter(shape.layers).items():
            window = None if rules.full_windows else _window(layer)
            rows[window] = rows.get(window, 0) + count * _row_bytes(layer, rules)
            state_bytes += count * _state_bytes(layer, rules)
        return cls(rules, rows, state_bytes)

    def total_bytes(self, num_tokens: int, num_sequences: int) -> int:
        """Bytes of so many sequences of so many tokens."""
        pools, sharing = (1, num_sequences) if self.rules.unified else (num_sequences, 1)
        rows = sum(self._held(num_tokens, window, sharing) * row for window, row in self.row_bytes.items())
        return pools * rows + num_sequences * self.state_bytes

    def _held(self, num_tokens: int, window: int | None, sharing: int) -> int:
        """Tokens that a pool of `sharing` sequences holds in a layer with that window, in whole blocks."""
        tokens, extra_blocks = num_tokens * sharing, 0
        if window is not None:
            tokens = min(tokens, max(0, window * sharing + self.rules.window_extra_tokens))
            extra_blocks = self.rules.window_extra_blocks if tokens else 0
        return _blocks(tokens, self.rules.block_tokens) + extra_blocks * self.rules.block_tokens


def _blocks(num_tokens: int, block_tokens: int) -> int:
    return -(-num_tokens // block_tokens) * block_tokens


def _window(layer: LayerCache) -> int | None:
    """The window of a sliding layer, None for layers that keep every token."""
    if isinstance(layer, ParallelHybrid):
        layer = layer.attention
    return layer.window_tokens if isinstance(layer, SlidingAttention) else None


def _row_bytes(layer: LayerCache, rules: CacheRules) -> int:
    """Bytes of one token in one layer; keys and values are rows of their own, in whole quantisation blocks."""
    key, value = element_type(rules.k_type), element_type(rules.v_type)
    match layer:
        case FullAttention() | SlidingAttention():
            return key.num_bytes(layer.kv_heads * layer.head_dim_k) + value.num_bytes(layer.kv_heads * layer.head_dim_v)
        case LatentAttention() if rules.expand_latent:
            rows = key.num_bytes(layer.num_heads * layer.head_dim_k) + value.num_bytes(
                layer.num_heads * layer.head_dim_v
            )
            return rows + key.num_bytes(layer.index_dim)
        case LatentAttention():
            return key.num_bytes(layer.rank + layer.rope_dim) + key.num_bytes(layer.index_dim)
        case ParallelHybrid():
            return _row_bytes(layer.attention, rules)
    return 0


def _state_bytes(layer: LayerCache, rules: CacheRules) -> int:
    if isinstance(layer, ParallelHybrid):
        layer = layer.state
    if not isinstance(layer, RecurrentState):
        return 0
    conv = element_type(rules.conv_type).num_bytes(layer.conv_elements)
    return conv + element_type(rules.state_type).num_bytes(layer.state_elements)


def _projected(layer: LayerCache, num_heads: int) -> int:
    """Numbers of one token in a layer's queries, keys, values and output."""
    match layer:
        case FullAttention() | SlidingAttention():
            return (num_heads + layer.kv_heads) * (layer.head_dim_k + layer.head_dim_v)
        case LatentAttention():
            return 2 * num_heads * (layer.head_dim_k + layer.head_dim_v)
        case ParallelHybrid():
            return _projected(layer.attention, num_heads)
    return 0
