"""The sweep of `pareto`: the frontier as a plot and a table, what was not compared, and what follows; pure."""

from __future__ import annotations

from contextlab.analysis.frontier import Direction
from contextlab.model import Run
from contextlab.reports.chaos.words import number
from contextlab.reports.charts import frontier
from contextlab.reports.charts.drawing import Table
from contextlab.reports.page.section import Section
from contextlab.reports.pareto import facts as pareto_facts
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.pareto import table as pareto_table
from contextlab.reports.pareto.figures import Row, Shown, ends, scaled, setting_value, unit_of, varied
from contextlab.reports.parts import summary
from contextlab.reports.parts.wording import clean


def section(run: Run) -> Section:
    """The sweep, or why there is none."""
    one, damage = pareto_figures.shown(run)
    if one is None:
        return Section(
            name="sweep",
            title="Frontier",
            empty=clean(damage) or f"No sweep began: {summary.exit_words(run)}.",
        )
    rows, num_left = pareto_table.rows_shown(one)
    told = table(one, rows)
    return Section(
        name="sweep",
        title="Frontier",
        facts={
            "chart": frontier.chart(one, told),
            "table": told,
            "num_left": pareto_table.left_words(num_left) if num_left else "",
            "excluded": [
                (str(status), pareto_table.excluded_words(one, standings))
                for status, standings in pareto_table.reasons(one)
            ],
            "facts": [(fact.label, clean(fact.text), fact.verdict) for fact in pareto_facts.facts(one)],
        },
        empty="" if one.rows or one.excluded else f"Nothing was measured: {summary.exit_words(run)}.",
    )


def table(one: Shown, rows: tuple[Row, ...]) -> Table:
    """A setting a row, each goal with its interval."""
    scales = [
        scaled(unit_of(goal), [row.standing.values[place].value for row in one.rows])
        for place, goal in enumerate(one.sweep.goals)
    ]
    goals = [
        f"{clean(goal.text)}, {unit} {'↑' if goal.direction is Direction.UP else '↓'}".replace(",  ", " ")
        for goal, (_, unit) in zip(one.sweep.goals, scales, strict=True)
    ]
    names = [clean(name) for name in varied(one.sweep)]
    heads = ("#", *names, "n", *goals, "frontier", "role", "failed")
    made = [(f"{row.place}", *_cells(one, row, [factor for factor, _ in scales])) for row in rows]
    return Table(heads=heads, rows=tuple(made), numbers=frozenset(range(len(names) + 2 + len(goals))))


def _cells(one: Shown, row: Row, factors: list[float]) -> tuple[str, ...]:
    values = []
    for each, goal, factor in zip(row.standing.values, one.sweep.goals, factors, strict=True):
        told = ends(each, unit_of(goal), factor)
        values.append(number(each.value / factor) + (f" ({told})" if told else ""))
    role = ", ".join(name for name, is_so in (("best", row.is_best), ("knee", row.is_knee)) if is_so)
    chosen = [setting_value(row.settings.get(name)) for name in varied(one.sweep)]
    return (*chosen, f"{row.n}", *values, pareto_table.standing_words(row), role, pareto_table.failed_words(row) or "–")
