"""The first layers of the real model: the same vocabulary, the same engine, its tokens in a fifth of the time.

What an engine does at its window does not depend on how well the model writes.
"""

from __future__ import annotations

import struct
from pathlib import Path

from contextlab.capacity.gguf import read_gguf


def first_layers(whole: Path, part: Path, num_layers: int) -> Path:
    """Write the GGUF file `part`: metadata of `whole` but for the number of layers, and the tensors of so many."""
    file, data = read_gguf(whole), whole.read_bytes()
    begin = data.index(_text(file.tensors[0].name))  # of the list of tensors
    kept = [tensor for tensor in file.tensors if _layer(tensor.name) < num_layers]
    pairs = bytearray(data[16:begin])  # their number, and all of them
    count = pairs.index(_text("llama.block_count")) + len(_text("llama.block_count")) + 4
    pairs[count : count + 4] = struct.pack("<I", num_layers)
    infos, blobs = bytearray(), bytearray()
    for tensor in kept:
        assert tensor.num_bytes is not None
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        infos += _text(tensor.name) + shape + struct.pack("<IQ", tensor.type_number, len(blobs))
        start = file.data_offset + tensor.offset_bytes
        blobs += _padded(data[start : start + tensor.num_bytes], file.alignment)
    head = data[:8] + struct.pack("<Q", len(kept)) + pairs + infos
    part.write_bytes(_padded(head, file.alignment) + blobs)
    return part


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _layer(name: str) -> int:
    """The layer of a tensor; -1 where it belongs to none."""
    words = name.split(".")
    return int(words[1]) if words[0] == "blk" else -1


def _padded(data: bytes | bytearray, alignment: int) -> bytes:
    return bytes(data) + bytes(-len(data) % alignment)
