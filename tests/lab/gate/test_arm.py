"""One launch of an arm: what is measured of it, and what is said where it does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextlab import registry
from contextlab.analysis.gate.load import EXACT_NAMES, GateLoad
from contextlab.lab.gate.arm import Arm
from contextlab.lab.gate.words import parse_arm
from tests.cli.running import serving

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]

LOAD = GateLoad(num_requests=6, num_warmup=2, concurrency=2, prompt_tokens=16, reply_tokens=4)


def arm(words: str, folder: Path, load: GateLoad = LOAD) -> Arm:
    """The candidate, as the user writes it."""
    return Arm(name="candidate", spec=parse_arm(words, "--candidate"), load=load, seed=0, folder=folder)


def test_a_launch_is_measured_whole(tmp_path: Path) -> None:
    one = arm("fake:caps --set token_delay_s=0.002", tmp_path)
    found = one.measure(1)
    assert found.died == ""
    assert (found.num_requests, found.num_failed, found.num_truncated) == (6, 0, 0)
    assert {"ttft_p50_s", "itl_p50_s", "e2e_p90_s", "tokens_per_s"} <= set(found.metrics)
    assert 0.001 < found.metrics["itl_p50_s"] < 0.2
    assert set(found.exact) <= set(EXACT_NAMES)
    assert {name: found.exact[name] for name in ("window_tokens", "fits.outcome", "over.outcome", "over.status")} == {
        "window_tokens": 256,
        "fits.outcome": "OK",
        "over.outcome": "REJECTED",
        "over.status": 400,
    }
    assert found.exact["load.reply_tokens"] == 4
    assert found.control_s is not None
    assert found.control_s > 0
    assert found.host.others_cores is not None
    assert one.known is not None
    assert one.is_ours


def test_the_side_that_is_cut_in_silence_is_a_fact(tmp_path: Path) -> None:
    found = arm("fake:drops-head", tmp_path).measure(1)
    assert (found.exact["over.outcome"], found.exact["over.side"]) == ("TRUNCATED_HEAD", "head")


def test_a_death_at_the_edge_of_the_window_is_named(tmp_path: Path) -> None:
    found = arm("fake:segfaults", tmp_path).measure(1)
    assert found.died == "it ended by SIGSEGV at the prompts at the edge of its window"
    assert found.metrics == {}


def test_a_target_that_does_not_start_is_named(tmp_path: Path) -> None:
    found = arm("run:'false' --at http://127.0.0.1:9", tmp_path).measure(1)
    assert found.died.startswith("it could not be started: the server ended before it was ready: exit code 1")


def test_nothing_there_is_named(tmp_path: Path) -> None:
    found = arm("http://127.0.0.1:9", tmp_path).measure(1)
    assert found.died.startswith("nothing answers at its address")


def test_a_target_that_refuses_everything_could_not_be_measured(tmp_path: Path) -> None:
    found = arm("fake:caps --set window=64", tmp_path, GateLoad(num_requests=5, prompt_tokens=128)).measure(1)
    assert found.died.startswith("it answered none of ")
    assert "maximum context length is 64 tokens" in found.died


def test_a_target_that_runs_already_is_not_started_anew(tmp_path: Path) -> None:
    """Its work would count as somebody else's, so that is not looked at; other words go first in every block."""
    with serving("-m", "contextlab.targets.servers.fake_server", "caps", "--port", "0") as (url, process):
        one = arm(url, tmp_path)
        first, second = one.measure(1), one.measure(2)
        assert process.poll() is None
    assert not one.is_ours
    assert (first.died, second.died) == ("", "")
    assert first.host.others_cores is None
    assert first.exact == second.exact


@pytest.mark.hf
def test_a_target_inside_a_process_is_put_behind_a_server(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the extra hf")
    assert registry.runs_in_child(parse_arm("hf:random/llama", "--base"))
    found = arm("hf:random/llama", tmp_path, GateLoad(num_requests=5, prompt_tokens=8, reply_tokens=2)).measure(1)
    assert found.died == ""
    assert found.metrics["tokens_per_s"] > 0
