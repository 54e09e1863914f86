"""Hands on a real process tree: whom they reach, what they do, and that all of it is undone."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from contextlab.deeds import Hands, MachineHands, Victim
from contextlab.lab.host import tree
from contextlab.lab.host.hands import send
from contextlab.model import UnableError
from tests.lab.host.benches import needs_groups, running
from tests.lab.processes import until

HOG = (sys.executable, "-m", "contextlab.lab.host.hogs", "spin")
needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing to pin away from")


def states(victims: tuple[Victim, ...]) -> str:
    """One letter for each process; T is stopped."""
    return "".join(Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0] for one in victims)


def test_the_tree_is_the_target_and_its_children_and_nobody_else(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "child") as bench:
        hands: Hands = bench.hands()
        assert isinstance(hands, MachineHands)
        first, second = hands.tree()
        assert first.pid == bench.process.pid
        assert psutil.Process(second.pid).ppid() == first.pid
        assert hands.length_s == 30.0


def test_a_tree_that_holds_ourselves_is_refused() -> None:
    found = tree.counted(os.getppid())
    assert found is not None
    with pytest.raises(UnableError, match="ancestor of contextlab"):
        tree.tree(found.victim)


def test_stop_and_resume_the_whole_tree(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "child") as bench:
        hands = bench.hands()
        hands.stop()
        until(lambda: states(hands.tree()) == "TT", "all to stand still")  # a signal is taken when its process runs
        hands.resume()
        assert "T" not in states(hands.tree())
        hands.stop(hands.tree()[1])
        until(lambda: states(hands.tree())[1] == "T", "the child to stand still")
        hands.undo()
        assert "T" not in states(hands.tree())
        hands.undo()


def test_a_process_that_got_the_number_of_another_is_left_alone(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "idle") as bench:
        later = Victim(pid=bench.root.pid, started=bench.root.started - 1)
        assert not send(later, signal.SIGKILL)
        assert bench.process.poll() is None


def test_nobody_is_left_to_act_on(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "idle") as bench:
        hands = bench.hands()
        bench.process.kill()
        assert hands.tree() == ()
        for act in (hands.stop, lambda: hands.group("cpu"), lambda: hands.pin([0]), hands.kill, hands.restart):
            with pytest.raises(UnableError):
                act()
        hands.undo()


@needs_groups
def test_a_group_takes_the_tree_and_gives_it_back(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "child") as bench:
        home = bench.groups("cpu")
        hands = bench.hands()
        group = hands.group("cpu")
        assert group is not None
        assert group is hands.group("cpu")
        assert group.place.pids() == {victim.pid for victim in hands.tree()}
        name, text = ("cpu.max", "20000 100000") if group.version == 2 else ("cpu.cfs_quota_us", "20000")
        group.set(name, text)
        assert group.get(name) == text
        with pytest.raises(UnableError, match="nonsense"):
            group.set(name, "nonsense")
        with pytest.raises(UnableError, match=r"has no no\.such"):
            group.set("no.such", "1")
        assert group.get("no.such") == ""
        if group.version == 1 or group.place.folder.name.count("-") > 1:
            with pytest.raises(UnableError, match="another fault holds"):
                bench.hands().group("cpu")
        hands.undo()
        assert bench.groups("cpu") == home
        assert not group.place.folder.exists()


@needs_two
def test_every_thread_is_pinned_and_gets_back_what_it_had(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "child", "threads", "3") as bench:
        hands = bench.hands()
        had = os.sched_getaffinity(bench.root.pid)
        cpus = hands.processors()
        assert 0 < len(cpus) < len(had)
        hands.pin(cpus[:1])
        of_tree = [thread.pid for victim in hands.tree() for thread in tree.started_threads(victim.pid)]
        assert len(of_tree) == 5
        assert {frozenset(os.sched_getaffinity(tid)) for tid in of_tree} == {frozenset(cpus[:1])}
        assert hands.look()["processors"] == 1
        hands.undo()
        assert {frozenset(os.sched_getaffinity(tid)) for tid in of_tree} == {frozenset(had)}


def test_a_helper_ends_with_its_fault(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "idle") as bench:
        hands = bench.hands()
        cpu = hands.processors()[0]
        helper = hands.helper(HOG, cpus=[cpu])
        assert os.sched_getaffinity(helper.pid) == {cpu}
        assert hands.look()["helpers"] == 1
        assert helper not in hands.tree()
        hands.undo()
        assert not psutil.pid_exists(helper.pid)


@needs_groups
def test_a_helper_within_the_group_of_the_target(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "idle", memory_limit_bytes=1 << 28) as bench:
        hands = bench.hands()
        group = hands.group("memory")
        assert group is not None
        helper = hands.helper_within("memory", HOG)
        until(lambda: helper.pid in group.place.pids(), "the helper in the group")
        hands.undo()
        assert not psutil.pid_exists(helper.pid)


@pytest.mark.alone
def test_what_is_seen_of_the_tree(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "burn", "threads", "2") as bench:
        hands = bench.hands()
        before = hands.look()
        time.sleep(0.5)
        after = hands.look()
        assert after["busy_threads"] == 1
        assert after["threads"] == 3
        used_s = after["cpu_s"] - before["cpu_s"] + after["cpu_wait_s"] - before["cpu_wait_s"]
        assert used_s == pytest.approx(after["at_s"] - before["at_s"], rel=0.3)
        assert after["rss_bytes"] > 1 << 20
        assert after["available_bytes"] > after["rss_bytes"]
