"""What stands on record of a gate, and how it is read back and concluded; pure.

    gate (GateBegins) ─▶ fingerprint, block, block, … ─▶ gate_result (GateResult)       begins again where it is resumed

All blocks on record belong to the run, whichever attempt measured them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from contextlab.analysis.gate.judging import judge
from contextlab.analysis.gate.nouns import (
    Block,
    BudgetVerdict,
    Calibration,
    Fingerprint,
    GateResult,
    Host,
    Likeness,
    Measure,
    MetricResult,
    MetricVerdict,
    Plan,
)
from contextlab.analysis.gate.settings import Settings
from contextlab.model import Finding, Layer, NothingMeasured, Outcome, Record, Verdict

GATE = "gate"
"""The scenario of a gate's findings."""
BASELINE_SCHEMA = "contextlab.baseline/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateBegins:
    """What a gate was asked: both targets as the user wrote them, how it measures and judges.

    `calibrates`: both arms are the same target, and what comes of it is the place's noise. `trusts_host`: what others
    did meanwhile is on record and makes nothing invalid. `noise`: where the calibration came from that took metrics
    out of the gate; "" if none. `stored`: base and candidate are stored records of two sessions.
    """

    base: str
    candidate: str
    settings: Settings = field(default_factory=Settings)
    seed: int = 0
    calibrates: bool = False
    trusts_host: bool = False
    noise: str = ""
    stored: bool = False
    resumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A stored side: its launches as they were measured, where and of what, and why it is what counts."""

    name: str
    target: str
    reason: str
    accepted_at: str
    fingerprint: Fingerprint
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A gate's record, read. `result` is the last one; None where the run was cut off before it had one."""

    begins: GateBegins
    blocks: tuple[Block, ...] = ()
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    result: GateResult | None = None
    calibration: Calibration | None = None
    num_attempts: int = 1


def read(records: Iterable[Record]) -> Stored | None:
    """The gate of a record; None where it holds none. Raises msgspec.ValidationError where it is damaged."""
    begins: GateBegins | None = None
    blocks: list[Block] = []
    prints: dict[str, Fingerprint] = {}
    result: GateResult | None = None
    calibration: Calibration | None = None
    attempts = 0
    try:
        for record in records:
            match record.get("kind"):
                case "gate":
                    begins = msgspec.convert(record["gate"], GateBegins, str_keys=True)
                    attempts, result = attempts + 1, None
                case "block":
                    blocks.append(msgspec.convert(record["block"], Block, str_keys=True))
                case "fingerprint":
                    prints[str(record["arm"])] = msgspec.convert(record["fingerprint"], Fingerprint, str_keys=True)
                case "gate_result":
                    result = msgspec.convert(record["result"], GateResult, str_keys=True)
                case "calibration":
                    calibration = msgspec.convert(record["calibration"], Calibration, str_keys=True)
    except (KeyError, TypeError, ValueError) as error:
        raise msgspec.ValidationError(str(error)) from None
    if begins is None:
        return None
    return Stored(
        begins=begins,
        blocks=tuple(blocks),
        fingerprints=prints,
        result=result,
        calibration=calibration,
        num_attempts=attempts,
    )


def as_baseline(stored: Stored, *, name: str, reason: str, at: str) -> Baseline:
    """The candidate of a gate as what counts from now on. Raises NothingMeasured where it was not measured."""
    measures = tuple(
        block.candidate for block in stored.blocks if block.candidate is not None and not block.candidate.died
    )
    if not measures or "candidate" not in stored.fingerprints:
        raise NothingMeasured("the run has no block of its candidate", "measure it: contextlab gate run")
    return Baseline(
        name=name,
        target=stored.begins.candidate,
        reason=reason,
        accepted_at=at,
        fingerprint=stored.fingerprints["candidate"],
        measures=measures,
    )


# ── judging ──────────────────────────────────────────────────────────────────────────────────────


def concluded(begins: GateBegins, blocks: Sequence[Block], likeness: Likeness | None = None) -> GateResult:
    """The verdict on a gate's blocks under its settings."""
    settings = begins.settings
    result = judge(
        as_judged(begins, blocks), settings.gated, plan_of(settings), likeness or Likeness(), settings.budgets
    )
    return replace(result, waived=settings.waivers)


