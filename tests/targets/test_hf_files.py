"""Broken model folders: named by file, field and value, before anything of them is loaded."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.model import UnableError, UsageError
from contextlab.targets.hf import checked
from contextlab.targets.inside.files import check_safetensors, check_tokenizer, check_weights
from contextlab.targets.inside.load import Source, find
from contextlab.targets.inside.random_models import ARCHITECTURES

HEADER: dict[str, dict[str, object]] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def packed(header: object, data: bytes = bytes(32), length: int | None = None) -> bytes:
    """A safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def with_a(**fields: object) -> bytes:
    """The file with other fields of its first tensor."""
    return packed({**HEADER, "a": {**HEADER["a"], **fields}})


def refusal(path: Path, check: Callable[[Path], object]) -> str:
    """The message of the UnableError that a check raises; it names the place."""
    with pytest.raises(UnableError) as raised:
        check(path)
    assert str(path.parent) in raised.value.message
    assert raised.value.next_step
    return raised.value.message


def test_a_whole_file_passes(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(packed(HEADER))
    check_safetensors(file)
    check_weights(tmp_path)
    file.write_bytes(packed({}, b""))
    check_safetensors(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not even the 8"),
        (b"1234567", "the file has 7 bytes"),
        (packed(HEADER, length=10**6), "header length = 1000000, but only"),
        (packed(HEADER, length=2**63), "must be at most 100000000"),
        (packed(b"{nope"), "not JSON"),
        (packed(b"[" * 200_000), "not JSON"),
        (packed(b"\xff\xfe"), "not JSON"),
        (packed([1]), "must be a JSON object"),
        (packed({"a": 3}), "'a'.dtype = None"),
        (with_a(dtype="F31"), "'a'.dtype = 'F31'"),
        (with_a(dtype=["F32"]), "'a'.dtype = ['F32']"),
        (with_a(shape=[2, -3]), "'a'.shape = [2, -3]"),
        (with_a(shape="23"), "'a'.shape = '23'"),
        (with_a(shape=[2, 10**30]), "must be a list of whole numbers"),
        (with_a(data_offsets=[24, 0]), "'a'.data_offsets = [24, 0]"),
        (with_a(data_offsets=[0]), "must be a begin and an end"),
        (with_a(data_offsets=[0, 20]), "takes 24 bytes"),
        (with_a(data_offsets=[8, 32]), "the tensor before it ends at 0"),
        (packed(HEADER, bytes(31)), "the tensors take 32 bytes, but 31 bytes of them are in the file"),
        (packed(HEADER, bytes(40)), "but 40 bytes"),
    ],
)
def test_a_broken_file_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    assert words in refusal(file, check_safetensors)


@settings(max_examples=300, deadline=1000)
@given(st.data())
def test_no_damage_is_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = packed(HEADER)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(max_size=4)) + whole[at + data.draw(st.integers(0, 4)) :]
    file = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    file.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        check_safetensors(file)
    except UnableError as error:
        assert str(file) in error.message  # noqa: PT017 - passing is fine too


def test_an_index_names_files_that_are_there(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    for table, words in (
        ({}, "weight_map = {}"),
        ({"a": "one.safetensors"}, "'one.safetensors': there is no such file"),
        ({"a": "../one.safetensors"}, "must be a file of the same folder"),
    ):
        index.write_text(json.dumps({"weight_map": table}), encoding="utf-8")
        assert words in refusal(index, lambda path: check_weights(path.parent))
    index.write_text("{", encoding="utf-8")
    assert "not JSON" in refusal(index, lambda path: check_weights(path.parent))
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}), encoding="utf-8")
    (tmp_path / "one.safetensors").write_bytes(packed(HEADER, b""))
    assert "one.safetensors: the tensors take" in refusal(index, lambda path: check_weights(path.parent))


@pytest.mark.parametrize(
    ("content", "words"), [(b"\x00", "not JSON"), (b"[]", "must be an object"), (b'{"model": 7}', "model = 7")]
)
def test_a_tokenizer_that_is_none(content: bytes, words: str, tmp_path: Path) -> None:
    assert "has no tokenizer" in refusal(tmp_path / "x", lambda path: check_tokenizer(path.parent))
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert words in refusal(tmp_path / "tokenizer.json", lambda path: check_tokenizer(path.parent))


@pytest.mark.parametrize(
    ("address", "words", "next_step"),
    [
        ("random/gpt3", "architecture='gpt3': there is no such random model", "did you mean gpt2"),
        ("random/", "architecture=''", ", ".join(ARCHITECTURES)),
        ("", "which model?", "hf:random/NAME"),
    ],
)
def test_a_model_that_cannot_be_meant(address: str, words: str, next_step: str) -> None:
    with pytest.raises(UsageError) as raised:
        find(address)
    assert words in raised.value.message
    assert next_step in raised.value.next_step


def test_a_place_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no model", encoding="utf-8")
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03")
    (tmp_path / "folder").mkdir()
    for name, words in (
        ("text", "neither a model folder nor a .gguf file"),
        ("nothing", "no such folder or file"),
        ("cut.gguf", "cut.gguf"),
        ("folder", "has no config.json"),
    ):
        assert words in refusal(tmp_path / name, lambda path: find(str(path)))


def test_a_cache_length_without_a_static_cache(tmp_path: Path) -> None:
    from contextlab.capacity.config_shape import from_config

    fields = {"model_type": "bloom", "hidden_size": 8, "n_layer": 1, "n_head": 2}
    source = Source(name="x", shape=from_config(fields, "x"))
    with pytest.raises(UsageError, match="max_cache_len=8"):
        checked({"cache": "dynamic", "max_cache_len": 8, "window": None}, source)
    with pytest.raises(UsageError, match="how long"):
        checked({"cache": "static", "max_cache_len": None, "window": None}, source)
    assert checked({"cache": "static", "max_cache_len": 8, "window": None}, source)["max_cache_len"] == 8
