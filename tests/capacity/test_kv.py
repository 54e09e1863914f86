"""KV cache arithmetic: published values to the byte, and the algebra that every model obeys."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.capacity.elements import element_type
from contextlab.capacity.kv import (
    EXACT,
    EXLLAMA,
    TRANSFORMERS,
    CacheRules,
    cache_bytes,
    fixed_bytes,
    growing_bytes,
    llama_cpp,
    llama_cpp_slots,
    most_sequences,
    most_tokens,
    prefill_bytes,
    sequence_bytes,
    token_bytes,
    vllm,
    weights_bytes,
)
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
    SharedKv,
    SlidingAttention,
)
from contextlab.model import UsageError

from .samples import CONFIGS, shape_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LENGTHS = (4096, 32_768, 131_072)

# Bytes a token, of those growing past every window, fixed bytes, and the cache at 4096, 32768 and 131072 tokens, f16.
# Sources: vLLM's log for gpt-oss-120b (73,728 B a token), llama.cpp's for Qwen3.6-35B (10 layers, 20,480 B a token),
# unslothai/unsloth#4757 for Gemma 3 27B (10.41 GB at 131072) and DeepSeek-V3.1, the models' config.json for the rest.
PUBLISHED: dict[str, tuple[int, int, int, tuple[int, int, int]]] = {
    "GPT-2": (36_864, 36_864, 0, (144 * MIB, 1152 * MIB, 4608 * MIB)),
    "Llama-2-7B": (524_288, 524_288, 0, (2 * GIB, 16 * GIB, 64 * GIB)),
    "Llama-3.1-70B": (327_680, 327_680, 0, (1280 * MIB, 10 * GIB, 40 * GIB)),
    "Llama-3.1-8B": (131_072, 131_072, 0, (512 * MIB, 4 * GIB, 16 * GIB)),
    "Mixtral-8x7B": (131_072, 131_072, 0, (512 * MIB, 4 * GIB, 16 * GIB)),
    "Mistral-7B-v0.1": (131_072, 0, 0, (512 * MIB, 512 * MIB, 512 * MIB)),
    "Falcon-7B": (8192, 8192, 0, (32 * MIB, 256 * MIB, GIB)),
    "Phi-3-mini": (393_216, 393_216, 0, (1536 * MIB, 12 * GIB, 48 * GIB)),
    "Qwen2.5-0.5B": (12_288, 12_288, 0, (48 * MIB, 384 * MIB, 1536 * MIB)),
    "Qwen2.5-7B": (57_344, 57_344, 0, (224 * MIB, 1792 * MIB, 7 * GIB)),
    "Qwen3-0.6B": (114_688, 114_688, 0, (448 * MIB, 3584 * MIB, 14 * GIB)),
    "Qwen3-8B": (147_456, 147_456, 0, (576 * MIB, 4608 * MIB, 18 * GIB)),
    "Gemma-2-9B": (344_064, 172_032, 0, (1344 * MIB, 6048 * MIB, 22_176 * MIB)),
    "Gemma-3-27B": (507_904, 81_920, 0, (736 * MIB, 2976 * MIB, 10_656 * MIB)),
    "gpt-oss-120b": (73_728, 36_864, 0, (297 * MIB // 2, 2313 * MIB // 2, 9225 * MIB // 2)),
    "DeepSeek-V3": (70_272, 70_272, 0, (549 * MIB // 2, 2196 * MIB, 8784 * MIB)),
    "DeepSeek-V2-Lite": (31_104, 31_104, 0, (243 * MIB // 2, 972 * MIB, 3888 * MIB)),
    "Qwen3-Next-80B": (24_576, 24_576, 77_266_944, (177_930_240, 882_573_312, 3_298_492_416)),
    "Qwen3.5-35B-A3B": (20_480, 20_480, 64_389_120, (148_275_200, 735_477_760, 2_748_743_680)),
    "Jamba-v0.1": (16_384, 16_384, 16_056_320, (83_165_184, 552_927_232, 2_163_539_968)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_values(name: str) -> None:
    shape, (per_token, growing, fixed, at_lengths) = shape_of(name), PUBLISHED[name]
    assert token_bytes(shape) == per_token
    assert growing_bytes(shape) == growing
    assert fixed_bytes(shape) == fixed
    assert tuple(sequence_bytes(shape, length) for length in LENGTHS) == at_lengths


def test_every_known_model_is_published() -> None:
    assert set(PUBLISHED) == set(CONFIGS)


def test_latent_expanded_is_what_old_engines_keep() -> None:
    expanded = CacheRules(expand_latent=True)
    assert token_bytes(shape_of("DeepSeek-V3"), expanded) == 4_997_120
    assert sequence_bytes(shape_of("DeepSeek-V3"), 163_840) == 61 * 576 * 2 * 163_840  # 10.72 GB


def test_llama_cpp_log_of_qwen35() -> None:
    """262144 cells: 5120 MiB; recurrent states 62.81 MiB, f32 in both parts (ml-explore/mlx-lm#1480)."""
    shape, rules = shape_of("Qwen3.5-35B-A3B"), llama_cpp()
    assert sequence_bytes(shape, 262_144, rules) - fixed_bytes(shape, rules) == 5120 * MIB
    assert round(fixed_bytes(shape, rules) / MIB, 2) == 62.81


def test_smollm2_matches_llama_cpp() -> None:
    """22.5 KiB a token; 131072 cells allocate 2880 MiB (llama.cpp's own log)."""
    layer = FullAttention(kv_heads=3, head_dim_k=64, head_dim_v=64)
    assert token_bytes(made(*[layer] * 30)) == 23_040
    assert sequence_bytes(made(*[layer] * 30), 131_072, llama_cpp()) == 2880 * MIB


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("f32", 2.0),
        ("bf16", 1.0),
        ("fp8", 0.5),
        ("q8_0", 0.53125),
        ("q5_1", 0.375),
        ("q5_0", 0.34375),
        ("q4_1", 0.3125),
        ("q4_0", 0.28125),
    ],
)
def test_cache_types_relative_to_f16(name: str, ratio: float) -> None:
    shape = shape_of("Llama-3.1-8B")
    assert sequence_bytes(shape, 4096, EXACT.typed(name)) == ratio * sequence_bytes(shape, 4096)
    keys_only = sequence_bytes(shape, 4096, EXACT.typed(name, "f16"))
    assert keys_only == (1 + ratio) / 2 * sequence_bytes(shape, 4096)