def plan_of(settings: Settings) -> Plan:
    """The plan, in which exact values that are waived do not count."""
    named = {one.name for one in settings.waivers}
    return replace(settings.plan, unstable=settings.plan.unstable | named)


def as_judged(begins: GateBegins, blocks: Sequence[Block]) -> list[Block]:
    """The blocks as they are judged: where the host is trusted, without what others did."""
    if not begins.trusts_host:
        return list(blocks)
    return [replace(block, base=_trusted(block.base), candidate=_trusted(block.candidate)) for block in blocks]


def _trusted(measure: Measure | None) -> Measure | None:
    return None if measure is None else replace(measure, host=Host(), control_s=None)


def side_by_side(base: Sequence[Measure], candidate: Sequence[Measure]) -> tuple[Block, ...]:
    """Stored launches of two sessions as blocks of one arm each, numbered through."""
    first = [Block(number=number, base=one) for number, one in enumerate(base, 1)]
    start = len(first) + 1
    return (*first, *(Block(number=number, candidate=one) for number, one in enumerate(candidate, start)))


# ── findings ─────────────────────────────────────────────────────────────────────────────────────

_METRIC = {
    MetricVerdict.REGRESSED: (Outcome.DEGRADED, Verdict.FAIL),
    MetricVerdict.OK: (Outcome.OK, Verdict.PASS),
    MetricVerdict.IMPROVED: (Outcome.OK, Verdict.PASS),
}
_BUDGET = {
    BudgetVerdict.BROKEN: (Outcome.BOUND_BROKEN, Verdict.FAIL),
    BudgetVerdict.KEPT: (Outcome.OK, Verdict.PASS),
}
_UNKNOWN = (Outcome.UNKNOWN, Verdict.UNKNOWN)


def findings(result: GateResult) -> list[Finding]:
    """One finding for each metric that gates, exact difference, share and budget: so that every writer can show it."""
    found = [_metric(one, advised=bool(result.advice)) for one in result.metrics if one.gating]
    for one in result.exact:
        verdict = (Outcome.DEGRADED, Verdict.FAIL) if one.gating else _UNKNOWN
        found.append(_finding(one.name, verdict, one.why))
    for rate in result.rates:
        verdict = (Outcome.OK, Verdict.PASS)
        if rate.risen or rate.doubtful:
            verdict = _UNKNOWN if rate.doubtful or result.contaminated else (Outcome.DEGRADED, Verdict.FAIL)
        if rate.base_total or rate.candidate_total:
            found.append(_finding(f"requests {rate.name}", verdict, rate.why))
    found += [
        _finding(one.budget.text, _BUDGET.get(one.verdict, _UNKNOWN), f"{one.verdict}: {one.why}")
        for one in result.budgets
    ]
    return found


def _metric(one: MetricResult, *, advised: bool) -> Finding:
    verdict = _METRIC.get(one.verdict, _UNKNOWN)
    if advised and verdict[1] is Verdict.FAIL:
        verdict = _UNKNOWN
    numbers: dict[str, Any] = {
        "base": one.base,
        "candidate": one.candidate,
        "ratio": one.ratio,
        "low": one.low,
        "high": one.high,
        "margin": one.margin,
        "p_holm": one.p_holm,
        "num_blocks": one.num_blocks,
        "smallest_effect": one.smallest_effect,
        "blocks_to_decide": one.blocks_to_decide,
    }
    said = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in numbers.items()}
    return _finding(one.metric.name, verdict, f"{one.verdict}: {one.why}", said)


def _finding(
    probe: str, verdict: tuple[Outcome, Verdict], why: str, evidence: Mapping[str, Any] | None = None
) -> Finding:
    return Finding(
        scenario=GATE,
        probe=probe,
        outcome=verdict[0],
        verdict=verdict[1],
        layer=Layer.ENGINE,
        why=why,
        evidence={name: value for name, value in (evidence or {}).items() if value is not None},
    )
