"""Two runs side by side: verdicts, what differs in how they were made, limits, outcomes, findings, experiments; pure.

What is written is what each run found. Whether a difference is more than noise is said only where it was worked out: by
`tradeoffs.compare` for a sweep; for speeds in general that is the gate's question, not this page's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from contextlab.analysis.tradeoffs import compare
from contextlab.experiment import Phase
from contextlab.model import ContextlabError, Run, Verdict
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.chaos.figures import Shown
from contextlab.reports.chaos.table import cell
from contextlab.reports.charts import arm, ecdf
from contextlab.reports.page.experiments import curve
from contextlab.reports.page.section import Section
from contextlab.reports.page.top import section as top
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.pareto import text as pareto
from contextlab.reports.parts import grouping, headline, summary
from contextlab.reports.parts.wording import COUNTED_AS, MARKS, clean, num, value

NAMES = ("A", "B")
MOST_ROWS = 200


def sections(runs: tuple[Run, Run]) -> list[Section]:
    """The sections of the page, those that have something to show."""
    makes = (_heads, _made, _limits, _outcomes, _findings, _experiments, _sweeps)
    return [section for make in makes if (section := make(runs)) is not None]


def _both(runs: tuple[Run, Run], ask: Callable[[Run], Any]) -> tuple[Any, Any]:
    return ask(runs[0]), ask(runs[1])


def _heads(runs: tuple[Run, Run]) -> Section:
    facts = [{**top(run).facts, "name": name, "path": clean(run.path)} for name, run in zip(NAMES, runs, strict=True)]
    return Section(name="heads", title="Verdicts", facts={"runs": facts})


def _table(
    name: str, title: str, heads: Sequence[str], rows: Sequence[tuple[str, ...]], empty: str, note: str = ""
) -> Section:
    """A section of one table; a row whose last two cells differ is marked."""
    left = len(rows) - MOST_ROWS
    facts = {
        "heads": heads,
        "rows": [(row, row[-1] != row[-2]) for row in rows[:MOST_ROWS]],
        "note": note + (f" {left} more rows are left out." if left > 0 else ""),
    }
    return Section(name=name, title=title, facts={**facts, "template": "pairs"}, empty="" if rows else empty)


def _made(runs: tuple[Run, Run]) -> Section:
    told = _both(runs, _provenance)
    names = list(dict.fromkeys([*told[0], *told[1]]))
    rows = [(name, told[0].get(name, "–"), told[1].get(name, "–")) for name in names]
    return _table("made", "How they were made", ("what", *NAMES), rows, "Neither record says how it was made.")


def _provenance(run: Run) -> dict[str, str]:
    facts = {"command": " ".join(summary.command_line(run)), "target": " · ".join(summary.target_facts(run))}
    facts |= {name: " · ".join(said) for name, said in summary.provenance(run).items()}
    facts |= {f"setting {clean(name)}": value(chosen) for name, chosen in summary.settings(run).items()}
    return {name: said for name, said in facts.items() if said}


def _limits(runs: tuple[Run, Run]) -> Section | None:
    told = _both(runs, lambda run: {(str(each.layer), clean(each.name)): each.tokens for each in summary.limits(run)})
    for found, run in zip(told, runs, strict=True):
        if (measured := summary.measured_tokens(run)) is not None:
            found["measured", "longest prompt read"] = measured
    names = list(dict.fromkeys([*told[0], *told[1]]))
    rows = [(*name, value(told[0].get(name)), value(told[1].get(name))) for name in names]
    return _table("limits", "Limits", ("layer", "limit", *NAMES), rows, "") if rows else None


def _outcomes(runs: tuple[Run, Run]) -> Section | None:
    cells = _both(runs, grouping.cells)
    names = [
        (scenario, outcome)
        for scenario in dict.fromkeys([*cells[0], *cells[1]])
        for outcome in sorted({*cells[0].get(scenario, {}), *cells[1].get(scenario, {})}, reverse=True)
    ]
    rows = [
        (clean(scenario), str(outcome), *(_counts(found.get(scenario, {}).get(outcome, {})) for found in cells))
        for scenario, outcome in names
    ]
    return _table("outcomes", "Outcomes", ("scenario", "outcome", *NAMES), rows, "") if rows else None


def _counts(found: dict[Verdict, int]) -> str:
    """`✗ 2 failed, ✓ 1 held`."""
    said = [f"{MARKS[verdict]} {found[verdict]} {COUNTED_AS[verdict]}" for verdict in sorted(found, reverse=True)]
    return ", ".join(said) or "–"


def _findings(runs: tuple[Run, Run]) -> Section | None:
    told = _both(runs, _failed)
    names = sorted(dict.fromkeys([*told[0], *told[1]]), key=lambda name: (name in told[0]) == (name in told[1]))
    rows = [(*name, told[0].get(name, "–"), told[1].get(name, "–")) for name in names]
    note = "Findings with one cause are one row; what only one of the two has comes first."
    if not rows:
        return None
    return _table("findings", "What failed", ("outcome", "layer", *NAMES), rows, "", note)


def _failed(run: Run) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for group in grouping.groups(run, Verdict.FAIL):
        key = (str(group.example.outcome), str(group.example.layer))
        words = f"{num(group.num_probes, grouping.noun(run))}, such as: {clean(group.example.why)}"
        found[key] = f"{found[key]}; {words}" if key in found else words
    return found


# ── chaos, pareto ────────────────────────────────────────────────────────────────────────────────


def _experiments(runs: tuple[Run, Run]) -> Section | None:
    told = _both(runs, lambda run: {(one.scenario, one.name): one for one in chaos_figures.shown(run)[0]})
    shared = [name for name in told[0] if name in told[1]]
    if not told[0] and not told[1]:
        return None
    made = [_experiment((told[0][name], told[1][name]), place) for place, name in enumerate(shared)]
    return Section(
        name="experiments",
        title="Experiments",
        facts={"experiments": made, "template": "pair"},
        empty="" if made else "The two have no experiment of the same name.",
    )


def _experiment(pair: tuple[Shown, Shown], place: int) -> dict[str, Any]:
    rows = []
    by_name = [{row.name: row for row in chaos_figures.rows(one)} for one in pair]
    phases = [phase for phase in Phase if any(phase in one.phases for one in pair)]
    for name in dict.fromkeys([*by_name[0], *by_name[1]]):
        for phase in phases if name in ("errors", "TTFT p50", "TTFT p90", "goodput", "integrity") else ():
            told = [_figure(found.get(name), phase) for found in by_name]
            rows.append((name, str(phase), *told))
    phase = Phase.DURING if all(Phase.DURING in one.phases for one in pair) else Phase.CONTROL
    curves = [
        curve(f"{name}, {phase}", one, "ttft", phase)
        for name, one in zip(NAMES, pair, strict=True)
        if phase in one.phases
    ]
    return {
        "name": f"{clean(pair[0].scenario)}/{clean(pair[0].name)}",
        "verdicts": [one.verdict for one in pair],
        "heads": ("metric", "phase", *NAMES),
        "rows": [(row, row[-1] != row[-2]) for row in rows],
        "chart": ecdf.ecdf(f"pair-{place}", "Time to first token", curves, arm.limits_of(pair[0], "ttft")),
    }


def _figure(row: chaos_figures.Row | None, phase: Phase) -> str:
    if row is None:
        return "–"
    said, ends = cell(row.figures.get(phase), row.unit)
    return f"{said} ({ends})" if ends else said


def _sweeps(runs: tuple[Run, Run]) -> Section | None:
    found = [pareto_figures.shown(run)[0] for run in runs]
    old, new = found
    if old is None or new is None:
        return None
    try:
        if old.concluded.reference is None:
            return Section(name="sweep", title="Frontier", empty="Nothing in A could be compared.")
        result = compare(old.concluded.frontier, new.concluded.frontier, old.concluded.reference)
    except ContextlabError as error:
        return Section(name="sweep", title="Frontier", empty=f"{clean(error.message)}: {clean(error.next_step)}")
    lines = pareto.comparison_lines(*NAMES, result, [goal.text for goal in old.sweep.goals])
    return Section(name="sweep", title="Frontier", facts={"lines": lines, "template": "lines"})


def title(runs: tuple[Run, Run]) -> str:
    """`FAILED against HELD · …`."""
    words = " against ".join(headline.word(run) for run in runs)
    return f"{words} · {summary.target(runs[0])}"
