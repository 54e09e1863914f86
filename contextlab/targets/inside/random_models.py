"""`hf:random/ARCHITECTURE`: tiny models with random weights, made in code, so that limits are probed without any.

Each is the library's own implementation of its architecture with two layers: its position table, its RoPE, its cache
and its masks are the real ones. What it says is noise, so only what does not depend on sense can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from contextlab.analysis.prompts import NEIGHBOUR_SECRET, PLACES, WORDS
from contextlab.model import UsageError
from contextlab.targets.inside.library import library

DEFAULT_WINDOW = 128
"""Room for the sentences that the probes are made of, and little more."""
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 2, 4, 2, 16
SPREAD = 0.2
"""Standard deviation of the weights: ten times the usual, or attention would look at everything alike."""
LONGROPE_SHORT, LONGROPE_LONG = 1.0, 4.0
SPECIAL_TOKENS = ("<s>", "</s>", "<pad>")
SENTENCE_WORDS = ["The", "the", "secret", "code", "of", "is", "What", "Repeat", "after", "me", "capital", "France"]


def _llama(window: int, **rope: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": window,
        "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default", **rope},
    }


def _half(window: int, **rope: Any) -> dict[str, Any]:
    """RoPE that stretches half the window to the whole of it."""
    return _llama(window, factor=2.0, original_max_position_embeddings=window // 2, **rope)


def _longrope(window: int) -> dict[str, Any]:
    factors = {"short_factor": [LONGROPE_SHORT] * (HEAD_DIM // 2), "long_factor": [LONGROPE_LONG] * (HEAD_DIM // 2)}
    return _half(window, rope_type="longrope", **factors)


ARCHITECTURES: Mapping[str, Any] = {
    "gpt2": lambda window: {
        "model_type": "gpt2",
        "n_embd": HIDDEN,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": window,
    },
    "opt": lambda window: {
        "model_type": "opt",
        "hidden_size": HIDDEN,
        "word_embed_proj_dim": HIDDEN,
        "ffn_dim": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": window,
    },
    "bloom": lambda window: {
        "model_type": "bloom",
        "hidden_size": HIDDEN,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "seq_length": window,
    },
    "llama": _llama,
    "llama-linear": lambda window: _llama(window, rope_type="linear", factor=2.0),
    "llama-dynamic": lambda window: _llama(window, rope_type="dynamic", factor=2.0),
    "llama-yarn": lambda window: _half(window, rope_type="yarn"),
    "llama-longrope": _longrope,
    "llama-llama3": lambda window: _half(window, rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0),
    "mistral": lambda window: {**_llama(window), "model_type": "mistral", "sliding_window": window // 4},
    "gemma": lambda window: {
        **_llama(window),
        "model_type": "gemma3_text",
        "head_dim": HEAD_DIM,
        "sliding_window": window // 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
        },
    },
    "deepseek": lambda window: {
        **_llama(window),
        "model_type": "deepseek_v3",
        "num_key_value_heads": HEADS,
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": HEAD_DIM,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": HIDDEN // 2,
        "first_k_dense_replace": 1,
    },
}
"""The fields of each config that are not the class's defaults, for a window."""

HAS_NO_RANGE = frozenset({"bloom"})
"""Architectures whose positions end nowhere: their tokenizer has no limit to declare."""


def check_architecture(name: str) -> None:
    """Raise UsageError, with the likely and the possible names, unless there is such an architecture."""
    if name in ARCHITECTURES:
        return
    close = get_close_matches(name, ARCHITECTURES, n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(
        f"architecture={name!r}: there is no such random model", f"{hint}choose from: {', '.join(ARCHITECTURES)}"
    )


def fields_of(name: str, window: int) -> dict[str, Any]:
    """The whole config of a random model, as a config.json would have it."""
    check_architecture(name)
    own = ARCHITECTURES[name](window)
    spread = dict.fromkeys(("initializer_range", "init_std"), SPREAD)  # OPT has a name of its own for it
    ids = {f"{kind}_token_id": number for number, kind in enumerate(("bos", "eos", "pad"))}
    return {**own, "vocab_size": len(vocabulary()), **spread, "tie_word_embeddings": False, **ids}


def config_of(name: str, window: int) -> Any:
    """The library's config object of a random model."""
    fields = fields_of(name, window)
    return library("transformers").AutoConfig.for_model(fields.pop("model_type"), **fields)


def model_of(config: Any, seed: int, **options: Any) -> Any:
    """The model, its weights drawn from the seed."""
    library("torch").manual_seed(seed)
    return library("transformers").AutoModelForCausalLM.from_config(config, **options)


# ── the tokenizer ────────────────────────────────────────────────────────────────────────────────


def vocabulary() -> list[str]:
    """The tokens in their order: special ones, a byte each, and the words that probes are made of, a space before them.

    A word is one token so that prompts can be brought to any size exactly; every other character is one a byte.
    """
    bytes_ = sorted(library("tokenizers").pre_tokenizers.ByteLevel.alphabet())
    words = [*WORDS, *SENTENCE_WORDS, *PLACES, *NEIGHBOUR_SECRET.split()]
    return [*SPECIAL_TOKENS, *bytes_, *dict.fromkeys(f"{space}{word}" for word in words for space in (" ", ""))]


def tokenizer_of(name: str, window: int) -> Any:
    """A fast tokenizer made in code. It declares the window as its limit where the model has one."""
    tokenizers = library("tokenizers")
    tokens = vocabulary()
    num_base = len(SPECIAL_TOKENS) + 256
    byte_level = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={token: number for number, token in enumerate(tokens[:num_base])}, merges=[])
    )
    byte_level.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    byte_level.decoder = tokenizers.decoders.ByteLevel()
    byte_level.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in tokens[num_base:]])
    byte_level.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokens.index("<s>"))]
    )
    limit = {} if name in HAS_NO_RANGE else {"model_max_length": window}
    named = dict(zip(("bos_token", "eos_token", "pad_token"), SPECIAL_TOKENS, strict=True))
    return library("transformers").PreTrainedTokenizerFast(
        tokenizer_object=byte_level, clean_up_tokenization_spaces=False, **named, **limit
    )
