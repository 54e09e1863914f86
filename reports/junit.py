"""A run as JUnit XML, which every CI system reads: finding → failure, infrastructure → error, not told → skipped.

Validates against the schema of Jenkins' xUnit plug-in (`junit-10.xsd`). Class and case names stay the same from run to
run; what varies stands in properties, messages and bodies. The file is ASCII, with everything else as references.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from typing import TextIO

from contextlab.model import Run
from contextlab.reports.parts import cases, summary
from contextlab.reports.parts.cases import Case, Status
from contextlab.reports.parts.wording import clean, value

_ELEMENTS = {Status.FAILED: "failure", Status.BROKEN: "error", Status.SKIPPED: "skipped"}


def write(run: Run, out: TextIO) -> None:
    """Write the document: one suite for the run itself, one for each scenario."""
    root = document(run)
    ET.indent(root)
    text = ET.tostring(root, encoding="us-ascii", xml_declaration=True).decode("ascii")
    out.write(f"{text}\n")


def document(run: Run) -> ET.Element:
    """The `testsuites` element."""
    found = cases.cases(run)
    by_scenario: dict[str, list[Case]] = {}
    for place, case in enumerate(found):
        by_scenario.setdefault("" if place == 0 else case.scenario, []).append(case)
    command, target = summary.command(run), summary.target(run)
    package = f"contextlab.{cases.slug(command)}.{cases.slug(target)}"
    title = f"contextlab {clean(command)} {clean(target)}".rstrip()
    root = ET.Element("testsuites", {"name": title, **_totals(found)})
    for scenario, members in by_scenario.items():
        name = f"{package}.{cases.slug(scenario)}" if scenario else package
        suite = ET.SubElement(root, "testsuite", {"name": name, **_totals(members)})
        suite.set("skipped", str(cases.counted(members)[Status.SKIPPED]))
        if began := _timestamp(run):
            suite.set("timestamp", began)
        properties = ET.SubElement(suite, "properties")
        for key, thing in _properties(run).items():
            ET.SubElement(properties, "property", name=key, value=thing)
        for case in members:
            suite.append(_case(case, name))
    return root


def _case(case: Case, classname: str) -> ET.Element:
    made = ET.Element("testcase", classname=classname, name=clean(case.name), time=_seconds(case.length_s))
    if case.status in _ELEMENTS:
        told = ET.SubElement(made, _ELEMENTS[case.status], type=clean(case.kind), message=case.message)
        told.text = "\n".join(case.body) or None
    elif case.message:
        ET.SubElement(made, "system-out").text = case.message
    return made


def _totals(found: Iterable[Case]) -> dict[str, str]:
    members = list(found)
    counts = cases.counted(members)
    return {
        "tests": str(len(members)),
        "failures": str(counts[Status.FAILED]),
        "errors": str(counts[Status.BROKEN]),
        "time": _seconds(sum(case.length_s or 0.0 for case in members)),
    }


def _properties(run: Run) -> Mapping[str, str]:
    """Where it comes from, by stable names."""
    known, header = run.knowledge, run.header
    facts: dict[str, object] = {
        "command": " ".join(summary.command_line(run)),
        "target": summary.target(run),
        "flavour": known.flavour if known else None,
        "version": known.version if known else None,
        "model": known.model if known else None,
        "context_tokens": summary.window(run),
        "seed": header.get("seed"),
        "verdict": summary.verdict(run).name,
        "exit_code": summary.exit_status(run)["code"],
        "record": run.path,
        **{
            name: ", ".join(words) for name, words in summary.provenance(run).items() if name in ("versions", "machine")
        },
    }
    return {name: clean(value(thing)) for name, thing in facts.items() if thing not in (None, "")}


def _timestamp(run: Run) -> str:
    """When it began, as the schema's readers expect it: without a zone."""
    began = str(run.header.get("started_at") or "")
    return began[:19] if len(began) >= 19 and began[:4].isdigit() and began[10] == "T" else ""


def _seconds(length_s: float | None) -> str:
    return f"{max(0.0, length_s or 0.0):.3f}"
