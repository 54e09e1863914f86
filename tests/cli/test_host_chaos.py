"""Faults beside the wire from the command line: whom they may touch, and what a run says of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from contextlab.analysis.trials import trials
from contextlab.experiment import Arm, Trial
from contextlab.lab.journal import read_run
from tests.cli.running import Running, contextlab, serving, wait_for
from tests.command import Ran

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="host faults are Linux's")]

NULL = ("-m", "contextlab.targets.servers.null_server")
QUICK = ("--duration", "3s", "--rate", "20", "--json", "-q")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Undo records and locks of these tests alone."""
    monkeypatch.setenv("CONTEXTLAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def foreign() -> Iterator[tuple[str, int]]:
    """A server that contextlab did not start: its URL and its process."""
    with serving(*NULL) as (url, process):
        yield url, process.pid


def only_trial(ran: Ran, folder: Path) -> Trial:
    """The one trial of a run."""
    run = read_run(next(folder.glob("runs/*/run.jsonl")))
    [trial] = trials(run.records, run.knowledge).values()
    return trial


def fault_arm(trial: Trial) -> Arm:
    """Its arm with the faults."""
    assert trial.fault is not None
    return trial.fault


def test_a_process_that_we_did_not_start_needs_the_users_word(tmp_path: Path, foreign: tuple[str, int]) -> None:
    url, pid = foreign
    ran = contextlab("chaos", url, "--fault", "pause", *QUICK, cwd=tmp_path)
    assert ran.code == 2, ran.err
    assert str(pid) in ran.err
    assert "--i-own-this" in ran.err
    assert not (tmp_path / "runs").exists()
    assert psutil.Process(pid).status() != psutil.STATUS_STOPPED


@pytest.mark.parametrize("fault", ["kill", "kill-worker", "crash-loop"])
def test_a_process_that_we_did_not_start_is_not_killed(tmp_path: Path, foreign: tuple[str, int], fault: str) -> None:
    url, pid = foreign
    ran = contextlab("chaos", url, "--fault", fault, "--i-own-this", *QUICK, cwd=tmp_path)
    assert ran.code == 2, ran.err
    assert "nothing would start it again" in ran.err
    assert "run:'COMMAND' --at URL" in ran.err
    assert not (tmp_path / "runs").exists()
    assert psutil.Process(pid).is_running()


def test_a_scenario_that_kills_is_left_out_where_the_server_is_not_ours(
    tmp_path: Path, foreign: tuple[str, int]
) -> None:
    url, pid = foreign
    words = ("chaos", url, "--scenario", "kill-mid-stream", "--i-own-this")
    foretold = contextlab(*words, "--dry-run", "--json", cwd=tmp_path)
    assert {one["possible_here"] for one in foretold.document["experiments"]} == {False}
    ran = contextlab(*words, *QUICK, cwd=tmp_path)
    assert ran.code == 5, ran.err
    assert [one["probe"] for one in ran.document["skipped"]] == ["sigkill", "sigterm"]
    assert all("nothing would start it again" in one["reason"] for one in ran.document["skipped"])
    assert psutil.Process(pid).is_running()


@pytest.mark.parametrize(("who", "says"), [("init", "1"), ("parent", "ancestor"), ("nobody", "no such process")])
def test_some_processes_are_never_touched(tmp_path: Path, foreign: tuple[str, int], who: str, says: str) -> None:
    pid = {"init": 1, "parent": os.getpid(), "nobody": 4_194_300}[who]
    url, _ = foreign
    ran = contextlab("chaos", url, "--fault", "pause", "--pid", str(pid), "--i-own-this", *QUICK, cwd=tmp_path)
    assert ran.code == 2, ran.err
    assert says in ran.err


def test_a_target_of_ours_takes_no_process_number(tmp_path: Path) -> None:
    ran = contextlab("chaos", "fake:caps", "--fault", "pause", "--pid", "4242", *QUICK, cwd=tmp_path)
    assert ran.code == 2
    assert "started by contextlab itself" in ran.err


def test_a_process_that_is_the_users_is_paused_and_goes_on(tmp_path: Path, foreign: tuple[str, int]) -> None:
    url, pid = foreign
    ran = contextlab("chaos", url, "--fault", "pause@1s+1s", "--i-own-this", "--no-control", *QUICK, cwd=tmp_path)
    assert ran.code in (0, 1, 3), ran.err
    arm = fault_arm(only_trial(ran, tmp_path))
    assert arm.evidence[0].landed.proven, arm.evidence[0]
    assert [deed.what for deed in arm.deeds] == ["stopped", "resumed"]
    assert psutil.Process(pid).status() != psutil.STATUS_STOPPED
    assert any(reading.source == "process" for reading in arm.readings)


def test_the_second_run_on_one_target_is_refused(tmp_path: Path, foreign: tuple[str, int]) -> None:
    url, _ = foreign
    first = Running(("chaos", url, "--fault", "latency:delay=1ms", "--duration", "20s"), tmp_path)
    wait_for("the first run to begin", lambda: list(tmp_path.glob("runs/*/run.jsonl")))
    ran = contextlab("chaos", url, "--fault", "latency:delay=1ms", *QUICK, cwd=tmp_path)
    os.kill(first.pid, signal.SIGINT)
    assert first.ended().code == 130
    assert ran.code == 2, ran.err
    assert f"process {first.pid}" in ran.err


@pytest.mark.parametrize("fault", ["pause@1s+1s", "cpu:quota=200m@1s+1s", "memory:limit=1GiB@1s+1s"])
def test_what_nobody_notices_is_not_proven(tmp_path: Path, fault: str) -> None:
    """No request meets it, no processor is wanted, no memory is missing."""
    trace = tmp_path / "early.txt"
    trace.write_text("0.1\n0.2\n0.3\n", encoding="utf-8")
    words = ("--arrivals", f"replay:{trace}", "--duration", "3s", "--no-control", "--json", "-q")
    ran = contextlab("chaos", "fake:caps", "--fault", fault, *words, cwd=tmp_path)
    assert ran.code == 3, ran.out + ran.err
    assert fault_arm(only_trial(ran, tmp_path)).evidence[0].landed.proven is False


def test_a_kill_is_ours_and_the_server_comes_back_where_it_was(tmp_path: Path) -> None:
    ran = contextlab("chaos", "fake:caps", "--fault", "kill:restart=true@1s+1s", *QUICK, cwd=tmp_path)
    arm = fault_arm(only_trial(ran, tmp_path))
    assert arm.server is None or not arm.server.ended, arm.server
    assert arm.deaths[-1].ours
    assert arm.deaths[-1].ready_s is not None
    assert arm.deaths[-1].end.signal == "SIGKILL"
    assert any(sample.sent_s is not None and sample.sent_s > 2.5 and sample.status == 200 for sample in arm.samples)
    assert ran.code in (0, 1, 3), ran.out
