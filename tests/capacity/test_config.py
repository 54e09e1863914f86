"""Hugging Face configs: what they say about each layer, and how what cannot be meant is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextlab.capacity.config import read_config, read_json, tokenizer_limit
from contextlab.capacity.config_shape import from_config
from contextlab.capacity.kv import fixed_bytes, token_bytes
from contextlab.capacity.shape import (
    FullAttention,
    LatentAttention,
    LayerCache,
    ModelShape,
    NoCache,
    ParallelHybrid,
    PositionKind,
    RecurrentState,
    SharedKv,
    SlidingAttention,
)
from contextlab.model import UnableError

from .samples import CONFIGS, DEEPSEEK_V3, DELTA, Config, llama_like, shape_of, without

SMALL = llama_like("llama", 6, 8, 2, 64)
UNPLACED = without(SMALL, "max_position_embeddings")


def shape(**more: Any) -> ModelShape:
    return from_config({**SMALL, **more}, "config.json")


def letters(layers: tuple[LayerCache, ...]) -> str:
    """One letter a layer: Full, Sliding, Latent, Recurrent, Parallel, sHared, Nothing."""
    names = {
        FullAttention: "F",
        SlidingAttention: "S",
        LatentAttention: "L",
        RecurrentState: "R",
        ParallelHybrid: "P",
        SharedKv: "H",
        NoCache: "N",
    }
    return "".join(names[type(layer)] for layer in layers)


# ── layers ───────────────────────────────────────────────────────────────────────────────────────

MAMBA = {"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}
KIMI = {"num_heads": 8, "head_dim": 64, "short_conv_kernel_size": 4, "full_attn_layers": [4], "kda_layers": [1, 2, 3]}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "FFFFFF"),
        ({"model_type": "mistral", "sliding_window": 64}, "SSSSSS"),
        ({"model_type": "mistral", "sliding_window": None}, "FFFFFF"),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}, "FFFFFF"),
        ({"model_type": "qwen2", "sliding_window": 64}, "FFFFFF"),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 4}, "FFFFSS"),
        ({"model_type": "gemma2", "sliding_window": 64}, "SFSFSF"),
        ({"model_type": "gemma3_text", "sliding_window": 64}, "SSSSSF"),
        ({"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 3}, "SSFSSF"),
        ({"model_type": "exaone4", "sliding_window": 64, "sliding_window_pattern": "LLG"}, "SSFSSF"),
        ({"layer_types": ["full_attention"] * 3 + ["sliding_attention"] * 3, "sliding_window": 64}, "FFFSSS"),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, "SSSFSS"),
        ({"model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layers": [1, 0, 1, 1, 1, 0]}, "SFSSSF"),
        ({"model_type": "qwen3_next", **DELTA}, "RRRFRR"),
        ({"model_type": "qwen3_next", "full_attention_interval": 2, **DELTA}, "RFRFRF"),
        ({"model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 1, **MAMBA}, "RFRRFR"),
        ({"model_type": "bamba", "attn_layer_indices": [2], "mamba_n_groups": 1, **MAMBA}, "RRFRRR"),
        ({"model_type": "lfm2", "full_attn_idxs": [1, 5], "conv_L_cache": 3}, "RFRRRF"),
        ({"model_type": "minimax", "attn_type_list": [0, 0, 1, 0, 0, 1]}, "RRFRRF"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*ME", **MAMBA}, "RNRFRN"),
        ({"model_type": "granitemoehybrid", "layer_types": ["mamba"] * 5 + ["attention"], **MAMBA}, "RRRRRF"),
        ({"model_type": "zamba2", "layers_block_type": ["mamba", "hybrid"] * 3, **MAMBA}, "RPRPRP"),
        ({"model_type": "falcon_h1", "mamba_d_ssm": 1024, **MAMBA}, "PPPPPP"),
        ({"model_type": "kimi_linear", "num_hidden_layers": 4, "linear_attn_config": KIMI}, "RRRF"),
        ({"model_type": "gemma3n_text", "sliding_window": 64, "num_kv_shared_layers": 2}, "SSSSHH"),
        ({"model_type": "mamba", "state_size": 16, "conv_kernel": 4, "expand": 2}, "RRRRRR"),
        ({"model_type": "from_the_future", "layer_types": ["linear_attention", "moe"] * 3, **DELTA}, "RNRNRN"),
    ],
)
def test_kinds_of_layers(more: dict[str, Any], expected: str) -> None:
    assert letters(shape(**more).layers) == expected


def test_states_of_recurrent_layers() -> None:
    """Each formula by hand; hidden size 512."""
    states: dict[str, tuple[Config, tuple[int, int]]] = {
        "mamba": ({"model_type": "mamba", **MAMBA}, (3 * 1024, 1024 * 16)),
        "mamba 2": (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "MMMMMM"}
            | {"mamba_num_heads": 8, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4},
            (3 * (512 + 2 * 8 * 128), 512 * 128),
        ),
        "delta": (
            {"model_type": "qwen3_next", **DELTA},
            (3 * (2 * 16 * 128 + 32 * 128), 32 * 128 * 128),
        ),
        "kda": (
            {"model_type": "kimi_linear", "layer_types": ["linear_attention"] * 6, "linear_attn_config": KIMI},
            (3 * 3 * 8 * 64, 8 * 64 * 64),
        ),
        "kda, written by transformers 5": (
            {"model_type": "kimi_linear", "layer_types": ["linear_attention"] * 6}
            | {"linear_num_heads": 8, "linear_head_dim": 64, "linear_conv_kernel_dim": 4},
            (3 * 3 * 8 * 64, 8 * 64 * 64),
        ),
        "lightning": ({"model_type": "minimax", "attn_type_list": [0] * 6}, (0, 8 * 64 * 64)),
        "short convolution": ({"model_type": "lfm2", "full_attn_idxs": [], "conv_L_cache": 3}, (2 * 512, 0)),
    }
    for name, (more, (conv, state)) in states.items():
        assert shape(**more).layers[0] == RecurrentState(conv_elements=conv, state_elements=state), name


def test_latent_attention() -> None:
    latent = LatentAttention(rank=512, rope_dim=64, num_heads=128, head_dim_k=192, head_dim_v=128, index_dim=128)
    indexed = {**DEEPSEEK_V3, "model_type": "deepseek_v32", "index_head_dim": 128}
    assert from_config(indexed, "c").layers == (latent,) * 61


def test_gemma4_has_wider_full_layers() -> None:
    more = {"global_head_dim": 128, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "sliding_window": 64}
    layers = shape(model_type="gemma4_text", **more).layers
    assert layers[0] == SlidingAttention(kv_heads=2, head_dim_k=64, head_dim_v=64, window_tokens=64)
    assert layers[5] == FullAttention(kv_heads=1, head_dim_k=128, head_dim_v=128)


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        ({"model_type": "gpt_bigcode", "n_layer": 1, "n_head": 8, "n_embd": 512, "multi_query": True}, 1),
        ({"model_type": "gpt_bigcode", "n_layer": 1, "n_head": 8, "n_embd": 512, "multi_query": False}, 8),
        ({**CONFIGS["Falcon-7B"], "new_decoder_architecture": True, "num_kv_heads": 1}, 1),
        ({"model_type": "mpt", "n_layers": 1, "n_heads": 8, "d_model": 512, "attn_config": {"kv_n_heads": 2}}, 2),
        ({**SMALL, "model_type": "chatglm", "num_key_value_heads": None, "multi_query_group_num": 2}, 2),
        ({"model_type": "bloom", "n_layer": 1, "n_head": 8, "hidden_size": 512}, 8),
    ],
)
def test_heads_that_are_cached(config: Config, kv_heads: int) -> None:
    layer = from_config(config, "c").layers[0]
    assert layer == FullAttention(kv_heads=kv_heads, head_dim_k=64, head_dim_v=64)


# ── positions ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("config", "kind", "tokens", "name"),
    [
        (CONFIGS["GPT-2"], PositionKind.LEARNED, 1024, "n_positions"),
        (SMALL, PositionKind.ROTARY, 131_072, "max_position_embeddings"),
        ({**SMALL, "model_type": "bloom"}, PositionKind.ALIBI, 131_072, "max_position_embeddings"),
        ({**UNPLACED, "model_type": "mpt", "max_seq_len": 2048}, PositionKind.ALIBI, 2048, "max_seq_len"),
        ({**UNPLACED, "model_type": "chatglm", "seq_length": 8192}, PositionKind.ROTARY, 8192, "seq_length"),
        ({**UNPLACED, "model_type": "mpt", "attn_config": {"alibi": False}}, "table", None, "max_position_embeddings"),
        ({**UNPLACED, "n_ctx": 512}, PositionKind.ROTARY, 512, "n_ctx"),
        ({**CONFIGS["Falcon-7B"], "alibi": True}, PositionKind.ALIBI, None, "max_position_embeddings"),
        (CONFIGS["Jamba-v0.1"], PositionKind.NONE, 131_072, "max_position_embeddings"),
    ],
)
def test_positions(config: Config, kind: str, tokens: int | None, name: str) -> None:
    positions = from_config(config, "c").positions
    assert (positions.kind, positions.max_tokens, positions.name) == (kind, tokens, name)


@pytest.mark.parametrize(
    ("more", "kind", "factor", "original", "reach"),
    [
        ({"rope_theta": 10_000.0}, "default", None, None, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear", 2.0, None, None),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32_768}},
            "yarn", 4.0, 32_768, 131_072,
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}},
            "llama3", 8.0, 8192, None,
        ),
        (
            {"rope_scaling": {"type": "su", "short_factor": [1.0]}, "original_max_position_embeddings": 4096},
            "longrope", None, 4096, None,
        ),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, "default", None, None, None),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {}}},
            "linear", 8.0, None, None,
        ),
    ],
)  # fmt: skip
def test_rope(more: dict[str, Any], kind: str, factor: float | None, original: int | None, reach: int | None) -> None:
    rope = shape(**more).rope
    assert rope is not None
    assert (rope.kind, rope.factor, rope.original_tokens, rope.reach_tokens) == (kind, factor, original, reach)
    assert rope.scaled == (kind != "default")


def test_nested_configs_fall_back_to_class_defaults() -> None:
    """Gemma 3 4B as published leaves out what its class defaults to."""
    text_config = {"hidden_size": 2560, "intermediate_size": 10_240, "model_type": "gemma3_text"}
    text_config |= {"num_hidden_layers": 34, "sliding_window": 1024}
    model = from_config({"model_type": "gemma3", "text_config": text_config, "torch_dtype": "bfloat16"}, "c")
    assert (model.num_layers, model.positions.max_tokens, model.weights_type) == (34, 131_072, "bfloat16")
    assert model.layers[0] == SlidingAttention(kv_heads=4, head_dim_k=256, head_dim_v=256, window_tokens=1024)
    llava = {"model_type": "llava", "text_config": {"model_type": "llama", "max_position_embeddings": 4096}}
    assert token_bytes(from_config(llava, "c")) == 524_288
    pixtral = {"model_type": "llava", "text_config": {"model_type": "mistral", "sliding_window": None}}
    assert letters(from_config(pixtral, "c").layers) == "F" * 32


def test_a_model_inside_a_model_inside_a_model() -> None:
    thinker = {"thinker_config": {"text_config": {**SMALL, "model_type": "qwen2_5_omni_text"}}}
    assert from_config({"model_type": "qwen2_5_omni", **thinker}, "c").num_layers == 6


def test_layers_may_be_counted_by_their_list() -> None:
    config = without(SMALL, "num_hidden_layers") | {"layers_block_type": ["attention", "mlp"]}
    assert letters(from_config(config, "c").layers) == "FN"


def test_a_width_for_each_layer() -> None:
    assert shape(intermediate_size=[1, 7, 3]).ffn == 7
    assert fixed_bytes(shape()) == 0


# ── what cannot be meant ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1: must be a whole number from 1 to 4096"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000: must be"),
        ({"num_hidden_layers": "six"}, "num_hidden_layers = 'six': must be"),
        ({"num_hidden_layers": True}, "num_hidden_layers = True: must be"),
        ({"num_hidden_layers": 6.5}, "num_hidden_layers = 6.5: must be"),
        ({"hidden_size": None}, "hidden_size (or n_embd, d_model, n_embed) is missing"),
        ({"num_hidden_layers": None}, "num_hidden_layers (or n_layer, n_layers, num_layers) is missing"),
        ({"num_attention_heads": None}, "num_attention_heads (or n_head, n_heads, num_heads) is missing"),
        ({"n_layer": 7}, "n_layer = 7: contradicts num_hidden_layers = 6"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3: does not divide the 8 attention heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads = 0: must be"),
        ({"head_dim": None, "hidden_size": 511}, "hidden_size = 511: is no multiple of the 8 attention heads"),
        ({"max_position_embeddings": 10**15}, "max_position_embeddings = 1000000000000000: must be"),
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": "nonsense"}, "model_type = 'nonsense': contextlab does not know"),
        ({"model_type": 7}, "model_type = 7: must be a text"),
        ({"is_encoder_decoder": True}, "only models that are a decoder alone"),
        ({"layer_types": ["full_attention"] * 5}, "has 5 entries for 6 layers"),
        ({"layer_types": ["full_attention"] * 5 + ["magic"]}, "layer_types[5] = 'magic': is no kind of layer"),
        ({"layer_types": ["full_attention"] * 5 + [[]]}, "layer_types[5] = []: is no kind of layer"),
        ({"layer_types": "full"}, "layer_types = 'full': must be a list"),
        ({"layer_types": ["sliding_attention"] * 6}, "sliding_window (or window_size) is missing"),
        ({"layer_types": ["chunked_attention"] * 6}, "attention_chunk_size is missing"),
        ({"layer_types": ["linear_attention"] * 6}, "mamba_d_conv (or conv_kernel) is missing"),
        ({"hybrid_override_pattern": "MM"}, "must have one letter for each of the 6 layers"),
        ({"hybrid_override_pattern": "MMMMM?"}, "hybrid_override_pattern[5] = '?': is no kind of layer"),
        ({"model_type": "lfm2", "full_attn_idxs": [9]}, "full_attn_idxs = 9: must be a whole number from 0 to 5"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window = 0: must be"),
        ({"model_type": "mistral", "sliding_window": 8, "sliding_window_pattern": ""}, "must have at least one letter"),
        ({"model_type": "qwen2", "use_sliding_window": "no"}, "use_sliding_window = 'no': must be true or false"),
        ({"num_kv_shared_layers": 6}, "num_kv_shared_layers = 6: must be a whole number from 0 to 5"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
        ({"kv_lora_rank": -512, "qk_rope_head_dim": 1}, "kv_lora_rank = -512: must be"),
        ({"rope_scaling": "yarn"}, "rope_scaling = 'yarn': must be an object"),
        ({"rope_scaling": {"type": "yarn", "factor": 0}}, "rope_scaling.factor = 0: must be a number above 0"),
        ({"rope_scaling": {"type": "yarn", "factor": float("inf")}}, "rope_scaling.factor = inf: must be"),
        ({"rope_scaling": {"type": "yarn", "factor": 10**301}}, "must be at most 1e300"),
        ({"rope_scaling": {"type": ["yarn"]}}, "rope_scaling.type = ['yarn']: must be a text"),
        ({"model_type": "mamba", **MAMBA, "mamba_expand": 1e200}, "mamba_expand = 51"),
        ({"model_type": "mamba", **MAMBA, "mamba_expand": None}, "mamba_expand (or expand) is missing"),
        ({"text_config": 3}, "text_config = 3: must be an object"),
        ({"text_config": {**SMALL, "num_hidden_layers": 0}}, "text_config.num_hidden_layers = 0: must be"),
        ({"linear_attn_config": {"full_attn_layers": [0]}}, "linear_attn_config.full_attn_layers = 0: must be"),
    ],
)
def test_fields_that_cannot_be_meant(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(UnableError) as caught:
        from_config({**SMALL, **change}, "some/config.json")
    assert caught.value.message.startswith("some/config.json: ")
    assert expected in caught.value.message
    assert caught.value.next_step
    assert len(caught.value.message) < 600


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def folder(path: Path, **files: Any) -> Path:
    """A model folder; each keyword is a file's name without .json, its value the content."""
    for name, content in files.items():
        (path / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_whole_folder(tmp_path: Path) -> None:
    folder(
        tmp_path,
        config=CONFIGS["Llama-3.1-8B"],
        tokenizer_config={"model_max_length": int(1e30), "truncation_side": "left"},
        generation_config={"max_length": 4096, "max_new_tokens": None},
    )
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(bytes(100))
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(bytes(50))
    for path in (tmp_path, tmp_path / "config.json", str(tmp_path)):
        model = read_config(path)
        assert model.shape.layers == shape_of("Llama-3.1-8B").layers
        assert model.shape.weights_bytes == 150
        assert model.tokenizer is not None
        assert (model.tokenizer.unlimited, model.tokenizer.max_tokens) == (True, None)
        assert model.tokenizer.truncation_side == "left"
        assert model.generation is not None
        assert (model.generation.max_length, model.generation.max_new_tokens) == (4096, None)


def test_a_config_alone(tmp_path: Path) -> None:
    model = read_config(folder(tmp_path, config=SMALL))
    assert (model.tokenizer, model.generation, model.shape.weights_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "tokens", "unlimited"),
    [
        (2048, 2048, False),
        (2048.0, 2048, False),
        (1000000000000000019884624838656, None, True),
        (1e30, None, True),
        (float("inf"), None, True),
        (None, None, False),
    ],
)
def test_tokenizer_limit(value: float | None, tokens: int | None, unlimited: bool) -> None:
    limit = tokenizer_limit(value, "tokenizer_config.json")
    assert (limit.max_tokens, limit.unlimited) == (tokens, unlimited)


