"""Ten thousand damaged files for each parser: a clear refusal or a shape, in time and in memory, never a traceback.

Seeded: a failure names the number of its file, and the same number makes the same file again.
"""

from __future__ import annotations

import json
import resource
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contextlab.capacity.config import read_config
from contextlab.capacity.contradictions import contradictions
from contextlab.capacity.gguf import read_gguf
from contextlab.capacity.gguf_shape import from_gguf
from contextlab.capacity.kv import llama_cpp, most_tokens, sequence_bytes
from contextlab.capacity.limits import EngineSettings, binding, limits_of
from contextlab.capacity.shape import ModelShape
from contextlab.model import UnableError

from .samples import ARRAY, BOOL, CONFIGS, STRING, U16, U32, gguf, llama_pairs, small_gguf

NUM_FILES = 10_000
MAX_BYTES = 64 << 20
MAX_FILE_S = 1.0

LATENT: dict[str, Any] = {
    "attention__kv_lora_rank": (U32, 512),
    "attention__key_length_mla": (U32, 192),
    "attention__value_length_mla": (U32, 128),
    "rope__dimension_count": (U32, 64),
}
MAMBA: dict[str, Any] = {
    "attention__head_count_kv": (ARRAY, (U32, [0, 3] * 15)),
    "ssm__conv_kernel": (U32, 4),
    "ssm__inner_size": (U32, 1152),
    "ssm__state_size": (U32, 16),
}
SEEDS = (
    small_gguf(),
    small_gguf("gemma3", attention__sliding_window=(U32, 512)),
    small_gguf("deepseek2", **LATENT),
    small_gguf("jamba", **MAMBA),
    small_gguf("gemma4", attention__sliding_window_pattern=(ARRAY, (BOOL, [1, 0] * 15))),
    gguf([*llama_pairs(), ("a", ARRAY, (ARRAY, [(U16, [1]), (STRING, ["x"])])), ("b", ARRAY, (STRING, ["t"] * 1500))]),
    gguf(llama_pairs(), order=">"),
    gguf(llama_pairs(), version=2),
)
NASTY_INTEGERS = (0, 1, 2, 8, 9, 13, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NASTY_VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 3, 7, 2**31, 2**63, 10**40, 10**399, 10**500, 0.5, -0.0, 1e-300, 1e308, 6.0),
    *(float("nan"), float("inf"), -float("inf"), True, False, None, "", "x" * 1000, "\ud800", "128", "auto"),
    *([], [[]], [None], [1, 2, 3], ["full_attention"] * 32, ["sliding_attention"] * 12, ["mamba"] * 24, [0] * 32),
    *({}, {"type": "yarn", "factor": 2}, {"full_attention": {"factor": -1}}, {"kv_n_heads": 3}, {"text_config": {}}),
    *("llama", "mamba", "gemma3_text", "falcon_h1", "minimax", "LLG", "MMMM*-E"),
)
MORE_FIELDS = """
    rope_scaling rope_parameters sliding_window_pattern layer_types layers_block_type hybrid_override_pattern
    attention_chunk_size no_rope_layers use_sliding_window kv_lora_rank qk_rope_head_dim linear_attn_config
    full_attn_idxs attn_type_list num_kv_shared_layers attn_config multi_query mamba_expand mamba_d_state conv_L_cache
    text_config is_encoder_decoder
"""
FIELDS = sorted({*MORE_FIELDS.split(), *(name for config in CONFIGS.values() for name in config)})


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


