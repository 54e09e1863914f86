"""Each memory task in a process of its own: what it reports before, and how the operating system says it ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from contextlab.lab.process import KeptProcess
from contextlab.model import ProcessEnd
from contextlab.targets.inside.memory_tasks import SLOT_TOKENS, TASKS, About
from contextlab.targets.inside.memory_views import CapacityError, CheckedView, Pool, RawView, StaleViewError, guarded

CHILD = """
import json, resource, sys
task, about, limit_bytes = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
if limit_bytes:
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
from contextlab.targets.inside.memory_tasks import TASKS
for measured in TASKS[task](about):
    print("measured", json.dumps(measured), flush=True)
"""
GIB = 1 << 30

Measured = dict[str, int | float | str | bool | None]


def carry_out(task: str, folder: Path, about: About, address_space_bytes: int = 0) -> tuple[ProcessEnd, Measured]:
    """Run a task under 4 GiB; how its process ended, and everything that it reported."""
    argv = [sys.executable, "-c", CHILD, task, json.dumps(dict(about)), str(address_space_bytes)]
    with KeptProcess(argv, log=folder / "log", memory_limit_bytes=4 * GIB) as process:
        end = process.wait(120.0)
        assert end is not None
        lines = process.log_lines()
    measured: Measured = {}
    for line in lines:
        if line.startswith("measured "):
            measured |= json.loads(line.removeprefix("measured "))
    return end, measured


@pytest.mark.process
@pytest.mark.parametrize(
    ("task", "about", "signal"),
    [
        ("guard-page", {"access": "read"}, "SIGSEGV"),
        ("guard-page", {"access": "write"}, "SIGSEGV"),
        ("heap-overrun", {}, "SIGABRT"),
        ("truncated-weights", {}, "SIGBUS"),
        ("unmapped-view", {"check": "none"}, "SIGSEGV"),
    ],
)
def test_an_unchecked_access_dies_by_its_signal(task: str, about: About, signal: str, tmp_path: Path) -> None:
    end, measured = carry_out(task, tmp_path, about)
    assert (end.signal, end.exit_code) == (signal, None)
    assert end.out_of_memory is not True
    assert measured
    assert not {"survived", "error"} & measured.keys()  # what was tried is on record, what came after is not


@pytest.mark.process
def test_the_allocator_says_what_it_found(tmp_path: Path) -> None:
    end, _ = carry_out("heap-overrun", tmp_path, {})
    assert any("free(): " in line or "malloc(): " in line or "corrupt" in line for line in end.stderr_tail)


@pytest.mark.process
def test_freed_storage_dies_through_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    end, measured = carry_out("freed-storage", tmp_path, {})
    assert end.signal == "SIGSEGV"
    assert measured["before"] == measured["length"]


# ── what does not die can run here ───────────────────────────────────────────────────────────────


def here(task: str, about: About) -> Measured:
    """Everything that a harmless task reports, carried out in this process."""
    measured: Measured = {}
    for line in TASKS[task](about):
        measured |= line
    return measured


def test_an_arena_lets_a_neighbour_be_overwritten_in_silence() -> None:
    measured = here("arena-neighbour", {})
    assert measured["survived"]
    assert measured["damaged_bytes"] == 64
    assert "error" not in measured


def test_the_check_refuses_before_the_neighbour_is_touched() -> None:
    measured = here("arena-neighbour", {"checked": 1})
    assert (measured["error_type"], measured["damaged_bytes"]) == ("CapacityError", 0)
    assert f"length={SLOT_TOKENS + 1}" in str(measured["error"])
    assert f"capacity={SLOT_TOKENS}" in str(measured["error"])


@pytest.mark.parametrize("access", ["read", "write"])
def test_the_check_refuses_before_the_guard_page(access: str) -> None:
    measured = here("guard-page", {"access": access, "checked": 1})
    assert measured["error_type"] == "CapacityError"


def test_a_stale_lease_reads_the_next_requests_secret() -> None:
    assert here("reused-buffer", {"secret": "4711"})["read"] == "the second request's secret is 4711"


@pytest.mark.parametrize(("check", "error"), [("generation", "StaleViewError"), ("release", "ValueError")])
def test_a_stale_lease_is_refused(check: str, error: str) -> None:
    measured = here("reused-buffer", {"secret": "4711", "check": check})
    assert measured["error_type"] == error
    assert "read" not in measured


def test_a_mapping_that_knows_its_views_does_not_go() -> None:
    measured = here("unmapped-view", {"check": "exports"})
    assert measured["error_type"] == "BufferError"
    assert "survived" not in measured


def test_an_error_is_a_measurement() -> None:
    assert here("reused-buffer", {})["error_type"] == "KeyError"


# ── the views ────────────────────────────────────────────────────────────────────────────────────


def test_a_checked_view_is_entered_only_inside_its_capacity() -> None:
    view = guarded(CheckedView)
    view.write(view.capacity - 1, 2.5)
    assert view.read(view.capacity - 1) == 2.5
    for position in (-1, view.capacity, view.capacity + 1000):
        with pytest.raises(CapacityError):
            view.read(position)
        with pytest.raises(CapacityError):
            view.write(position, 1.0)


def test_an_unchecked_view_is_the_same_memory() -> None:
    view = guarded(RawView)
    assert view.capacity == 1024 or view.capacity % 1024 == 0  # one page, whatever the machine's
    view.write(3, 1.5)
    assert (view.read(3), view.read(4)) == (1.5, 0.0)


def test_a_lease_reads_until_the_buffer_is_lent_again() -> None:
    pool = Pool(8)
    first = pool.lend(b"first")
    assert pool.read(first).startswith(b"first")
    pool.give_back(first)
    second = pool.lend(b"other")
    assert pool.read(second).startswith(b"other")
    with pytest.raises(StaleViewError, match="generation=1"):
        pool.read(first)


# ── what a prefill takes ─────────────────────────────────────────────────────────────────────────


@pytest.mark.process
def test_prefill_memory_is_measured_and_an_address_space_limit_is_the_allocators(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    end, measured = carry_out("prefill-memory", tmp_path, {"attention": "eager", "lengths": "512 1024 9000"}, 2 * GIB)
    assert end.exit_code == 0
    assert measured["limits"] == "address space"
    small, large = measured["growth_bytes_512"], measured["growth_bytes_1024"]
    assert isinstance(small, int)
    assert isinstance(large, int)
    assert 3 < large / small < 4.5  # two heads of 1024 × 1024 scores, twice over
    assert large > 2 * 2 * 4 * 1024 * 1024
    assert measured["trying_tokens"] == 9000
    assert measured["error_type"] in ("RuntimeError", "MemoryError")
    assert "survived" not in measured
