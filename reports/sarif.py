"""Findings that belong to a file, as SARIF 2.1.0 for code scanning: a GGUF file, a config.json, a plan.

A result without a file would make GitHub refuse the whole upload, and a slow server is no line of anybody's code: all
other findings are left out, and counted in `properties`. `contextlab inspect MODEL --sarif` is where most of them
come from. Binary files and whole declarations have no line of their own, so each result stands at line 1.

Source of the form: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from contextlab import __version__
from contextlab.capacity.inspection import Inspection
from contextlab.model import Run, Verdict
from contextlab.reports.json import write_document
from contextlab.reports.parts import anchors, grouping, summary
from contextlab.reports.parts.cases import slug
from contextlab.reports.parts.wording import clean, quote, then

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
MAX_RESULTS = 5000
"""GitHub shows no more."""
_LEVELS = {Verdict.FAIL: "error", Verdict.UNKNOWN: "warning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """One finding in a file. `about` tells it from others of the same rule in the same file."""

    rule: str
    meaning: str
    level: str
    message: str
    path: str
    about: str


def write(run: Run, out: TextIO) -> None:
    """Write what the run found about files; a log without results where there is nothing of the kind."""
    write_document(document(run), out)


def document(run: Run) -> dict[str, Any]:
    """The run's log. Passes are no results."""
    told = [finding for finding in grouping.findings(run) if finding.verdict in _LEVELS]
    results = [
        _Result(
            rule=finding.outcome.name,
            meaning=finding.outcome.value,
            level=_LEVELS[finding.verdict],
            message=_message(finding.why or finding.outcome.value, finding.remedy),
            path=path,
            about=f"{finding.scenario}/{finding.probe}",
        )
        for finding in told
        if (path := anchors.of_finding(run, finding))
    ]
    whole = run.end is not None and summary.exit_status(run)["code"] in (0, 1, 3)
    return _log(
        summary.command(run), summary.target(run), results, num_unanchored=len(told) - len(results), whole=whole
    )


def inspection_document(found: Inspection) -> dict[str, Any]:
    """The log of what `contextlab inspect` found in a model's files."""
    shape = found.subject.shape
    path = shape.source if shape is not None else ""
    results = [
        _Result(
            rule=each.name,
            meaning=f"limits contradict each other: {each.name}",
            level="error",
            message=_message(each.message, each.remedy),
            path=path,
            about=each.name,
        )
        for each in found.findings
        if path
    ]
    unanchored = len(found.findings) - len(results)
    return _log("inspect", found.subject.target, results, num_unanchored=unanchored, whole=True)


def _log(command: str, target: str, results: Sequence[_Result], *, num_unanchored: int, whole: bool) -> dict[str, Any]:
    shown = results[:MAX_RESULTS]
    rules = {each.rule: each for each in shown}
    places = {rule: place for place, rule in enumerate(rules)}
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "contextlab",
                        "version": __version__,
                        "rules": [_rule(each) for each in rules.values()],
                    }
                },
                "automationDetails": {"id": f"contextlab/{slug(command)}/{slug(target)}/"},
                "invocations": [{"executionSuccessful": whole}],
                "results": [_result(each, places[each.rule]) for each in shown],
                "properties": {
                    "findingsWithoutAFile": num_unanchored,
                    "resultsLeftOut": len(results) - len(shown),
                },
            }
        ],
    }


def _rule(each: _Result) -> Mapping[str, Any]:
    return {"id": each.rule, "shortDescription": {"text": each.meaning}, "defaultConfiguration": {"level": each.level}}


def _result(each: _Result, place: int) -> Mapping[str, Any]:
    location: dict[str, Any] = {"uri": anchors.uri(each.path)}
    if not each.path.startswith("/"):
        location["uriBaseId"] = "%SRCROOT%"
    key = "\n".join((each.rule, each.about, location["uri"]))
    return {
        "ruleId": each.rule,
        "ruleIndex": place,
        "level": each.level,
        "message": {"text": f"{clean(each.about)}: {each.message}"},
        "locations": [{"physicalLocation": {"artifactLocation": location, "region": {"startLine": 1}}}],
        "partialFingerprints": {"contextlab/v1": hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()},
    }


def _message(why: str, remedy: str) -> str:
    return then(quote(why), f"What to change: {quote(remedy)}" if remedy else "")
