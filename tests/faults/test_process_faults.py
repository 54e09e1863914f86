"""Faults on the target's processes, on paper: what they do in which order, and what counts as their proof."""

from __future__ import annotations

import math

import pytest

from contextlab import registry
from contextlab.deeds import Hands
from contextlab.experiment import Landed, Placed, Plane
from contextlab.faults.crash_loop import CrashLoop
from contextlab.faults.kill import Kill
from contextlab.faults.kill_worker import KillWorker
from contextlab.faults.pause import Pause
from contextlab.model import UnableError, UsageError
from tests.faults.hands import READY_S, PaperGroup, PaperHands, waits


def test_paper_hands_are_hands() -> None:
    hands: Hands = PaperHands(1)
    assert len(hands.tree()) == 1


@pytest.mark.parametrize("name", ["pause", "kill", "crash-loop", "kill-worker"])
def test_they_act_on_the_host_and_their_defaults_do_something(name: str) -> None:
    fault = registry.faults()[name]
    assert fault.PLANE is Plane.HOST
    assert not fault().is_null
    assert set(registry.faults()) >= fault.EXCLUDES
    assert fault().landed({}, {}).proven is False, "nothing was done"
    text = registry.shown_fault(Placed(name=name, start_s=1.0, length_s=2.0))
    assert registry.parse_fault(text, start_s=0.0, length_s=0.0).start_s == 1.0


def test_a_signal_that_kills_nobody_is_refused() -> None:
    with pytest.raises(UsageError, match="signal"):
        registry.parse_fault("kill:signal=CONT", start_s=0.0, length_s=1.0)


# ── kill ─────────────────────────────────────────────────────────────────────────────────────────


def test_kill_hits_the_main_process_and_starts_it_again_after_a_while() -> None:
    hands, fault = PaperHands(3), Kill(signal="TERM", after_s=0.2)
    assert waits(fault.inflict(hands)) == [0.2]
    assert hands.done == ["SIGTERM 100", "restart"]
    assert [what for what, _ in hands.notes] == ["killed", "restarted"]
    assert hands.notes[0][1]["signal"] == "SIGTERM"
    landed = fault.landed(hands.tally, {})
    assert landed.proven
    assert landed.why == f"it ended of SIGTERM and answered again after {READY_S:.2f} s"


def test_kill_starts_it_again_at_the_latest_when_the_fault_is_over() -> None:
    hands, fault = PaperHands(1), Kill(after_s=60.0)
    acts = fault.inflict(hands)
    assert next(acts) == 60.0
    assert hands.done == ["SIGKILL 100"]
    waits(acts, most=1)
    assert hands.done == ["SIGKILL 100", "restart"]


def test_kill_without_restart_leaves_it_dead() -> None:
    hands, fault = PaperHands(1), Kill(restart=False)
    assert waits(fault.inflict(hands)) == []
    assert hands.done == ["SIGKILL 100"]
    assert fault.landed(hands.tally, {}) == Landed(proven=True, why="it ended of SIGKILL, and was left dead")


def test_kill_of_one_that_is_dead_already() -> None:
    with pytest.raises(UnableError, match="has no process that runs"):
        waits(Kill().inflict(PaperHands(0)))


def test_a_death_without_the_return_that_was_asked_for_is_not_proven() -> None:
    assert Kill().landed({"killed": 1.0}, {}).proven is False


# ── crash-loop ───────────────────────────────────────────────────────────────────────────────────


def test_crash_loop_kills_again_and_again_and_leaves_it_running() -> None:
    hands, fault = PaperHands(1), CrashLoop(every_s=2.0)
    assert waits(fault.inflict(hands), most=3) == [2.0, 2.0, 2.0]
    assert hands.done == ["SIGKILL 100", "restart"] * 3
    landed = fault.landed(hands.tally, {})
    assert landed.proven
    assert "ended 3 times" in landed.why
    assert f"{READY_S:.2f} s (mean)" in landed.why


@pytest.mark.parametrize(
    ("tally", "words"),
    [({"killed": 1.0, "restarted": 1.0}, "ended only once"), ({"killed": 3.0, "restarted": 2.0}, "only 2 times")],
)
def test_one_death_is_no_loop_and_one_without_return_no_proof(tally: dict[str, float], words: str) -> None:
    landed = CrashLoop().landed(tally, {})
    assert landed.proven is False
    assert words in landed.why