@pytest.mark.parametrize("value", [0, -1, "512", True, 10**15, 1.5])
def test_tokenizer_limits_that_cannot_be_meant(value: object) -> None:
    with pytest.raises(UnableError, match=r"tokenizer_config\.json: model_max_length = "):
        tokenizer_limit(value, "tokenizer_config.json")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "not JSON"),
        ("<!DOCTYPE html>", "not JSON"),
        ('{"a": ', "not JSON"),
        ("[1, 2]", "holds [1, 2]: must be a JSON object"),
        ("null", "holds None: must be a JSON object"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ('{"a": ' + "1" * 5000 + "}", "not JSON: a number with 5000 digits"),
        ('{"a": [' + "0," * 2_000_000 + "0]}", "bytes of memory, more than the"),
        (" " * (16 << 20) + "{}", "the file has 16777218 bytes, more than the 16777216 that are read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: str, expected: str) -> None:
    path = folder(tmp_path, config=content) / "config.json"
    with pytest.raises(UnableError) as caught:
        read_json(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert expected in caught.value.message
    assert caught.value.next_step


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": "\xff\xfe"}')
    with pytest.raises(UnableError, match="not JSON"):
        read_json(path)


@pytest.mark.parametrize("name", ["tokenizer_config", "generation_config"])
def test_the_file_beside_the_config_is_named(tmp_path: Path, name: str) -> None:
    folder(tmp_path, config=SMALL, **{name: "{"})
    with pytest.raises(UnableError, match=f"{name}.json: not JSON"):
        read_config(tmp_path)


def test_folders_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match=r"the folder has no config\.json"):
        read_config(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"")
    with pytest.raises(UnableError) as caught:
        read_config(tmp_path)
    assert "model.gguf" in caught.value.next_step
    with pytest.raises(UnableError, match="there is no such file"):
        read_config(tmp_path / "absent.json")
    (tmp_path / "config.json").mkdir()
    with pytest.raises(UnableError, match="is a directory"):
        read_config(tmp_path)
