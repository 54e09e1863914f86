"""`contextlab gate` as a user runs it: real launches of small servers, and every exit code that it promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.cli import burning_server
from tests.cli.running import records, wait_for
from tests.cli.test_pareto import free_port
from tests.command import Running, contextlab

pytestmark = [pytest.mark.process, pytest.mark.timeout(280)]

SERVER = Path(burning_server.__file__)
SHORT = ("--blocks", "7", "--max-blocks", "7", "--requests", "5")
SMALL = ("--load", "warmup=1", "--load", "prompt_tokens=12", "--load", "reply_tokens=8")
FAKE = "fake:caps --set token_delay_s=0.002"


def burning(quota: float | None = None) -> str:
    """An arm that computes, with so much of a core at most."""
    port = free_port()
    words = f"{sys.executable} {SERVER} {port}" + (f" {quota}" if quota else "")
    return f"run:'{words}' --at http://127.0.0.1:{port} --set ready_path=/v1/models"


@pytest.fixture
def quotas() -> Iterator[None]:
    """Leave to set quotas, or a skip."""
    try:
        subprocess.run(
            [sys.executable, "-c", "from tests.cli.burning_server import limit; limit(0.5)"],
            check=True,
            capture_output=True,
            cwd=SERVER.parents[2],
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no CPU quota can be set here: {error.stderr.decode().strip().splitlines()[-1]}")
    yield
    burning_server.unlimit()


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """So many processes that take a core each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


# ── measured here ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.alone
@pytest.mark.usefixtures("quotas")
def test_a_quota_of_half_a_core_is_found_and_confirmed(tmp_path: Path) -> None:
    words = ("gate", "run", "--base", burning(), "--candidate", burning(0.5), *SHORT, *SMALL, "--trust-host")
    ran = contextlab(*words, "-o", "run", cwd=tmp_path, timeout_s=270)
    assert ran.code == 1, ran.out + ran.err
    assert ran.out.startswith("REGRESSED  run:")
    assert "✗ tokens_per_s ↑: REGRESSED" in ran.out
    assert "again in 7 fresh blocks" in ran.out
    assert "could see ≥" in ran.out
    blocks = [record["block"] for record in records(tmp_path) if record["kind"] == "block"]
    assert [block.get("confirming", False) for block in blocks] == [False] * 7 + [True] * 7
    assert all(block["candidate"]["host"].get("throttled") in (0, None) for block in blocks)  # the arm's, not ours


@pytest.mark.calm
def test_a_target_against_itself_is_never_worse_whatever_interrupts(tmp_path: Path) -> None:
    words = ("gate", "run", "--base", FAKE, "--candidate", FAKE, *SHORT, *SMALL, "--trust-host")
    running = Running((*words, "-o", "run"), tmp_path)
    wait_for("two blocks", lambda: sum(one["kind"] == "block" for one in records(tmp_path)) >= 2, 120.0)
    os.kill(running.pid, signal.SIGKILL)
    running.ended()
    before = [one for one in records(tmp_path) if one["kind"] == "block"]
    ran = contextlab(*words, "--resume", "run", "--json", cwd=tmp_path, timeout_s=200)
    document = ran.document
    assert ran.code in (0, 3), document["exit"]
    assert document["attempts"] == 2
    assert [block["number"] for block in document["blocks"]] == list(range(1, 8))
    assert [one for one in records(tmp_path) if one["kind"] == "block"][: len(before)] == before
    assert document["exact"] == []
    assert {metric["metric"]["name"] for metric in document["metrics"]} >= {"ttft_p50_s", "tokens_per_s"}

    accepted = contextlab("gate", "accept", "run", "--reason", "the first", "--name", "mine", cwd=tmp_path)
    assert (accepted.code, accepted.out.strip()) == (0, ".contextlab/baselines/mine.json")
    again = contextlab("gate", "mine", "run", "--trust-host", "--json", cwd=tmp_path)
    assert again.code in (0, 3), again.document["exit"]
    assert again.document["notes"][0].endswith("the first")