# ── kill-worker ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("num", [2, 3, 9])
def test_kill_worker_never_hits_the_main_process(num: int) -> None:
    hands, fault = PaperHands(num), KillWorker()
    waits(fault.inflict(hands), most=2)
    [done] = hands.done
    assert done.startswith("SIGKILL ")
    assert done != "SIGKILL 100"
    landed = fault.landed(hands.tally, {})
    assert landed.proven
    assert landed.why == f"one of {num - 1} workers ended of SIGKILL; no other took its place"


def test_kill_worker_sees_another_take_its_place() -> None:
    hands, fault = PaperHands(3), KillWorker()
    acts = fault.inflict(hands)
    next(acts)
    hands.processes.append(hands.processes[0])
    waits(acts)
    assert "another took its place" in fault.landed(hands.tally, {}).why
    assert [what for what, _ in hands.notes] == ["killed", "replaced"]


def test_kill_worker_sees_the_server_end_with_it() -> None:
    hands, fault = PaperHands(3), KillWorker()
    acts = fault.inflict(hands)
    next(acts)
    hands.processes.clear()
    waits(acts)
    assert "the server ended with it" in fault.landed(hands.tally, {}).why


def test_a_target_without_workers_is_not_proven() -> None:
    hands, fault = PaperHands(1), KillWorker()
    assert waits(fault.inflict(hands)) == []
    assert hands.done == []
    landed = fault.landed(hands.tally, {})
    assert landed.proven is False
    assert "no process but its main one" in landed.why


# ── pause ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "name", "on", "off"),
    [(2, "cgroup.freeze", "1", "0"), (1, "freezer.state", "FROZEN", "THAWED")],
    ids=["v2", "v1"],
)
@pytest.mark.parametrize("by", ["auto", "freezer"])
def test_pause_freezes_a_group_and_waits_until_it_is_frozen(
    version: int, name: str, on: str, off: str, by: str
) -> None:
    group = PaperGroup(version, looks=3)
    hands, fault = PaperHands(2, group=group), Pause(by=by)
    acts = fault.inflict(hands)
    assert [next(acts) for _ in range(4)][-1] == math.inf
    assert group.files == {name: on}
    assert group.looks == -1
    waits(acts)
    assert group.files == {name: off}
    assert hands.done == ["group freezer"]
    assert hands.notes == [("stopped", {"by": "freezer", "processes": 2}), ("resumed", {"after_s": 10.0})]
    assert fault.landed(hands.tally, {}).proven


def test_pause_without_a_group_stops_each_process() -> None:
    for by, done in (("auto", ["group freezer", "stop"]), ("signal", ["stop"])):
        hands = PaperHands(2)
        assert waits(Pause(by=by, pause_s=0.5).inflict(hands)) == [0.5]
        assert hands.done == [*done, "resume"]
        assert hands.notes[0] == ("stopped", {"by": "signal", "processes": 2})


def test_pause_by_a_freezer_that_is_not_there() -> None:
    with pytest.raises(UnableError, match="by=freezer"):
        waits(Pause(by="freezer").inflict(PaperHands(2)))


def test_pause_of_a_group_that_never_freezes() -> None:
    hands = PaperHands(2, group=PaperGroup(1, looks=10_000))
    with pytest.raises(UnableError, match="did not freeze within 1 s"):
        waits(Pause().inflict(hands), most=10_000)


def test_a_pause_of_no_length_is_not_proven() -> None:
    hands, fault = PaperHands(2), Pause(pause_s=0.0)
    assert not fault.is_null
    assert waits(fault.inflict(hands)) == []
    assert hands.done == []
    assert fault.landed(hands.tally, {}) == Landed(proven=False, why="pause=0s stops nothing")


@pytest.mark.parametrize(("cpu_s", "proven"), [(0.0, True), (0.4, True), (0.6, False), (10.0, False)])
def test_what_took_time_of_a_processor_did_not_stand_still(cpu_s: float, proven: bool) -> None:
    landed = Pause().landed({"stopped": 2.0, "stood_s": 10.0, "cpu_s": cpu_s}, {})
    assert landed.proven is proven
