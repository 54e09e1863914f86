"""Reading a Hugging Face model folder: config.json, tokenizer_config.json and generation_config.json.

A file is read whole, but only if it is regular, of a sane size, and cannot unfold into more memory than the budget.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from contextlab.capacity.config_shape import from_config
from contextlab.capacity.fields import CHECK_FILE, MAX_TOKENS, Fields, shown
from contextlab.capacity.files import opened
from contextlab.capacity.shape import GenerationDefaults, ModelShape, TokenizerLimit
from contextlab.model import UnableError

MAX_FILE_BYTES = 16 << 20
MAX_DECODED_BYTES = 48 << 20
"""Memory that a decoded file may take, as estimated by `_decoded_bytes`."""
UNLIMITED_TOKENS = 10**20
"""A `model_max_length` from here on means no limit; transformers writes int(1e30)."""
_WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class HfModel:
    """What a model folder declares; None where it has no such file."""

    shape: ModelShape
    tokenizer: TokenizerLimit | None = None
    generation: GenerationDefaults | None = None


def read_config(path: str | os.PathLike[str]) -> HfModel:
    """The model in the folder `path`, or of the config file `path` with the files beside it.

    Raises UnableError, naming file, field and value, where one of the files cannot be meant.
    """
    place = Path(path)
    config = place / "config.json" if place.is_dir() else place
    if place.is_dir() and not config.exists():
        raise UnableError(f"{place}: the folder has no config.json", _what_else(place))
    folder = config.parent
    shape = from_config(read_json(config), str(config))
    tokenizer = folder / "tokenizer_config.json"
    generation = folder / "generation_config.json"
    return HfModel(
        shape=dataclasses.replace(shape, weights_bytes=_weights_bytes(folder)),
        tokenizer=_tokenizer(tokenizer) if tokenizer.exists() else None,
        generation=_generation(generation) if generation.exists() else None,
    )


def tokenizer_limit(model_max_length: object, source: str, truncation_side: str = "") -> TokenizerLimit:
    """The limit that a tokenizer's `model_max_length` means; 10²⁰ or more means none, None that it does not say."""
    name, value = "model_max_length", model_max_length
    fields = Fields(source, {name: value})
    if value is None:
        return TokenizerLimit(source=source, truncation_side=truncation_side)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= UNLIMITED_TOKENS:
        return TokenizerLimit(source=source, unlimited=True, truncation_side=truncation_side)
    return TokenizerLimit(
        source=source, max_tokens=fields.whole(name, value, low=1, high=MAX_TOKENS), truncation_side=truncation_side
    )


def _tokenizer(path: Path) -> TokenizerLimit:
    fields = Fields(str(path), read_json(path))
    found = fields.find("model_max_length", "max_len")
    return tokenizer_limit(found and found[1], str(path), fields.text("truncation_side") or "")


def _generation(path: Path) -> GenerationDefaults:
    fields = Fields(str(path), read_json(path))
    return GenerationDefaults(
        source=str(path),
        max_length=fields.integer("max_length", high=MAX_TOKENS),
        max_new_tokens=fields.integer("max_new_tokens", high=MAX_TOKENS),
    )


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def read_json(path: str | os.PathLike[str]) -> dict[str, object]:
    """The object in a JSON file; raises UnableError for anything else, whatever the file holds."""
    name = os.fspath(path)
    with opened(name, "Name a model folder or its config.json.") as (descriptor, file_bytes):
        if file_bytes > MAX_FILE_BYTES:
            raise UnableError(
                f"{name}: the file has {file_bytes} bytes, more than the {MAX_FILE_BYTES} that are read", CHECK_FILE
            )
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    needed = _decoded_bytes(data)
    if needed > MAX_DECODED_BYTES:
        raise UnableError(
            f"{name}: decoding its {len(data)} bytes may take {needed} bytes of memory, "
            f"more than the {MAX_DECODED_BYTES} allowed",
            CHECK_FILE,
        )
    try:
        values = json.loads(data, parse_int=_whole_number)
    except RecursionError as error:
        raise UnableError(f"{name}: objects and lists are nested too deep", CHECK_FILE) from error
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError among them
        raise UnableError(f"{name}: not JSON: {str(error)[:200]}", CHECK_FILE) from error
    if not isinstance(values, dict):
        raise UnableError(f"{name}: holds {shown(values)}: must be a JSON object", CHECK_FILE)
    return values


def _decoded_bytes(data: bytes) -> int:
    """The most memory that `data` takes once decoded: the text, its pieces, and 80 bytes for each value.

    One character beyond Latin makes a whole text two or four times as wide.
    """
    width = 1
    if not data.isascii() or b"\\u" in data:
        width = 4
    num_values = sum(data.count(mark) for mark in (b",", b":", b"[", b"{"))
    return (1 + 2 * width) * len(data) + 80 * num_values


def _whole_number(digits: str) -> int:
    if len(digits) > 400:
        raise ValueError(f"a number with {len(digits)} digits")
    return int(digits)


def _weights_bytes(folder: Path) -> int | None:
    """Size of the weight files in the folder, None where there are none."""
    for pattern in _WEIGHT_FILES:
        try:
            sizes = [file.stat().st_size for file in folder.glob(pattern)]
        except OSError:
            continue
        if sizes:
            return sum(sizes)
    return None


def _what_else(folder: Path) -> str:
    found = sorted(file.name for file in folder.glob("*.gguf"))
    if found:
        return f"It has {shown(found[0])}: name that file."
    return "Name the folder that `save_pretrained` or a download wrote, or a config.json."