def damaged(data: bytes, rng: Random) -> bytes:
    """The bytes after one to four kinds of damage."""
    buffer = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(buffer) + 1)
        kind = rng.randrange(8)
        if kind == 0 and at < len(buffer):
            buffer[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            buffer[at : at + 8] = struct.pack(rng.choice("<>") + "Q", rng.choice(NASTY_INTEGERS))
        elif kind == 2:
            buffer[at : at + 4] = struct.pack("<I", rng.choice(NASTY_INTEGERS) & 0xFFFFFFFF)
        elif kind == 3:
            del buffer[at:]
        elif kind == 4:
            del buffer[at : at + rng.randint(1, 16)]
        elif kind == 5:
            buffer[at:at] = rng.randbytes(rng.randint(1, 16))
        elif kind == 6:
            buffer[at:at] = buffer[at : at + rng.randint(1, 200)]
        else:
            buffer[at : at + 16] = rng.randbytes(16)
    return bytes(buffer)


def hostile_gguf(rng: Random) -> bytes:
    """A damaged file, or a valid start and then noise, or noise alone."""
    kind = rng.randrange(20)
    if kind == 0:
        return rng.randbytes(rng.randrange(300))
    if kind == 1:
        start = struct.pack("<IQQ", 3, rng.choice(NASTY_INTEGERS), rng.choice(NASTY_INTEGERS))
        return b"GGUF" + start + rng.randbytes(rng.randrange(500))
    if kind == 2:
        seed = rng.choice(SEEDS)
        return seed[: rng.randrange(len(seed))] + rng.choice(SEEDS)[rng.randrange(100) :]
    return damaged(rng.choice(SEEDS), rng)


def hostile_config(rng: Random) -> bytes:
    """A config with nonsense in some fields, or damaged as text."""
    config: dict[str, Any] = json.loads(json.dumps(rng.choice(list(CONFIGS.values()))))
    inner = config.get("text_config")
    for _ in range(rng.randint(0, 4)):
        place = inner if isinstance(inner, dict) and rng.random() < 0.7 else config
        name = rng.choice(sorted(place) if place and rng.random() < 0.5 else FIELDS)
        if rng.random() < 0.2:
            place.pop(name, None)
        else:
            place[name] = rng.choice(NASTY_VALUES)
    data = json.dumps(config).encode()
    kind = rng.randrange(10)
    if kind == 0:
        return damaged(data, rng)
    if kind == 1:
        depth = rng.choice((10, 500, 2000, 20_000))
        return b'{"a":' * depth + data + b"}" * depth
    if kind == 2:
        return rng.randbytes(rng.randrange(200))
    return data


# ── the runs ─────────────────────────────────────────────────────────────────────────────────────


def use(shape: ModelShape) -> None:
    """Everything that is computed from a shape; no shape may break it."""
    sequence_bytes(shape, 4096)
    most_tokens(shape, 1 << 34, llama_cpp())
    shape.describe_layers()
    engine = EngineSettings(source="test", engine="llama.cpp", context_tokens=10_000, num_slots=3)
    binding(limits_of(shape, engine=engine))
    contradictions(shape, engine=engine, template_tokens=40)


def use_gguf(path: Path) -> None:
    use(from_gguf(read_gguf(path)))


def use_config(path: Path) -> None:
    use(read_config(path).shape)


@contextmanager
def memory_for(num_bytes: int) -> Iterator[None]:
    """Let this process map so much more memory and no more: an allocation beyond it is a MemoryError."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def traced(number: int) -> Iterator[None]:
    """Trace every fifth file's allocations, which takes five times as long; `memory_for` bounds the others'."""
    if number % 5:
        yield
        return
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES, f"file {number} took too much memory"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "make", "read", "most_refused"),
    [("model.gguf", hostile_gguf, use_gguf, 0.999), ("config.json", hostile_config, use_config, 0.95)],
)
def test_hostile_files(
    tmp_path: Path,
    name: str,
    make: Callable[[Random], bytes],
    read: Callable[[Path], None],
    most_refused: float,
) -> None:
    path = tmp_path / name
    refused = 0
    with memory_for(MAX_BYTES):
        for number in range(NUM_FILES):
            path.write_bytes(make(Random(f"{name} {number}")))
            started_s = time.thread_time()
            with traced(number):
                error = failure(read, path)
            assert time.thread_time() - started_s < MAX_FILE_S, f"file {number} took too long"
            if error is None:
                continue
            refused += 1
            assert isinstance(error, UnableError), f"file {number} ended in {error!r}"
            assert str(path) in error.message, f"file {number} is not named: {error.message}"
            assert error.next_step, f"file {number}: no next step"
            assert len(error.message) < 1000, f"file {number}: {len(error.message)} characters"
    assert 0.05 < refused / NUM_FILES < most_refused, "the damage is too mild, or nothing gets through"


def failure(read: Callable[[Path], None], path: Path) -> Exception | None:
    """What reading `path` raises."""
    try:
        read(path)
    except Exception as error:
        return error
    return None
