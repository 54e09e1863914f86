"""What failed or could not be told, by cause: where, why, evidence, remedy, and the exact request; pure.

Below it, every judgement of the run in one table, for which the filters are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from contextlab.model import Finding, Run, Verdict
from contextlab.reports.chaos.evidence import own
from contextlab.reports.page.evidence import exchanges
from contextlab.reports.page.section import Section
from contextlab.reports.parts import grouping, summary
from contextlab.reports.parts.grouping import Group
from contextlab.reports.parts.wording import MAX_REASONS, clean, grounds, listed, named, pairs, quote, unsaid

MOST_ROWS = 400
"""Judgements in the table; the rest is counted, and in the record. What failed comes first."""
MOST_GROUPS = 60
MOST_PLACES = 12
"""So many probes of a scenario are named."""


def section(run: Run) -> Section:
    """Groups of findings, the worst first, then all judgements."""
    found = list(_groups(run))
    judged = sorted(grouping.findings(run), key=lambda each: each.verdict, reverse=True)
    counts = Counter(each.verdict for each in judged)
    outcomes = Counter(each.outcome for each in judged)
    return Section(
        name="findings",
        title="Findings",
        facts={
            "groups": found[:MOST_GROUPS],
            "more_groups": len(found) - MOST_GROUPS,
            "verdicts": [(verdict, counts[verdict]) for verdict in sorted(counts, reverse=True)],
            "outcomes": [(outcome, outcomes[outcome]) for outcome in sorted(outcomes, reverse=True)],
            "judged": [_row(each) for each in judged[:MOST_ROWS]],
            "num_judged": len(judged),
            "num_left": max(0, len(judged) - MOST_ROWS),
            "noun": grouping.noun(run),
        },
        empty="" if judged else _why(run),
    )


def _why(run: Run) -> str:
    if summary.command(run) == "pareto":
        return "A sweep measures and judges nothing; what it found stands above."
    return f"Nothing was judged: {summary.exit_words(run)}."


def _groups(run: Run) -> Iterator[dict[str, Any]]:
    for wanted in (Verdict.FAIL, Verdict.UNKNOWN):
        for group in grouping.groups(run, wanted):
            yield _group(run, group)


def _group(run: Run, group: Group) -> dict[str, Any]:
    finding = group.example
    places = [f"{clean(scenario)}/{clean(probe)}" for scenario, probes in group.probes.items() for probe in probes]
    where = [(clean(scenario), listed(probes, MOST_PLACES)) for scenario, probes in group.probes.items()]
    return {
        "verdict": finding.verdict,
        "outcome": finding.outcome,
        "layer": str(finding.layer),
        "where": where,
        "num_places": len(places),
        "example": named(finding),
        "reasons": [(reason.num_probes, quote(reason.why)) for reason in group.reasons[:MAX_REASONS]],
        "unsaid": unsaid(len(group.reasons)),
        "evidence": pairs(own(run, finding.evidence), beside=finding.why),
        "remedy": clean(finding.remedy),
        "exchanges": exchanges(run, grouping.place(finding)),
        "search": clean(" ".join([*places, finding.why, finding.remedy]))[:4000].lower(),
    }


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "verdict": finding.verdict,
        "outcome": finding.outcome,
        "place": named(finding),
        "layer": str(finding.layer),
        "why": grounds(finding),
    }
