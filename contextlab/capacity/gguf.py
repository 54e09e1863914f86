"""Reading the header of a GGUF file, without trusting it and without reading its weights.

    magic "GGUF" · version · tensor count · kv count ‖ key, type, value … ‖ name, shape, type, offset … ‖ pad ‖ data

Layout as in ggml's `docs/gguf.md`, versions 2 and 3, either byte order. Each count and length is checked against the
bytes that are left before anything is read or kept; long arrays and long texts are stepped over (`gguf_header`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from contextlab.capacity.elements import ElementType, ggml_type
from contextlab.capacity.fields import shown
from contextlab.capacity.files import opened
from contextlab.capacity.gguf_header import DOWNLOAD_AGAIN, Header, Skipped
from contextlab.model import UnableError

MAX_KEY_BYTES = 65_535
MAX_ITEMS_KEPT = 1024
"""Arrays with more elements are stepped over."""
MAX_NESTING = 4
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_TYPE_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
_SMALLEST_KV_BYTES = 8 + 4 + 1  # an empty key, its type, a value of one byte
_SMALLEST_TENSOR_BYTES = 8 + 4 + 4 + 8  # an empty name, no dimensions, type, offset


Value = int | float | bool | str | tuple["Value", ...] | Skipped


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor. `shape` is innermost first, as in ggml; `offset_bytes` counts from the start of the data.

    `element_type` and `num_bytes` are None for a type that is newer than this reader.
    """

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset_bytes: int

    @property
    def element_type(self) -> ElementType | None:
        """Type of the elements."""
        return ggml_type(self.type_number)

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def num_bytes(self) -> int | None:
        """Size in the file, without padding."""
        kind = self.element_type
        return None if kind is None else kind.num_bytes(self.num_elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """The header of a GGUF file, whole and consistent."""

    path: str
    version: int
    big_endian: bool
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    alignment: int
    data_offset: int
    file_bytes: int

    @property
    def num_parameters(self) -> int:
        """Elements of all tensors in this file."""
        return sum(tensor.num_elements for tensor in self.tensors)

    @property
    def weights_bytes(self) -> int:
        """Bytes of all tensors in this file whose type is known."""
        return sum(tensor.num_bytes or 0 for tensor in self.tensors)


def check_gguf(path: str | os.PathLike[str]) -> None:
    """Raise UnableError unless `path` is a whole, readable GGUF file with weights in it. Reads the header only."""
    file = read_gguf(path)
    if not file.tensors:
        raise UnableError(
            f"{file.path}: tensor count = 0: the file holds a vocabulary and no weights",
            "Name the model's own GGUF file.",
        )


def read_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """The header of the GGUF file at `path`; raises UnableError, naming field and value, for any other file."""
    name = os.fspath(path)
    with opened(name, "Name a .gguf file.") as (descriptor, file_bytes):
        header = Header(name, descriptor, file_bytes)
        version = header.start()
        num_tensors = header.count("tensor count", _SMALLEST_TENSOR_BYTES)
        num_keys = header.count("kv count", _SMALLEST_KV_BYTES)
        metadata = _read_metadata(header, num_keys)
        alignment = _alignment(header, metadata)
        tensors = _read_tensors(header, num_tensors, alignment)
        data_offset = -(-header.at // alignment) * alignment
        file = GgufFile(
            path=name,
            version=version,
            big_endian=header.order == ">",
            metadata=MappingProxyType(metadata),
            tensors=tensors,
            alignment=alignment,
            data_offset=data_offset,
            file_bytes=file_bytes,
        )
    _require_whole(file)
    return file


# ── the three parts ──────────────────────────────────────────────────────────────────────────────


def _read_metadata(header: Header, num_keys: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(num_keys):
        key = header.name(f"key {index}", MAX_KEY_BYTES)
        if key in metadata:
            raise header.error(f"key {shown(key)} is there twice")
        header.keep(400)
        field = shown(key)
        metadata[key] = _read_value(header, field, header.number("I", f"type of {field}"), 0)
    return metadata


def _read_value(header: Header, field: str, type_number: int, depth: int) -> Value:
    if type_number == _STRING:
        return header.text(field)
    if type_number == _ARRAY:
        return _read_array(header, field, depth)
    if type_number not in _SCALARS:
        raise header.error(f"type {type_number} of {field} is no GGUF value type (0 to 12)")
    return _read_scalars(header, field, type_number, 1)[0]


def _read_array(header: Header, field: str, depth: int) -> Value:
    if depth == MAX_NESTING:
        raise header.error(f"{field} nests arrays more than {MAX_NESTING} deep")
    element = header.number("I", f"element type of {field}")
    if element not in _SCALARS and element not in {_STRING, _ARRAY}:
        raise header.error(f"element type {element} of {field} is no GGUF value type (0 to 12)")
    smallest_bytes = {_STRING: 8, _ARRAY: 12}.get(element) or struct.calcsize("=" + _SCALARS[element])
    length = header.count(f"length of {field}", smallest_bytes)
    if length <= MAX_ITEMS_KEPT:
        header.keep(512)
        if element in _SCALARS:
            return _read_scalars(header, field, element, length)
        return tuple(_read_value(header, field, element, depth + 1) for _ in range(length))
    if element == _STRING:
        header.skip_texts(length, field)
    elif element == _ARRAY:
        raise header.error(f"{field} is an array of {length} arrays, more than the {MAX_ITEMS_KEPT} allowed")
    else:
        header.skip(length * smallest_bytes, field)
    return Skipped(_TYPE_NAMES[element], length)


def _read_scalars(header: Header, field: str, type_number: int, count: int) -> tuple[Value, ...]:
    header.keep(40 * count)
    values = header.unpack(f"{count}{_SCALARS[type_number]}", field)
    if type_number != _BOOL:
        return values
    if not set(values) <= {0, 1}:
        raise header.error(f"{field} = {max(values)}: a boolean must be 0 or 1")
    return tuple(value == 1 for value in values)


def _alignment(header: Header, metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 30 or value & (value - 1):
        raise header.error(f"general.alignment = {shown(value)}: must be a power of two")
    return value


def _read_tensors(header: Header, num_tensors: int, alignment: int) -> tuple[Tensor, ...]:
    tensors: dict[str, Tensor] = {}
    for index in range(num_tensors):
        name = header.name(f"name of tensor {index}", MAX_KEY_BYTES)
        where = f"tensor {shown(name)}"
        num_dimensions = header.number("I", f"dimensions of {where}")
        if num_dimensions > MAX_DIMENSIONS:
            raise header.error(f"{where} has {num_dimensions} dimensions, more than {MAX_DIMENSIONS}")
        *shape, type_number, offset_bytes = map(int, header.unpack(f"{num_dimensions}QIQ", where))
        tensor = Tensor(name, tuple(shape), type_number, offset_bytes)
        if name in tensors:
            raise header.error(f"{where} is there twice")
        _check_tensor(header, tensor, where, alignment)
        header.keep(600)
        tensors[name] = tensor
    return tuple(tensors.values())


def _check_tensor(header: Header, tensor: Tensor, where: str, alignment: int) -> None:
    if tensor.type_number > 255:
        raise header.error(f"type {tensor.type_number} of {where} is no tensor type")
    if tensor.offset_bytes % alignment:
        raise header.error(f"{where} has offset {tensor.offset_bytes}, no multiple of the alignment {alignment}")
    if tensor.num_elements >= 1 << 63:
        raise header.error(f"{where} has shape {list(tensor.shape)}, more elements than there can be")
    kind = tensor.element_type
    if kind is not None and tensor.shape and tensor.shape[0] % kind.block_elements:
        raise header.error(
            f"{where} has rows of {tensor.shape[0]}, no multiple of the {kind.block_elements} of a block"
        )


def _require_whole(file: GgufFile) -> None:
    """Raise unless the data of every tensor lies inside the file."""
    if not file.tensors:
        return
    last = max(file.tensors, key=lambda tensor: tensor.offset_bytes + (tensor.num_bytes or 0))
    end = file.data_offset + last.offset_bytes + (last.num_bytes or 0)
    if end > file.file_bytes:
        raise UnableError(
            f"{file.path}: truncated: the data of tensor {shown(last.name)} ends at byte {end}, "
            f"the file has {file.file_bytes}",
            DOWNLOAD_AGAIN,
        )
