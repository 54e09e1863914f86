"""A run as one JSON document: every probe a row, outcomes and verdicts by name, numbers always finite.

The text is ASCII with everything else escaped, so that no terminal, log or pipe can be upset by what
a target said, and any reader gets the exact words back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TextIO

from contextlab.model import ContextlabError, Finding, Limits, Run, Verdict
from contextlab.reports.parts import grouping, summary


def write(run: Run, out: TextIO) -> None:
    """Write the document of a run."""
    write_document(document(run), out)


def write_document(document: Mapping[str, Any], out: TextIO) -> None:
    """Write one document as `--json` promises it: indented, with a line end."""
    out.write(encoded(document, indent=2) + "\n")


def document(run: Run) -> dict[str, Any]:
    """The run as a JSON document; `run` is the path of its folder."""
    known = run.knowledge
    fields = {
        **_frame(summary.command(run), summary.target(run)),
        "verdict": summary.verdict(run).name,
        "exit": summary.exit_status(run),
        "flavour": known.flavour if known else None,
        "version": known.version if known else None,
        "model": known.model if known else None,
        "settings": summary.settings(run),
        "seed": run.header.get("seed"),
        "notes": list(summary.notes(run)),
        "limits": _limits(known.limits if known else Limits()),
        "findings": [_finding(finding) for finding in grouping.findings(run)],
        "skipped": [{"scenario": skip.scenario, "probe": skip.probe, "reason": skip.reason} for skip in run.skips],
        **_own(summary.command(run), run),
        "run": run.path,
    }
    return {name: finite(field) for name, field in fields.items()}


def failure_document(command: str, target: str, error: ContextlabError) -> dict[str, Any]:
    """The document of a run that could not begin: the same keys, nothing in them, and `next_step`."""
    return {
        **_frame(command, target),
        "verdict": Verdict.UNKNOWN.name,
        "exit": {"code": error.exit_code, "reason": error.message, "all": []},
        "flavour": None,
        "version": None,
        "model": None,
        "settings": {},
        "seed": None,
        "notes": [],
        "limits": _limits(Limits()),
        "findings": [],
        "skipped": [],
        **_own(command),
        "run": None,
        "next_step": error.next_step,
    }


def encoded(thing: Any, *, indent: int | None = None) -> str:
    """`thing` as JSON in ASCII, compact unless indented."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(finite(thing), allow_nan=False, indent=indent, separators=separators)


def finite(thing: Any) -> Any:
    """`thing` as JSON can hold it: tuples as lists, NaN and infinities as null, what it has no word for as text."""
    match thing:
        case float() if not math.isfinite(thing):
            return None
        case Mapping():
            return {str(name): finite(part) for name, part in thing.items()}
        case list() | tuple():
            return [finite(part) for part in thing]
        case set() | frozenset():
            return sorted(map(finite, thing), key=str)
        case bool() | int() | float() | str() | None:
            return thing
    return str(thing)


def _frame(command: str, target: str) -> dict[str, Any]:
    return {"schema": f"contextlab.{command}/1", "command": command, "target": target}


def _own(command: str, run: Run | None = None) -> dict[str, Any]:
    """What only that command has."""
    match command:
        case "chaos":
            from contextlab.reports.chaos import json as chaos_json

            return {"experiments": chaos_json.experiments(run) if run is not None else []}
        case "gate":
            from contextlab.reports.gate import json as gate_json

            return gate_json.fields(run)
        case "pareto":
            from contextlab.reports.pareto import json as pareto_json

            return pareto_json.fields(run)
    return {}


def _limits(limits: Limits) -> dict[str, Any]:
    return {
        "context_tokens": limits.context_tokens,
        "pool_tokens": limits.pool_tokens,
        "num_slots": limits.num_slots,
        "declared": [
            {"layer": str(limit.layer), "name": limit.name, "tokens": limit.tokens, "source": limit.source}
            for limit in limits.declared
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "scenario": finding.scenario,
        "probe": finding.probe,
        "outcome": finding.outcome.name,
        "verdict": finding.verdict.name,
        "layer": str(finding.layer),
        "why": finding.why,
        "evidence": dict(finding.evidence),
        "remedy": finding.remedy,
    }
