"""Compares two stored records: as a run that was never recorded, so that every writer can show it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from contextlab.analysis.gate.fingerprint import likeness
from contextlab.analysis.gate.load import GateLoad
from contextlab.analysis.gate.nouns import Fingerprint, Plan
from contextlab.analysis.gate.settings import Settings
from contextlab.analysis.gate.stored import GateBegins, concluded, findings, side_by_side
from contextlab.lab.gate.baselines import side
from contextlab.lab.journal import plain
from contextlab.model import SCHEMA, Run, Verdict

OLD_DAYS = 30
_VERDICTS = {0: Verdict.PASS, 1: Verdict.FAIL}


def compared(
    baseline: str,
    current: str,
    runs: Path,
    folder: Path,
    settings: Settings,
    tested: Collection[str],
    *,
    trusts_host: bool = False,
    argv: Sequence[str] = (),
) -> tuple[Run, int]:
    """(the comparison as a run, its exit code). `argv`: the words that asked for it.

    Raises NothingMeasured where a side is not there, UsageError for what cannot be meant.
    """
    base, candidate = side(baseline, runs, folder), side(current, runs, folder)
    plan = Plan(
        blocks=settings.plan.blocks,
        max_blocks=settings.plan.blocks,
        paired=False,
        confirm=False,
        unstable=settings.plan.unstable,
    )
    begins = GateBegins(
        base=base.target,
        candidate=candidate.target,
        settings=replace(settings, plan=plan, load=_load(candidate.fingerprint)),
        trusts_host=trusts_host,
        stored=True,
    )
    blocks = side_by_side(base.measures, candidate.measures)
    alike = likeness(base.fingerprint, candidate.fingerprint, tested)
    result = concluded(begins, blocks, alike)
    found = findings(result)
    code, words = result.reasons[0]
    end = {
        "kind": "end",
        "at_s": 0.0,
        "verdict": _VERDICTS.get(code, Verdict.UNKNOWN).name,
        "exit": {"code": code, "reason": words, "all": [list(one) for one in result.reasons]},
    }
    header = {
        "kind": "header",
        "at_s": 0.0,
        "schema": SCHEMA,
        "command": "gate",
        "target": candidate.target,
        "argv": list(argv),
    }
    records = [
        header,
        {"kind": "gate", "at_s": 0.0, "gate": plain(begins)},
        *({"kind": "note", "at_s": 0.0, "text": text} for text in _notes(base.name, base.reason, base.accepted_at)),
        {"kind": "fingerprint", "at_s": 0.0, "arm": "base", "fingerprint": plain(base.fingerprint)},
        {"kind": "fingerprint", "at_s": 0.0, "arm": "candidate", "fingerprint": plain(candidate.fingerprint)},
        *({"kind": "block", "at_s": 0.0, "block": plain(block)} for block in blocks),
        {"kind": "gate_result", "at_s": 0.0, "result": plain(result)},
        end,
    ]
    return Run(path=current, header=header, findings=tuple(found), end=end, records=tuple(records)), code


def _load(fingerprint: Fingerprint) -> GateLoad:
    """The load under which a record was made, as far as it says so."""
    known = {one.name for one in fields(GateLoad)}
    said = {name: value for name, value in fingerprint.scenario.items() if name in known and isinstance(value, int)}
    return GateLoad(**said)


def _notes(name: str, reason: str, accepted_at: str) -> list[str]:
    """What the user should know of a baseline: why it counts, and that it is old."""
    if not accepted_at:
        return []
    found = [f"baseline {name}, accepted {accepted_at[:10]}: {reason}"]
    try:
        days = (datetime.now(UTC) - datetime.fromisoformat(accepted_at)).days
    except (ValueError, TypeError):
        return found
    return [*found, f"that is {days} days ago: measure it again"] if days > OLD_DAYS else found
