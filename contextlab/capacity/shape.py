"""The shape of a model: what each layer caches, how it knows positions, and how large it is.

Only nouns: `gguf_shape` and `config_shape` build them from files, `kv` and `limits` compute with them.
Encoders, and what images or audio add, are not described.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

# ── what a layer keeps ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention:
    """A key of (kv_heads, head_dim_k) and a value of (kv_heads, head_dim_v) for every token."""

    kv_heads: int
    head_dim_k: int
    head_dim_v: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingAttention:
    """Keys and values of the last `window_tokens` tokens (or of the current chunk of that size)."""

    kv_heads: int
    head_dim_k: int
    head_dim_v: int
    window_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: one latent of `rank` and one rotary key of `rope_dim` for every token.

    An engine that expands the latent keeps (num_heads, head_dim_k) and (num_heads, head_dim_v) instead.
    `index_dim`: width of the extra key of a sparse-attention indexer, 0 without one.
    """

    rank: int
    rope_dim: int
    num_heads: int
    head_dim_k: int
    head_dim_v: int
    index_dim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """Numbers kept for a sequence, however long it is: the convolution's tail and the recurrent state."""

    conv_elements: int
    state_elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelHybrid:
    """A layer with attention and a recurrent state side by side."""

    attention: FullAttention | SlidingAttention
    state: RecurrentState


@dataclass(frozen=True, slots=True)
class SharedKv:
    """A layer that reads an earlier layer's cache and keeps nothing of its own."""


@dataclass(frozen=True, slots=True)
class NoCache:
    """A layer without attention or state (a bare feed-forward block)."""


LayerCache = FullAttention | SlidingAttention | LatentAttention | RecurrentState | ParallelHybrid | SharedKv | NoCache


# ── positions ────────────────────────────────────────────────────────────────────────────────────


class PositionKind(StrEnum):
    """How a model knows where a token stands, which decides what happens past the range."""

    LEARNED = "table"
    """A table with one row a position: past it there is nothing to read, an error or a crash."""
    ROTARY = "rotary"
    """Computed for any position: past the trained range no error, only worse answers."""
    ALIBI = "ALiBi"
    """A bias that grows with distance: no range."""
    NONE = "none"
    """No positions at all, as in state-space models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Range of positions. `name`: the field that declares it, as written in the file."""

    kind: PositionKind
    max_tokens: int | None
    name: str = "max_position_embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions and their scaling; `kind` is "default" where they are not scaled."""

    kind: str = "default"
    factor: float | None = None
    original_tokens: int | None = None
    theta: float | None = None

    @property
    def scaled(self) -> bool:
        """Whether positions are stretched beyond those of the training."""
        return self.kind not in {"default", "none"}

    @property
    def reach_tokens(self) -> int | None:
        """Positions after scaling: original × factor, where the factor means a length.

        It does for linear, dynamic and yarn. In llama3 and longrope it does not, and where the original
        length is not written the declared positions are the only word there is: None.
        """
        if self.kind in {"linear", "dynamic", "yarn"} and self.factor is not None and self.original_tokens is not None:
            return round(self.original_tokens * self.factor)
        return None


# ── the model ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What capacity needs to know of a model. None where the file does not say.

    `layers` has one entry a decoder layer, first to last. `weights_bytes` is what the weights take as they are
    stored, `weights_type` their most common element type.
    """

    source: str
    architecture: str
    layers: tuple[LayerCache, ...]
    positions: Positions
    rope: Rope | None = None
    hidden: int | None = None
    ffn: int | None = None
    num_heads: int | None = None
    vocab: int | None = None
    num_parameters: int | None = None
    weights_bytes: int | None = None
    weights_type: str = ""

    @property
    def num_layers(self) -> int:
        """Number of decoder layers."""
        return len(self.layers)

    @property
    def windows(self) -> tuple[int, ...]:
        """The different sliding windows, in tokens, ascending."""
        attention = (layer.attention if isinstance(layer, ParallelHybrid) else layer for layer in self.layers)
        return tuple(sorted({layer.window_tokens for layer in attention if isinstance(layer, SlidingAttention)}))

    def describe_layers(self) -> str:
        """One line for a report: how many layers of which cache, the commonest first."""
        counts = Counter(_describe(layer) for layer in self.layers)
        return ", ".join(f"{count} {text}" for text, count in counts.most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerLimit:
    """Where a tokenizer truncates (`model_max_length`); `max_tokens` None where it does not say, or is unlimited."""

    source: str
    max_tokens: int | None = None
    unlimited: bool = False
    truncation_side: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """Lengths that a generation config sets where a request does not."""

    source: str
    max_length: int | None = None
    max_new_tokens: int | None = None


def _describe(layer: LayerCache) -> str:
    match layer:
        case FullAttention():
            return f"full ({layer.kv_heads} KV heads × {layer.head_dim_k})"
        case SlidingAttention():
            return f"sliding ({layer.kv_heads} KV heads × {layer.head_dim_k}, window {layer.window_tokens})"
        case LatentAttention():
            return f"latent ({layer.rank} + {layer.rope_dim})"
        case RecurrentState():
            return f"recurrent ({layer.conv_elements + layer.state_elements} numbers a sequence)"
        case ParallelHybrid():
            return f"{_describe(layer.attention)} beside {_describe(layer.state)}"
        case SharedKv():
            return "sharing an earlier layer's cache"
        case NoCache():
            return "without a cache"
