"""Workflow annotations: few, one a line, and nothing that a target said can begin a command."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.model import Layer, Outcome, Verdict
from contextlab.reports import github
from tests.reports import sample
from tests.reports.every import MAKERS, made, written

COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^:,\r\n]*,?)+)::([^\r\n]*)\n")


def parsed(text: str) -> list[tuple[str, dict[str, str], str]]:
    """(level, properties, message) as the runner reads them."""
    found = []
    rest = text
    while rest:
        match = COMMAND.match(rest)
        assert match, rest[:200]
        properties = dict(pair.split("=", 1) for pair in match[2].split(",") if pair)
        found.append((match[1], {name: unescaped(value) for name, value in properties.items()}, unescaped(match[3])))
        rest = rest[match.end() :]
    return found


def unescaped(text: str) -> str:
    for escape, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(escape, char)
    return text


@pytest.mark.parametrize("name", MAKERS)
def test_at_most_five_and_one_notice_at_the_end(name: str) -> None:
    found = parsed(written(github.write, made(name)))
    assert [level for level, _, _ in found].count("notice") == 1
    assert found[-1][0] == "notice"
    assert len(found) <= 6


def test_the_worst_comes_first_and_what_is_unknown_warns() -> None:
    found = parsed(written(github.write, sample.failing()))
    assert [(level, told["title"]) for level, told, _ in found] == [
        ("error", "NEIGHBOUR_ABORTED"),
        ("error", "SHIFTED"),
        ("error", "REJECTED_BADLY"),
        ("warning", "UNKNOWN"),
        ("notice", "contextlab overflow: FAILED"),
    ]
    assert "What to change: Count tokens with /tokenize" in found[2][2]
    assert "40 probes: 6 failed" in found[-1][2]


def test_one_cause_is_one_annotation_and_the_rest_is_counted() -> None:
    bad = [
        sample.finding(f"s{n}", "p", Outcome.LEAKED, Verdict.FAIL, f"{n}", remedy=f"change {'x' * n}")
        for n in range(9)
        for _ in range(3)
    ]
    found = parsed(written(github.write, sample.run(*bad, code=1)))
    assert len(found) == 6
    assert "4 more causes in the report" in found[-1][2]


def test_a_run_that_could_not_be_made_is_an_error() -> None:
    level, told, message = parsed(written(github.write, sample.run(code=4, reason="no server: port taken")))[0]
    assert (level, told["title"]) == ("error", "TargetUnavailable")
    assert message == "overflow could not be made whole: no server: port taken"


def test_a_finding_in_a_file_stands_at_the_file() -> None:
    bad = sample.finding("s", "p", Outcome.TRUNCATED_HEAD, Verdict.FAIL, "cut", layer=Layer.TOKENIZER)
    told = parsed(written(github.write, sample.run(bad, code=1)))[0][1]
    assert told["file"] == "/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert told["line"] == "1"


def test_what_a_gate_compared_is_told_one_by_one() -> None:
    found = parsed(written(github.write, made("gate-regressed")))
    titles = [told["title"] for _, told, _ in found]
    assert titles[:3] == ["over.outcome DIFFERS", "over.status DIFFERS", "ttft_p50 ↓ REGRESSED"]
    assert found[2][2].startswith("123 ms to 142 ms, +15.1%, margin 5%: worse by more than the margin")
    assert all(level == "warning" for level, _, _ in parsed(written(github.write, made("gate-inconclusive")))[:-1])


@pytest.mark.parametrize("text", ["a\n::error::b", "50% off, now: 1,2", "\r\n::stop-commands::x", "%0A::error::y"])
def test_no_text_ends_its_line(text: str) -> None:
    found: list[Any] = parsed(written(github.write, sample.hostile(text)))
    assert len(found) == 2


@settings(deadline=None, max_examples=30)
@given(st.text(st.characters(codec=None), max_size=40))
def test_whatever_a_target_says_is_a_message(text: str) -> None:
    parsed(written(github.write, sample.hostile(text)))
