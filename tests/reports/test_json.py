"""The JSON document: its shape, its numbers, and a way back."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from contextlab.model import Outcome, Run, UnableError, Verdict
from contextlab.reports import json as report
from tests.reports import sample

NULL = type(None)
SHAPE: dict[str, Any] = {
    "schema": str,
    "command": str,
    "target": str,
    "verdict": str,
    "exit": {"code": (int, NULL), "reason": str, "all": list},
    "flavour": (str, NULL),
    "version": (str, NULL),
    "model": (str, NULL),
    "settings": dict,
    "seed": (int, NULL),
    "notes": [str],
    "limits": {
        "context_tokens": (int, NULL),
        "pool_tokens": (int, NULL),
        "num_slots": (int, NULL),
        "declared": [{"layer": str, "name": str, "tokens": (int, NULL), "source": str}],
    },
    "findings": [
        {
            "scenario": str,
            "probe": str,
            "outcome": str,
            "verdict": str,
            "layer": str,
            "why": str,
            "evidence": dict,
            "remedy": str,
        }
    ],
    "skipped": [{"scenario": str, "probe": str, "reason": str}],
    "run": (str, NULL),
}
"""What a reader may rely on: keys in this order, and the type of each value."""


def check(thing: Any, shape: Any, at: str = "$") -> None:
    if isinstance(shape, dict):
        assert list(thing) == list(shape), at
        for name, part in shape.items():
            check(thing[name], part, f"{at}.{name}")
    elif isinstance(shape, list):
        assert isinstance(thing, list), at
        for place, part in enumerate(thing):
            check(part, shape[0], f"{at}[{place}]")
    else:
        assert isinstance(thing, shape), at


def written(run: Run) -> Any:
    out = io.StringIO()
    report.write(run, out)
    return json.loads(out.getvalue())


@pytest.mark.parametrize("name", ["failing", "held", "undecided", "killed", "interrupted", "empty", "bare", "hostile"])
def test_every_run_has_the_same_shape(name: str) -> None:
    run = getattr(sample, name)()
    check(written(run), SHAPE)
    assert written(run) == report.document(run)


def test_failing_run() -> None:
    document = report.document(sample.failing())
    assert document["schema"] == "contextlab.overflow/1"
    assert (document["target"], document["flavour"], document["seed"]) == ("smollm2", "llama-server", 7)
    assert document["verdict"] == "FAIL"
    assert document["exit"] == {"code": 1, "reason": "5 findings are not allowed", "all": []}
    assert document["limits"]["context_tokens"] == 512
    assert document["limits"]["declared"][1]["layer"] == "KV cache"
    assert document["settings"]["threads"] is None
    assert document["notes"] == ["asked for context=500, the server rounded it up to 512"]
    assert document["skipped"][1]["scenario"] == "preemption"
    assert document["run"] == sample.PATH
    shifted = next(row for row in document["findings"] if row["outcome"] == "SHIFTED")
    assert (shifted["verdict"], shifted["layer"], shifted["evidence"]["n_discard"]) == ("FAIL", "KV cache", 255)


def test_every_probe_has_a_row() -> None:
    run = sample.killed()
    document = report.document(run)
    assert {(row["scenario"], row["probe"]) for row in document["findings"]} == set(run.probes)
    assert document["findings"][-1]["outcome"] == "UNKNOWN"


def test_killed_run_is_unknown() -> None:
    document = report.document(sample.killed())
    assert document["verdict"] == "UNKNOWN"
    assert document["exit"] == {"code": None, "reason": "the run was killed before it could finish", "all": []}


def test_numbers_are_finite() -> None:
    evidence = {"nan": float("nan"), "inf": float("inf"), "number": 0.1, "whole": 2**60}
    bad = sample.finding("s", "p", Outcome.DEGRADED, Verdict.FAIL, evidence=evidence)
    assert written(sample.run(bad))["findings"][0]["evidence"] == {
        "nan": None,
        "inf": None,
        "number": 0.1,
        "whole": 2**60,
    }


def test_a_targets_words_come_back_unchanged_through_ascii() -> None:
    run = sample.hostile()
    out = io.StringIO()
    report.write(run, out)
    assert all(char == "\n" or " " <= char <= "~" for char in out.getvalue())
    assert json.loads(out.getvalue())["findings"][0]["why"] == sample.HOSTILE


@pytest.mark.parametrize("verdict", ["FAIL", "failed", "nonsense", None])
def test_verdict_is_read_by_name_or_value_and_never_guessed(verdict: str | None) -> None:
    run = replace(sample.held(), end={"kind": "end", "verdict": verdict})
    document = report.document(run)
    assert document["verdict"] == ("FAIL" if verdict in {"FAIL", "failed"} else "UNKNOWN")
    assert document["exit"] == {"code": None, "reason": "", "all": []}


def test_a_run_that_could_not_begin() -> None:
    document = report.failure_document("overflow", "gguf:x", UnableError("x is not a GGUF file", "check the path"))
    check(document, {**SHAPE, "next_step": str})
    assert (document["schema"], document["verdict"]) == ("contextlab.overflow/1", "UNKNOWN")
    assert document["exit"] == {"code": 4, "reason": "x is not a GGUF file", "all": []}
    assert document["next_step"] == "check the path"
