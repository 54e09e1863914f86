"""JUnit XML: valid by the schema of Jenkins' plug-in, each kind of ending where CI expects it, names that stay."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.model import Outcome, Run, Skip, Verdict
from contextlab.reports import junit
from contextlab.reports.parts.cases import ITSELF, WHOLE_SCENARIO
from tests.reports import sample
from tests.reports.every import MAKERS, made, written

XSD = Path(__file__).parent / "junit-10.xsd"


@cache
def validator() -> Any:
    return xmlschema.XMLSchema(XSD)


def parsed(run: Run) -> ET.Element:
    return ET.fromstring(written(junit.write, run))


def case(run: Run, name: str) -> ET.Element:
    [found] = [each for each in parsed(run).iter("testcase") if each.get("name") == name]
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_every_run_validates(name: str) -> None:
    text = written(junit.write, made(name))
    assert text.isascii()
    validator().validate(text)


@settings(deadline=None, max_examples=30)
@given(st.text(st.characters(codec=None), max_size=40))
def test_whatever_a_target_says_is_valid_and_comes_back(text: str) -> None:
    made_of = written(junit.write, sample.hostile(text))
    validator().validate(made_of)


def test_a_document_that_is_wrong_does_not_validate() -> None:
    text = written(junit.write, sample.held())
    assert not validator().is_valid(text.replace('failures="', 'failed="'))
    assert not validator().is_valid(re.sub(r'time="[\d.]+"', 'time="soon"', text))


def test_a_finding_is_a_failure_with_its_evidence_and_how_to_see_it_again() -> None:
    [failure] = case(sample.failing(), "emoji")
    assert (failure.tag, failure.get("type")) == ("failure", "REJECTED_BADLY")
    assert failure.get("message") == "a prompt of 600 characters was refused with the status of a server's own error"
    body = (failure.text or "").splitlines()
    assert "  remedy: Count tokens with /tokenize before sending; characters / 4 is 9.9 times too few here." in body
    assert "  prompt_tokens: 1480" in body
    assert body[-1] == f"again: contextlab replay {sample.PATH} --probe token-blowup/emoji"


def test_what_could_not_be_told_or_was_not_run_is_skipped_with_the_reason() -> None:
    run = sample.failing()
    [unknown] = case(run, "one-over-the-pool")
    assert (unknown.tag, unknown.get("type")) == ("skipped", "UNKNOWN")
    assert str(unknown.get("message")).startswith("the neighbour's answer differs from run to run")
    [skipped] = case(run, WHOLE_SCENARIO)
    assert skipped.get("message") == "not run: needs gauges: llama-server was started without --metrics"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (None, "Killed"),
        (2, "WrongUsage"),
        (4, "TargetUnavailable"),
        (5, "NothingMeasured"),
        (6, "UndoFailed"),
        (70, "InternalError"),
        (130, "Interrupted"),
        (143, "Terminated"),
    ],
)
def test_infrastructure_is_an_error_and_no_failure(code: int | None, kind: str) -> None:
    run = sample.run(*sample.held().findings, code=code, reason="the server did not start")
    [error] = case(run, ITSELF)
    assert (error.tag, error.get("type")) == ("error", kind)
    root = parsed(run)
    assert (root.get("errors"), root.get("failures")) == ("1", "0")


def test_infrastructure_does_not_hide_behind_a_finding() -> None:
    run = sample.failing()
    assert run.end is not None
    end = {**run.end, "exit": {"code": 1, "reason": "a finding", "all": [[1, "a finding"], [4, "the server died"]]}}
    [error] = case(replace(run, end=end), ITSELF)
    assert (error.get("type"), error.get("message")) == ("TargetUnavailable", "the server died")


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_run_that_came_to_its_end_passes_as_one(code: int) -> None:
    assert [each.tag for each in case(sample.run(*sample.held().findings, code=code), ITSELF)] == ["system-out"]


@pytest.mark.parametrize("name", MAKERS)
def test_the_totals_are_those_of_the_cases(name: str) -> None:
    for suite in (root := parsed(made(name))).iter("testsuite"):
        members = list(suite.iter("testcase"))
        counts = {tag: sum(each.find(tag) is not None for each in members) for tag in ("failure", "error", "skipped")}
        said = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
        assert said == [str(n) for n in (len(members), counts["failure"], counts["error"], counts["skipped"])]
    assert int(str(root.get("tests"))) == len(list(root.iter("testcase")))


def test_a_case_is_named_once() -> None:
    names = [(each.get("classname"), each.get("name")) for each in parsed(sample.failing()).iter("testcase")]
    assert len(names) == len(set(names))


def test_names_stay_whatever_was_measured() -> None:
    run = sample.failing()
    other = replace(
        run,
        findings=tuple(
            replace(each, why=f"{each.why} 99", outcome=Outcome.OK, verdict=Verdict.PASS) for each in run.findings
        ),
    )
    names = [
        [(each.get("classname"), each.get("name")) for each in parsed(one).iter("testcase")] for one in (run, other)
    ]
    assert names[0] == names[1]
    assert names[0][1] == ("contextlab.overflow.smollm2.find-limit", "bisect-9")


def test_a_probe_that_was_judged_and_skipped_is_judged() -> None:
    run = replace(sample.held(), skips=(Skip(scenario="prompt-too-long", probe="chat-511", reason="once"),))
    assert [each.tag for each in case(run, "chat-511")] == ["system-out"]


def test_times_are_those_of_the_record() -> None:
    assert case(sample.killed(), "chat-511").get("time") == "1.000"
    assert case(sample.killed(), "chat-512").get("time") == "0.000"


def test_each_suite_says_where_it_comes_from() -> None:
    for suite in parsed(sample.failing()).iter("testsuite"):
        told = {each.get("name"): each.get("value") for each in suite.iter("property")}
        assert (told["target"], told["seed"], told["exit_code"], told["context_tokens"]) == ("smollm2", "7", "1", "512")
        assert str(told["versions"]).startswith("python 3.11")
        assert suite.get("timestamp") == "2026-11-29T16:02:03"
