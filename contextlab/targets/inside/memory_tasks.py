"""Tasks around memory, for a target that runs inside its own process: faults, stale views, what a prefill takes.

    perform("guard-page", about) ─▶ TASKS["guard-page"](about) ─▶ what is about to happen ─▶ … the access … ─▶ what came

Each task reports first and acts then, so that a death leaves on record what was tried. The accesses are real:
most of these tasks are meant to end their process. Run them only in a child with a memory limit.
Torch, where a task needs it, runs with one thread.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from contextlab.model import Evidence
from contextlab.targets.inside.library import library, start_torch
from contextlab.targets.inside.memory_views import (
    FLOAT_BYTES,
    CheckedView,
    Lease,
    Pool,
    RawView,
    address_of,
    c_library,
    guarded,
)

About = Mapping[str, int | float | str]
Task = Callable[[About], Iterator[Evidence]]

RING_BYTES, OVERRUN_BYTES = 4096, 256
SLOT_TOKENS, PAST_TOKENS = 64, 16
CANARY = 0xA5
"""Every byte of the neighbour's slot; no byte of −1.0 is this."""
WEIGHTS_BYTES = 1 << 20
STORAGE_NUMBERS = 1 << 20
TEXT_BYTES = 64


# ── accesses past the end ────────────────────────────────────────────────────────────────────────


def guard_page(about: About) -> Iterator[Evidence]:
    """Read or write (`access`) one token past a buffer that ends at a guard page; `checked` asks the capacity first."""
    view = guarded(CheckedView if about.get("checked") else RawView)
    view.write(view.capacity - 1, 1.0)
    access = str(about.get("access", "read"))
    yield {"access": access, "length": view.capacity + 1, "capacity": view.capacity, "inside": view.read(0)}
    if access == "write":
        view.write(view.capacity, 1.0)
        yield {"survived": True}
    else:
        yield {"survived": True, "outside": view.read(view.capacity)}


def heap_overrun(about: About) -> Iterator[Evidence]:
    """Write past the end of a ring from malloc, which the allocator's check finds when the ring is freed."""
    library = c_library()
    ring = library.malloc(RING_BYTES)
    yield {"access": "write", "length": RING_BYTES + OVERRUN_BYTES, "capacity": RING_BYTES}
    ctypes.memset(ring, 0xFF, RING_BYTES + OVERRUN_BYTES)
    library.free(ring)
    yield {"survived": True}


def arena_neighbour(about: About) -> Iterator[Evidence]:
    """Write past one slot of an arena into the next one, where nothing stops it, and look at the neighbour's canaries.

    [ our slot ][ neighbour: all canaries ]
    """
    slot_bytes = SLOT_TOKENS * FLOAT_BYTES
    arena = bytearray(slot_bytes) + bytearray([CANARY]) * slot_bytes
    view = (CheckedView if about.get("checked") else RawView)(address_of(arena), SLOT_TOKENS, owner=arena)
    length = SLOT_TOKENS + PAST_TOKENS
    yield {"access": "write", "length": length, "capacity": SLOT_TOKENS}
    try:
        for position in range(length):
            view.write(position, -1.0)
    finally:
        damaged = sum(byte != CANARY for byte in arena[slot_bytes:])
        yield {"damaged_bytes": damaged, "neighbour_bytes": slot_bytes}
    yield {"survived": True}


def freed_storage(about: About) -> Iterator[Evidence]:
    """Read a tensor whose storage has been freed under it."""
    torch = start_torch(threads=1)
    numbers = torch.ones(STORAGE_NUMBERS)
    yield {"access": "read", "length": STORAGE_NUMBERS, "capacity": 0, "before": float(numbers.sum())}
    numbers.untyped_storage().resize_(0)
    yield {"survived": True, "after": float(numbers.sum())}