def test_quantised_rows_are_whole_blocks() -> None:
    shape = made(FullAttention(kv_heads=1, head_dim_k=40, head_dim_v=40))
    assert token_bytes(shape, EXACT.typed("q8_0")) == 2 * 2 * 34


def test_names_of_types() -> None:
    assert element_type("torch.bfloat16") == element_type("BF16")
    assert element_type("fp8_e4m3").num_bytes(3) == 3
    with pytest.raises(UsageError, match="type='q3_9'"):
        element_type("q3_9")


# ── engines ──────────────────────────────────────────────────────────────────────────────────────


def test_transformers_keeps_one_token_less_than_the_window() -> None:
    shape = shape_of("Mistral-7B-v0.1")
    assert sequence_bytes(shape, 100_000, TRANSFORMERS) == 4095 * 131_072
    assert sequence_bytes(shape, 100, TRANSFORMERS) == 100 * 131_072


@pytest.mark.parametrize(("asked", "held"), [(1, 256), (256, 256), (257, 512), (8192, 8192)])
def test_exllama_pages(asked: int, held: int) -> None:
    shape = shape_of("Qwen3-8B")
    assert sequence_bytes(shape, asked, EXLLAMA) == held * token_bytes(shape)


def test_vllm_plans_the_window_a_batch_and_one_block() -> None:
    full, sliding = full_layer(), sliding_layer(128)
    rules = vllm(max_batched_tokens=8192)
    row = token_bytes(made(full))
    assert sequence_bytes(made(full), 1000, rules) == 1008 * row
    assert sequence_bytes(made(sliding), 131_072, rules) == (math.ceil((127 + 8192) / 16) + 1) * 16 * row
    assert sequence_bytes(made(sliding), 1000, rules) == (1008 + 16) * row
    assert sequence_bytes(made(sliding), 0, rules) == 0


def test_llama_cpp_sliding_layers() -> None:
    """size_swa = pad(min(cells, W·s + ubatch), 256), s = 1 in split pools."""
    shape = made(sliding_layer(1024))
    row = token_bytes(shape)
    assert cache_bytes(shape, 32_768, llama_cpp(), 4) == 4 * 1536 * row
    assert cache_bytes(shape, 32_768, llama_cpp(unified=True), 4) == 4608 * row
    assert cache_bytes(shape, 32_768, llama_cpp(swa_full=True), 4) == 4 * 32_768 * row
    assert cache_bytes(shape, 300, llama_cpp(), 1) == 512 * row


@pytest.mark.parametrize(
    ("asked", "slots", "unified", "expected"),
    [
        (500, 1, False, (512, 512)),
        (100, 1, False, (256, 256)),
        (512, 4, False, (256, 1024)),
        (600, 3, False, (256, 768)),
        (2048, 4, False, (512, 2048)),
        (2048, 4, True, (2048, 2048)),
        (8193, 1, False, (8448, 8448)),
    ],
)
def test_llama_cpp_slots(asked: int, slots: int, unified: bool, expected: tuple[int, int]) -> None:
    """As measured with xllamacpp 2026.10 on a real server."""
    assert llama_cpp_slots(asked, slots, unified) == expected


