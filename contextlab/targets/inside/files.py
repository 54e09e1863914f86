"""Looking at a model folder before anything of it is loaded: a broken file is named, with its field and value.

    model.safetensors:  length of the header (8 bytes, little endian) · header (JSON) · the tensors' bytes

Layout as in the safetensors README. Only headers are read; the weights are the library's business.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, TypeGuard

from contextlab.capacity.config import read_json
from contextlab.capacity.fields import CHECK_FILE, shown
from contextlab.capacity.files import opened
from contextlab.model import UnableError

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
MAX_TOKENIZER_BYTES = 1 << 27
LENGTH_BYTES = 8
TYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
INDEX = "model.safetensors.index.json"
PICKLED = "pytorch_model*.bin"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")


def check_weights(folder: Path) -> None:
    """Raise UnableError unless the folder has weights, whole as far as their headers tell."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / INDEX
    if index.exists():
        files = _indexed(index)
    if not files and not any(folder.glob(PICKLED)):
        raise UnableError(
            f"{folder}: the folder has no weights (model.safetensors, {INDEX} or {PICKLED})",
            "Name the folder that `save_pretrained` or a download wrote.",
        )
    for file in files:
        check_safetensors(file)


def check_tokenizer(folder: Path) -> None:
    """Raise UnableError unless the folder has a tokenizer; a tokenizer.json must be an object with a model in it."""
    found = [folder / name for name in TOKENIZERS if (folder / name).exists()]
    if not found:
        raise UnableError(
            f"{folder}: the folder has no tokenizer ({', '.join(TOKENIZERS)})",
            "Copy the model's tokenizer files into it.",
        )
    if found[0].name == "tokenizer.json":
        values = _json_of(found[0])
        if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
            what = values.get("model") if isinstance(values, dict) else values
            raise UnableError(f"{found[0]}: model = {shown(what)}: must be an object", CHECK_FILE)


def check_safetensors(path: str | os.PathLike[str]) -> None:
    """Raise UnableError, naming the file and what is wrong, unless header and size of the file agree."""
    name = os.fspath(path)
    with opened(name, "Name a model folder.") as (descriptor, file_bytes):
        start = os.pread(descriptor, LENGTH_BYTES, 0)
        if len(start) < LENGTH_BYTES:
            raise _broken(name, f"the file has {file_bytes} bytes, not even the {LENGTH_BYTES} of its header's length")
        length = int.from_bytes(start, "little")
        if length > MAX_HEADER_BYTES:
            raise _broken(name, f"header length = {length}: must be at most {MAX_HEADER_BYTES}")
        if length > file_bytes - LENGTH_BYTES:
            raise _broken(name, f"header length = {length}, but only {file_bytes - LENGTH_BYTES} bytes follow")
        header = os.pread(descriptor, length, LENGTH_BYTES)
    _check_tensors(name, _decoded(name, header), file_bytes - LENGTH_BYTES - length)


def _check_tensors(name: str, tensors: Any, data_bytes: int) -> None:
    """Each tensor has the bytes that its type and shape need; together they are the whole rest of the file."""
    if not isinstance(tensors, dict):
        raise _broken(name, f"the header holds {shown(tensors)}: must be a JSON object")
    spans = []
    for key, tensor in tensors.items():
        if key == "__metadata__":
            continue
        fields = tensor if isinstance(tensor, dict) else {}
        kind, shape, span = (fields.get(field) for field in ("dtype", "shape", "data_offsets"))
        if not isinstance(kind, str) or kind not in TYPE_BITS:
            raise _broken(name, f"{shown(key)}.dtype = {shown(kind)}: must be one of {', '.join(TYPE_BITS)}")
        if not _whole_numbers(shape):
            raise _broken(name, f"{shown(key)}.shape = {shown(shape)}: must be a list of whole numbers")
        if not _whole_numbers(span) or len(span) != 2 or span[0] > span[1]:
            raise _broken(name, f"{shown(key)}.data_offsets = {shown(span)}: must be a begin and an end")
        needed = -(-math.prod(shape) * TYPE_BITS[kind] // 8)
        if span[1] - span[0] != needed:
            raise _broken(name, f"{shown(key)}.data_offsets = {span}: {kind} {shown(shape)} takes {needed} bytes")
        spans.append((span[0], span[1], key))
    end = 0
    for begin, until, key in sorted(spans):
        if begin != end:
            raise _broken(name, f"{shown(key)}.data_offsets = [{begin}, {until}]: the tensor before it ends at {end}")
        end = until
    if end != data_bytes:
        raise _broken(name, f"the tensors take {end} bytes, but {data_bytes} bytes of them are in the file")


def _whole_numbers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 62 for one in value)


def _indexed(index: Path) -> list[Path]:
    """The files that an index names, each of which must be there."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise UnableError(
            f"{index}: weight_map = {shown(table)}: must be an object with a file for each tensor", CHECK_FILE
        )
    names = {str(name) for name in table.values()}
    for name in sorted(names):
        if os.path.basename(name) != name:
            raise UnableError(f"{index}: weight_map names {shown(name)}: must be a file of the same folder", CHECK_FILE)
        if not (index.parent / name).exists():
            raise UnableError(f"{index}: weight_map names {shown(name)}: there is no such file", CHECK_FILE)
    return sorted(index.parent / name for name in names)


def _json_of(path: Path) -> Any:
    """The content of a JSON file that may be large, as vocabularies are."""
    with opened(str(path), "Name a model folder.") as (descriptor, file_bytes):
        if file_bytes > MAX_TOKENIZER_BYTES:
            rule = f"more than the {MAX_TOKENIZER_BYTES} that are read"
            raise UnableError(f"{path}: the file has {file_bytes} bytes, {rule}", CHECK_FILE)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_TOKENIZER_BYTES + 1)
    return _decoded(str(path), data)


def _decoded(name: str, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        words = "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise UnableError(f"{name}: not JSON: {words}", CHECK_FILE) from error


def _broken(name: str, words: str) -> UnableError:
    return UnableError(f"{name}: {words}", "Download the file again.")
