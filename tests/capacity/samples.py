"""Metadata of known models, and GGUF files written byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from contextlab.capacity.config_shape import from_config
from contextlab.capacity.shape import ModelShape

Config = dict[str, Any]


def llama_like(model_type: str, layers: int, heads: int, kv_heads: int, head_dim: int, **more: Any) -> Config:
    """A config of a decoder with grouped-query attention."""
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_size": heads * head_dim,
        "intermediate_size": 4 * heads * head_dim,
        "max_position_embeddings": 131_072,
        "vocab_size": 32_000,
        **more,
    }


DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
}
DEEPSEEK_V3 = llama_like(
    "deepseek_v3", 61, 128, 128, 64, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
)

CONFIGS: dict[str, Config] = {
    "GPT-2": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 768,
        "n_positions": 1024,
        "n_ctx": 1024,
        "vocab_size": 50_257,
    },
    "Llama-2-7B": llama_like("llama", 32, 32, 32, 128),
    "Llama-3.1-70B": llama_like("llama", 80, 64, 8, 128),
    "Llama-3.1-8B": llama_like("llama", 32, 32, 8, 128),
    "Mixtral-8x7B": llama_like("mixtral", 32, 32, 8, 128, sliding_window=None),
    "Mistral-7B-v0.1": llama_like("mistral", 32, 32, 8, 128, sliding_window=4096),
    "Falcon-7B": {
        "model_type": "falcon",
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "hidden_size": 4544,
        "multi_query": True,
        "alibi": False,
        "new_decoder_architecture": False,
    },
    "Phi-3-mini": llama_like("phi3", 32, 32, 32, 96, sliding_window=None),
    "Qwen2.5-0.5B": llama_like("qwen2", 24, 14, 2, 64, use_sliding_window=False, sliding_window=32_768),
    "Qwen2.5-7B": llama_like("qwen2", 28, 28, 4, 128, use_sliding_window=False, sliding_window=131_072),
    "Qwen3-0.6B": {**llama_like("qwen3", 28, 16, 8, 128), "hidden_size": 1024},
    "Qwen3-8B": llama_like("qwen3", 36, 32, 8, 128),
    "Gemma-2-9B": {**llama_like("gemma2", 42, 16, 8, 256, sliding_window=4096), "hidden_size": 3584},
    "Gemma-3-27B": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "hidden_size": 5376,
            "sliding_window": 1024,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    },
    "gpt-oss-120b": {
        **llama_like("gpt_oss", 36, 64, 8, 64, sliding_window=128),
        "hidden_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
    },
    "DeepSeek-V3": DEEPSEEK_V3,
    "DeepSeek-V2-Lite": {**DEEPSEEK_V3, "model_type": "deepseek_v2", "num_hidden_layers": 27},
    "Qwen3-Next-80B": {**llama_like("qwen3_next", 48, 16, 2, 256), "hidden_size": 2048, **DELTA},
    "Qwen3.5-35B-A3B": {
        "model_type": "qwen3_5_moe",
        "text_config": {**llama_like("qwen3_5_moe_text", 40, 16, 2, 256), "hidden_size": 2048, **DELTA},
    },
    "Jamba-v0.1": {
        **llama_like("jamba", 32, 32, 8, 128),
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
}
"""Published configs; fields that say nothing about the cache are left out or arbitrary."""


def shape_of(name: str) -> ModelShape:
    """The shape of a known model."""
    return from_config(CONFIGS[name], f"{name}/config.json")


# ── GGUF ─────────────────────────────────────────────────────────────────────────────────────────

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}

KeyValue = tuple[str | bytes, int, Any]
TensorInfo = tuple[str, Sequence[int], int, int]


def text(value: str | bytes, order: str = "<") -> bytes:
    """A text as GGUF stores it."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data)) + data


def typed(kind: int, value: Any, order: str = "<") -> bytes:
    """A value without its type; an array's value is (element type, items)."""
    if kind == STRING:
        return text(value, order)
    if kind == ARRAY:
        element, items = value
        packed = b"".join(typed(element, item, order) for item in items)
        return struct.pack(order + "IQ", element, len(items)) + packed
    return struct.pack(order + LETTERS[kind], value)


def gguf(
    pairs: Sequence[KeyValue] = (),
    tensors: Sequence[TensorInfo] = (),
    *,
    data: bytes = b"",
    version: int = 3,
    order: str = "<",
    num_pairs: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A GGUF file. `tensors` are (name, shape, type, offset); counts may be told to lie."""
    header = b"GGUF" + struct.pack(
        order + "IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(pairs) if num_pairs is None else num_pairs,
    )
    for key, kind, value in pairs:
        header += text(key, order) + struct.pack(order + "I", kind) + typed(kind, value, order)
    for name, dimensions, kind, offset in tensors:
        header += text(name, order) + struct.pack(order + "I", len(dimensions))
        header += struct.pack(f"{order}{len(dimensions)}QIQ", *dimensions, kind, offset)
    return header + b"\0" * (-len(header) % alignment) + data


def llama_pairs(architecture: str = "llama", **more: tuple[int, Any]) -> list[KeyValue]:
    """Metadata of SmolLM2-135M; `more` adds or replaces keys, "__" standing for a dot."""
    values: dict[str, tuple[int, Any]] = {
        "block_count": (U32, 30),
        "context_length": (U32, 8192),
        "embedding_length": (U32, 576),
        "feed_forward_length": (U32, 1536),
        "attention__head_count": (U32, 9),
        "attention__head_count_kv": (U32, 3),
        "rope__freq_base": (F32, 100_000.0),
        **more,
    }
    return [
        ("general.architecture", STRING, architecture),
        *((f"{architecture}.{name.replace('__', '.')}", kind, value) for name, (kind, value) in values.items()),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", "c"])),
    ]


WEIGHTS: tuple[TensorInfo, ...] = (("token_embd.weight", (64, 3), 1, 0), ("output.weight", (64, 3), 8, 384))
WEIGHTS_BYTES = 384 + 3 * 2 * 34


def small_gguf(architecture: str = "llama", **more: tuple[int, Any]) -> bytes:
    """A whole GGUF file with the metadata of `llama_pairs` and two small tensors."""
    return gguf(llama_pairs(architecture, **more), WEIGHTS, data=b"\0" * WEIGHTS_BYTES)


def without(values: Mapping[str, Any], *names: str) -> Config:
    """A copy without those fields."""
    return {name: value for name, value in values.items() if name not in names}
