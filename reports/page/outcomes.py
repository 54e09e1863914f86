"""The outcomes matrix: a row a scenario, a column an outcome, how many probes ended so; pure."""

from __future__ import annotations

from contextlab.model import Run
from contextlab.reports.page.section import Section
from contextlab.reports.parts import grouping, summary
from contextlab.reports.parts.wording import clean, quote


def section(run: Run) -> Section:
    """Cells hold pairs of a verdict and a count, the worst first; the matrix is empty where nothing was judged."""
    cells = grouping.cells(run)
    columns = grouping.outcomes(cells)
    rows = [
        {
            "scenario": clean(scenario),
            "worst": grouping.worst(row),
            "cells": [sorted(row.get(outcome, {}).items(), reverse=True) for outcome in columns],
        }
        for scenario, row in cells.items()
    ]
    return Section(
        name="outcomes",
        title="Outcomes",
        facts={
            "outcomes": columns,
            "rows": rows,
            "noun": grouping.noun(run),
            "skipped": skipped(run),
            "num_skipped": len(run.skips),
        },
        empty="" if rows else f"No {grouping.noun(run)} has an outcome: {summary.exit_words(run)}.",
    )


def skipped(run: Run) -> list[dict[str, str]]:
    """What was not run, by its reason."""
    by_reason: dict[str, list[str]] = {}
    for (scenario, reason), probes in grouping.skipped(run).items():
        who = clean(scenario) + (f": {', '.join(map(clean, probes))}" if probes else "")
        by_reason.setdefault(reason, []).append(who)
    return [{"who": "; ".join(names), "why": quote(reason)} for reason, names in by_reason.items()]
