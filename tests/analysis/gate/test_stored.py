"""A gate's record, read back, judged and told as findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contextlab.analysis.gate.budgets import parse_budget
from contextlab.analysis.gate.nouns import Host, Plan, Waiver
from contextlab.analysis.gate.settings import Settings
from contextlab.analysis.gate.stored import GateBegins, as_judged, concluded, findings, read, side_by_side
from contextlab.lab.journal import plain
from contextlab.model import Outcome, Verdict
from tests.analysis.gate.arms import TTFT, blocks, measure

PLAN = Plan(confirm=False)
BEGINS = GateBegins(base="a", candidate="b", settings=Settings(plan=PLAN, metrics=(TTFT,)))


def record(*kinds: Any) -> list[dict[str, Any]]:
    """(kind, field, thing) as lines of a record."""
    return [{"kind": kind, "at_s": 0.0, field: plain(thing)} for kind, field, thing in kinds]


def test_what_is_written_is_read_back() -> None:
    every = blocks(1.4, candidate={"host": Host(others_cores=0.1)})
    every[0] = replace(every[0], candidate=measure({"ttft_p50_s": 0.14}, host=Host(others_cores=3.0)))
    result = concluded(BEGINS, every)
    lines = record(
        ("gate", "gate", BEGINS), *(("block", "block", one) for one in every), ("gate_result", "result", result)
    )
    found = read(lines)
    assert found is not None
    assert (found.begins, found.blocks, found.result) == (BEGINS, tuple(every), result)
    assert result.left_out  # whose keys are numbers, which JSON has not
    assert read([]) is None


def test_an_attempt_keeps_blocks_and_forgets_results() -> None:
    result = concluded(BEGINS, blocks())
    lines = record(("gate", "gate", BEGINS), ("block", "block", blocks()[0]), ("gate_result", "result", result))
    found = read([*lines, *record(("gate", "gate", BEGINS), ("block", "block", blocks()[1]))])
    assert found is not None
    assert (len(found.blocks), found.result, found.num_attempts) == (2, None, 2)


def test_every_thing_that_gates_is_a_finding() -> None:
    settings = replace(BEGINS.settings, budgets=(parse_budget("ttft_p50 < 90ms"),))
    every = blocks(1.4, base={"exact": {"x": 1}}, candidate={"exact": {"x": 2}, "num_failed": 20})
    found = {one.probe: one for one in findings(concluded(replace(BEGINS, settings=settings), every))}
    assert set(found) == {"ttft_p50_s", "x", "requests failed", "requests truncated", "ttft_p50 < 90ms"}
    verdicts = {name: (one.outcome, one.verdict) for name, one in found.items()}
    assert verdicts["ttft_p50_s"] == verdicts["x"] == verdicts["requests failed"] == (Outcome.DEGRADED, Verdict.FAIL)
    assert verdicts["ttft_p50 < 90ms"] == (Outcome.BOUND_BROKEN, Verdict.FAIL)
    assert verdicts["requests truncated"] == (Outcome.OK, Verdict.PASS)
    assert found["ttft_p50_s"].evidence["num_blocks"] == 10


def test_a_waiver_takes_out_a_metric_or_an_exact_value() -> None:
    every = blocks(1.4, base={"exact": {"over.outcome": "a"}}, candidate={"exact": {"over.outcome": "b"}})
    waived = tuple(Waiver(name=name, reason="x", expires="2027-01-01") for name in ("ttft_p50_s", "over.outcome"))
    assert concluded(BEGINS, every).exit_code == 1
    result = concluded(replace(BEGINS, settings=replace(BEGINS.settings, waivers=waived)), every)
    assert (result.exact, result.waived) == ((), waived)
    assert not result.metrics[0].gating
    assert result.exit_code != 1


def test_a_trusted_host_is_only_written_down() -> None:
    busy = {"host": Host(others_cores=2.0), "control_s": 1.0}
    every = blocks(1.4, base=busy, candidate=busy)
    assert concluded(BEGINS, every).verdict == "contaminated"
    trusting = replace(BEGINS, trusts_host=True)
    assert concluded(trusting, every).exit_code == 1
    assert as_judged(trusting, every)[0].base == replace(every[0].base, host=Host(), control_s=None)  # type: ignore[type-var]
    assert as_judged(BEGINS, every) == every


def test_stored_launches_are_numbered_through() -> None:
    found = side_by_side([measure(), measure()], [measure()])
    assert [(one.number, one.base is None, one.candidate is None) for one in found] == [
        (1, False, True),
        (2, False, True),
        (3, True, False),
    ]
