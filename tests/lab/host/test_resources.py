"""Processors and memory taken from a real process tree: what the kernel counts of it proves it, or proves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contextlab.lab.host.counters import KernelCounts
from tests.lab.host.benches import Bench, needs_groups, needs_v1_memory, running
from tests.lab.processes import until

MIB = 1 << 20


def left_over() -> list[Path]:
    """Control groups of faults of this process."""
    return list(Path("/sys/fs/cgroup").glob(f"**/contextlab-{os.getpid()}-*"))


@needs_groups
@pytest.mark.alone
def test_a_quota_holds_a_busy_tree(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "burn", "child") as bench:
        evidence, deeds = bench.inflicted("cpu:quota=200m", 2.0)
        assert evidence.landed.proven is True
        assert evidence.kernel["num_throttled"] >= 10
        assert evidence.kernel["cpu_s"] / evidence.kernel["wall_s"] == pytest.approx(0.2, abs=0.05)
        assert "by 2 busy threads" in evidence.landed.why
        assert [deed.about["by"] for deed in deeds] == ["quota"]
    assert left_over() == []


@needs_groups
def test_a_quota_on_an_idle_tree_is_not_proven(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "idle") as bench:
        evidence, _ = bench.inflicted("cpu:quota=200m", 0.6)
    assert evidence.landed.proven is False
    assert "too idle to notice" in evidence.landed.why


@pytest.mark.alone
@pytest.mark.parametrize("by", ["hogs", "duty"])
def test_other_ways_than_a_quota(mark: dict[str, str], tmp_path: Path, by: str) -> None:
    with running(mark, tmp_path, "burn") as bench:
        evidence, _ = bench.inflicted(f"cpu:quota=250m,by={by}", 5.0)  # hogs take a moment to start
        assert evidence.landed.proven is True, evidence.landed.why
        assert 0.1 <= evidence.kernel["cpu_s"] / evidence.kernel["wall_s"] <= 0.3
        until(lambda: os.sched_getaffinity(bench.root.pid) == os.sched_getaffinity(0), "its processors back")


@pytest.mark.parametrize("by", ["hogs", "duty"])
def test_other_ways_than_a_quota_on_an_idle_tree(mark: dict[str, str], tmp_path: Path, by: str) -> None:
    with running(mark, tmp_path, "idle") as bench:
        evidence, _ = bench.inflicted(f"cpu:quota=250m,by={by}", 0.6)
    assert evidence.landed.proven is False, evidence.landed.why


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing to pin away from")
def test_affinity_leaves_one_processor(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "burn", "child") as bench:
        evidence, _ = bench.inflicted("affinity:cpus=1", 1.0)
    assert evidence.landed.proven is True, evidence.landed.why
    assert evidence.kernel["cpu_s"] <= 1.1 * evidence.kernel["wall_s"]


def test_a_limit_of_memory_far_above_use_is_not_proven(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "grow", "20", memory_limit_bytes=256 * MIB) as bench:
        evidence, _ = bench.inflicted("memory:limit=200MB", 0.6)
    assert evidence.landed.proven is False, evidence.landed.why
    assert evidence.kernel["oom_kills"] == evidence.kernel["memory_limit_hits"] == 0


def grows_into_a_limit(bench: Bench) -> None:
    """Lower the limit under a tree of 40 MiB that then wants 40 more."""
    hands = bench.hands()
    group = hands.group("memory")
    assert group is not None
    group.set("memory.max" if group.version == 2 else "memory.limit_in_bytes", str(64 * MIB))
    bench.say()
    until(lambda: bench.process.poll() is not None, "the kernel's kill")


@needs_groups
def test_a_kill_for_want_of_memory_is_told_from_any_other(mark: dict[str, str], tmp_path: Path) -> None:
    kills = []
    for by_us in (False, True):
        with running(mark, tmp_path, "grow", "40", memory_limit_bytes=256 * MIB) as bench:
            before = bench.machine.counters()
            if by_us:
                bench.process.kill()
            else:
                grows_into_a_limit(bench)
            end = bench.process.poll()
            assert end is not None
            assert end.signal == "SIGKILL"
            kills.append((bench.machine.counters()["oom_kills"] - before["oom_kills"], end.out_of_memory))
    assert kills == [(1, True), (0, False)]


@needs_groups
def test_a_limit_below_use_lands_and_says_who_was_killed(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "grow", "40", memory_limit_bytes=256 * MIB) as bench:
        bench.say()  # from now on it asks for 40 MiB more, or has them
        evidence, _ = bench.inflicted("memory:limit=30MB", 1.5)
        killed = bench.process.poll() is not None
    assert killed is (evidence.kernel["oom_kills"] > 0)
    assert evidence.landed.proven is killed or evidence.kernel["memory_limit_hits"] > 0


@needs_v1_memory
def test_version_1_has_no_high(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "idle", memory_limit_bytes=256 * MIB) as bench:
        evidence, _ = bench.inflicted("memory:limit=50%,mode=high", 0.5)
    assert evidence.landed.proven is False
    assert "no memory.high" in evidence.landed.why


@needs_groups
def test_a_balloon_fills_the_group_and_is_the_first_to_go(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "grow", "20", memory_limit_bytes=96 * MIB) as bench:
        evidence, _ = bench.inflicted("balloon:size=300MB", 2.0)
        assert evidence.landed.proven is True, evidence.landed.why
        assert evidence.tally["burst"] == 1
        assert evidence.kernel["oom_kills"] >= 1
        assert bench.process.poll() is None


@needs_groups
def test_a_balloon_that_leaves_enough_is_not_proven(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "grow", "20", memory_limit_bytes=256 * MIB) as bench:
        evidence, _ = bench.inflicted("balloon:size=20%", 0.8)
    assert evidence.landed.proven is False
    assert evidence.tally["held_bytes"] > 20 * MIB


def test_sums_never_fall_when_processes_end(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "burn", "child") as bench:
        client = bench.root.pid
        counts = KernelCounts(bench.machine.tree, lambda: [client], bench.process.poll)
        until(lambda: counts.look()["cpu_s"] > 0.1, "some processor time")
        before = counts.look()
        bench.process.kill()
        after = counts.look()
        assert all(after[name] >= before[name] for name in before)
        assert 0 < after["client_cpu_s"] < after["cpu_s"]
