"""The sweep of a run as a report shows it: on a terminal a plot and a table, elsewhere rows of plain text.

FRONTIER   throughput against latency, members ●, undecided ◌, dominated ∙    pareto_plot
SETTINGS   ● 1   2   4   5   412  398–427  …   MEMBER 0.98                    pareto_table
NOT COMPARED   what the server refused, what crashed, what cannot be used    pareto_table
FOUND   best, knee, hypervolume, what is open, drift, budget, client, host   pareto_facts
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from contextlab.analysis.frontier import Direction, Interval, Membership
from contextlab.analysis.sweeps import Goal
from contextlab.analysis.tradeoffs import Comparison
from contextlab.model import Run, Settings
from contextlab.reports.pareto import facts as pareto_facts
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.pareto.figures import (
    BEST,
    KNEE,
    SIGNS,
    Row,
    Shown,
    changed,
    goal_names,
    scaled,
    setting_value,
    slo_text,
    statuses,
    tally,
    unit_of,
)
from contextlab.reports.pareto.plot import ACROSS, DOWN, Plot, Side, Spot, scatter
from contextlab.reports.pareto.table import (
    STYLES,
    excluded,
    excluded_lines,
    failed_words,
    left_words,
    rows_shown,
    standing_words,
    table,
)
from contextlab.reports.parts.facts import INDENT, Fact, painted
from contextlab.reports.parts.layout import flowing, labelled, wrapped
from contextlab.reports.parts.wording import MARKS, clean, listed, num

_PLOT_INDENT = 2
_MAX_PLOT = 104
_MAX_HEIGHT, _MIN_HEIGHT = 20, 8
_RANKS = {Membership.DOMINATED: 0, Membership.UNDECIDED: 1, Membership.MEMBER: 2}
_MAX_NAMED = 3
_MAX_CROSSES = 8
"""More intervals than this cover one another; those of the settings that matter most are drawn."""


def sections(run: Run, width: int, prose: int) -> Iterator[tuple[str, list[Text]]]:
    """(title, lines) of the parts that a sweep adds to the report of a terminal; sentences are as wide as `prose`."""
    one, damage = pareto_figures.shown(run)
    if one is None:
        if damage:
            yield "sweep", wrapped(Text(f"  {clean(damage)}"), prose)
        return
    yield "frontier", drawn(one, min(width, _MAX_PLOT))
    yield "settings", [*table(one, width), *_notes(one, width)]
    yield "not compared", excluded(one, prose)
    yield "found", painted(pareto_facts.facts(one), prose)


def lines(run: Run) -> Iterator[Iterator[str]]:
    """The same as plain rows, in groups."""
    one, damage = pareto_figures.shown(run)
    if one is None:
        if damage:
            yield iter([f"sweep: {clean(damage)}"])
        return
    yield _rows(one)
    yield iter(excluded_lines(one))
    yield (_plain(fact) for fact in pareto_facts.facts(one))


# ── the words at the top ─────────────────────────────────────────────────────────────────────────


def words(run: Run) -> str:
    """`5 settings on the frontier of … and …, 3 undecided; best under …`; "" where no sweep can be read."""
    one, damage = pareto_figures.shown(run)
    if one is None:
        return clean(damage)
    if not one.rows:
        return "nothing was measured" if not one.excluded else f"nothing could be measured: {statuses(one.excluded)}"
    members, undecided = len(one.of(Membership.MEMBER)), len(one.of(Membership.UNDECIDED))
    groups, frontier = len(one.concluded.one_of), f"on the frontier of {goal_names(one.sweep)}"
    none = "no single setting" if groups else "no setting"
    said = f"{num(members, 'setting')} {frontier}" if members else f"{none} is for sure {frontier}"
    each = "one of a group" if groups == 1 else f"one in each of {groups} groups"
    said += (f", and {each}" if members else f", but {each} is") if groups else ""
    said += f", {undecided} undecided" if undecided else ""
    return "; ".join(part for part in (said, pareto_facts.best_words(one)) if part)


def tally_words(run: Run) -> str:
    """How much was measured; "" where there are findings and no sweep that can be read."""
    one, damage = pareto_figures.shown(run)
    if one is None:
        return "" if damage or run.findings else "0 measurements"
    return tally(one)


def is_begun(run: Run) -> bool:
    """Whether there are measurements to go on from."""
    one, _ = pareto_figures.shown(run)
    return one is not None and bool(one.rows)


def is_whole(run: Run) -> bool:
    """Whether the sweep was measured and left nothing open."""
    one, _ = pareto_figures.shown(run)
    return one is not None and bool(one.rows) and not one.of(Membership.UNDECIDED) and not one.undecided


def going_on(argv: Sequence[str], run: Run, *, cut: bool) -> list[str]:
    """The command line that goes on with the sweep: from its record, and with twice the budget if that was used up."""
    one, _ = pareto_figures.shown(run)
    again = _with_option(argv, "--resume", run.path)
    if cut or one is None or one.sweep.budget_s <= 0:
        return again
    return _with_option(again, "--budget", f"{2 * one.sweep.budget_s:g}s")


def _with_option(argv: Sequence[str], name: str, given: str) -> list[str]:
    """The words with an option set, in place of its old value where it had one."""
    kept: list[str] = []
    skips = False
    for word in argv:
        if not skips and word != name and not word.startswith(f"{name}="):
            kept.append(word)
        skips = word == name
    return [*kept, name, given]


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────


def drawn(one: Shown, width: int) -> list[Text]:
    """The first goal against the second, with what the signs mean; no lines where there are not two."""
    if len(one.sweep.goals) < 2 or not one.rows:
        return []
    y_goal, x_goal = one.sweep.goals[:2]
    factors = [
        scaled(unit_of(goal), [row.standing.values[place].value for row in one.rows])[0]
        for place, goal in enumerate((y_goal, x_goal))
    ]
    room = width - _PLOT_INDENT
    height = max(_MIN_HEIGHT, min(_MAX_HEIGHT, room // 5))
    up, across = (_side(one, goal, place, factors[place]) for place, goal in enumerate((y_goal, x_goal)))
    crossed = _crossed(one)
    plot = scatter([_spot(row, factors, row in crossed) for row in one.rows], across, up, room, height)
    legend = flowing([Text(part) for part in _legend(one, plot, len(crossed))], room, between=", ")
    return labelled(Text(), [*plot.lines, *legend], _PLOT_INDENT)


def _side(one: Shown, goal: Goal, place: int, factor: float) -> Side:
    _, unit = scaled(unit_of(goal), [row.standing.values[place].value for row in one.rows])
    better = "more is better" if goal.direction is Direction.UP else "less is better"
    title = ", ".join(part for part in (clean(goal.text), clean(unit), better) if part)
    limits = {slo_text(slo, one.sweep): slo.limit / factor for slo in one.sweep.slos if slo.objective == goal.text}
    return Side(title=title, limits=limits)


def _crossed(one: Shown) -> list[Row]:
    """The settings whose intervals are drawn: chosen ones, members, then the likeliest of the undecided."""
    chosen = [row for row in one.rows if row.is_best or row.is_knee]
    others = [row for row in one.rows if row not in chosen and row.membership is not Membership.DOMINATED]
    others.sort(key=lambda row: (-_RANKS[row.membership], -(row.standing.probability or 0.0)))
    return [*chosen, *others][:_MAX_CROSSES]


def _spot(row: Row, factors: Sequence[float], crossed: bool) -> Spot:
    y, x = row.standing.values[:2]
    return Spot(
        x=x.value / factors[1],
        y=y.value / factors[0],
        sign=row.sign,
        rank=4 if row.is_best else 3 if row.is_knee else _RANKS[row.membership],
        style="bold " + STYLES[row.membership] if row.is_best or row.is_knee else STYLES[row.membership],
        x_ends=(x.low / factors[1], x.high / factors[1]) if crossed else None,
        y_ends=(y.low / factors[0], y.high / factors[0]) if crossed else None,
    )


def _legend(one: Shown, plot: Plot, num_crosses: int) -> Iterator[str]:
    """What the signs mean, and what is not seen."""
    for membership, sign in SIGNS.items():
        if count := len(one.of(membership)):
            yield f"{sign} {num(count, membership) if membership is Membership.MEMBER else f'{count} {membership}'}"
    if any(row.is_knee and not row.is_best for row in one.rows):
        yield f"{KNEE} knee"
    if one.best is not None:
        yield f"{BEST} best under the SLO" + (", and the knee" if one.best.is_knee else "")
    for slo in one.sweep.slos:
        sign, text = DOWN if slo.objective == one.sweep.goals[1].text else ACROSS, slo_text(slo, one.sweep)
        if slo.objective in (goal.text for goal in one.sweep.goals[:2]):
            yield f"{text} (outside the plot)" if text in plot.beyond else f"{sign} {text}"
    known = one.concluded.frontier.known
    if known and num_crosses == _MAX_CROSSES and num_crosses < len(one.rows) - len(one.of(Membership.DOMINATED)):
        yield f"intervals drawn of {num_crosses}, all in the table"
    if plot.num_hidden:
        yield f"{plot.num_hidden} behind others"
    if one.excluded:
        yield f"not drawn: {statuses(one.excluded)}"
    if len(one.sweep.goals) > 2:
        yield f"not drawn: {listed([goal.text for goal in one.sweep.goals[2:]])}"


def _notes(one: Shown, width: int) -> list[Text]:
    """How the table is to be read."""
    notes = [Text(note, "dim") for note in _note_words(one)]
    return labelled(Text(), flowing(notes, width - INDENT), INDENT)


def _note_words(one: Shown) -> Iterator[str]:
    if not one.rows:
        return
    if one.concluded.frontier.known:
        yield f"{one.sweep.confidence * 100:g}% intervals"
        yield "beside MEMBER and UNDECIDED: the probability to be on the frontier"
    else:
        yield "one repeat each: nothing is known of the noise, so nothing is decided"
    if one.of(Membership.DOMINATED):
        yield "DOMINATED by: the row that is better for sure"


# ── as plain text ────────────────────────────────────────────────────────────────────────────────


def _rows(one: Shown) -> Iterator[str]:
    rows, num_left = rows_shown(one)
    for row in rows:
        marks = [name for name, is_so in (("best", row.is_best), ("knee", row.is_knee)) if is_so]
        said = [f"n {row.n}", *pareto_facts.goals_words(one, row)]
        said += [f"{failed} failed"] if (failed := failed_words(row)) else []
        head = ", ".join([standing_words(row), *marks])
        yield f"setting {row.place}: {row.sign} {one.named(row.settings)}: {head}: {', '.join(said)}"
    if num_left:
        yield f"settings: {left_words(num_left)}"
    if rows:
        yield f"note: {'; '.join(_note_words(one))}"


def _plain(fact: Fact) -> str:
    mark = f"{MARKS[fact.verdict]} " if fact.verdict is not None else ""
    return f"{fact.label}: {mark}{clean(fact.text)}"


# ── old and new ──────────────────────────────────────────────────────────────────────────────────


def comparison_lines(old: str, new: str, found: Comparison, goals: Sequence[str] = ()) -> list[str]:
    """How the frontier moved from one run to another, `contextlab pareto --compare OLD NEW`; `goals` by name."""
    first, second = map(clean, goals[:2] if len(goals) >= 2 else ("the first objective", "the second"))
    shift = f"not told: there is no level of {second} that both reach"
    if found.shift is not None:
        shift = f"{changed(found.shift)} of {first} at equal {second}{_unknown(found.shift)}"
    said = [
        f"{clean(new)} against {clean(old)}: {found.verdict}",
        f"hypervolume: {changed(found.hypervolume)}{_unknown(found.hypervolume)}",
        f"shift: {shift}",
    ]
    parts = (
        ("joined", "on the frontier now, dominated before", found.joined),
        ("left", "dominated now, on the frontier before", found.left),
        ("missing", "in only one of the two", found.missing),
    )
    return [*said, *(f"{label}: {_named(settings)} ({what})" for label, what, settings in parts if settings)]


def _unknown(change: Interval) -> str:
    known = change.low > float("-inf") or change.high < float("inf")
    return "" if known else " (no interval: nothing is known of the noise)"


def _named(settings: Sequence[Settings]) -> str:
    """`slots=2 concurrency=4; slots=4 concurrency=4 and 3 more`."""
    told = [" ".join(f"{clean(name)}={setting_value(each)}" for name, each in one.items()) for one in settings]
    most = len(told) if len(told) <= _MAX_NAMED + 1 else _MAX_NAMED
    return "; ".join(told[:most]) + (f" and {len(told) - most} more" if len(told) > most else "")
