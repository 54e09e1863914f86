"""From a Hugging Face config to a `ModelShape`: which cache transformers builds for each layer.

Only the language model of a multimodal config is described. Fields and rules: `families`, `config_layers`.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextlab.capacity.config_layers import HEADS, LAYER_LISTS, config_layers
from contextlab.capacity.families import POSITION_KINDS, PURE_RECURRENT, TEXT_DEFAULTS
from contextlab.capacity.fields import MAX_HEADS, MAX_LAYERS, MAX_TOKENS, MAX_VOCAB, MAX_WIDTH, Fields, shown
from contextlab.capacity.shape import ModelShape, PositionKind, Positions, Rope
from contextlab.model import UnableError

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")
POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "n_ctx",
    "seq_length",
    "model_max_length",
)
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")


def from_config(values: Mapping[str, object], source: str) -> ModelShape:
    """The shape that a decoded config.json describes; raises UnableError naming the field that is missing or wrong.

    `source` is what messages call the file.
    """
    top = Fields(source, values)
    fields, family = _text_fields(top)
    hidden = fields.needed(*HIDDEN, high=MAX_WIDTH)
    layers = config_layers(fields, family, _num_layers(fields), hidden)
    return ModelShape(
        source=source,
        architecture=family,
        layers=layers,
        positions=_positions(fields, family),
        rope=_rope(fields),
        hidden=hidden,
        ffn=_ffn(fields),
        num_heads=None if family in PURE_RECURRENT else fields.integer(*HEADS, high=MAX_HEADS),
        vocab=fields.integer("vocab_size", high=MAX_VOCAB) or top.integer("vocab_size", high=MAX_VOCAB),
        weights_type=_weights_type(fields) or _weights_type(top),
    )


def _text_fields(top: Fields) -> tuple[Fields, str]:
    """The fields of the language model, class defaults filled in where it is nested, and the model type."""
    if top.flag("is_encoder_decoder", default=False):
        raise top.error("is_encoder_decoder", True, "only models that are a decoder alone are described")
    fields, nested = top, False
    for _ in range(3):  # a composite model may hold another one
        inner = fields.table(*_TEXT_CONFIGS)
        if inner is None:
            break
        fields, nested = inner, True
    model_type = fields.text("model_type") or top.text("model_type")
    if model_type is None:
        raise top.missing("model_type")
    family = model_type.removesuffix("_text")
    if family not in POSITION_KINDS and not fields.has("layer_types"):
        raise UnableError(
            f"{top.source}: model_type = {shown(model_type)}: contextlab does not know how this architecture caches",
            "Give the config of a known one, or add `layer_types` in a copy of this one.",
        )
    if nested and family in TEXT_DEFAULTS:
        fields = Fields(fields.source, {**TEXT_DEFAULTS[family], **fields.values}, fields.prefix)
    return fields, family


def _num_layers(fields: Fields) -> int:
    """Number of layers; newer files may leave it to the list of layers."""
    if not fields.has(*LAYERS):
        listed = fields.items(*LAYER_LISTS)
        if listed is not None:
            return fields.whole(f"length of {LAYER_LISTS[0]}", len(listed), low=1, high=MAX_LAYERS)
    return fields.needed(*LAYERS, high=MAX_LAYERS)


def _weights_type(fields: Fields) -> str:
    return (fields.text("dtype", "torch_dtype") or "").removeprefix("torch.")


def _ffn(fields: Fields) -> int | None:
    """Width of the feed-forward block; the widest where every layer has its own."""
    found = fields.find(*FFN)
    if found is None:
        return None
    name, value = found
    if isinstance(value, list):
        return max((fields.whole(name, item, low=0, high=MAX_WIDTH) for item in value), default=0) or None
    return fields.whole(name, value, low=0, high=MAX_WIDTH) or None


def _positions(fields: Fields, family: str) -> Positions:
    kind = POSITION_KINDS.get(family, PositionKind.ROTARY)
    if fields.values.get("alibi") is True:
        kind = PositionKind.ALIBI
    attention = fields.table("attn_config")
    if family == "mpt" and attention is not None and not attention.flag("alibi", default=True):
        kind = PositionKind.LEARNED
    found = fields.find(*POSITIONS)
    if found is None:
        return Positions(kind=kind, max_tokens=None)
    name, value = found
    return Positions(kind=kind, max_tokens=fields.whole(name, value, low=1, high=MAX_TOKENS), name=name)


def _rope(fields: Fields) -> Rope | None:
    """Rotary positions: `rope_parameters` (transformers 5) or `rope_scaling`, by layer type or for all layers."""
    table = fields.table("rope_parameters", "rope_scaling")
    if table is None:
        theta = fields.number("rope_theta", "rotary_emb_base")
        return None if theta is None else Rope(theta=theta)
    table = table.table("full_attention") or table
    kind = table.text("rope_type", "type") or "default"
    original = table.integer("original_max_position_embeddings", high=MAX_TOKENS)
    return Rope(
        kind={"su": "longrope", "mrope": "default", "none": "default"}.get(kind, kind),
        factor=table.number("factor"),
        original_tokens=original or fields.integer("original_max_position_embeddings", high=MAX_TOKENS),
        theta=table.number("rope_theta") or fields.number("rope_theta", "rotary_emb_base"),
    )
