"""Does it fit, and what would: the arithmetic of a budget, and how one look at a target is put together."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.capacity.config_shape import from_config
from contextlab.capacity.inspection import (
    Inspection,
    Question,
    ServerFacts,
    Subject,
    Surroundings,
    inspected,
)
from contextlab.capacity.kv import cache_bytes
from contextlab.capacity.limits import EngineSettings
from contextlab.capacity.plan import CONVENTIONS, Answer, Memory, answer, sized
from contextlab.capacity.shape import ModelShape, TokenizerLimit
from contextlab.model import Limits, UsageError

from .samples import CONFIGS, llama_like, shape_of

GIB = 1 << 30
HOST = Memory(name="host", free_bytes=8 * GIB, total_bytes=16 * GIB)


def small(**more: Any) -> ModelShape:
    """Two layers of 2 × 64: 1024 bytes a token in f16; 2048 positions."""
    return from_config({**llama_like("llama", 2, 8, 2, 64, max_position_embeddings=2048), **more}, "config.json")


def asked(
    shape: ModelShape,
    budget_bytes: int,
    context: int | None,
    sequences: int = 1,
    engine: str = "exact",
    weights: int | None = None,
    cache_type: str = "f16",
) -> Answer:
    convention = CONVENTIONS[engine]
    return answer(
        shape,
        Memory(name="--budget", free_bytes=budget_bytes),
        convention=convention,
        rules=convention.rules.typed(cache_type),
        context_tokens=context,
        num_sequences=sequences,
        weights_bytes=weights,
    )


def look(subject: Subject, question: Question | None = None, *, gpus: tuple[Memory, ...] = ()) -> Inspection:
    return inspected(subject, Surroundings(host=HOST, gpus=gpus), question or Question())


def file_of(shape: ModelShape, **more: Any) -> Subject:
    return Subject(target="model", kind="Hugging Face model", shape=shape, **more)


def names(found: Inspection) -> list[str]:
    return [finding.name for finding in found.findings]


# ── the arithmetic ───────────────────────────────────────────────────────────────────────────────


def test_the_example_of_the_help() -> None:
    """Llama-3.1-8B, 8 × 32768: 4 GiB a context in f16, so 32 GiB; q8_0 takes 17/32 of it."""
    found = asked(shape_of("Llama-3.1-8B"), 24 * GIB, 32_768, 8, "llama.cpp", weights=5 * GIB)
    assert found.left_bytes == 19 * GIB
    assert [(choice.cache_type, choice.fits) for choice in found.choices] == [
        ("f16", False),
        ("q8_0", True),
        ("q5_1", True),
        ("q5_0", True),
        ("q4_1", True),
        ("q4_0", True),
    ]
    assert (found.asked.cache_bytes, found.asked.most_tokens, found.asked.most_sequences) == (32 * GIB, 19_456, 4)
    assert found.choices[1].cache_bytes == 17 * GIB


@given(
    shape=st.sampled_from(sorted(CONFIGS)).map(shape_of),
    engine=st.sampled_from(sorted(CONVENTIONS)),
    budget=st.integers(0, 200 * GIB),
    context=st.integers(1, 200_000),
    sequences=st.integers(1, 64),
)
def test_answers_are_the_largest_that_fit(
    shape: ModelShape, engine: str, budget: int, context: int, sequences: int
) -> None:
    rules = CONVENTIONS[engine].rules
    choice = asked(shape, budget, context, sequences, engine).asked

    def fits(tokens: int, at_once: int) -> bool:
        return cache_bytes(shape, tokens, rules, at_once) <= budget

    assert choice.fits == fits(context, sequences)
    if choice.most_tokens is not None:
        assert choice.most_tokens == 0 or fits(choice.most_tokens, sequences)
        assert not fits(choice.most_tokens + 1, sequences)
        assert choice.fits == (context <= choice.most_tokens)
    if choice.most_sequences is not None:
        assert choice.most_sequences == 0 or fits(context, choice.most_sequences)
        assert not fits(context, choice.most_sequences + 1)
        assert choice.fits == (sequences <= choice.most_sequences)


@given(engine=st.sampled_from(sorted(CONVENTIONS)), budget=st.integers(0, 20 * GIB), context=st.integers(1, 100_000))
def test_a_cheaper_cache_never_holds_less(engine: str, budget: int, context: int) -> None:
    choices = asked(shape_of("Llama-3.1-8B"), budget, context, engine=engine).choices
    costs = [choice.token_bytes for choice in choices]
    assert costs == sorted(set(costs), reverse=True)
    for dearer, cheaper in pairwise(choices):
        assert (cheaper.most_tokens or 0) >= (dearer.most_tokens or 0)
        assert cheaper.fits or not dearer.fits


@pytest.mark.parametrize(("engine", "step"), [("llama.cpp", 256), ("vllm", 16), ("exact", 1)])
def test_each_engine_rounds_in_its_own_way(engine: str, step: int) -> None:
    """1,000,000 bytes hold 976 tokens of 1024 bytes, if they may end anywhere."""
    found = asked(small(), 1_000_000, 100, engine=engine).asked
    assert found.token_bytes == 1024
    assert found.most_tokens == 976 // step * step
    assert found.cache_bytes == -(-100 // step) * step * 1024


def test_without_a_context_there_is_no_yes_and_no_number_of_requests() -> None:
    found = asked(small(), GIB, None).asked
    assert (found.cache_bytes, found.fits, found.most_sequences) == (None, None, None)
    assert found.most_tokens == 1 << 20


def test_weights_that_fill_the_memory_leave_nothing() -> None:
    found = asked(small(), GIB, 100, weights=2 * GIB)
    assert found.left_bytes == -GIB
    assert (found.asked.fits, found.asked.most_tokens, found.asked.most_sequences) == (False, 0, 0)


def test_a_window_that_slides_has_no_longest_context() -> None:
    assert asked(shape_of("Mistral-7B-v0.1"), 2 * GIB, 100_000).asked.most_tokens is None


# ── engines ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("word", "name"), [("f16", "f16"), ("float16", "f16"), ("BF16", "bf16"), ("torch.half", "f16")]
)
def test_cache_types_by_any_of_their_names(word: str, name: str) -> None:
    assert CONVENTIONS["vllm"].checked(word) == name


@pytest.mark.parametrize(("engine", "word"), [("vllm", "q8_0"), ("llama.cpp", "fp8"), ("exact", "q9"), ("vllm", "")])
def test_a_cache_type_that_the_engine_does_not_have(engine: str, word: str) -> None:
    with pytest.raises(UsageError, match="no cache of that type") as caught:
        CONVENTIONS[engine].checked(word)
    assert repr(word) in caught.value.message
    assert "f16" in caught.value.next_step


def test_llama_cpp_wants_whole_blocks_in_a_head() -> None:
    """Its own check at start: "K cache type q8_0 with block size 32 does not divide n_embd_head_k=80"."""
    phi = small(head_dim=80, hidden_size=640)
    offered = [choice.cache_type for choice in asked(phi, GIB, 100, engine="llama.cpp").choices]
    assert offered == ["f16"]
    found = look(file_of(phi, convention="llama.cpp"), Question(cache_type="q8_0"))
    assert names(found) == ["cache-type-does-not-divide"]
    assert names(look(file_of(small(), convention="llama.cpp"), Question(cache_type="q8_0"))) == []


@pytest.mark.parametrize(
    ("engine", "types", "command"),
    [
        ("llama.cpp", ("f16", "f16"), "llama-server … -c 4096 -np 4"),
        ("llama.cpp", ("q8_0", "q8_0"), "llama-server … -c 4096 -np 4 -ctk q8_0 -ctv q8_0 -fa on"),
        ("vllm", ("fp8", "fp8"), "vllm serve … --max-model-len 1000 --max-num-seqs 4 --kv-cache-dtype fp8"),
        ("exact", ("f16", "f16"), ""),
    ],
)
def test_the_command_that_starts_it_so(engine: str, types: tuple[str, str], command: str) -> None:
    assert CONVENTIONS[engine].command(1000, 4, *types) == command


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (23_040, "22.5 KiB"),
        (-1536, "-1.5 KiB"),
        (11_796_480, "11.25 MiB"),
        (24 * GIB, "24 GiB"),
        (1 << 60, "1048576 TiB"),
    ],
)
def test_sizes_in_words(num_bytes: int, words: str) -> None:
    assert sized(num_bytes) == words


# ── one look, put together ───────────────────────────────────────────────────────────────────────


def table(found: Inspection) -> list[tuple[str, str, int | None, str, bool]]:
    return [(str(row.limit.layer), row.limit.name, row.limit.tokens, row.words, row.binding) for row in found.rows]


def test_every_layer_is_named_also_where_it_says_nothing() -> None:
    assert table(look(file_of(small()))) == [
        ("tokenizer", "model_max_length", None, "", False),
        ("positions", "max_position_embeddings", 2048, "", True),
        ("positions", "RoPE scaling", None, "none", False),
        ("attention memory", "sliding window", None, "none", False),
        ("engine", "context per request", None, "", False),
        ("KV cache", "context that fits", 8 << 20, "", False),
    ]


def test_scaled_positions_and_sliding_windows_in_the_table() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    unlimited = TokenizerLimit(source="tokenizer_config.json", unlimited=True)
    found = look(file_of(small(sliding_window=256, model_type="mistral", rope_scaling=scaling), tokenizer=unlimited))
    assert table(found)[:6] == [
        ("tokenizer", "model_max_length", None, "no limit", False),
        ("positions", "max_position_embeddings", 2048, "", True),
        ("positions", "RoPE scaling", None, "yarn × 4", False),
        ("positions", "original positions before RoPE scaling", 512, "", False),
        ("positions", "original positions × RoPE factor", 2048, "", False),
        ("attention memory", "sliding window", 256, "", False),
    ]
    assert names(found) == ["tokenizer-unlimited"]
    assert (found.exit_code, found.exit_reason) == (1, "tokenizer-unlimited")


def test_a_model_without_a_range_ends_where_memory_does() -> None:
    config = llama_like("bloom", 2, 8, 8, 64)
    del config["max_position_embeddings"]
    found = look(file_of(from_config(config, "config.json")))
    assert table(found)[1] == ("positions", "max_position_embeddings", None, "no limit", False)
    assert found.binding is not None
    assert found.binding.name == "context that fits"


def test_memories_are_alternatives_and_the_roomiest_ends_a_context() -> None:
    gpu = Memory(name="GPU 0", free_bytes=1 << 20, total_bytes=GIB)
    shape = replace(small(), weights_bytes=0)
    roomy = look(file_of(shape), gpus=(gpu,))
    assert roomy.binding is not None
    assert roomy.binding.name == "max_position_embeddings"
    assert [row.limit.tokens for row in roomy.rows if row.of_memory] == [8 << 20, 1024]
    tight = look(file_of(shape), Question(budget=Memory(name="--budget", free_bytes=1 << 20)))
    assert tight.binding is not None
    assert (tight.binding.tokens, tight.binding.source) == (1024, "--budget: 1 MiB")


def test_the_free_memory_ends_no_context_of_a_running_server() -> None:
    server = ServerFacts(url="http://127.0.0.1:1", flavour="vllm")
    served = Limits(context_tokens=2048, pool_tokens=4096)
    full = Surroundings(host=replace(HOST, free_bytes=1024))
    found = inspected(Subject(target="u", kind="server", shape=small(), served=served, server=server), full, Question())
    assert found.binding is not None
    assert found.binding.tokens == 2048
    assert [row.limit.name for row in found.rows if row.of_memory] == ["context that fits beside the running one"]


def test_a_llama_server_does_not_say_how_its_slots_share() -> None:
    server = ServerFacts(url="http://127.0.0.1:1", flavour="llama-server", num_slots=4)
    served = Limits(context_tokens=512, num_slots=4)
    found = look(Subject(target="u", kind="server", served=served, server=server))
    assert ("KV cache", "KV cells of all slots", None, "at least 512", False) in table(found)
    assert found.cache is None


def test_equal_limits_are_all_marked() -> None:
    tokenizer = TokenizerLimit(source="tokenizer_config.json", max_tokens=2048)
    found = look(file_of(small(), tokenizer=tokenizer))
    assert [row.limit.name for row in found.rows if row.binding] == ["model_max_length", "max_position_embeddings"]
    assert found.binding is not None
    assert found.binding.name == "model_max_length"
    assert (found.exit_code, found.exit_reason) == (0, "no contradiction")


@pytest.mark.parametrize(("unified", "cells"), [(False, 2048), (True, 512)])
def test_what_settings_allocate(unified: bool, cells: int) -> None:
    engine = EngineSettings(
        source="--set", engine="llama.cpp", context_tokens=2048 if not unified else 512, num_slots=4, unified=unified
    )
    found = look(file_of(small(), engine=engine, convention="llama.cpp"))
    assert found.cache is not None
    assert found.cache.engine_bytes == cells * 1024
    assert ("engine", "context per request", 512, "", True) in table(found)


def test_the_types_of_the_settings_are_those_of_the_cache() -> None:
    engine = EngineSettings(source="--set", engine="llama.cpp", context_tokens=256, k_type="q8_0", v_type="f16")
    found = look(file_of(small(), engine=engine, convention="llama.cpp"), Question(context_tokens=256))
    assert found.cache is not None
    assert found.cache.token_bytes == 2 * (2 * 64 * 34 // 32 + 2 * 64 * 2)
    assert found.answers is not None
    assert found.answers.answers[0].asked.cache_type == "q8_0/f16"


@pytest.mark.parametrize(("stored", "width"), [("float32", 4), ("bfloat16", 2), ("int4", 2), ("", 2)])
def test_transformers_caches_in_the_type_of_the_weights(stored: str, width: int) -> None:
    found = look(file_of(replace(small(), weights_type=stored)), Question(engine="transformers"))
    assert found.cache is not None
    assert found.cache.token_bytes == 512 * width


# ── questions that have no for an answer ─────────────────────────────────────────────────────────


def budget(num_bytes: int, **more: Any) -> Question:
    return Question(budget=Memory(name="--budget", free_bytes=num_bytes), **more)


def test_what_was_asked_for_and_does_not_fit_is_a_finding_with_every_way_out() -> None:
    subject = file_of(replace(small(), weights_bytes=1 << 20), convention="llama.cpp")
    found = look(subject, budget(4 << 20, context_tokens=1024, num_sequences=4))
    assert names(found) == ["does-not-fit"]
    assert (
        found.findings[0].message == "the cache of 4 × 1024 tokens takes 4 MiB as f16, --budget has 3 MiB left for it"
    )
    assert found.findings[0].remedy == (
        "It would fit like this: store it as q8_0; or at most 768 tokens for each of 4; "
        "or at most 3 at once of 1024 tokens."
    )
    assert found.answers is not None
    assert found.answers.fits is False
    assert found.answers.command == "llama-server … -c 4096 -np 4 -ctk q8_0 -ctv q8_0 -fa on"


def test_a_budget_alone_asks_for_no_yes() -> None:
    subject = file_of(replace(small(), weights_bytes=0))
    assert names(look(subject, budget(1 << 20))) == []
    assert look(subject, budget(1 << 20)).exit_code == 0
    assert names(look(subject, budget(1 << 20, num_sequences=1))) == ["does-not-fit"]


def test_weights_that_do_not_fit() -> None:
    found = look(file_of(replace(small(), weights_bytes=2 * GIB)), budget(GIB))
    assert names(found) == ["weights-do-not-fit"]
    assert found.findings[0].message == "the weights take 2 GiB, --budget has 1 GiB"


def test_a_context_past_the_positions() -> None:
    found = look(file_of(replace(small(), weights_bytes=0)), budget(GIB, context_tokens=4096))
    assert names(found) == ["context-past-positions"]
    assert found.answers is not None
    assert (found.answers.fits, found.answers.command) == (True, "")


def test_it_fits_where_one_memory_holds_it() -> None:
    gpu = Memory(name="GPU 0", free_bytes=1 << 20, total_bytes=GIB)
    found = look(file_of(replace(small(), weights_bytes=0)), Question(context_tokens=2048), gpus=(gpu,))
    assert found.answers is not None
    assert [each.asked.fits for each in found.answers.answers] == [True, False]
    assert found.answers.fits
    assert names(found) == []


def test_what_is_not_known_is_said() -> None:
    assert "the size of the weights is not known" in look(file_of(small())).notes[0]
    assert look(file_of(small()), Question(weights_bytes=0)).notes == ()
    server = Subject(target="u", kind="server", served=Limits(context_tokens=512))
    found = look(server, budget(GIB))
    assert found.answers is None
    assert found.notes == ("what would fit cannot be told: the shape of the model is not known",)
    away = inspected(file_of(small(), here=False), Surroundings(host=HOST), Question())
    assert [row for row in away.rows if row.of_memory] == []
