"""Does it fit into a memory, and what would: a longer context, more requests at once, a cheaper cache.

    left = memory − weights        fits ⇔ cache(context, requests) ≤ left

A `Convention` says how an engine rounds the cache and which element types it takes. Not counted: activations and
compute buffers, the engine's own code, and what another process takes in the meantime.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from contextlab.capacity.elements import element_type
from contextlab.capacity.kv import (
    EXACT,
    LLAMA_CPP_PAD_TOKENS,
    TRANSFORMERS,
    CacheRules,
    cache_bytes,
    llama_cpp,
    most_sequences,
    most_tokens,
    token_bytes,
    vllm,
)
from contextlab.capacity.shape import FullAttention, LatentAttention, ModelShape, ParallelHybrid, SlidingAttention
from contextlab.model import UsageError

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory for weights and cache. `name`: "host", "GPU 0", "--budget"; `about`: what it is, or what limits it."""

    name: str
    free_bytes: int
    total_bytes: int | None = None
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How one engine stores the cache.

    `cache_types`: what it can be told to store; empty: anything. `offers`: what is worth trying instead.
    `whole_blocks`: a block of a quantised type must divide the width of a head, or the engine does not start.
    """

    name: str
    rules: CacheRules
    rounding: str
    cache_types: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    whole_blocks: bool = False

    def checked(self, cache_type: str) -> str:
        """The type by its usual name; raises UsageError for one that this engine does not have."""
        with suppress(UsageError):
            name = element_type(cache_type).name
            if not self.cache_types or name in self.cache_types:
                return name
        choices = self.cache_types or ("f32", "f16", "bf16", "fp8", "q8_0", "q4_0", "or another type of ggml's")
        raise UsageError(
            f"cache-type={cache_type!r}: {self.name} has no cache of that type",
            f"choose from {', '.join(choices)}; or another --engine: {', '.join(CONVENTIONS)}",
        )

    def can_store(self, shape: ModelShape, cache_type: str) -> bool:
        """Whether the engine can store this model's cache in that type."""
        block = element_type(cache_type).block_elements
        return not self.whole_blocks or all(width % block == 0 for width in _head_widths(shape))

    def command(self, context_tokens: int, num_sequences: int, k_type: str, v_type: str) -> str:
        """The flags that ask the engine for this much; "" where there is no such command."""
        if self.name == "vllm":
            dtype = " --kv-cache-dtype fp8" if k_type == "fp8" else ""
            return f"vllm serve … --max-model-len {context_tokens} --max-num-seqs {num_sequences}{dtype}"
        if self.name != "llama.cpp":
            return ""
        per_slot = -(-context_tokens // LLAMA_CPP_PAD_TOKENS) * LLAMA_CPP_PAD_TOKENS
        flags = "" if (k_type, v_type) == ("f16", "f16") else f" -ctk {k_type} -ctv {v_type}"
        flash = " -fa on" if element_type(v_type).quantised else ""
        return f"llama-server … -c {per_slot * num_sequences} -np {num_sequences}{flags}{flash}"


CONVENTIONS: Mapping[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention(
            name="llama.cpp",
            rules=llama_cpp(),
            rounding="each slot in steps of 256 tokens",
            cache_types=("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"),
            offers=("f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"),
            whole_blocks=True,
        ),
        Convention(
            name="vllm",
            rules=vllm(),
            rounding="blocks of 16 tokens",
            cache_types=("f32", "f16", "bf16", "fp8"),
            offers=("f16", "fp8"),
        ),
        Convention(
            name="transformers",
            rules=TRANSFORMERS,
            rounding="nothing rounded; sliding layers keep one token less than their window",
            cache_types=("f32", "f16", "bf16"),
            offers=("f16",),
        ),
        Convention(name="exact", rules=EXACT, rounding="nothing rounded", offers=("f16", "q8_0", "q4_0")),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one cache type makes of a question; None where there is no bound, or no context was given.

    `most_tokens`: the longest context of so many at once; `most_sequences`: so many at once of that context.
    """

    k_type: str
    v_type: str
    token_bytes: int
    cache_bytes: int | None
    fits: bool | None
    most_tokens: int | None
    most_sequences: int | None

    @property
    def cache_type(self) -> str:
        """The type in one word, or "keys/values" where they differ."""
        return self.k_type if self.k_type == self.v_type else f"{self.k_type}/{self.v_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a memory holds: the cache type asked for, then the cheaper ones, dearest first.

    `left_bytes`: what the weights leave; below 0 where they alone do not fit.
    """

    memory: Memory
    left_bytes: int
    choices: tuple[Choice, ...]

    @property
    def asked(self) -> Choice:
        """The choice with the cache type that was asked for."""
        return self.choices[0]


def answer(
    shape: ModelShape,
    memory: Memory,
    *,
    convention: Convention,
    rules: CacheRules,
    context_tokens: int | None,
    num_sequences: int,
    weights_bytes: int | None,
) -> Answer:
    """Whether so many contexts of that length fit, and what would; `rules` are the convention's, with their types."""
    left_bytes = memory.free_bytes - (weights_bytes or 0)
    asked = token_bytes(shape, rules)
    cheaper: dict[int, str] = {}
    for name in convention.offers:
        cost = token_bytes(shape, rules.typed(name))
        if cost < asked and convention.can_store(shape, name):
            cheaper.setdefault(cost, name)
    every = [rules, *(rules.typed(cheaper[cost]) for cost in sorted(cheaper, reverse=True))]
    choices = tuple(_choice(shape, left_bytes, each, context_tokens, num_sequences) for each in every)
    return Answer(memory=memory, left_bytes=left_bytes, choices=choices)


def _choice(
    shape: ModelShape, left_bytes: int, rules: CacheRules, context_tokens: int | None, num_sequences: int
) -> Choice:
    needed = None if context_tokens is None else cache_bytes(shape, context_tokens, rules, num_sequences)
    return Choice(
        k_type=rules.k_type,
        v_type=rules.v_type,
        token_bytes=token_bytes(shape, rules),
        cache_bytes=needed,
        fits=None if needed is None else needed <= left_bytes,
        most_tokens=most_tokens(shape, left_bytes, rules, num_sequences),
        most_sequences=None if context_tokens is None else most_sequences(shape, left_bytes, context_tokens, rules),
    )


def sized(num_bytes: int) -> str:
    """Bytes as people read them: `22.5 KiB`, `11.25 GiB`."""
    place = 0
    while place < len(_UNITS) - 1 and abs(num_bytes) >= 1024 ** (place + 1):
        place += 1
    if not place:
        return f"{num_bytes} B"
    return f"{num_bytes / 1024**place:.2f}".rstrip("0").rstrip(".") + f" {_UNITS[place]}"


def _head_widths(shape: ModelShape) -> set[int]:
    """Widths of the keys and values that a head stores, in any layer."""
    widths: set[int] = set()
    for layer in set(shape.layers):
        attention = layer.attention if isinstance(layer, ParallelHybrid) else layer
        if isinstance(attention, FullAttention | SlidingAttention):
            widths |= {attention.head_dim_k, attention.head_dim_v}
        elif isinstance(attention, LatentAttention):
            widths.add(attention.rank + attention.rope_dim)
    return widths
