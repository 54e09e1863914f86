"""The task about speed: one batch through the model, from its prompts to the end of its replies, measured as it runs.

    B random prompts ─▶ [chunk ─▶ chunk ─▶ …] ─▶ first token of each ─▶ step ─▶ step ─▶ …
                        └───────── ttft ────────────────┘             └ itl ┘

Measured: the library's own forward pass and its choice of the most likely token, by batch size, kind and length of the
cache, prefill chunk and lengths of prompt and reply. Each time ends when the tokens are here as Python numbers, so that
a device has really finished.

Not measured: a scheduler, a queue, arrivals, a tokenizer, sampling. All sequences of a batch start together, are of one
length, and none ends early: an end-of-text token counts like any other. So a time to first token is that of the whole
batch, and a chunk makes nobody wait but itself; `chunk_max_s` is for how long it would hold up others. A static cache
is allocated before the clock starts, as one that is kept between requests.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from contextlab.analysis.quantiles import value_at
from contextlab.model import Evidence, Setting, UsageError
from contextlab.targets.inside.caches import dtype_name, random_ids
from contextlab.targets.inside.library import words_of
from contextlab.targets.inside.load import Loaded

About = Mapping[str, int | float | str]

TASK = "batch-speed"
AXES: tuple[Setting, ...] = (
    Setting(name="batch", kind="int", default=1, low=1, high=256, unit="sequences", help="sequences that run together"),
    Setting(
        name="prompt_tokens", kind="int", default=128, low=1, high=1 << 20, unit="tokens", help="length of each prompt"
    ),
    Setting(
        name="reply_tokens", kind="int", default=32, low=1, high=1 << 20, unit="tokens", help="length of each reply"
    ),
    Setting(
        name="prefill_chunk",
        kind="int",
        default=0,
        low=0,
        high=1 << 20,
        unit="tokens",
        help="tokens of each prompt that are read at once; 0: all of them",
    ),
    Setting(
        name="cache",
        kind="text",
        default="dynamic",
        choices=("dynamic", "static", "quantised"),
        help="KV cache: it grows, or has max_cache_len tokens, or is kept in fp8",
    ),
    Setting(
        name="max_cache_len",
        kind="int",
        default=0,
        low=0,
        high=1 << 24,
        unit="tokens",
        help="length of a static cache; 0: what prompt and reply take",
    ),
)
"""What a sweep can vary. In `about`, `cache` and `max_cache_len` stand above the target's settings of these names."""

WARM_STEPS = 4
"""Steps of a warm-up; its prefill is a whole one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one call measures. `cache_tokens`: the length of a static cache, None of any other."""

    batch: int
    prompt_tokens: int
    reply_tokens: int
    prefill_chunk: int
    cache: str
    cache_tokens: int | None
    repeats: int
    warmup: int
    seed: int


@dataclass(slots=True)
class Pass:
    """One batch as far as it came. `given_tokens` of each sequence were fed to the model, failing ones included."""

    doing: str = "allocation"
    given_tokens: int = 0
    chunk_s: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    kv_bytes: int = 0
    reply: list[list[int]] = field(default_factory=list)