@pytest.mark.alone
def test_busy_loops_beside_it_contaminate(tmp_path: Path) -> None:
    with busy_loops(2):
        words = ("gate", "run", "--base", FAKE, "--candidate", "fake:caps --set token_delay_s=0.02", *SHORT, *SMALL)
        ran = contextlab(*words, cwd=tmp_path, timeout_s=270)
    assert ran.code == 3, ran.out + ran.err
    assert ran.out.startswith("CONTAMINATED  fake:caps")
    assert "the machine was not quiet: " in ran.out


def test_a_target_that_is_killed_in_the_middle_died(tmp_path: Path) -> None:
    slow = "fake:caps --set token_delay_s=0.06"
    words = ("gate", "run", "--base", slow, "--candidate", slow, "--blocks", "7", "--requests", "20", "--trust-host")
    running = Running((*words, "--json"), tmp_path)
    _kill_a_server(running.pid)
    ran = running.ended(120.0)
    assert ran.code == 4, ran.out + ran.err
    assert ran.document["gate_verdict"] == "died"
    assert "died in block 1: it ended by SIGKILL under the load" in ran.document["exit"]["reason"]


def _kill_a_server(pid: int) -> None:
    """Kill the first server that the command has started, once it is under load."""

    def found() -> psutil.Process | None:
        with suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                words = child.cmdline()
                if "contextlab.targets.servers.fake_server" in words and "-I" not in words:  # not its keeper
                    return child
        return None

    server = wait_for("a server", found)
    wait_for("its load", lambda: len(server.net_connections(kind="tcp")) > 1)
    time.sleep(0.3)
    server.kill()


# ── what needs no launch ─────────────────────────────────────────────────────────────────────────


def test_no_baseline_is_five(tmp_path: Path) -> None:
    ran = contextlab("gate", "mine", "latest", "--json", cwd=tmp_path)
    assert ran.code == 5
    assert ran.document["exit"]["code"] == 5
    assert "'mine' is no baseline" in ran.err
    assert "contextlab gate accept" in ran.err


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[gate]\nmargin = 5\n", "contextlab.toml: gate has no key 'margin'"),
        ("[gate.metrics.ttft_p51]\n", "did you mean ttft_p50?"),
        (
            '[[gate.waivers]]\nmetric = "itl_p50"\nreason = "x"\nexpires = 2020-01-01\n',
            "expires=2020-01-01: that day is over",
        ),
        ('[[gate.budgets]]\nexpr = "ttft < 2s"\n', "there is no such metric"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_two(tmp_path: Path, config: str, words: str) -> None:
    (tmp_path / "contextlab.toml").write_text(config)
    ran = contextlab("gate", "run", "--base", FAKE, "--candidate", FAKE, cwd=tmp_path)
    assert ran.code == 2
    assert words in ran.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--candidate", FAKE), "Missing option '--base'"),
        (("run", "--base", FAKE, "--candidate", "fake:cap"), "there is no such fake"),
        (("run", "--base", FAKE, "--candidate", FAKE, "--blocks", "3"), "blocks"),
        (("run", "--base", FAKE, "--candidate", FAKE, "--blocks", "9", "--max-blocks", "8"), "max_blocks=8"),
        (("run", "--base", FAKE, "--candidate", FAKE, "--max-blocks", "8"), "lower the first, or raise the second"),
        (("run", "--base", FAKE, "--candidate", FAKE, "--load", "warm=3"), "did you mean warmup?"),
        (("run", "--base", "http://192.0.2.1:1", "--candidate", FAKE), "is not this machine"),
        (("accept", "latest"), "Missing option '--reason'"),
        (("only-one",), "Missing argument"),
    ],
)
def test_words_that_cannot_be_meant_are_two(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    ran = contextlab("gate", *words, cwd=tmp_path)
    assert ran.code == 2, ran.err
    assert said in ran.err


def test_the_projects_file_may_hold_the_gate_beside_other_keys(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.contextlab]\nallow = ["SHIFTED"]\n[tool.contextlab.gate]\nblocks = 8\n'
    )
    ran = contextlab("overflow", "fake:nothing", cwd=tmp_path)
    assert "there is no such fake" in ran.err  # and not: no key 'gate'


def test_help_names_all_four(tmp_path: Path) -> None:
    ran = contextlab("gate", "--help", cwd=tmp_path)
    assert ran.code == 0
    for name in ("run", "calibrate", "accept", "gate smollm2 latest"):
        assert name in ran.out
