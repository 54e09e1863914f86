"""The chaos experiments: each along its time, before, during and after, as distributions, and what was done; pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from contextlab.analysis.phases import disturbances, is_disturbed
from contextlab.experiment import Arm, Phase
from contextlab.model import Outcome, Run
from contextlab.reports.chaos import beside as chaos_beside
from contextlab.reports.chaos import facts as chaos_facts
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.chaos import qos as chaos_qos
from contextlab.reports.chaos.figures import Row, Shown, Unit
from contextlab.reports.chaos.table import INSUFFICIENT, cell, has_endless, needs
from contextlab.reports.charts import arm, ecdf, flame, lines
from contextlab.reports.charts.drawing import MOST_POINTS, Chart
from contextlab.reports.page.section import Section
from contextlab.reports.parts import summary
from contextlab.reports.parts.wording import clean

POINTS_ON_PAGE = 12_000
"""All experiments of a page together draw so many requests one by one; the rest goes into bins."""
MOST_EXPERIMENTS = 40
"""So many are drawn; the overview names all."""
MOST_PROFILE_BYTES = 4_000_000
_BUSY = (("cpu_s", "target"), ("client_cpu_s", "load's clients"), ("host_cpu_s", "everybody on the machine"))
_TIMES = (("ttft", "Time to first token"), ("e2e", "Whole answer"))


def section(run: Run) -> Section:
    """One part an experiment, and above them one row for each."""
    found, damage = chaos_figures.shown(run)
    most = min(MOST_POINTS, POINTS_ON_PAGE // max(1, len(found)))
    drawn = found[:MOST_EXPERIMENTS]
    return Section(
        name="experiments",
        title="Experiments",
        facts={
            "overview": [_overview(one, place) for place, one in enumerate(found)] if len(found) > 1 else [],
            "experiments": [_experiment(run, one, place, most) for place, one in enumerate(drawn)],
            "num_left": len(found) - len(drawn),
        },
        empty="" if found else clean(damage) or f"No experiment began: {summary.exit_words(run)}.",
    )


def _overview(one: Shown, place: int) -> dict[str, Any]:
    rows = {row.name: row for row in chaos_figures.rows(one)}
    told = [
        cell(row.figures.get(Phase.DURING), row.unit)[0] if (row := rows.get(name)) is not None else "–"
        for name in ("errors", "TTFT p90", "goodput", "integrity")
    ]
    return {"anchor": f"experiment-{place}", "name": _name(one), "verdict": one.verdict, "cells": told}


def _name(one: Shown) -> str:
    return f"{clean(one.scenario)}/{clean(one.name)}"


def _experiment(run: Run, one: Shown, place: int, most_points: int) -> dict[str, Any]:
    rows = chaos_figures.rows(one)
    charts = [arm.chart(one, f"timeline-{place}", most_points)]
    charts += [
        ecdf.ecdf(f"{metric}-{place}", title, curves(one, metric), arm.limits_of(one, metric))
        for metric, title in _TIMES
    ]
    charts += _readings(one, place)
    told = [*chaos_facts.results(one), *chaos_beside.facts(one), *chaos_qos.sentences(one), *chaos_qos.facts(one)]
    outcomes = {each.outcome for each in one.findings if each.verdict is one.verdict} - {Outcome.UNKNOWN}
    return {
        "anchor": f"experiment-{place}",
        "name": _name(one),
        "verdict": one.verdict,
        "outcomes": sorted(outcomes),
        "emulated": one.is_emulated,
        "empty": clean(chaos_facts.why_empty(one, run.end is None)),
        "setup": [(fact.label, clean(fact.text), fact.verdict) for fact in chaos_facts.setup(one)],
        "timeline": charts[0],
        "charts": [chart for chart in charts[1:] if chart is not None],
        "phases": one.phases,
        "rows": [_row(one, row) for row in rows],
        "ratio": one.against if any(row.ratio is not None for row in rows) else None,
        "notes": list(_notes(one, rows)),
        "facts": [(fact.label, clean(fact.text), fact.verdict) for fact in told],
        "profile": _profile(run, one, place),
    }


def _row(one: Shown, row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "cells": [cell(row.figures.get(phase), row.unit) for phase in one.phases],
        "ratio": cell(row.ratio, Unit.RATIO) if row.ratio is not None else ("", ""),
    }


def _notes(one: Shown, rows: list[Row]) -> Iterator[str]:
    """How the table is to be read."""
    yield "Beneath the numbers stand their 95 % intervals."
    yield "TTFT and e2e count from when a request was due, service from when it was sent."
    if needed := needs(rows):
        yield f"“{INSUFFICIENT}”: {needed} requests in a phase."
    if has_endless(rows):
        yield "Failed requests count as endless."
    if chaos_figures.has_unbegun(one):
        yield "Integrity is that of the streams that began."


def curves(one: Shown, metric: str) -> list[ecdf.Curve]:
    """The distribution of a time in each phase."""
    return [
        curve(str(phase), one, metric, phase) for phase in one.phases if len(one.study.measured[phase].times(metric))
    ]


def curve(name: str, one: Shown, metric: str, phase: Phase) -> ecdf.Curve:
    """The distribution of a time in one phase."""
    times = one.study.measured[phase].times(metric)
    return ecdf.Curve(name=name, ordered=times.ordered, quantiles=tuple(times.quantile(q) for q in ecdf.SHOWN))


# ── the target's processes, the machine, and what the target counts itself ───────────────────────


def _readings(one: Shown, place: int) -> list[Chart | None]:
    there = one.arm
    if there is None:
        return []
    disturbed = there is one.trial.fault and is_disturbed(one.trial.experiment)
    spans = disturbances(one.trial.experiment) if disturbed else ()
    windows = [(span.start_s, span.end_s) for span in spans]
    length_s = max(there.length_s, 0.001)
    busy = [_busy(there, name, words) for name, words in _BUSY]
    busy.append(lines.Series(name="busiest GPU", points=_values(there, "gpu_busy_ratio", 1.0)))
    held = [
        lines.Series(name=words, points=_values(there, name, 2.0**-20))
        for name, words in (("rss_bytes", "target's memory"), ("gpu_memory_bytes", "GPU memory"))
    ]
    counted = [
        lines.Series(
            name=words,
            points=[
                (each.at_s, float(said)) for each in there.gauges if (said := getattr(each.gauges, field)) is not None
            ],
        )
        for field, words in (("busy_slots", "running"), ("waiting_requests", "waiting"))
    ]
    return [
        lines.lines(f"processors-{place}", "Processors kept busy", "processors", busy, windows, length_s),
        lines.lines(f"memory-{place}", "Memory", "MiB", held, windows, length_s),
        lines.lines(f"slots-{place}", "Requests, by the target's own count", "requests", counted, windows, length_s),
    ]


def _values(there: Arm, name: str, factor: float) -> list[tuple[float, float]]:
    return [
        (each.at_s, each.values[name] * factor)
        for each in there.readings
        if each.source in ("process", "machine", "gpu") and name in each.values and 0 <= each.at_s <= there.length_s
    ]


def _busy(there: Arm, name: str, words: str) -> lines.Series:
    """How fast a sum of CPU seconds grew; where it falls the process is another one."""
    told = _values(there, name, 1.0)
    points = [
        ((at_s + then_s) / 2, max(0.0, later - earlier) / (then_s - at_s))
        for (at_s, earlier), (then_s, later) in pairwise(told)
        if then_s > at_s
    ]
    return lines.Series(name=words, points=points)


def _profile(run: Run, one: Shown, place: int) -> Chart | None:
    """The stacks that py-spy wrote beside the record, where they are still there."""
    named = one.trial.measured.get("profile_file")
    if not named:
        return None
    try:
        with (Path(run.path) / Path(str(named)).name).open(encoding="utf-8", errors="replace") as file:
            stacks = file.read(MOST_PROFILE_BYTES).splitlines()
    except (OSError, ValueError):
        return None
    return flame.flame(f"profile-{place}", "Profile of the target while the faults acted (py-spy)", stacks)
