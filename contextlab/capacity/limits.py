"""Limits by layer, and which one binds.

A context window is not one number: the tokenizer truncates at one, positions reach to another, the cache and the
engine have their own. `contradictions` says where they disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contextlab.capacity.kv import EXACT, CacheRules, llama_cpp_slots, most_tokens
from contextlab.capacity.shape import GenerationDefaults, ModelShape, PositionKind, TokenizerLimit
from contextlab.model import Layer, Limit, Limits

TOKENIZER = "model_max_length"
ROPE_ORIGINAL = "original positions before RoPE scaling"
ROPE_REACH = "original positions × RoPE factor"
WINDOW = "sliding window"
PER_SLOT = "context per request"
ALL_SLOTS = "context of all slots"
SERVED = "context that the server reports"
POOL = "KV cache that the server reports"
DEFAULT_LENGTH = "max_length by default"
DEFAULT_NEW_TOKENS = "max_new_tokens by default"

_DO_NOT_BIND = frozenset({ROPE_ORIGINAL, ROPE_REACH, WINDOW, ALL_SLOTS, DEFAULT_LENGTH, DEFAULT_NEW_TOKENS})
"""Numbers that explain the others but end no context: a request may go past them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How an engine was asked to run; None where it was not said.

    `context_tokens` is what was asked for: of all slots together in llama.cpp, of one request elsewhere.
    """

    source: str
    engine: str = ""
    context_tokens: int | None = None
    num_slots: int = 1
    unified: bool = False
    k_type: str = "f16"
    v_type: str = "f16"
    flash_attention: bool | None = None
    batch_tokens: int | None = None

    @property
    def is_llama_cpp(self) -> bool:
        """Whether llama.cpp's rules for padding and slots hold."""
        return self.engine in {"llama.cpp", "llama-server", "llama_cpp"}

    @property
    def per_request_tokens(self) -> int | None:
        """The window of one request, after the engine's own rounding."""
        if self.context_tokens is None or not self.is_llama_cpp:
            return self.context_tokens
        return llama_cpp_slots(self.context_tokens, self.num_slots, self.unified)[0]


def limits_of(
    shape: ModelShape | None = None,
    *,
    tokenizer: TokenizerLimit | None = None,
    generation: GenerationDefaults | None = None,
    engine: EngineSettings | None = None,
    served: Limits | None = None,
    served_source: str = "the server",
) -> tuple[Limit, ...]:
    """Every limit that these declare, from the tokenizer to the engine; `tokens` is None where there is no limit."""
    limits: list[Limit] = []
    if tokenizer is not None:
        limits.append(
            Limit(layer=Layer.TOKENIZER, name=TOKENIZER, tokens=tokenizer.max_tokens, source=tokenizer.source)
        )
    if shape is not None:
        limits += _shape_limits(shape)
    if generation is not None:
        limits += _generation_limits(generation)
    if engine is not None:
        limits += _engine_limits(engine)
    if served is not None:
        limits += _served_limits(served, served_source)
    return tuple(limits)


def memory_limit(
    shape: ModelShape,
    budget_bytes: int,
    *,
    source: str,
    rules: CacheRules = EXACT,
    num_sequences: int = 1,
) -> Limit:
    """The context that fits into `budget_bytes` for each of `num_sequences` at once; `source` names the memory."""
    several = "" if num_sequences == 1 else f", {num_sequences} at once"
    return Limit(
        layer=Layer.KV_CACHE,
        name=f"context that fits{several}",
        tokens=most_tokens(shape, budget_bytes, rules, num_sequences),
        source=source,
    )


def binds(limit: Limit) -> bool:
    """Whether a context ends at this limit."""
    return limit.tokens is not None and limit.name not in _DO_NOT_BIND


def binding(limits: Iterable[Limit]) -> Limit | None:
    """The limit that is reached first; of equal ones the first. None where none binds."""
    return min((limit for limit in limits if binds(limit)), key=lambda limit: limit.tokens or 0, default=None)


def reach_tokens(shape: ModelShape) -> int | None:
    """Positions that the model can tell apart: those declared, or more where RoPE scaling says so."""
    reach = shape.rope.reach_tokens if shape.rope else None
    declared = shape.positions.max_tokens
    if declared is None or shape.positions.kind in {PositionKind.ALIBI, PositionKind.NONE}:
        return declared
    return max(declared, reach or 0)


# ── who says what ────────────────────────────────────────────────────────────────────────────────


def _shape_limits(shape: ModelShape) -> list[Limit]:
    positions, rope = shape.positions, shape.rope
    limits = [
        Limit(layer=Layer.POSITIONS, name=positions.name, tokens=positions.max_tokens, source=shape.source),
    ]
    if rope is not None and rope.scaled:
        limits += [
            Limit(layer=Layer.POSITIONS, name=name, tokens=tokens, source=f"{shape.source} (RoPE {rope.kind})")
            for name, tokens in ((ROPE_ORIGINAL, rope.original_tokens), (ROPE_REACH, rope.reach_tokens))
            if tokens is not None
        ]
    limits += [
        Limit(layer=Layer.ATTENTION, name=WINDOW, tokens=window, source=shape.source) for window in shape.windows
    ]
    return limits


def _generation_limits(generation: GenerationDefaults) -> list[Limit]:
    return [
        Limit(layer=Layer.ENGINE, name=name, tokens=tokens, source=generation.source)
        for name, tokens in (
            (DEFAULT_LENGTH, generation.max_length),
            (DEFAULT_NEW_TOKENS, generation.max_new_tokens),
        )
        if tokens is not None
    ]


def _engine_limits(engine: EngineSettings) -> list[Limit]:
    if engine.context_tokens is None:
        return []
    limits = [Limit(layer=Layer.ENGINE, name=PER_SLOT, tokens=engine.per_request_tokens, source=engine.source)]
    if engine.is_llama_cpp:
        total = llama_cpp_slots(engine.context_tokens, engine.num_slots, engine.unified)[1]
        limits.append(Limit(layer=Layer.ENGINE, name=ALL_SLOTS, tokens=total, source=engine.source))
    return limits


def _served_limits(served: Limits, source: str) -> list[Limit]:
    """What the server declares, and its window and pool where those are not among it."""
    limits = list(served.declared)
    for layer, name, tokens in (
        (Layer.ENGINE, SERVED, served.context_tokens),
        (Layer.KV_CACHE, POOL, served.pool_tokens),
    ):
        listed = any(limit.layer is layer and limit.tokens == tokens for limit in served.declared)
        if tokens is not None and not listed:
            limits.append(Limit(layer=layer, name=name, tokens=tokens, source=source))
    return limits
