"""The verdict in words: it claims nothing about the window unless the command was about the window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextlab.model import Outcome, Run, Verdict
from contextlab.reports import json
from contextlab.reports.parts import headline
from tests.reports import sample

WINDOW = "smollm2 (llama-server) {} at its window of 512 tokens"
NO_WINDOW = "smollm2 {} (window not known)"


def by(command: str, run: Run) -> Run:
    return replace(run, header={**run.header, "command": command})


def alone(outcome: Outcome, verdict: Verdict) -> Run:
    return sample.run(sample.finding("prompt-too-long", "chat-512", outcome, verdict), code=verdict is Verdict.FAIL)


def test_overflow_that_failed_names_what_happened_the_worst_first() -> None:
    names = "NEIGHBOUR_ABORTED, SHIFTED, REJECTED_BADLY"
    assert headline.sentence(sample.failing()) == f"{WINDOW.format('breaks')}: {names}"
    assert headline.sentence(replace(sample.failing(), knowledge=None)) == f"{NO_WINDOW.format('breaks')}: {names}"


def test_overflow_that_held_says_what_held() -> None:
    words = (
        "prompts are answered and read whole (OK), too much is refused clearly (REJECTED), "
        "replies end at it and say so (CAPPED)"
    )
    assert headline.sentence(sample.held()) == f"{WINDOW.format('holds')}: {words}"


def test_what_passed_only_by_permission_is_not_praised() -> None:
    sentence = headline.sentence(alone(Outcome.SHIFTED, Verdict.PASS))
    assert sentence == f"{WINDOW.format('holds')}: SHIFTED is allowed"


@pytest.mark.parametrize(("verdict", "word"), [(Verdict.FAIL, "FAILED"), (Verdict.PASS, "HELD")])
def test_replay_says_what_the_probe_did_this_time(verdict: Verdict, word: str) -> None:
    run = by("replay", alone(Outcome.REJECTED, verdict))
    assert headline.word(run) == word
    assert headline.sentence(run) == "prompt-too-long/chat-512 of smollm2 (llama-server), repeated: REJECTED"


@pytest.mark.parametrize("command", ["chaos", "pareto", "something-new"])
def test_other_commands_claim_nothing_about_the_window(command: str) -> None:
    for name in ("failing", "held", "undecided", "killed", "interrupted", "empty"):
        assert "window" not in headline.sentence(by(command, getattr(sample, name)()))
    assert headline.sentence(by(command, sample.held())) == "smollm2 (llama-server) held: OK, REJECTED, CAPPED"
    failed = headline.sentence(by(command, alone(Outcome.CRASHED, Verdict.FAIL)))
    assert failed == "smollm2 (llama-server) failed: CRASHED"
    nouns = "experiments" if command == "chaos" else "probes"
    undecided = headline.sentence(by(command, sample.undecided()))
    assert undecided == f"1 of 6 {nouns} of smollm2 (llama-server) could not be told"


def test_exit_code_explains_itself_only_where_it_is_the_verdicts_own() -> None:
    assert headline.tells_exit(sample.failing())
    assert headline.tells_exit(sample.held())
    assert not headline.tells_exit(sample.undecided())
    assert not headline.tells_exit(sample.interrupted())
    also = {"code": 1, "reason": "a finding", "all": [[1, "a finding"], [4, "the server could not be started again"]]}
    run = sample.failing()
    assert not headline.tells_exit(replace(run, end={**(run.end or {}), "exit": also}))


@pytest.mark.parametrize(
    ("code", "reason", "word"),
    [(143, "stopped by SIGTERM", "INTERRUPTED"), (4, "the server could not be started again", "UNKNOWN")],
)
def test_a_run_that_did_not_come_to_its_end_has_not_passed(code: int, reason: str, word: str) -> None:
    run = sample.run(*sample.held().findings, code=code, reason=reason)
    assert (run.end or {})["verdict"] == "PASS"  # of its findings
    assert headline.word(run) == word
    assert json.document(run)["verdict"] == "UNKNOWN"
    assert "holds" not in headline.sentence(run)
