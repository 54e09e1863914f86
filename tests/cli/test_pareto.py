"""`contextlab pareto` as a user runs it, on small servers: what is found, what is broken and not fast, what resumes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from contextlab.analysis import sweeps
from contextlab.lab.journal import read_run
from tests.command import Running, contextlab

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]

QUICK = ("--measure", "1s", "--trust-host", "--json")


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def fake(name: str = "caps", **settings: str) -> tuple[str, ...]:
    """A run: target on a fake server with placeholders among its options, and where it answers."""
    port = free_port()
    words = [sys.executable, "-m", "contextlab.targets.servers.fake_server", name, "--port", str(port)]
    words += [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", value)]
    return f"run:{' '.join(words)}", "--at", f"http://127.0.0.1:{port}"


def by_settings(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The points by their settings, as text."""
    return {json.dumps(point["settings"], sort_keys=True): point for point in document["points"]}


@pytest.mark.alone
def test_a_frontier_of_slots(tmp_path: Path) -> None:
    words = ("--sweep", "slots=1,4", "--load", "concurrency=4", "--budget", "45s", "--repeats", "3", *QUICK)
    ran = contextlab("pareto", *fake(slots="{slots}"), *words, cwd=tmp_path)
    document = ran.document
    assert ran.code == 0, ran.err
    points = by_settings(document)
    assert points['{"slots": 4}']["membership"] == "member"
    assert points['{"slots": 1}']["membership"] in ("dominated", "undecided")  # two repeats of a second each
    assert (
        points['{"slots": 4}']["objectives"]["tokens_per_s"]["value"]
        > 2 * (points['{"slots": 1}']["objectives"]["tokens_per_s"]["value"])
    )
    assert document["frontier"] == [{"slots": 4}]
    assert document["hypervolume"]["reference"]


def test_what_is_refused_or_dies_shows_as_such(tmp_path: Path) -> None:
    """A window that no prompt fits into rejects, one that is no number does not start; neither is fast."""
    words = ("--sweep", "window=16,none,256", "--load", "concurrency=1", "--budget", "14s", "--repeats", "2", *QUICK)
    ran = contextlab("pareto", *fake(window="{window}"), *words, cwd=tmp_path)
    points = by_settings(ran.document)
    assert points['{"window": 16}']["status"] == "infeasible"
    assert "rejects" in points['{"window": 16}']["why"]
    assert points['{"window": "none"}']["status"] == "infeasible"
    assert "ended before it was ready" in points['{"window": "none"}']["why"]
    assert points['{"window": 256}']["status"] == "ok"
    assert ran.document["frontier"] in ([{"window": 256}], [])


def test_a_server_that_dies_at_one_setting_is_a_crash_and_the_sweep_goes_on(tmp_path: Path) -> None:
    words = ("--sweep", "window=16,256", "--load", "concurrency=1", "--budget", "14s", "--repeats", "2", *QUICK)
    ran = contextlab("pareto", *fake("segfaults", window="{window}"), *words, cwd=tmp_path)
    points = by_settings(ran.document)
    assert points['{"window": 16}']["status"] == "crashed"
    assert "SIGSEGV" in points['{"window": 16}']["why"]
    assert points['{"window": 256}']["status"] == "ok"


def test_killed_and_resumed_measures_nothing_twice(tmp_path: Path) -> None:
    target = fake(slots="{slots}")
    words = (*target, "--sweep", "slots=1,2", "--load", "concurrency=2", "--budget", "24s", "--repeats", "2", *QUICK)
    running = Running(("pareto", *words), tmp_path)
    record = _wait_for(tmp_path, 1)
    os.kill(running.pid, signal.SIGKILL)
    running.ended()
    before = sweeps.read(read_run(record).records)[1]
    ran = contextlab("pareto", *words, "--resume", str(record.parent), cwd=tmp_path)
    assert ran.code == 0, ran.err
    after = sweeps.read(read_run(record).records)[1]
    assert after[: len(before)] == before
    assert max(Counter((one.block, one.key) for one in after).values()) == 1
    assert len(after) > len(before)
    told = contextlab("report", str(record.parent), "--as", "json", cwd=tmp_path).document
    assert told["points"] == ran.document["points"]


def _wait_for(folder: Path, num_measurements: int) -> Path:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for record in folder.glob("runs/*/run.jsonl"):
            if record.read_bytes().count(b'"kind":"measurement"') >= num_measurements:
                return record
        time.sleep(0.1)
    pytest.fail("the sweep never got so far")


def test_a_contended_host_gives_no_frontier(tmp_path: Path) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    try:
        words = ("--sweep", "slots=1,2", "--budget", "30s", "--measure", "1s", "--wait", "1s", "--json")
        ran = contextlab("pareto", *fake(slots="{slots}"), *words, cwd=tmp_path)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert ran.code == 3, ran.out
    assert ran.document["frontier"] == []
    assert any("contended" in finding["why"] for finding in ran.document["findings"])


def test_a_starved_client_gives_no_frontier(tmp_path: Path) -> None:
    """The load's worker gets the processor for a fraction of the time, as on a machine that has none to spare."""
    words = ("--sweep", "slots=1,2", "--load", "concurrency=2", "--budget", "40s", *QUICK)
    running = Running(("pareto", *fake(slots="{slots}"), *words), tmp_path)
    over = threading.Event()
    starving = threading.Thread(target=_starve, args=(running.pid, over))
    starving.start()
    try:
        ran = running.ended(60)
    finally:
        over.set()
        starving.join()
    assert ran.code == 3, ran.out
    assert ran.document["frontier"] == []
    assert {point["status"] for point in ran.document["points"]} == {"invalid"}
    assert any("the client is starved" in finding["why"] for finding in ran.document["findings"])


def _starve(pid: int, over: threading.Event) -> None:
    """Stop every load worker below this process again and again, until it is over."""
    while not over.wait(0.05):
        with suppress(psutil.Error):
            for one in psutil.Process(pid).children(recursive=True):
                if "contextlab.lab.load.worker" in one.cmdline():
                    one.suspend()
                    over.wait(0.25)
                    one.resume()


def test_batches_of_a_model_in_a_process(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = ("--sweep", "batch=1,8", "--load", "prompt_tokens=16", "--load", "reply_tokens=8", "--budget", "25s")
    ran = contextlab("pareto", "hf:random/llama", *words, "--repeats", "2", *QUICK, cwd=tmp_path)
    points = by_settings(ran.document)
    assert points['{"batch": 8}']["status"] == points['{"batch": 1}']["status"] == "ok"
    large, small = (points[f'{{"batch": {n}}}']["objectives"]["tokens_per_s"]["value"] for n in (8, 1))
    assert large > small


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fake:caps", "--sweep", "slot=1,2"), ("slot", "slots")),
        (("fake:caps", "--sweep", "slots=1,2", "--budget", "1s"), ("budget",)),
        (("--sweep", "slots=1,2"), ("no target is named", "such as smollm2\n")),
        (("run:sleep {context}", "--at", "http://127.0.0.1:9", "--sweep", "concurrency=1,2"), ("{context}",)),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, words: tuple[str, ...], says: tuple[str, ...]) -> None:
    ran = contextlab("pareto", *words, "--json", cwd=tmp_path)
    assert ran.code == 2, ran.out + ran.err
    assert ran.document["exit"]["code"] == 2
    for word in says:
        assert word in ran.err, ran.err


def test_optuna_may_choose_the_settings(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = ("--sweep", "slots=1,2", "--load", "concurrency=2", "--budget", "9s", "--optuna", *QUICK)
    ran = contextlab("pareto", *fake(slots="{slots}"), *words, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.document["points"]
