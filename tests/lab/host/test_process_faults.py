"""Faults on the processes of real servers: they land, what they did is seen from outside, and nothing of it is left."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from contextlab.analysis.replies import answered
from contextlab.deeds import Death, Deed
from contextlab.experiment import Ending, FaultEvidence, Sample
from contextlab.lab.host import groups
from tests.lab.host.killing import Lab, Stream, fake, fleet, root, running, samples, workers
from tests.lab.processes import until

pytestmark = pytest.mark.process


def has_freezer(lab: Lab) -> bool:
    """Whether a group for the server can be made here, or is there already."""
    home = groups.place_of(root(lab.server).pid, "freezer")
    return home is not None and (home.folder / "cgroup.procs").exists()


# ── pause ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.alone
@pytest.mark.parametrize("by", ["signal", "freezer"])
def test_a_paused_server_stands_still_and_goes_on_in_the_middle_of_its_streams(
    by: str, mark: dict[str, str], tmp_path: Path
) -> None:
    with running(fake(mark, "slots=8"), tmp_path) as lab:
        if by == "freezer" and not has_freezer(lab):
            pytest.skip("no control group of a freezer here")
        found: list[tuple[FaultEvidence, list[Deed], list[Death]]] = []
        zero_s = time.monotonic()
        fault = f"pause:by={by},pause=1s"
        thread = threading.Thread(target=lambda: found.append(lab.inflicted(fault, 5.0, zero_s=zero_s)))
        thread.start()
        with fleet(lab, tmp_path, 40, reply_tokens=20) as load:  # one every 50 ms for two seconds
            load.start(zero_s)
            [seen] = [samples(load)]
        thread.join(20.0)
        [(evidence, deeds, _)] = found
        assert evidence.landed.proven, evidence.landed.why
        assert evidence.tally["stopped"] == 1.0
        assert 1.0 <= evidence.tally["stood_s"] < 2.0
        assert evidence.tally["cpu_s"] == 0.0
        stopped_s, resumed_s = (deed.at_s for deed in deeds)
        during = [at_s for sample in seen for at_s in sample.content_s if stopped_s + 0.05 < at_s < resumed_s - 0.05]
        assert during == [], "nobody said a word meanwhile"
        assert all(answered(sample) for sample in seen), "and all went on, those too that came meanwhile"
        assert psutil.Process(root(lab.server).pid).status() not in (psutil.STATUS_STOPPED, "frozen")
        assert not list(Path("/sys/fs/cgroup").glob("freezer/**/contextlab-*-freezer-*"))


def test_a_pause_of_no_length_is_not_proven(mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark), tmp_path) as lab:
        evidence, deeds, _ = lab.inflicted("pause:pause=0s", 0.1)
        assert evidence.landed.proven is False
        assert deeds == []


# ── kill, crash-loop ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("word", "name"), [("KILL", "SIGKILL"), ("SEGV", "SIGSEGV"), ("TERM", None)])
def test_kill(word: str, name: str | None, mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark), tmp_path) as lab:
        stream = Stream(lab.server.url)
        evidence, deeds, deaths = lab.inflicted(f"kill:signal={word}", 0.5)
        assert stream.end() != "whole"
        assert evidence.landed.proven, evidence.landed.why
        assert [deed.what for deed in deeds] == ["killed", "restarted"]
        assert [death.end.signal for death in deaths] == [name, name], "an orderly end has an exit code"
        assert deaths[1].ready_s == deeds[1].about["ready_s"] == pytest.approx(evidence.tally["down_s"])
        assert urlopen(f"{lab.server.url}/health").status == 200


def test_kill_without_restart_leaves_it_dead(mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark), tmp_path) as lab:
        evidence, deeds, [death] = lab.inflicted("kill:restart=false", 0.3)
        assert evidence.landed.proven
        assert [deed.what for deed in deeds] == ["killed"]
        assert death.ready_s is None
        assert lab.server.process.poll() is not None


def test_crash_loop(mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark), tmp_path) as lab:
        url = lab.server.url
        evidence, _, deaths = lab.inflicted("crash-loop:every=0.1s", 5.0)
        assert evidence.landed.proven, evidence.landed.why
        assert lab.server.num_starts == 1 + evidence.tally["killed"] >= 3
        assert len(deaths) == 2 * evidence.tally["killed"]
        assert urlopen(f"{url}/health").status == 200


# ── kill-worker ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("then", "words", "alive"),
    [
        ("replace", "another took its place", True),
        ("ignore", "no other took its place", True),
        ("end", "the server ended with it", False),
    ],
)
def test_kill_worker(then: str, words: str, alive: bool, mark: dict[str, str], tmp_path: Path) -> None:
    with running(workers(mark, 2, then), tmp_path) as lab:
        before = {one.pid for one in psutil.Process(root(lab.server).pid).children()}
        assert len(before) == 2
        evidence, deeds, deaths = lab.inflicted("kill-worker", 0.8)
        assert evidence.landed.proven
        assert words in evidence.landed.why
        assert deeds[0].about["pid"] in before
        assert deaths == [], "the death of a worker is ours, what the server makes of it is not"
        until(lambda: (lab.server.process.poll() is None) is alive, "what the server makes of it")
        if alive:
            assert urlopen(f"{lab.server.url}/health").status == 200


def test_only_the_streams_of_the_worker_that_dies_break_off(mark: dict[str, str], tmp_path: Path) -> None:
    with running(workers(mark, 2), tmp_path) as lab:
        assert lab.server.process.num_children() == 2
        with fleet(lab, tmp_path, 12, reply_tokens=120) as load:
            zero_s = load.start(time.monotonic() + 0.3)
            found: list[tuple[Sample, ...]] = []
            thread = threading.Thread(target=lambda: found.append(samples(load)))
            thread.start()
            evidence, _, _ = lab.inflicted("kill-worker", 0.5, zero_s=zero_s, start_s=0.8)
            thread.join(30.0)
        assert evidence.landed.proven
        broken = [sample for sample in found[0] if not answered(sample)]
        assert 0 < len(broken) < 12
        assert {sample.ending for sample in broken} <= {Ending.FIN, Ending.RESET}
        assert lab.server.process.poll() is None


def test_kill_worker_of_a_server_without_workers(mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark), tmp_path) as lab:
        evidence, deeds, _ = lab.inflicted("kill-worker", 0.2)
        assert evidence.landed.proven is False
        assert "no process but its main one" in evidence.landed.why
        assert deeds == []
        assert lab.server.process.poll() is None
