"""Servers that refuse, hang, answer nonsense or die: each is told in words, in time, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextlab.targets.gguf import smollm2_file
from tests.cli.odd_servers import KEY
from tests.cli.running import Ran, Running, contextlab, odd, records, serving, wait_for

pytestmark = pytest.mark.process

MODEL = smollm2_file()


@contextmanager
def taken_port() -> Iterator[int]:
    """A port of this machine at which something else listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield int(taken.getsockname()[1])


def free_port() -> int:
    """A port at which nobody listens just now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def refused(ran: Ran, *says: str, code: int = 4) -> None:
    """The run could not be made: words, a next step, the code, and one document that says the same."""
    assert ran.code == code, ran.err
    message, _, next_step = ran.err.partition("\n next: ")
    assert message.startswith("error: "), ran.err
    assert next_step.strip(), ran.err
    assert [words for words in says if words not in ran.err] == [], ran.err
    document = ran.document
    assert document["exit"]["code"] == code
    assert f"error: {document['exit']['reason'].rstrip()}" in ran.err
    assert document["findings"] == []


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("html", (), ("a web page, not an API", "Welcome", "right port and path")),
        ("no-counts", (), ("does not count the tokens", "usage", "--set chars_per_token=4")),
        ("one-model", ("model=model-7",), ("model=model-7", "serves model-7b", "did you mean model-7b?")),
        ("one-model", ("model=gpt-9",), ("model=gpt-9", "serves model-7b", "name one of these")),
        ("window-0", (), ("a window of 0 tokens", "--set window=TOKENS")),
        ("window-10m", (), ("window=10000000", "65536", "--max-prompt-tokens 20000000")),
        ("not-http", (), ("the answer is not HTTP", "SSH-2.0", "another service")),
        ("hangs-up", (), ("closed before an answer", "did the server die")),
        ("moved", (), ("moved to /elsewhere", "give that address")),
        ("broken", (), ("500 (out of cheese)", "server's log")),
        ("silent", ("answer_timeout_s=0.5",), ("/v1/models", "no answer within 0.5 s", "answer_timeout_s=SECONDS")),
        ("mute", ("answer_timeout_s=0.5",), ("completions", "no answer within 0.5 s", "is it stuck")),
    ],
)
def test_an_odd_server(name: str, settings: tuple[str, ...], says: tuple[str, ...], tmp_path: Path) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    with odd(name) as url:
        ran = contextlab("overflow", url, "--json", *words, cwd=tmp_path, timeout_s=30)
    refused(ran, *says)
    assert ran.err.count("\n") == 2, "one line each: what is wrong, and what to do"


def test_nobody_listens(tmp_path: Path) -> None:
    ran = contextlab("overflow", f"http://127.0.0.1:{free_port()}", "--json", cwd=tmp_path)
    refused(ran, "connection refused", "start the server")
    [folder] = (tmp_path / "runs").iterdir()
    assert ran.document["run"] == f"runs/{folder.name}"
    assert records(tmp_path)[-1]["exit"]["code"] == 4


@pytest.mark.parametrize(
    ("env", "settings", "says"),
    [
        ({}, (), ("$CONTEXTLAB_API_KEY", "not set")),
        ({"CONTEXTLAB_API_KEY": "sk-wrong-key-0815"}, (), ("$CONTEXTLAB_API_KEY is set", "check the key")),
        ({"MY_KEY": "sk-wrong-key-0815"}, ("--set", "api_key_env=MY_KEY"), ("$MY_KEY is set", "check the key")),
    ],
    ids=["none", "wrong", "wrong-in-another"],
)
def test_a_key_that_is_refused(
    env: dict[str, str], settings: tuple[str, ...], says: tuple[str, ...], tmp_path: Path
) -> None:
    with odd("wants-key") as url:
        ran = contextlab("overflow", url, "--json", *settings, cwd=tmp_path, env={"CONTEXTLAB_API_KEY": "", **env})
    refused(ran, "401", "Incorrect API key", *says)
    kept = [path.read_text(encoding="utf-8") for path in tmp_path.glob("runs/*/*")]
    assert all("0815" not in text for text in [ran.out, ran.err, *kept])


def test_the_right_key_is_never_kept(tmp_path: Path) -> None:
    with odd("wants-key") as url:
        words = ("overflow", url, "--json", "-s", "find-limit", "--max-prompt-tokens", "256")
        ran = contextlab(*words, cwd=tmp_path, env={"CONTEXTLAB_API_KEY": KEY})
    assert ran.document["flavour"] == "other"
    kept = [path.read_text(encoding="utf-8") for path in tmp_path.glob("runs/*/*")]
    assert all(KEY not in text for text in [ran.out, ran.err, *kept])


# ── servers of ours that do not start ────────────────────────────────────────────────────────────


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with taken_port() as port:
        ran = contextlab("overflow", "run:sleep 60", "--at", f"http://127.0.0.1:{port}", "--json", cwd=tmp_path)
    refused(ran, f"port {port} of 127.0.0.1 is already taken", "choose another port")


@pytest.mark.skipif(MODEL is None, reason="needs the model: contextlab models add smollm2")
def test_a_port_of_llama_that_is_taken(tmp_path: Path) -> None:
    with taken_port() as port:
        ran = contextlab("overflow", "smollm2", "--set", f"port={port}", "--json", cwd=tmp_path)
    refused(ran, f"port {port} of 127.0.0.1 is already taken", "choose another port")


def test_a_command_that_ends_at_once(tmp_path: Path) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    ran = contextlab("overflow", "run:ls /no/such/model", "--at", at, "--json", cwd=tmp_path)
    refused(ran, "ended before it was ready", "exit code 2", "/no/such/model", "server.log")


def test_a_command_that_is_never_ready(tmp_path: Path) -> None:
    at = f"http://127.0.0.1:{free_port()}"
    words = ("overflow", "run:sh -c 'echo loading; sleep 3600'", "--at", at, "--set", "ready_timeout_s=1.5", "--json")
    began_s = time.monotonic()
    ran = contextlab(*words, cwd=tmp_path)
    refused(ran, "not ready after", f"waited for an answer at {at}", "loading", "ready_timeout_s=SECONDS")
    assert time.monotonic() - began_s < 20


@pytest.mark.engine
@pytest.mark.skipif(MODEL is None, reason="needs the model: contextlab models add smollm2")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("slots=4", "batch=2"), ("SIGABRT", "GGML_ASSERT", "server.log")),
        (("cache_type_v=q4_0", "flash_attention=off"), ("quantized V cache", "exit code 1", "server.log")),
    ],
)
def test_a_setting_that_llama_refuses(settings: tuple[str, ...], says: tuple[str, ...], tmp_path: Path) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    ran = contextlab("overflow", "smollm2", *words, "--json", cwd=tmp_path)
    refused(ran, "ended before it was ready", *says)


# ── servers that die while they are probed ───────────────────────────────────────────────────────


def replying(folder: Path) -> bool:
    """Whether a probe has begun and the server is in the middle of a reply."""
    last = [record for record in records(folder) if record["kind"] in ("probe", "event")][-1:]
    return any(
        record.get("scenario") != "opening" and record.get("event", {}).get("kind") == "token" for record in last
    )


def test_a_server_of_ours_is_killed(tmp_path: Path) -> None:
    words = ("overflow", "fake:caps", "-s", "reply-past-window", "--set", "token_delay_s=0.02", "--json")
    running = Running(words, tmp_path)
    wait_for("words of a reply", lambda: replying(tmp_path))
    server = next(record for record in records(tmp_path) if record["kind"] == "server")
    os.kill(server["pid"], signal.SIGKILL)
    ran = running.ended()
    assert ran.code == 1, ran.err
    crashed = [finding for finding in ran.document["findings"] if finding["outcome"] == "CRASHED"]
    assert len(crashed) == 1
    assert crashed[0]["verdict"] == "FAIL"
    assert "SIGKILL" in str(crashed[0])
    assert len(ran.document["findings"]) > 1, "it was started again, and the run went on"


@pytest.mark.parametrize("scenario", ["reply-past-window", "prompt-too-long"])
def test_somebody_elses_server_is_killed(scenario: str, tmp_path: Path) -> None:
    argv = ("-m", "contextlab.targets.servers.fake_server", "caps", "--token-delay-s", "0.02")
    with serving(*argv) as (url, server):
        running = Running(("overflow", url, "-s", scenario, "-s", "after-the-storm", "--json"), tmp_path)
        wait_for("words of a reply", lambda: replying(tmp_path))
        server.kill()
        ran = running.ended()
    assert ran.code == 1, ran.err
    document = ran.document
    assert "CRASHED" in {finding["outcome"] for finding in document["findings"]}
    reasons = {skip["scenario"]: skip["reason"] for skip in document["skipped"]}
    assert reasons.keys() == {scenario, "after-the-storm"}
    assert all("no longer answers" in reason and "not ours to start" in reason for reason in reasons.values())