def truncated_weights(about: About) -> Iterator[Evidence]:
    """Read mapped weights after their file was cut short, as an update in place does."""
    with tempfile.TemporaryFile() as file:  # it has no name: nothing of it is left, however this ends
        file.write(array("f", [1.0]).tobytes() * (WEIGHTS_BYTES // FLOAT_BYTES))
        file.flush()
        weights = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        yield {"access": "read", "length": WEIGHTS_BYTES, "capacity": 0, "before": weights[-1]}
        os.ftruncate(file.fileno(), 0)
        yield {"survived": True, "after": weights[-1]}


# ── views that outlive their owner ───────────────────────────────────────────────────────────────


def reused_buffer(about: About) -> Iterator[Evidence]:
    """Read through the lease of an earlier request after the pool has lent its buffer to another, who has a `secret`.

    `check`: "none", "generation" (the lease must be the pool's latest), "release" (giving back ends the view).
    """
    check = str(about.get("check", "none"))
    pool = Pool(TEXT_BYTES, revokes=check == "release")
    first = pool.lend(b"the first request's own words")
    pool.give_back(first)
    pool.lend(f"the second request's secret is {about['secret']}".encode())
    yield {"check": check, "first_generation": first.generation}
    read: Callable[[Lease], bytes] = pool.read if check == "generation" else lambda lease: bytes(lease.view)
    yield {"read": read(first).rstrip(b"\0").decode(errors="replace")}


def unmapped_view(about: About) -> Iterator[Evidence]:
    """Read through a view whose memory has been unmapped.

    `check`: "none" (a bare address), "exports" (the mapping knows of the view, and does not go while it is there).
    """
    area = mmap.mmap(-1, WEIGHTS_BYTES)
    area[:FLOAT_BYTES] = array("f", [1.0]).tobytes()
    check = str(about.get("check", "none"))
    if check == "exports":
        known_view = memoryview(area)
        yield {"check": check, "before": known_view[0]}
        area.close()
        yield {"survived": True, "after": known_view[0]}
    else:
        view = RawView(address_of(area), WEIGHTS_BYTES // FLOAT_BYTES)
        yield {"check": check, "before": view.read(0)}
        area.close()
        yield {"survived": True, "after": view.read(0)}


# ── what a prefill takes ─────────────────────────────────────────────────────────────────────────

HIDDEN, HEADS, LAYERS = 64, 2, 1
WARM_TOKENS = 512
M_MMAP_THRESHOLD, MAPPED_FROM_BYTES = -3, 1 << 16


def prefill_memory(about: About) -> Iterator[Evidence]:
    """Peak memory above the baseline of one prefill of a small random Llama, for each of `lengths` ("512 1024").

    `attention` is the library's name for the implementation. The baseline is the process with the model, warmed up.
    The key-value cache is left out: this is the memory that comes and goes. Large blocks are mapped one by one, so
    that what is free is given back at once and each length is measured by itself. Linux: peaks are the kernel's own.
    """
    torch, transformers = start_torch(threads=1), library("transformers")
    torch.manual_seed(0)
    lengths = [int(word) for word in str(about["lengths"]).split()]
    shape = {
        "vocab_size": 64,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": max(lengths),
    }
    config = transformers.LlamaConfig(**shape, attn_implementation=str(about["attention"]))
    model = transformers.LlamaModel(config).eval()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    _prefill(torch, model, WARM_TOKENS)
    limited_size = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    yield {
        "attention": model.config._attn_implementation,
        "heads": HEADS,
        "layers": LAYERS,
        "limits": "address space" if limited_size else "resident memory",
        "baseline_bytes": _memory("VmSize" if limited_size else "RssAnon"),
    }
    for length in lengths:
        yield {"trying_tokens": length}
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew from here
        before = _memory("VmRSS")
        _prefill(torch, model, length)
        yield {f"growth_bytes_{length}": _memory("VmHWM") - before}
    yield {"survived": True}


def _prefill(torch: Any, model: Any, length: int) -> None:
    with torch.inference_mode():
        model(input_ids=torch.zeros(1, length, dtype=torch.long), use_cache=False)  # (1, T)


def _memory(name: str) -> int:
    """A number of bytes that the kernel keeps about this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def _reporting(task: Task) -> Task:
    """The task, with an error as its last measurement."""

    def carry_out(about: About) -> Iterator[Evidence]:
        try:
            yield from task(about)
        except Exception as error:  # whatever the library raises is what was to be measured
            yield {"error_type": type(error).__name__, "error": str(error)}

    return carry_out


TASKS: Mapping[str, Task] = {
    "guard-page": _reporting(guard_page),
    "heap-overrun": _reporting(heap_overrun),
    "arena-neighbour": _reporting(arena_neighbour),
    "freed-storage": _reporting(freed_storage),
    "truncated-weights": _reporting(truncated_weights),
    "reused-buffer": _reporting(reused_buffer),
    "unmapped-view": _reporting(unmapped_view),
    "prefill-memory": _reporting(prefill_memory),
}
"""Every task by its name; the target hands a probe's `about` to it."""
