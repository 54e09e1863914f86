"""Limits by layer, the one that binds, and the contradictions between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextlab.capacity.config_shape import from_config
from contextlab.capacity.contradictions import Contradiction, contradictions
from contextlab.capacity.kv import llama_cpp
from contextlab.capacity.limits import (
    EngineSettings,
    binding,
    binds,
    limits_of,
    memory_limit,
    reach_tokens,
)
from contextlab.capacity.shape import GenerationDefaults, ModelShape, TokenizerLimit
from contextlab.model import Layer, Limit, Limits

from .samples import CONFIGS, llama_like, shape_of

UNLIMITED = TokenizerLimit(source="tokenizer_config.json", unlimited=True)


def model(**more: Any) -> ModelShape:
    """A small Llama with 2048 positions."""
    return from_config({**llama_like("llama", 2, 8, 2, 64, max_position_embeddings=2048), **more}, "config.json")


def yarn(original: int, factor: float) -> dict[str, Any]:
    return {"type": "yarn", "original_max_position_embeddings": original, "factor": factor}


def tokenizer(tokens: int) -> TokenizerLimit:
    return TokenizerLimit(source="tokenizer_config.json", max_tokens=tokens)


def llama_server(context: int, slots: int = 1, **more: Any) -> EngineSettings:
    return EngineSettings(source="--set", engine="llama.cpp", context_tokens=context, num_slots=slots, **more)


def other_engine(context: int) -> EngineSettings:
    return EngineSettings(source="vllm serve", engine="vllm", context_tokens=context)


def table(limits: tuple[Limit, ...]) -> list[tuple[Layer, str, int | None]]:
    return [(limit.layer, limit.name, limit.tokens) for limit in limits]


# ── limits ───────────────────────────────────────────────────────────────────────────────────────


def test_limits_by_layer() -> None:
    shape = model(sliding_window=512, rope_scaling=yarn(1024, 2.0))
    limits = limits_of(
        shape,
        tokenizer=UNLIMITED,
        generation=GenerationDefaults(source="generation_config.json", max_length=20, max_new_tokens=10),
        engine=llama_server(600, 3),
        served=Limits(context_tokens=256, pool_tokens=768),
    )
    assert table(limits) == [
        (Layer.TOKENIZER, "model_max_length", None),
        (Layer.POSITIONS, "max_position_embeddings", 2048),
        (Layer.POSITIONS, "original positions before RoPE scaling", 1024),
        (Layer.POSITIONS, "original positions × RoPE factor", 2048),
        (Layer.ATTENTION, "sliding window", 512),
        (Layer.ENGINE, "max_length by default", 20),
        (Layer.ENGINE, "max_new_tokens by default", 10),
        (Layer.ENGINE, "context per request", 256),
        (Layer.ENGINE, "context of all slots", 768),
        (Layer.ENGINE, "context that the server reports", 256),
        (Layer.KV_CACHE, "KV cache that the server reports", 768),
    ]
    assert binding(limits) == limits[7]


def test_a_server_that_reports_another_window_is_listed() -> None:
    limits = limits_of(engine=other_engine(4096), served=Limits(context_tokens=2048))
    assert table(limits) == [
        (Layer.ENGINE, "context per request", 4096),
        (Layer.ENGINE, "context that the server reports", 2048),
    ]


def test_what_a_server_declares_is_not_listed_twice() -> None:
    declared = (Limit(layer=Layer.ENGINE, name="n_ctx", tokens=512, source="/props"),)
    assert limits_of(served=Limits(context_tokens=512, declared=declared)) == declared


def test_binding_is_the_smallest_that_ends_a_context() -> None:
    assert binding(()) is None
    assert binding(limits_of(tokenizer=UNLIMITED)) is None
    limits = limits_of(model(sliding_window=16), tokenizer=tokenizer(4096))
    found = binding(limits)
    assert found is not None
    assert (found.layer, found.tokens) == (Layer.POSITIONS, 2048)
    assert [limit.tokens for limit in limits if not binds(limit)] == [16]


def test_of_equal_limits_the_first_binds() -> None:
    found = binding(limits_of(model(), tokenizer=tokenizer(2048), engine=other_engine(2048)))
    assert found is not None
    assert found.layer is Layer.TOKENIZER


def test_memory_is_a_limit() -> None:
    shape = shape_of("Llama-3.1-8B")
    alone = memory_limit(shape, 1 << 30, source="free memory")
    assert (alone.layer, alone.name, alone.tokens) == (Layer.KV_CACHE, "context that fits", 8192)
    four = memory_limit(shape, 1 << 30, source="free memory", rules=llama_cpp().typed("q8_0"), num_sequences=4)
    assert (four.name, four.tokens) == ("context that fits, 4 at once", 3840)
    assert memory_limit(shape_of("Mistral-7B-v0.1"), 1 << 30, source="free memory").tokens is None


def test_reach() -> None:
    assert reach_tokens(model()) == 2048
    assert reach_tokens(model(rope_scaling=yarn(2048, 4.0))) == 8192
    assert reach_tokens(model(rope_scaling={"type": "llama3", "factor": 8.0})) == 2048
    assert reach_tokens(model(max_position_embeddings=None)) is None


# ── contradictions ───────────────────────────────────────────────────────────────────────────────

POOL = Limits(context_tokens=8192, pool_tokens=4096)
SCALED = {"max_position_embeddings": 8192, "rope_scaling": yarn(2048, 4.0)}

FOUND: dict[str, tuple[dict[str, Any], Layer, str]] = {
    "tokenizer-unlimited": ({"shape": model(), "tokenizer": UNLIMITED}, Layer.TOKENIZER, "has 2048 positions"),
    "tokenizer-longer": ({"shape": model(), "tokenizer": tokenizer(4096)}, Layer.TOKENIZER, "truncates at 4096"),
    "tokenizer-shorter": ({"shape": model(), "tokenizer": tokenizer(512)}, Layer.TOKENIZER, "truncates at 512"),
    "rope-length": ({"shape": model(rope_scaling=yarn(2048, 4.0))}, Layer.POSITIONS, "2048 × 4 = 8192 positions"),
    "rope-scaling-ignored": (
        {"shape": from_config({**CONFIGS["GPT-2"], "rope_scaling": yarn(1024, 2.0)}, "config.json")},
        Layer.POSITIONS,
        "gpt2 has no rotary positions",
    ),
    "generation-longer": (
        {"shape": model(), "generation": GenerationDefaults(source="g.json", max_length=4096)},
        Layer.ENGINE,
        "max_length is 4096 by default",
    ),
    "window-past-positions": (
        {"shape": model(), "engine": other_engine(8192)},
        Layer.POSITIONS,
        "serves 8192 tokens, the model has 2048 positions and no RoPE scaling",
    ),
    "quantised-values-without-flash-attention": (
        {"engine": llama_server(512, v_type="q8_0", flash_attention=False)},
        Layer.KV_CACHE,
        "values are q8_0",
    ),
    "pool-smaller-than-window": ({"served": POOL}, Layer.KV_CACHE, "the KV cache holds 4096"),
    "pool-overcommitted": (
        {"engine": llama_server(2048, 4, unified=True)},
        Layer.KV_CACHE,
        "4 slots are promised 2048 tokens each from one pool of 2048",
    ),
    "context-not-divisible": (
        {"engine": llama_server(600, 3)},
        Layer.ENGINE,
        "a context of 600 for 3 slots becomes 256 tokens a slot, 768 in all",
    ),
    "context-rounded": (
        {"engine": llama_server(500)},
        Layer.ENGINE,
        "a context of 500 for 1 slot becomes 512 tokens",
    ),
    "batch-below-slots": (
        {"engine": llama_server(2048, 8, batch_tokens=4)},
        Layer.ENGINE,
        "a batch of 4 tokens cannot hold one for each of 8 slots",
    ),
    "served-differs": (
        {"engine": other_engine(8192), "served": Limits(context_tokens=4096)},
        Layer.ENGINE,
        "give a request 8192 tokens, the server reports 4096",
    ),
    "template-overhead": (
        {"served": Limits(context_tokens=256), "template_tokens": 30},
        Layer.ENGINE,
        "takes 30 of 256 tokens before the first word: 226 are left",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_each_contradiction_is_found_alone(name: str) -> None:
    declared, layer, message = FOUND[name]
    (found,) = contradictions(**declared)
    assert (found.name, found.layer) == (name, layer)
    assert message in found.message
    assert found.remedy.endswith(".")
    assert found.evidence


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"shape": model()},
        {"shape": model(), "tokenizer": tokenizer(2048), "engine": other_engine(2048)},
        {"shape": model(**SCALED), "tokenizer": tokenizer(8192), "engine": other_engine(8192)},
        {"shape": model(rope_scaling={"type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192})},
        {"shape": model(rope_scaling={"type": "linear", "factor": 8.0})},
        {"shape": from_config({**llama_like("bloom", 2, 8, 8, 64)}, "c"), "tokenizer": UNLIMITED},
        {"shape": model(), "tokenizer": TokenizerLimit(source="t.json")},
        {"engine": llama_server(2048, 4), "served": Limits(context_tokens=512, pool_tokens=2048)},
        {"engine": llama_server(512, v_type="q8_0", flash_attention=True)},
        {"engine": llama_server(512, k_type="q8_0", flash_attention=False)},
        {"served": Limits(context_tokens=8192), "template_tokens": 30},
    ],
)
def test_agreement_is_not_a_finding(declared: dict[str, Any]) -> None:
    assert contradictions(**declared) == ()


def test_the_issues_own_example() -> None:
    """Tokenizer unlimited, positions 2048, engine serves 8192 with no scaling."""
    found = names(contradictions(model(), tokenizer=UNLIMITED, engine=other_engine(8192)))
    assert found == ["tokenizer-unlimited", "window-past-positions"]


def test_past_the_positions_says_what_happens() -> None:
    (rotary,) = contradictions(model(), engine=other_engine(8192))
    assert "no error, only worse answers" in rotary.message
    assert "a factor of at least 4" in rotary.remedy
    (table_found,) = contradictions(shape_of("GPT-2"), engine=other_engine(2048))
    assert "an error or a crash" in table_found.message
    assert table_found.remedy == "Serve at most 1024 tokens."
    scaled = replace(model(**SCALED))
    (past,) = contradictions(scaled, served=Limits(context_tokens=16_384))
    assert "even with its RoPE scaling" in past.message


def test_a_published_scaling_agrees() -> None:
    """DeepSeek-V3: 4096 × 40 = 163840; gpt-oss: 4096 × 32 = 131072."""
    for original, factor, positions in ((4096, 40, 163_840), (4096, 32.0, 131_072)):
        assert contradictions(model(max_position_embeddings=positions, rope_scaling=yarn(original, factor))) == ()


def names(found: tuple[Contradiction, ...]) -> list[str]:
    return [contradiction.name for contradiction in found]
