"""Where a process is, by what the kernel writes of it; what groups count, version 1 and 2, from files as they are."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from contextlab.lab.host import groups
from contextlab.lab.host.groups import Place
from contextlab.lab.undo.steps import Step
from tests.lab.host.benches import needs_groups, running

V1_MOUNTS = """\
30 24 0:26 / {top}/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 /docker/abc {top}/memory rw,relatime shared:10 - cgroup cgroup rw,memory
32 24 0:28 / {top}/unified rw,relatime - cgroup2 cgroup2 rw
"""
V1_PROCESS = "5:cpu,cpuacct:/a.slice\n4:memory:/docker/abc/inner\n1:name=systemd:/a.slice\n0::/a.slice\n"
V2_MOUNTS = "30 24 0:26 / {top} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def fake_proc(folder: Path, process: str, mounts: str) -> Path:
    """A /proc with one process, 7, and ourselves."""
    for name, file, text in (("7", "cgroup", process), ("self", "mountinfo", mounts.format(top=folder))):
        (folder / "proc" / name).mkdir(parents=True)
        (folder / "proc" / name / file).write_text(text)
    return folder / "proc"


@pytest.mark.parametrize(
    ("controller", "version", "folder"),
    [("cpu", 1, "cpu,cpuacct/a.slice"), ("memory", 1, "memory/inner"), ("freezer", 2, "unified/a.slice")],
)
def test_a_process_in_hierarchies_of_version_1(tmp_path: Path, controller: str, version: int, folder: str) -> None:
    found = groups.place_of(7, controller, proc=fake_proc(tmp_path, V1_PROCESS, V1_MOUNTS))
    assert found is not None
    assert (found.version, found.folder) == (version, tmp_path / folder)


def test_a_process_in_version_2(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, "0::/user.slice/server.scope\n", V2_MOUNTS)
    found = groups.place_of(7, "cpu", proc=proc)
    assert found == Place(version=2, folder=tmp_path / "user.slice/server.scope", mount=tmp_path)
    assert groups.place_of(8, "cpu", proc=proc) is None


def test_a_process_outside_of_what_we_see(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, V1_PROCESS.replace("/docker/abc/inner", "/other"), V1_MOUNTS)
    assert groups.place_of(7, "memory", proc=proc) is None


def version_2(folder: Path, monkeypatch: pytest.MonkeyPatch, *, controllers: str, alone: bool) -> list[Step]:
    """A hierarchy of plain files in which process 7 is in `slice/scope`, with process 8 or alone; the steps so far."""
    scope = folder / "slice/scope"
    scope.mkdir(parents=True)
    (folder / "slice/cgroup.subtree_control").write_text(controllers)
    (scope / "cgroup.procs").write_text("7\n" if alone else "7\n8\n")
    (scope / "memory.max").write_text("max\n")
    place = Place(version=2, folder=scope, mount=folder)
    monkeypatch.setattr(groups, "place_of", lambda pid, controller: place)
    monkeypatch.setattr(Place, "pids", lambda self: _pids(self.folder))
    return []


def _pids(folder: Path) -> frozenset[int]:
    file = folder / "cgroup.procs"
    return frozenset(map(int, file.read_text().split())) if file.exists() else frozenset()


def test_a_group_that_holds_the_tree_alone_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = version_2(tmp_path, monkeypatch, controllers="", alone=True)
    group = groups.group_for("memory", lambda: [7], steps.append, name="contextlab-1-memory-1")
    assert group is not None
    assert group.place.folder == tmp_path / "slice/scope"
    assert steps == []
    group.set("memory.max", "1000")
    group.set("memory.max", "900")
    assert [step["text"] for step in steps] == ["max"]


def test_version_2_makes_the_group_beside_home_and_records_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = version_2(tmp_path, monkeypatch, controllers="cpu memory", alone=False)
    group = groups.group_for("memory", lambda: [7], steps.append, name="contextlab-1-memory-1")
    assert group is not None
    assert group.place.folder == tmp_path / "slice/contextlab-1-memory-1"
    assert (group.place.folder / "cgroup.procs").read_text() == "7"
    assert [(step["do"], step["path"], step["home"]) for step in steps] == [
        ("leave_group", str(group.place.folder), str(tmp_path / "slice/scope"))
    ]


def test_version_2_needs_the_controller_below_home_but_for_freezing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = version_2(tmp_path, monkeypatch, controllers="pids", alone=False)
    assert groups.group_for("memory", lambda: [7], steps.append, name="contextlab-1-memory-1") is None
    assert steps == []
    assert groups.group_for("freezer", lambda: [7], steps.append, name="contextlab-1-freezer-1") is not None


def test_a_tree_in_several_groups_cannot_be_given_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        groups, "place_of", lambda pid, controller: Place(version=1, folder=tmp_path / str(pid), mount=tmp_path)
    )
    assert groups.group_for("cpu", lambda: [7, 8], lambda step: None, name="x") is None


@needs_groups
def test_who_is_born_while_the_tree_moves_is_inside(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "child") as bench:
        pids = [victim.pid for victim in bench.hands().tree()]
        looks = itertools.chain([pids[:1]] * 2, itertools.repeat(pids))  # the child is seen late
        numbers: list[int] = []

        def record(step: Step) -> None:
            numbers.append(bench.ledger.add(step, lease_s=30.0))

        name = f"{groups.PREFIX}{os.getpid()}-late"
        group = groups.group_for("cpu", lambda: next(looks), record, name=name)
        assert group is not None
        assert group.place.pids() == set(pids)
        bench.ledger.undo(numbers)
        assert not group.place.folder.exists()


FILES = {
    1: {
        "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n",
        "memory.failcnt": "7\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    },
    2: {
        "cpu.stat": "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500000\n",
        "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=1\n",
        "memory.events": "low 0\nhigh 3\nmax 4\noom 2\noom_kill 2\n",
        "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n",
    },
}


@pytest.mark.parametrize("version", [1, 2])
def test_what_groups_count_has_the_same_names(tmp_path: Path, version: int) -> None:
    for name, text in FILES[version].items():
        (tmp_path / name).write_text(text)
    place = Place(version=version, folder=tmp_path, mount=tmp_path)
    counts = groups.counts(place, "cpu") | groups.counts(place, "memory")
    pressure = {"cpu_stall_s": 1.5, "memory_stall_s": 0.25} if version == 2 else {}
    assert counts == {
        "num_periods": 10,
        "num_throttled": 4,
        "throttled_s": 2.5,
        "memory_limit_hits": 7,
        "oom_kills": 2,
        **pressure,
    }


def test_a_group_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    gone = Place(version=2, folder=tmp_path / "gone", mount=tmp_path)
    assert groups.counts(gone, "cpu") == groups.counts(gone, "memory") == {}
    assert gone.pids() == frozenset()
