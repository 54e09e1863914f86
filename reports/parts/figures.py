"""The numbers of a run as tables of plain words, (title, heads, rows), for formats that have tables of their own; pure.

chaos    a table for each experiment: a metric a row, a phase a column
pareto   the settings that were compared, and what is found of each
gate     a metric a row: base, candidate, change, margin, verdict

Nothing is escaped here: that is for the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextlab.model import Run
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.chaos.figures import Figure, Shown, Unit
from contextlab.reports.chaos.table import RATIO, cell
from contextlab.reports.chaos.words import number, seconds
from contextlab.reports.gate import facts as gate_facts
from contextlab.reports.gate.facts import Row
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.pareto.table import standing_words
from contextlab.reports.parts import summary
from contextlab.reports.parts.wording import MARKS

Table = tuple[str, list[str], list[list[str]]]
"""(title, heads, rows)."""
MAX_SETTINGS = 30


def tables(run: Run) -> list[Table]:
    """What the run measured; no table where it measured nothing that has one."""
    match summary.command(run):
        case "chaos":
            found, _ = chaos_figures.shown(run)
            return [table for one in found for table in _experiment(one)]
        case "pareto":
            return list(_sweep(run))
        case "gate":
            return [gated] if (gated := gate(run)) else []
    return []


# ── chaos ────────────────────────────────────────────────────────────────────────────────────────


def _experiment(one: Shown) -> Iterator[Table]:
    made = chaos_figures.rows(one)
    heads = ["", *(str(phase) for phase in one.phases), RATIO]
    rows = [
        [row.name, *(_words(row.figures.get(phase), row.unit) for phase in one.phases), _words(row.ratio, Unit.RATIO)]
        for row in made
    ]
    title = " + ".join(one.faults) if one.faults else "no fault"
    yield f"{one.name}: {title}", heads, rows


def _words(figure: Figure | None, unit: Unit) -> str:
    text, ends = cell(figure, unit)
    return f"{text} ({ends})" if ends else text


# ── pareto ───────────────────────────────────────────────────────────────────────────────────────


def _sweep(run: Run) -> Iterator[Table]:
    one, _ = pareto_figures.shown(run)
    if one is None:
        return
    heads = ["setting", *(goal.text for goal in one.sweep.goals), "repeats", "stands"]
    rows = []
    for row in one.rows[:MAX_SETTINGS]:
        values = [
            f"{_amount(each.value, goal.unit)} ({_amount(each.low, goal.unit)} to {_amount(each.high, goal.unit)})"
            for goal, each in zip(one.sweep.goals, row.standing.values, strict=False)
        ]
        rows.append([f"{row.sign} {one.named(row.settings)}", *values, str(row.n), standing_words(row)])
    left = len(one.rows) - MAX_SETTINGS
    yield "Settings" + (f", {left} more in the record" if left > 0 else ""), heads, rows


def _amount(value: float, unit: str) -> str:
    return seconds(value) if unit == "s" else number(value)


# ── gate ─────────────────────────────────────────────────────────────────────────────────────────


def gate(run: Run) -> Table | None:
    """The gate's comparison, what decides before what is only reported; None where none is on record."""
    one, _ = gate_facts.shown(run)
    if one is None:
        return None
    if one.stored.begins.calibrates:
        rows = [
            [_sign(row), row.name, row.change, row.sees, f"{row.word}: {row.why}"] for row in gate_facts.noises(one)
        ]
        return "The noise of this place", ["", "metric", "noise", "smallest seen", "verdict"], rows
    heads = ["", "metric", "base", "candidate", "change", "margin", "smallest seen", "verdict"]
    rows = [_compared(row) for row in (*one.counted, *one.metrics, *one.budgets)]
    return ("Base against candidate" + (", as far as it came" if one.so_far else "")), heads, rows


def _compared(row: Row) -> list[str]:
    change = f"{row.change} ({row.interval})" if row.interval else row.change
    verdict = f"{row.word}: {row.why}" if row.why else row.word
    return [_sign(row), row.name, row.base, row.candidate, change, row.margin, row.sees, verdict]


def _sign(row: Row) -> str:
    return "·" if row.verdict is None else MARKS[row.verdict]
