"""Chaos that cannot be meant, or cannot be done here, is refused in words; nothing is left behind, and what was
recorded stays readable."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from contextlab.lab.journal import read_run
from tests.command import Ran, Running, contextlab
from tests.packets import needs_packets

pytestmark = pytest.mark.process


def refused(ran: Ran, code: int, *says: str) -> None:
    """One document on standard output, the words on standard error, and the exit code."""
    assert ran.code == code, ran.out + ran.err
    document = ran.document
    assert document["command"] == "chaos"
    assert document["exit"]["code"] == code
    for words in says:
        assert words in ran.err, ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fake:caps", "--fault", "los:rate=1%"), ("did you mean loss",)),
        (("fake:caps", "--fault", "loss:rate=1%@25s+10s"), ("after the run of 30 s", "--duration")),
        (("fake:caps", "--fault", "loss:rate=1%", "--fault", "loss:rate=2%"), ("contradict",)),
        (("fake:caps", "--fault", "cut:at=noon"), ("at=", "noon")),
        (("fake:caps", "--scenario", "packet-lost"), ("did you mean packet-loss",)),
        (("http://192.0.2.1:9", "--fault", "loss"), ("not this machine", "--i-own-this")),
        ((), ("no target is named",)),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, words: tuple[str, ...], says: tuple[str, ...]) -> None:
    refused(contextlab("chaos", *words, "--json", cwd=tmp_path), 2, *says)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_with_an_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("target = 'fake:caps'\nhypotheses = ['errors < 1%']\n", encoding="utf-8")
    ran = contextlab("chaos", "--plan", "plan.toml", "--json", cwd=tmp_path)
    refused(ran, 2, "plan.toml", "'hypotheses'", "did you mean hypothesis")


def test_a_target_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        ran = contextlab("chaos", url, "--fault", "latency:delay=1ms", "--duration", "1s", "--json", cwd=tmp_path)
    refused(ran, 4, "refused")


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        ran = contextlab("chaos", "run:sleep 60", "--at", url, "--fault", "latency:delay=1ms", "--json", cwd=tmp_path)
    refused(ran, 4, "already taken")


def test_a_dry_run_starts_nothing(tmp_path: Path) -> None:
    ran = contextlab("chaos", "fake:caps", "--fault", "loss:rate=15%@10s+10s", "--seed", "3", "--dry-run", cwd=tmp_path)
    assert ran.code == 0, ran.err
    for words in ("loss:rate=15%@10s+10s", "seed        3", "errors < 1%", "needs", "nothing was started", "undo"):
        assert words in ran.out, ran.out
    ran = contextlab("chaos", "fake:caps", "--fault", "loss:rate=15%", "--dry-run", "--json", cwd=tmp_path)
    [experiment] = ran.document["experiments"]
    assert experiment["faults"][0]["acts_on"] == "packet"
    assert experiment["needs"]


@pytest.mark.parametrize(("fault", "says"), [("cut", "faults on the wire"), ("redis-slow", "a cache tier")])
def test_a_dry_run_knows_that_a_target_behind_tls_cannot_be_read(tmp_path: Path, fault: str, says: str) -> None:
    words = ("chaos", "https://127.0.0.1:9", "--fault", fault, "--dry-run", "--json")
    [experiment] = contextlab(*words, cwd=tmp_path).document["experiments"]
    assert not experiment["possible_here"]
    assert says in experiment["why_not"]
    assert "speaks TLS" in experiment["why_not"]
    assert experiment["next_step"]
    assert list(tmp_path.iterdir()) == []


@needs_packets
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle(tmp_path: Path, number: signal.Signals) -> None:
    """The record is readable up to there; no process, device or namespace is left (`ended` looks for orphans)."""
    words = ("chaos", "fake:caps", "--fault", "loss:rate=30%@1s+25s", "--rate", "20", "--no-control", "--json")
    running = Running(words, tmp_path)
    deadline = time.monotonic() + 60
    while not _in_fault_arm(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _in_fault_arm(tmp_path), "it never came to its faults"
    os.kill(running.pid, number)
    ran = running.ended()
    [record] = tmp_path.glob("runs/*/run.jsonl")
    run = read_run(record)
    assert any(line["kind"] == "sample" for line in run.records)
    if number == signal.SIGINT:
        assert ran.code == 130
        assert json.loads(ran.out)["exit"]["code"] == 130
    shown = contextlab("report", str(record.parent), cwd=tmp_path)
    assert shown.code == 0
    assert "loss" in shown.out


def _in_fault_arm(folder: Path) -> bool:
    records = list(folder.glob("runs/*/run.jsonl"))
    return bool(records) and b'"kind":"fault"' in records[0].read_bytes()