def test_shared_and_empty_layers_keep_nothing() -> None:
    assert token_bytes(made(SharedKv(), NoCache(), RecurrentState(conv_elements=1, state_elements=1))) == 0


def test_parallel_hybrid_keeps_both() -> None:
    state = RecurrentState(conv_elements=10, state_elements=10)
    shape = made(ParallelHybrid(attention=sliding_layer(8), state=state))
    assert fixed_bytes(shape) == 10 * 2 + 10 * 4
    assert sequence_bytes(shape, 100) == fixed_bytes(shape) + 8 * token_bytes(shape)


def test_indexer_keys_are_counted() -> None:
    shape = made(LatentAttention(rank=512, rope_dim=64, num_heads=128, head_dim_k=192, head_dim_v=128, index_dim=128))
    assert token_bytes(shape) == (512 + 64 + 128) * 2


# ── weights and activations ──────────────────────────────────────────────────────────────────────


def test_weights() -> None:
    assert weights_bytes(8_030_261_248, "bf16") == 16_060_522_496
    assert weights_bytes(256, "q4_k") == 144


@pytest.mark.parametrize(
    ("element", "tokens", "seen_mib"),
    [("f32", 2048, 84), ("f32", 4096, 329), ("f32", 8192, 1299), ("f32", 16_384, 5149), ("bf16", 8192, 1419)],
)
def test_eager_prefill_is_within_a_tenth_of_what_was_measured(element: str, tokens: int, seen_mib: int) -> None:
    """Square part only, two heads; measured with torch 2.13 and transformers 5.24 on CPU."""
    shape = replace(made(full_layer()), hidden=256, ffn=512, num_heads=2)
    eager, sdpa = (prefill_bytes(shape, tokens, attention, element) for attention in ("eager", "sdpa"))
    assert eager is not None
    assert sdpa is not None
    assert (eager - sdpa) / MIB == pytest.approx(seen_mib, rel=0.1)


def test_sdpa_prefill_is_linear() -> None:
    shape = replace(made(full_layer()), hidden=256, ffn=512, num_heads=2)
    assert prefill_bytes(shape, 2048) == 2 * (prefill_bytes(shape, 1024) or 0)
    assert prefill_bytes(made(full_layer()), 2048) is None
    with pytest.raises(UsageError, match="attention='flash'"):
        prefill_bytes(shape, 1, "flash")


# ── algebra ──────────────────────────────────────────────────────────────────────────────────────


def made(*layers: LayerCache) -> ModelShape:
    """A model of these layers and nothing else."""
    positions = Positions(kind=PositionKind.ROTARY, max_tokens=None)
    return ModelShape(source="made", architecture="made", layers=layers, positions=positions)


def full_layer() -> FullAttention:
    return FullAttention(kv_heads=2, head_dim_k=64, head_dim_v=64)


def sliding_layer(window_tokens: int) -> SlidingAttention:
    return SlidingAttention(kv_heads=2, head_dim_k=64, head_dim_v=64, window_tokens=window_tokens)