def batch_speed(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """Time `repeats` batches after `warmup` uncounted ones; each has prompts of its own from `seed`, and a new cache.

    Yields what is run; before each batch, "trying"; and after each that counts, one evidence under its number "repeat",
    with `step_s`, the seconds of each step, as one text. An error of the library ends it, with what came before it.
    `peak_memory_bytes`: of the process while the batch ran, model included, `load_peak_memory_bytes` until then (on
    Linux the kernel's mark is set back for it; elsewhere both are the process's largest ever).
    Raises UsageError for numbers that cannot be meant.
    """
    asked = _asked(loaded, about)
    yield {
        "batch": asked.batch,
        "prompt_tokens": asked.prompt_tokens,
        "reply_tokens": asked.reply_tokens,
        "prefill_chunk": asked.prefill_chunk,
        "cache": asked.cache,
        "max_cache_len": asked.cache_tokens,
        "dtype": dtype_name(loaded.model.dtype),
        "device": str(loaded.model.device),
        "threads": int(loaded.torch.get_num_threads()),
        "positions": getattr(loaded.model.config, "max_position_embeddings", None),
        "load_peak_memory_bytes": _peak_memory_bytes(),
    }
    for number in range(-asked.warmup, asked.repeats):
        counts = number >= 0
        name = f"repeat {number}" if counts else f"warm-up {number + asked.warmup}"
        yield {"trying": name}
        steps = asked.reply_tokens - 1 if counts else min(WARM_STEPS, asked.reply_tokens - 1)
        _forget_peaks(loaded)
        one = Pass()
        try:
            _run(loaded, asked, number, steps, one)
        except Exception as error:  # whatever the library raises is what was to be measured
            too_small = asked.cache_tokens is not None and one.given_tokens > asked.cache_tokens
            came = _told(loaded, asked, number, one) if counts else {}
            where = f"{one.doing} of {name}"
            yield {**came, "cache_too_small": too_small, "failed_in": where, **words_of(error)}
            return
        if counts:
            yield {**_told(loaded, asked, number, one), "cache_too_small": False}


def _asked(loaded: Loaded, about: About) -> Asked:
    """The numbers of `about`, and the axes' defaults for what it leaves out. Raises UsageError."""
    settings = loaded.settings
    kept = {"cache": settings.get("cache") or "dynamic", "max_cache_len": settings.get("max_cache_len") or 0}
    given: dict[str, Any] = {axis.name: about.get(axis.name, kept.get(axis.name, axis.default)) for axis in AXES}
    for axis in AXES:
        value = given[axis.name]
        if axis.choices and value not in axis.choices:
            raise UsageError(f"{axis.name}={value!r}: must be one of {', '.join(axis.choices)}", axis.help)
        if axis.low is not None and axis.high is not None and not axis.low <= value <= axis.high:
            raise UsageError(f"{axis.name}={value}: must be between {axis.low:g} and {axis.high:g}", axis.help)
    if given["cache"] != "static" and about.get("max_cache_len"):
        raise UsageError(
            f"max_cache_len={given['max_cache_len']}: a {given['cache']} cache has no length of its own",
            "give it to static caches only, or leave it out",
        )
    needed = given["prompt_tokens"] + given["reply_tokens"]
    length = given.pop("max_cache_len") or needed
    return Asked(
        **given,
        cache_tokens=length if given["cache"] == "static" else None,
        repeats=int(about.get("repeats", 1)),
        warmup=int(about.get("warmup", 1)),
        seed=int(about.get("seed", 0)),
    )


# ── one batch ────────────────────────────────────────────────────────────────────────────────────


def _run(loaded: Loaded, asked: Asked, number: int, steps: int, one: Pass) -> None:
    """Prefill in chunks, then `steps` steps, into `one` as they end. Raises what the library raises."""
    torch = loaded.torch
    prompts = loaded.tensor(_prompts(loaded, asked, number)).view(asked.batch, asked.prompt_tokens)  # (B, T)
    cache = replace(
        loaded, settings={**loaded.settings, "cache": asked.cache, "max_cache_len": asked.cache_tokens}
    ).usual_cache(asked.prompt_tokens + asked.reply_tokens)
    with torch.inference_mode():
        if asked.cache_tokens is not None:  # only a first token tells a layer its shape
            _tokens_after(loaded, prompts[:, :1], cache)
            cache.reset()
        began_cpu_s = time.process_time()
        try:
            one.doing = "prefill"
            for chunk in prompts.split(asked.prefill_chunk or asked.prompt_tokens, dim=1):
                one.given_tokens += chunk.shape[1]
                began_s = time.perf_counter()
                tokens = _tokens_after(loaded, chunk, cache)
                chosen = tokens.tolist()
                one.chunk_s.append(time.perf_counter() - began_s)
            one.reply.append(chosen)
            one.doing = "reply"
            for _ in range(steps):
                one.given_tokens += 1
                began_s = time.perf_counter()
                tokens = _tokens_after(loaded, tokens, cache)
                chosen = tokens.tolist()
                one.step_s.append(time.perf_counter() - began_s)
                one.reply.append(chosen)
        finally:
            one.cpu_s = time.process_time() - began_cpu_s
            one.kv_bytes = kv_bytes(cache)


def _prompts(loaded: Loaded, asked: Asked, number: int) -> list[int]:
    """The tokens of all prompts of one batch, one after the other: others for each number, warm-ups below zero."""
    seed = Random(f"{asked.seed}:{number}").getrandbits(64)
    return random_ids(loaded, asked.batch * asked.prompt_tokens, seed)


def _tokens_after(loaded: Loaded, tokens: Any, cache: Any) -> Any:
    """The most likely next token of each sequence, (B, 1), after these, (B, T)."""
    out = loaded.model(input_ids=tokens, cache=cache, use_cache=True, logits_to_keep=1)
    return out.logits[:, -1].argmax(-1, keepdim=True)


def kv_bytes(cache: Any) -> int:
    """Bytes of the memory behind a cache, once where layers share it; what a view keeps alive counts. No counters."""
    storages: dict[int, int] = {}
    held = list(chain.from_iterable(vars(layer).values() for layer in cache.layers))
    while held:
        value = held.pop()
        if isinstance(value, list | tuple):
            held += value
        elif isinstance(value, dict):
            held += value.values()
        elif getattr(value, "ndim", 0) > 1:
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


# ── what is told of it ───────────────────────────────────────────────────────────────────────────


def _told(loaded: Loaded, asked: Asked, number: int, one: Pass) -> dict[str, int | float | str | bool | None]:
    """One batch as evidence; None for what it did not come to."""
    replied = one.doing == "reply"
    ttft_s, decode_s, steps = sum(one.chunk_s), sum(one.step_s), len(one.step_s)
    ordered = sorted(one.step_s)
    told: dict[str, int | float | str | bool | None] = {
        "repeat": number,
        "ttft_s": ttft_s if replied else None,
        "prefill_tokens_per_s": asked.batch * asked.prompt_tokens / ttft_s if replied else None,
        "num_chunks": len(one.chunk_s),
        "chunk_max_s": max(one.chunk_s, default=None),
        "num_steps": steps,
        **{f"itl_p{share}_s": value_at(ordered, share / 100) if ordered else None for share in (50, 90, 99)},
        "itl_max_s": ordered[-1] if ordered else None,
        "tpot_s": decode_s / steps if steps else None,
        "decode_tokens_per_s": asked.batch * steps / decode_s if steps else None,
        "output_tokens": asked.batch * len(one.reply),
        "e2e_s": ttft_s + decode_s if replied else None,
        "output_tokens_per_s": asked.batch * len(one.reply) / (ttft_s + decode_s) if replied else None,
        "cpu_s": one.cpu_s,
        "kv_bytes": one.kv_bytes,
        "peak_memory_bytes": _peak_memory_bytes(),
        "reply_sha256": hashlib.sha256(repr(one.reply).encode()).hexdigest()[:16],
        "step_s": ",".join(f"{value:.6f}" for value in one.step_s),
    }
    if loaded.model.device.type == "cuda":
        told["device_peak_memory_bytes"] = int(loaded.torch.cuda.max_memory_allocated(loaded.model.device))
    return told


def _forget_peaks(loaded: Loaded) -> None:
    """Let the peaks of memory start anew, where that can be."""
    if loaded.model.device.type == "cuda":
        loaded.torch.cuda.reset_peak_memory_stats(loaded.model.device)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak_memory_bytes() -> int:
    """The most memory that this process had resident since its peak was forgotten; else ever."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
