"""Where limits disagree: each rule is one function that yields what it found, with the remedy by name.

Pure rules over what files and engines declare; whether the disagreement does harm is for a scenario to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from contextlab.capacity.elements import element_type
from contextlab.capacity.kv import llama_cpp_slots
from contextlab.capacity.limits import EngineSettings, reach_tokens
from contextlab.capacity.shape import GenerationDefaults, ModelShape, PositionKind, TokenizerLimit
from contextlab.model import Layer, Limits

_TEMPLATE_SHARE = 10
"""A template that takes more than one part in this many is worth a word."""
_PAST_POSITIONS = {
    PositionKind.LEARNED: "there is no row for later positions: the request ends in an error or a crash",
    PositionKind.ROTARY: "later positions were never trained: no error, only worse answers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two limits that cannot both hold. `name` is stable; `evidence` has the numbers of the message."""

    name: str
    layer: Layer
    message: str
    remedy: str
    evidence: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Everything that was declared about one model and its engine; None where it is not known.

    `template_tokens`: what the chat template adds to an empty message.
    """

    shape: ModelShape | None = None
    tokenizer: TokenizerLimit | None = None
    generation: GenerationDefaults | None = None
    engine: EngineSettings | None = None
    served: Limits | None = None
    template_tokens: int | None = None

    @property
    def window_tokens(self) -> int | None:
        """The window of one request: what the server reports, or else what the engine makes of its settings."""
        if self.served is not None and self.served.context_tokens is not None:
            return self.served.context_tokens
        return self.engine.per_request_tokens if self.engine else None

    @property
    def range_tokens(self) -> int | None:
        """Positions of a model that has a range of them."""
        if self.shape is None or self.shape.positions.kind in {PositionKind.ALIBI, PositionKind.NONE}:
            return None
        return reach_tokens(self.shape)


def contradictions(
    shape: ModelShape | None = None,
    *,
    tokenizer: TokenizerLimit | None = None,
    generation: GenerationDefaults | None = None,
    engine: EngineSettings | None = None,
    served: Limits | None = None,
    template_tokens: int | None = None,
) -> tuple[Contradiction, ...]:
    """Every disagreement among what these declare, in the order of the layers."""
    declared = Declared(
        shape=shape,
        tokenizer=tokenizer,
        generation=generation,
        engine=engine,
        served=served,
        template_tokens=template_tokens,
    )
    rules = (
        _tokenizer_rules,
        _rope_rules,
        _generation_rules,
        _window_past_positions,
        _cache_rules,
        _slot_rules,
        _served_rules,
        _template_rules,
    )
    return tuple(found for rule in rules for found in rule(declared))


# ── rules ────────────────────────────────────────────────────────────────────────────────────────


def _tokenizer_rules(declared: Declared) -> Iterator[Contradiction]:
    tokenizer, positions = declared.tokenizer, declared.range_tokens
    if tokenizer is None or positions is None:
        return
    if tokenizer.unlimited:
        yield Contradiction(
            name="tokenizer-unlimited",
            layer=Layer.TOKENIZER,
            message=f"the tokenizer has no limit, the model has {positions} positions: truncation=True cuts nothing",
            remedy=f"Set model_max_length to {positions} in {tokenizer.source}, or pass max_length={positions}.",
            evidence={"positions": positions},
        )
    elif tokenizer.max_tokens is not None and tokenizer.max_tokens != positions:
        longer = tokenizer.max_tokens > positions
        effect = (
            "a text that was truncated still does not fit"
            if longer
            else "truncation=True drops text that the model could read"
        )
        yield Contradiction(
            name="tokenizer-longer" if longer else "tokenizer-shorter",
            layer=Layer.TOKENIZER,
            message=f"the tokenizer truncates at {tokenizer.max_tokens}, the model has {positions} positions: {effect}",
            remedy=f"Set model_max_length to {positions} in {tokenizer.source}, or pass max_length={positions}.",
            evidence={"model_max_length": tokenizer.max_tokens, "positions": positions},
        )


def _rope_rules(declared: Declared) -> Iterator[Contradiction]:
    shape = declared.shape
    if shape is None or shape.rope is None or not shape.rope.scaled:
        return
    rope, maximum, name = shape.rope, shape.positions.max_tokens, shape.positions.name
    if shape.positions.kind is not PositionKind.ROTARY:
        yield Contradiction(
            name="rope-scaling-ignored",
            layer=Layer.POSITIONS,
            message=f"RoPE scaling ({rope.kind}) is set, but {shape.architecture} has no rotary positions "
            f"({shape.positions.kind}): it does nothing",
            remedy=f"Remove the RoPE scaling from {shape.source}, and keep to its own {name}.",
            evidence={"rope": rope.kind, "positions": str(shape.positions.kind)},
        )
        return
    reach = rope.reach_tokens
    if reach is None or maximum is None or rope.original_tokens is None or abs(reach - maximum) <= 1:
        return
    yield Contradiction(
        name="rope-length",
        layer=Layer.POSITIONS,
        message=f"RoPE scaling ({rope.kind}) makes {rope.original_tokens} × {rope.factor:g} = {reach} positions, "
        f"but {name} is {maximum}: engines follow the one or the other",
        remedy=f"Set {name} to {reach}, or the factor to {maximum / rope.original_tokens:g}, in {shape.source}.",
        evidence={"original": rope.original_tokens, "factor": rope.factor or 0.0, "reach": reach, name: maximum},
    )


def _generation_rules(declared: Declared) -> Iterator[Contradiction]:
    generation, positions = declared.generation, declared.range_tokens
    if generation is None or positions is None:
        return
    for name, tokens in (("max_length", generation.max_length), ("max_new_tokens", generation.max_new_tokens)):
        if tokens is not None and tokens > positions:
            yield Contradiction(
                name="generation-longer",
                layer=Layer.ENGINE,
                message=f"{name} is {tokens} by default, the model has {positions} positions: "
                "a reply may run past them",
                remedy=f"Set {name} to less than {positions} in {generation.source}, or in each request.",
                evidence={name: tokens, "positions": positions},
            )


def _window_past_positions(declared: Declared) -> Iterator[Contradiction]:
    window, positions, shape = declared.window_tokens, declared.range_tokens, declared.shape
    if shape is None or window is None or positions is None or window <= positions:
        return
    scaled = shape.rope is not None and shape.rope.scaled
    why = "even with its RoPE scaling" if scaled else "and no RoPE scaling"
    yield Contradiction(
        name="window-past-positions",
        layer=Layer.POSITIONS,
        message=f"the engine serves {window} tokens, the model has {positions} positions {why}: "
        f"{_PAST_POSITIONS[shape.positions.kind]}",
        remedy=f"Serve at most {positions} tokens, or set RoPE scaling with a factor of at least "
        f"{window / positions:.3g}."
        if shape.positions.kind is PositionKind.ROTARY
        else f"Serve at most {positions} tokens.",
        evidence={"window": window, "positions": positions},
    )


def _cache_rules(declared: Declared) -> Iterator[Contradiction]:
    engine, served = declared.engine, declared.served
    if engine is not None and engine.flash_attention is False and element_type(engine.v_type).quantised:
        yield Contradiction(
            name="quantised-values-without-flash-attention",
            layer=Layer.KV_CACHE,
            message=f"the cache's values are {engine.v_type} and flash attention is off: llama.cpp refuses to start",
            remedy="Turn flash attention on, or keep the values in f16 and quantise the keys alone.",
            evidence={"v_type": engine.v_type},
        )
    if served is None or served.pool_tokens is None or served.context_tokens is None:
        return
    if served.pool_tokens < served.context_tokens:
        yield Contradiction(
            name="pool-smaller-than-window",
            layer=Layer.KV_CACHE,
            message=f"a request may have {served.context_tokens} tokens, the KV cache holds {served.pool_tokens}: "
            "a request between the two waits for ever, or ends those of others",
            remedy=f"Give the cache more memory, or lower the window to {served.pool_tokens}.",
            evidence={"window": served.context_tokens, "pool": served.pool_tokens},
        )


def _slot_rules(declared: Declared) -> Iterator[Contradiction]:
    engine = declared.engine
    if engine is None or engine.context_tokens is None or not engine.is_llama_cpp:
        return
    asked, slots = engine.context_tokens, engine.num_slots
    per_slot, total = llama_cpp_slots(asked, slots, engine.unified)
    numbers = {"asked": asked, "slots": slots, "per_slot": per_slot, "total": total}
    if engine.unified and slots > 1:
        yield Contradiction(
            name="pool-overcommitted",
            layer=Layer.KV_CACHE,
            message=f"{slots} slots are promised {per_slot} tokens each from one pool of {total}: "
            "when they fill it together, all their requests end with an error",
            remedy=f"Turn the unified cache off, or give it {per_slot * slots} tokens.",
            evidence=numbers,
        )
    elif total != asked:
        even = per_slot * slots
        yield Contradiction(
            name="context-not-divisible" if slots > 1 else "context-rounded",
            layer=Layer.ENGINE,
            message=f"a context of {asked} for {slots} slot{'s' * (slots > 1)} becomes {per_slot} tokens a slot, "
            f"{total} in all: llama.cpp allocates each slot in steps of 256",
            remedy=f"Ask for a multiple of {256 * slots}, such as {even}.",
            evidence=numbers,
        )
    if engine.batch_tokens is not None and engine.batch_tokens < slots:
        yield Contradiction(
            name="batch-below-slots",
            layer=Layer.ENGINE,
            message=f"a batch of {engine.batch_tokens} tokens cannot hold one for each of {slots} slots: "
            "llama.cpp aborts at start",
            remedy=f"Set the batch to at least {slots}.",
            evidence={"batch": engine.batch_tokens, "slots": slots},
        )


def _served_rules(declared: Declared) -> Iterator[Contradiction]:
    engine, served = declared.engine, declared.served
    expected = engine.per_request_tokens if engine else None
    reported = served.context_tokens if served else None
    if engine is None or expected is None or reported is None or expected == reported:
        return
    yield Contradiction(
        name="served-differs",
        layer=Layer.ENGINE,
        message=f"the settings give a request {expected} tokens, the server reports {reported}",
        remedy=f"Believe the server, and set the context in {engine.source} to what it reports.",
        evidence={"expected": expected, "reported": reported},
    )


def _template_rules(declared: Declared) -> Iterator[Contradiction]:
    template, window = declared.template_tokens, declared.window_tokens or declared.range_tokens
    if template is None or window is None or template * _TEMPLATE_SHARE < window:
        return
    left = max(0, window - template)
    yield Contradiction(
        name="template-overhead",
        layer=Layer.ENGINE,
        message=f"the chat template takes {template} of {window} tokens before the first word: {left} are left",
        remedy="Enlarge the context, or use a shorter template or the completions endpoint.",
        evidence={"template": template, "window": window, "left": left},
    )