heads = st.integers(1, 64)
widths = st.integers(1, 512)
full = st.builds(FullAttention, kv_heads=heads, head_dim_k=widths, head_dim_v=widths)
sliding = st.builds(
    SlidingAttention, kv_heads=heads, head_dim_k=widths, head_dim_v=widths, window_tokens=st.integers(1, 10_000)
)
latent = st.builds(LatentAttention, rank=widths, rope_dim=widths, num_heads=heads, head_dim_k=widths, head_dim_v=widths)
recurrent = st.builds(RecurrentState, conv_elements=st.integers(0, 10**6), state_elements=st.integers(0, 10**6))
hybrid = st.builds(ParallelHybrid, attention=full | sliding, state=recurrent)
any_layer = full | sliding | latent | recurrent | hybrid | st.builds(SharedKv) | st.builds(NoCache)
shapes = st.lists(any_layer, min_size=1, max_size=6).map(lambda layers: made(*layers))
type_names = st.sampled_from(["f32", "f16", "bf16", "fp8", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
rules_of_engines = st.sampled_from(
    [EXACT, TRANSFORMERS, EXLLAMA, vllm(), llama_cpp(), llama_cpp(unified=True), llama_cpp(swa_full=True)]
)
any_rules = st.builds(CacheRules.typed, rules_of_engines, type_names, type_names)
tokens = st.integers(0, 10**6)


@given(shapes, any_rules, tokens, tokens, st.integers(0, 8))
def test_more_tokens_never_take_less(
    shape: ModelShape, rules: CacheRules, one: int, other: int, sequences: int
) -> None:
    few, many = sorted((one, other))
    assert cache_bytes(shape, few, rules, sequences) <= cache_bytes(shape, many, rules, sequences)
    assert cache_bytes(shape, few, rules, sequences) <= cache_bytes(shape, few, rules, sequences + 1)


@given(st.lists(full | latent, min_size=1, max_size=6), any_rules, tokens, tokens)
def test_full_attention_is_linear(layers: list[LayerCache], rules: CacheRules, one: int, other: int) -> None:
    shape, exact = made(*layers), replace(rules, block_tokens=1)
    both = sequence_bytes(shape, one + other, exact)
    assert both == sequence_bytes(shape, one, exact) + sequence_bytes(shape, other, exact)
    assert both == (one + other) * token_bytes(shape, exact)


@given(shapes, any_rules, tokens)
def test_past_its_windows_a_token_costs_the_growing_part(shape: ModelShape, rules: CacheRules, more: int) -> None:
    exact = replace(rules, block_tokens=1, window_extra_blocks=0)
    start = 100_000 + more
    added = sequence_bytes(shape, start + 1, exact) - sequence_bytes(shape, start, exact)
    assert added == growing_bytes(shape, exact)
    assert sequence_bytes(shape, 1, exact) - fixed_bytes(shape, exact) <= token_bytes(shape, exact)


@given(shapes, st.sampled_from([EXLLAMA, vllm(), llama_cpp(), llama_cpp(unified=True)]), tokens, st.integers(0, 8))
def test_rounding_never_loses(shape: ModelShape, rules: CacheRules, length: int, sequences: int) -> None:
    exact = CacheRules(conv_type=rules.conv_type)
    assert cache_bytes(shape, length, rules, sequences) >= cache_bytes(shape, length, exact, sequences)


@given(shapes, any_rules, st.integers(0, 1 << 40), st.integers(1, 8))
def test_most_tokens_is_the_last_that_fits(shape: ModelShape, rules: CacheRules, budget: int, sequences: int) -> None:
    most = most_tokens(shape, budget, rules, sequences)
    if most is None:
        assert cache_bytes(shape, 1 << 48, rules, sequences) <= budget
        return
    assert cache_bytes(shape, most + 1, rules, sequences) > budget
    if most:
        assert cache_bytes(shape, most, rules, sequences) <= budget


@given(shapes, any_rules, st.integers(0, 1 << 40), tokens)
def test_most_sequences_is_the_last_that_fits(shape: ModelShape, rules: CacheRules, budget: int, length: int) -> None:
    most = most_sequences(shape, budget, length, rules)
    if most is None:
        assert cache_bytes(shape, length, rules, 1 << 48) <= budget
        return
    assert cache_bytes(shape, length, rules, most) <= budget < cache_bytes(shape, length, rules, most + 1)


@given(st.lists(st.integers(1, 16).map(lambda blocks: 32 * blocks), min_size=1, max_size=4), tokens, type_names)
def test_types_scale_by_their_ratio(dims: list[int], length: int, name: str) -> None:
    shape = made(*(FullAttention(kv_heads=3, head_dim_k=dim, head_dim_v=dim) for dim in dims))
    kind = element_type(name)
    in_f16 = sequence_bytes(shape, length)
    assert sequence_bytes(shape, length, EXACT.typed(name)) * 2 * kind.block_elements == in_f16 * kind.block_bytes


def test_the_published_inverse() -> None:
    """gpt-oss-120b in 5.38 GiB: vLLM logged 78,384 tokens, counting every layer as full; the windows allow more."""
    shape = shape_of("gpt-oss-120b")
    every_layer = CacheRules(full_windows=True, block_tokens=16)
    most = most_tokens(shape, round(5.38 * GIB), every_layer)
    assert most is not None
    assert most == pytest.approx(78_384, rel=0.001)
    assert (most_tokens(shape, round(5.38 * GIB)) or 0) > 2 * most * 0.99
    assert most_tokens(shape_of("Mistral-7B-v0.1"), GIB) is None
    assert most_tokens(shape_of("Mistral-7B-v0.1"), -1) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_tokens": 0}, "block_tokens=0"),
        ({"window_extra_blocks": -1}, "window_extra_blocks=-1"),
        ({"k_type": "q9"}, "type='q9'"),
    ],
)
def test_impossible_rules_are_refused(options: dict[str, int | str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CacheRules(**options)  # type: ignore[arg-type]


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="num_tokens=-1"):
        cache_bytes(shape_of("GPT-2"), -1)
    with pytest.raises(UsageError, match="num_slots=0"):
        llama_cpp_slots(512, 0)
