"""`contextlab chaos` as a user runs it, on fakes: what is proven, what is not, and that equal seeds give equal runs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from contextlab.lab.journal import read_run
from contextlab.model import Run
from tests.command import MARK, Running, contextlab
from tests.packets import needs_packets

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

FAST = ("--rate", "20", "--seed", "5")


def run_of(folder: Path) -> Run:
    """The only run below a folder."""
    [record] = folder.glob("runs/*/run.jsonl")
    return read_run(record)


def of_kind(run: Run, kind: str) -> list[Any]:
    """The records of a kind."""
    return [record for record in run.records if record["kind"] == kind]


@needs_packets
def test_a_null_fault_holds_and_reports_what_the_path_costs(tmp_path: Path) -> None:
    ran = contextlab(
        "chaos", "fake:caps", "--fault", "loss:rate=0%@1s+1s", "--duration", "3s", *FAST, "--json", cwd=tmp_path
    )
    [experiment] = ran.document["experiments"]
    assert ran.code in (0, 3), ran.err  # 3: a machine so busy that the client was late; never a broken bound
    assert ran.document["verdict"] == {0: "PASS", 3: "UNKNOWN"}[ran.code]
    assert experiment["evidence"][0]["landed"] is None
    assert experiment["control_difference"]["ttft_s"]["p50"]["value"] is not None
    assert experiment["phases"]["during"]["integrity"]["share"] == 1.0


@needs_packets
def test_equal_seeds_give_equal_plans_and_decisions(tmp_path: Path) -> None:
    faults = ("--fault", "loss:rate=20%,burst=3@0s+1s", "--fault", "cut:at=event:2,share=40%@0s+1s")
    decided: list[dict[str, Any]] = []
    for seed in ("7", "7", "8"):
        folder = tmp_path / f"{len(decided)}"
        folder.mkdir()
        words = ("--duration", "1s", "--rate", "10", "--seed", seed, "--no-control")
        contextlab("chaos", "fake:caps", *faults, *words, cwd=folder)
        [record] = of_kind(run_of(folder), "decisions")
        decided.append({key: value for key, value in record.items() if key != "at_s"})
    assert decided[0] == decided[1]
    assert decided[0]["schedule_sha256"] != decided[2]["schedule_sha256"]
    assert all(
        one["sha256"] != other["sha256"] for one, other in zip(decided[0]["faults"], decided[2]["faults"], strict=True)
    )


@needs_packets
def test_loss_on_an_idle_link_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("\n".join(str(0.01 + number / 100) for number in range(20)), encoding="utf-8")
    words = ("--fault", "loss:rate=50%@2s+1s", "--arrivals", "replay:times.txt", "--duration", "3s", "--no-control")
    ran = contextlab("chaos", "fake:caps", *words, "--json", cwd=tmp_path)
    assert ran.code == 3, ran.out
    assert {finding["outcome"] for finding in ran.document["findings"]} == {"UNKNOWN"}
    assert any("not proven to have landed" in finding["why"] for finding in ran.document["findings"])
    assert ran.document["exit"]["reason"] == "1 experiment whose outcome could not be told"
    [evidence] = ran.document["experiments"][0]["evidence"]
    assert evidence["landed"] is False


def test_a_starved_client_is_unknown(tmp_path: Path) -> None:
    words = ("--fault", "latency:delay=1ms@1s+3s", "--duration", "5s", "--rate", "20", "--no-control", "--json")
    running = Running(("chaos", "fake:caps", *words), tmp_path)
    worker = _worker(running.mark)
    for _ in range(6):
        worker.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        worker.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    ran = running.ended()
    assert ran.code == 3, ran.out
    assert any("late" in finding["why"] for finding in ran.document["findings"])


def _worker(mark: str) -> psutil.Process:
    """The load worker of the arm with the faults, once that has begun."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if words[1:3] == ["-m", "contextlab.lab.load.worker"] and process.environ().get(MARK) == mark:
                    run = _record_of(process)
                    if run is not None and b'"arm":"fault"' in run.read_bytes():
                        time.sleep(0.5)
                        return process
            except (psutil.Error, OSError):
                continue
        time.sleep(0.05)
    pytest.fail("no load worker was ever seen")


def _record_of(process: psutil.Process) -> Path | None:
    return next(iter(Path(process.cwd()).glob("runs/*/run.jsonl")), None)


def test_a_target_inside_a_process_is_put_behind_a_server(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = ("--fault", "slice:size=2@1s+1s", "--duration", "3s", "--rate", "4", "--json")
    ran = contextlab("chaos", "hf:random/llama", *words, cwd=tmp_path)
    assert ran.code in (0, 3), ran.err
    [experiment] = ran.document["experiments"]
    assert experiment["phases"]["during"]["integrity"]["share"] == 1.0
    assert ran.document["flavour"] == "hosted"


def test_a_server_that_dies_under_load_is_a_crash(tmp_path: Path) -> None:
    """The fake dies of the first prompt over its window: the extra load's prompts are twice that."""
    words = ("--scenario", "overflow-under-load", "--duration", "3s", "--rate", "10", "--json")
    ran = contextlab("chaos", "fake:segfaults", *words, cwd=tmp_path)
    assert ran.code == 1, ran.out
    crashed = [finding for finding in ran.document["findings"] if finding["outcome"] == "CRASHED"]
    assert crashed
    assert "SIGSEGV" in crashed[0]["why"]
    assert os.path.exists(ran.document["run"] if os.path.isabs(ran.document["run"]) else tmp_path / ran.document["run"])
