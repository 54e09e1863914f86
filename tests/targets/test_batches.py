"""The task "batch-speed" on tiny real models: what is fed to the model, what is counted, and what an error leaves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from contextlab.model import Evidence, UsageError
from contextlab.registry import parse_setting
from contextlab.targets import hf
from contextlab.targets.inside.batches import AXES, TASK, WARM_STEPS, batch_speed
from contextlab.targets.inside.load import Loaded
from tests.targets.hf_models import WINDOW, model

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.hf,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra hf"),
    pytest.mark.filterwarnings("ignore"),
]
USUAL: Mapping[str, int | str] = {"batch": 3, "prompt_tokens": 20, "reply_tokens": 6, "warmup": 0, "seed": 7}
DELAY_S = 0.02


def told(loaded: Loaded, **about: int | str) -> list[Evidence]:
    """Everything that one call yields."""
    return list(batch_speed(loaded, {**USUAL, **about}))


def repeats(loaded: Loaded, **about: int | str) -> list[dict[str, Any]]:
    """What each repeat tells."""
    return [dict(evidence) for evidence in told(loaded, **about) if "repeat" in evidence]


@contextmanager
def watched(loaded: Loaded, delay_s: float = 0.0) -> Iterator[list[tuple[int, ...]]]:
    """The shape of everything that the model is fed meanwhile, each forward pass slower by `delay_s`."""
    shapes: list[tuple[int, ...]] = []

    def look(module: Any, args: Any, options: Any) -> None:
        shapes.append(tuple(options["input_ids"].shape))
        time.sleep(delay_s)

    hook = loaded.model.register_forward_pre_hook(look, with_kwargs=True)
    try:
        yield shapes
    finally:
        hook.remove()


def cache_bytes(loaded: Loaded, batch: int, tokens: int) -> int:
    """Keys and values of so many float32 tokens in every layer of a Llama."""
    config = loaded.model.config
    head = config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * config.num_key_value_heads * head * 4 * batch * tokens)


# ── what is run ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("chunk", "prefill"), [(0, [20]), (8, [8, 8, 4]), (20, [20]), (1, [1] * 20), (64, [20])])
def test_the_model_is_fed_whole_batches_in_chunks_then_a_token_a_step(chunk: int, prefill: list[int]) -> None:
    loaded = model("llama")
    with watched(loaded) as shapes:
        (one,) = repeats(loaded, prefill_chunk=chunk)
    assert shapes == [(3, length) for length in prefill] + [(3, 1)] * 5
    assert (one["num_chunks"], one["num_steps"], one["output_tokens"]) == (len(prefill), 5, 18)


def test_warm_ups_are_run_and_not_counted() -> None:
    loaded = model("llama")
    with watched(loaded) as shapes:
        evidence = told(loaded, warmup=2, repeats=3, reply_tokens=WARM_STEPS + 3)
    assert [one["trying"] for one in evidence if "trying" in one] == [
        *("warm-up 0", "warm-up 1"),
        *("repeat 0", "repeat 1", "repeat 2"),
    ]
    assert [one["repeat"] for one in evidence if "repeat" in one] == [0, 1, 2]
    assert len(shapes) == 2 * (1 + WARM_STEPS) + 3 * (1 + WARM_STEPS + 2)


def test_the_seed_decides_everything_but_the_times() -> None:
    loaded = model("llama")
    first = [one["reply_sha256"] for one in repeats(loaded, repeats=3)]
    assert len(set(first)) == 3  # prompts of their own
    assert first == [one["reply_sha256"] for one in repeats(loaded, repeats=3, warmup=1)]
    assert first[0] != repeats(loaded, seed=8)[0]["reply_sha256"]
    same = repeats(loaded, repeats=3, cache="static", prefill_chunk=7)
    assert first == [one["reply_sha256"] for one in same]  # neither a cache nor chunks change the choice


def test_a_static_cache_is_new_for_each_repeat_and_stands_before_the_clock_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = model("llama")
    with watched(loaded) as shapes:
        monkeypatch.setattr("time.perf_counter", lambda: float(len(shapes)))  # a second a forward pass
        first, second = repeats(loaded, cache="static", reply_tokens=4, prefill_chunk=10, repeats=2)
    assert shapes == [(3, 1), (3, 10), (3, 10), (3, 1), (3, 1), (3, 1)] * 2
    for one in first, second:
        assert (one["ttft_s"], one["chunk_max_s"], one["e2e_s"], one["tpot_s"]) == (2, 1, 5, 1)


# ── what is counted ──────────────────────────────────────────────────────────────────────────────


def test_times_are_those_of_the_forward_passes() -> None:
    loaded = model("llama")
    with watched(loaded, DELAY_S):
        (one,) = repeats(loaded, prefill_chunk=10, warmup=1)
    steps = [float(word) for word in one["step_s"].split(",")]
    assert len(steps) == one["num_steps"] == 5
    assert one["ttft_s"] >= 2 * DELAY_S
    assert one["ttft_s"] > one["chunk_max_s"] >= DELAY_S
    assert DELAY_S <= min(steps) <= one["itl_p50_s"] <= one["itl_p90_s"] <= one["itl_p99_s"] == one["itl_max_s"]
    assert one["itl_max_s"] == pytest.approx(max(steps), abs=1e-6)
    assert one["itl_p50_s"] == pytest.approx(sorted(steps)[2], abs=1e-6)
    assert one["tpot_s"] == pytest.approx(sum(steps) / 5, abs=1e-5)
    assert one["e2e_s"] == pytest.approx(one["ttft_s"] + sum(steps), abs=1e-4)
    assert one["output_tokens_per_s"] == pytest.approx(18 / one["e2e_s"])
    assert one["decode_tokens_per_s"] == pytest.approx(15 / sum(steps), rel=1e-3)
    assert one["prefill_tokens_per_s"] == pytest.approx(60 / one["ttft_s"])
    assert 0 < one["cpu_s"] < one["e2e_s"]  # it slept, and sleeping takes no CPU


def test_a_reply_of_one_token_has_no_steps() -> None:
    (one,) = repeats(model("llama"), reply_tokens=1)
    assert (one["num_steps"], one["output_tokens"], one["step_s"]) == (0, 3, "")
    assert one["itl_p50_s"] is one["itl_max_s"] is one["tpot_s"] is one["decode_tokens_per_s"] is None
    assert one["e2e_s"] == one["ttft_s"]


def test_the_cache_takes_the_bytes_it_has() -> None:
    loaded = model("llama")
    grown, fixed, long, packed = (
        repeats(loaded, cache=cache, max_cache_len=length)[0]["kv_bytes"]
        for cache, length in (("dynamic", 0), ("static", 0), ("static", 100), ("quantised", 0))
    )
    assert grown == cache_bytes(loaded, 3, 25)  # the last token is never fed back
    assert fixed == cache_bytes(loaded, 3, 26)
    assert long == cache_bytes(loaded, 3, 100)
    assert packed * 4 == grown


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's peak can be set back on Linux alone")
def peaks() -> list[int]:
    """Peaks of a small, a large and a small cache, one after the other."""
    loaded = model("llama")
    tokens = (64 << 20) // cache_bytes(loaded, 1, 1)
    return [
        repeats(loaded, batch=1, cache="static", max_cache_len=length, reply_tokens=2)[0]["peak_memory_bytes"]
        for length in (64, tokens, 64)
    ]


def test_the_peak_is_that_of_its_own_batch() -> None:
    """In a process of its own: what ran before in this one decides what its allocator gives back."""
    code = "from tests.targets.test_batches import peaks; print(*peaks())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    small, large, again = map(int, ran.stdout.split()[-3:])
    assert 48 << 20 < large - small < 128 << 20
    assert large - again > 48 << 20


# ── errors of the library, and numbers that cannot be meant ──────────────────────────────────────


def test_a_static_cache_that_is_too_small_for_the_reply_is_told_with_what_came() -> None:
    *_, last = told(model("llama"), cache="static", max_cache_len=22, repeats=3)
    assert (last["cache_too_small"], last["failed_in"], last["error_type"]) == (True, "reply of repeat 0", "IndexError")
    assert last["error"] == "index_copy_(): index 22 is out of bounds for dimension 2 with size 22"
    assert (last["num_steps"], last["output_tokens"]) == (2, 9)
    assert isinstance(last["ttft_s"], float)


@pytest.mark.parametrize(("warmup", "where"), [(0, "repeat 0"), (1, "warm-up 0")])
def test_one_that_is_too_small_for_the_prompt_tells_no_time(warmup: int, where: str) -> None:
    *_, last = told(model("llama"), cache="static", max_cache_len=19, warmup=warmup)
    assert (last["cache_too_small"], last["failed_in"]) == (True, f"prefill of {where}")
    assert last.get("ttft_s") is last.get("output_tokens_per_s") is None


def test_what_fits_exactly_is_no_error_and_sliding_layers_roll() -> None:
    (one,) = repeats(model("llama"), cache="static", max_cache_len=25)
    assert (one["cache_too_small"], one["output_tokens"]) == (False, 18)
    (rolled,) = repeats(model("mistral"), cache="static", max_cache_len=16)
    assert (rolled["cache_too_small"], rolled["output_tokens"]) == (False, 18)


def test_another_error_is_not_put_on_the_cache() -> None:
    *_, last = told(model("gpt2"), prompt_tokens=WINDOW - 2)
    assert (last["cache_too_small"], last["error"]) == (False, "index out of range in self")
    assert last["num_steps"] == 2


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"batch": 0}, "batch=0: must be between 1 and 256"),
        ({"batch": 257}, "batch=257"),
        ({"prompt_tokens": 0}, "prompt_tokens=0"),
        ({"prefill_chunk": -1}, "prefill_chunk=-1"),
        ({"cache": "paged"}, "cache='paged': must be one of dynamic, static, quantised"),
        ({"max_cache_len": 64}, "max_cache_len=64: a dynamic cache has no length of its own"),
    ],
)
def test_numbers_that_cannot_be_meant(about: dict[str, int | str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        told(model("llama"), **about)


# ── the target ───────────────────────────────────────────────────────────────────────────────────


def test_what_is_left_out_comes_from_the_target() -> None:
    loaded = model("llama", cache="static", max_cache_len=40)
    facts = told(loaded)[0]
    assert (facts["cache"], facts["max_cache_len"], facts["threads"]) == ("static", 40, 1)
    assert told(loaded, max_cache_len=0)[0]["max_cache_len"] == 26
    assert told(loaded, cache="dynamic")[0]["max_cache_len"] is None


def test_the_target_performs_it_and_names_its_axes() -> None:
    loaded = model("llama")
    target = hf.HfTarget(loaded.source, loaded.settings)
    target.__dict__["_loaded"] = loaded

    async def perform() -> list[Evidence]:
        return [evidence async for evidence in target.perform(TASK, USUAL)]

    assert asyncio.run(perform())[-1]["output_tokens"] == 18
    assert hf.AXES is AXES
    for axis in AXES:
        assert parse_setting(axis, str(axis.default)) == axis.default
