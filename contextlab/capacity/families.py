"""What has to be known of Hugging Face model types beyond what their config.json says.

Rules and class defaults are those of transformers 5.24 (`models/*/configuration_*.py`). Data only. A type that is not
listed is refused, unless its file spells out `layer_types`: guessing a cache would be worse than saying so.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextlab.capacity.shape import PositionKind

_ROTARY = """
    afmoe apertus arcee aria aya_vision bailing_moe bamba bitnet chameleon chatglm cohere cohere2 cwm dbrx deepseek
    deepseek_v2 deepseek_v3 deepseek_v32 diffllama doge dots1 emu3 ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe
    falcon falcon_h1 flex_olmo fuyu gemma gemma2 gemma3 gemma3n gemma4 glm glm4 glm46v glm4_moe glm4_moe_lite glm4v
    glm4v_moe glm_moe_dsa got_ocr2 gpt_neox gpt_neox_japanese gpt_oss granite granitemoe granitemoehybrid
    granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hy_v3 idefics2 idefics3 internlm internlm2 internlm3
    internvl internvl_chat jetmoe kimi_k2 kimi_k25 kimi_linear lfm2 lfm2_moe lfm2_vl llama llama4 llava llava_next
    llava_next_video llava_onevision longcat_flash mimo minicpm minicpm3 minimax minimax_m2 ministral ministral3
    mistral mistral3 mistral4 mixtral mllama nanochat nemotron olmo olmo2 olmo3 olmo_hybrid olmoe ovis2 paligemma
    persimmon phi phi3 phi4_multimodal phimoe qwen qwen2 qwen2_5_omni qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5
    qwen3_5_moe qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe sarvam_mla sarvam_moe seed_oss
    shieldgemma2 smollm3 smolvlm solar_open stablelm starcoder2 vaultgemma video_llava vipllava yi youtu zamba2
"""
_LEARNED = "biogpt codegen ctrl gpt2 gpt_bigcode gpt_neo gptj openai-gpt opt xglm"
_ALIBI = "bloom mpt"
_NONE = "falcon_mamba jamba mamba mamba2 nemotron_h zamba"

POSITION_KINDS: Mapping[str, PositionKind] = {
    name: kind
    for names, kind in (
        (_ROTARY, PositionKind.ROTARY),
        (_LEARNED, PositionKind.LEARNED),
        (_ALIBI, PositionKind.ALIBI),
        (_NONE, PositionKind.NONE),
    )
    for name in names.split()
}
"""Every model type that is known, and how it knows positions (gptj and codegen: a table of sinusoids)."""

WINDOW_PERIODS: Mapping[str, int] = {
    "afmoe": 4,
    "cohere2": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gemma4": 6,
    "gpt_oss": 2,
    "olmo3": 4,
    "shieldgemma2": 6,
    "vaultgemma": 2,
}
"""Every n-th layer is full and the others slide, where the file has neither `layer_types` nor a pattern."""

ASKS_FOR_WINDOW = frozenset(
    {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smollm3"}
)
"""Types in which `sliding_window` counts only with `use_sliding_window`, from layer `max_window_layers` on."""

FULL_ATTENTION_INTERVALS: Mapping[str, int] = {"qwen3_next": 4, "qwen3_5": 4, "qwen3_5_moe": 4, "olmo_hybrid": 4}
"""Every n-th layer is full and the others are linear attention."""

PURE_RECURRENT = frozenset({"mamba", "mamba2", "falcon_mamba"})
PARALLEL_HYBRIDS = frozenset({"falcon_h1"})
LIGHTNING = frozenset({"minimax"})
"""Linear attention with one (head, head) state a head and no convolution."""

TEXT_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "llama": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
    "gemma": {
        "vocab_size": 256_000,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "max_position_embeddings": 8192,
    },
    "gemma3": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
    "gemma3n": {
        "vocab_size": 262_400,
        "hidden_size": 2048,
        "intermediate_size": 16_384,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "max_position_embeddings": 32_768,
        "sliding_window": 512,
        "num_kv_shared_layers": 15,
    },
    "gemma4": {
        "vocab_size": 262_144,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 30,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "max_position_embeddings": 131_072,
        "sliding_window": 512,
    },
}
"""What a nested `text_config` leaves out where it equals the class default. A whole config.json may not."""
