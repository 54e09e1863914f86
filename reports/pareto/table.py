"""The table of a sweep: a setting a row, first those on the frontier, each objective with its interval.

wide      ● 1      2            4   5     412  398–427   MEMBER 0.98      intervals beside their values
narrow    ● 1      2            4   5     412            MEMBER           intervals under them
          stacked                                                         a setting in lines, where not even that fits
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from contextlab.analysis.frontier import Direction, Membership, Standing, Status
from contextlab.reports.chaos.words import number
from contextlab.reports.pareto.facts import goals_words
from contextlab.reports.pareto.figures import Row, Shown, ends, probability, scaled, setting_value, unit_of, varied
from contextlab.reports.parts.layout import GAP, MARK_CELLS, flowing, grid, labelled, wrapped
from contextlab.reports.parts.wording import clean, num, quote

MAX_ROWS = 40
"""Dominated settings fill a table up to so many rows; the rest is counted."""
MAX_NAMED = 3
STYLES = {Membership.MEMBER: "green", Membership.UNDECIDED: "yellow", Membership.DOMINATED: "dim"}
_REASONS = 8
_SIGNS = {Status.CRASHED: ("✗", "red"), Status.INFEASIBLE: ("–", ""), Status.INVALID: ("?", "yellow")}


def rows_shown(one: Shown) -> tuple[tuple[Row, ...], int]:
    """The rows of the table, and how many dominated ones are left out. What is dominated comes last."""
    num_kept = sum(row.membership is not Membership.DOMINATED or row.is_best or row.is_knee for row in one.rows)
    most = max(MAX_ROWS, num_kept)
    if len(one.rows) <= most + 1:  # "and 1 more" is no shorter than the row
        return one.rows, 0
    ahead = [row for row in one.rows if row.place <= most]
    ahead += [row for row in one.rows if row.place > most and (row.is_best or row.is_knee)]
    return tuple(ahead), len(one.rows) - len(ahead)


def table(one: Shown, width: int) -> list[Text]:
    """The rows as lines of at most `width` cells; no lines where nothing was compared."""
    rows, num_left = rows_shown(one)
    if not rows:
        return []
    marks = [Text(), *(_mark(row) for row in rows)]
    wide, narrow = _wide(one, rows), _narrow(one, rows)
    fixed_left = len(varied(one.sweep)) + 2
    if _needed(wide) <= width - MARK_CELLS:
        right = set(range(fixed_left)) | {fixed_left + 2 * place for place in range(len(one.sweep.goals))}
        lines = grid(wide, width, right=right, marks=marks)
    elif _needed(narrow) <= width - MARK_CELLS:
        right = set(range(fixed_left + len(one.sweep.goals)))
        lines = grid(narrow, width, right=right, marks=[mark for each in marks for mark in (each, Text())])
    else:
        lines = [line for row in rows for line in _stacked(one, row, width)]
    return lines + (wrapped(Text(f"    {left_words(num_left)}", "dim"), width) if num_left else [])


def left_words(num_left: int) -> str:
    """`and 57 more, dominated for sure`."""
    return f"and {num_left} more, dominated for sure"


def standing_words(row: Row) -> str:
    """`MEMBER 0.98`, `UNDECIDED 0.41`, `DOMINATED by 3`."""
    return " ".join(part for part in (row.membership.name, _standing_detail(row)) if part)


def failed_words(row: Row) -> str:
    """`3 of 240`; "" where it is not on record what was sent."""
    return f"{row.num_failed} of {row.num_requests}" if row.num_requests or row.num_failed else ""


def _standing_detail(row: Row) -> str:
    if row.membership is Membership.DOMINATED:
        return f"by {row.by}" if row.by is not None else ""
    return probability(row.standing.probability)


def _mark(row: Row) -> Text:
    return Text.assemble("  ", (row.sign, "bold " + STYLES[row.membership] if row.is_best else STYLES[row.membership]))


def _heads(one: Shown) -> tuple[list[str], list[str]]:
    """Two lines of heads for the goals: the name, and the unit with the better direction."""
    names, units = [], []
    for place, goal in enumerate(one.sweep.goals):
        _, unit = _scale(one, place)
        names.append(clean(goal.text))
        units.append(f"{unit} {'↑' if goal.direction is Direction.UP else '↓'}".strip())
    return names, units


def _scale(one: Shown, place: int) -> tuple[float, str]:
    """The unit of a column: that of its least value."""
    return scaled(unit_of(one.sweep.goals[place]), [row.standing.values[place].value for row in one.rows])


def _values(one: Shown, row: Row) -> list[tuple[str, str]]:
    """Each goal's value and interval in the unit of the column."""
    found = []
    for place, (goal, each) in enumerate(zip(one.sweep.goals, row.standing.values, strict=True)):
        factor, _ = _scale(one, place)
        found.append((number(each.value / factor), ends(each, unit_of(goal), factor)))
    return found


def _front(one: Shown, row: Row) -> list[Text]:
    """Number, settings and repeats."""
    chosen = [setting_value(row.settings.get(name)) for name in varied(one.sweep)]
    return [Text(str(row.place), "dim"), *map(Text, chosen), Text(str(row.n))]


def _front_heads(one: Shown) -> list[Text]:
    return [Text(), *(Text(clean(name), "bold") for name in varied(one.sweep)), Text("n", "bold")]


def _wide(one: Shown, rows: Sequence[Row]) -> list[list[Text]]:
    names, units = _heads(one)
    heads = [Text(part, "bold") for name, unit in zip(names, units, strict=True) for part in (name, unit)]
    made = [[*_front_heads(one), *heads, Text("frontier", "bold"), Text("failed", "bold")]]
    for row in rows:
        style = STYLES[row.membership]
        values = [Text(part, "dim" if is_end else "") for pair in _values(one, row) for is_end, part in enumerate(pair)]
        made.append([*_front(one, row), *values, Text(standing_words(row), style), Text(failed_words(row))])
    return _without_empty(made)


def _narrow(one: Shown, rows: Sequence[Row]) -> list[list[Text]]:
    names, units = _heads(one)
    blank = [Text()] * (len(varied(one.sweep)) + 2)
    made = [
        [*_front_heads(one), *(Text(name, "bold") for name in names), Text("frontier", "bold"), Text("failed", "bold")],
        [*blank, *(Text(unit, "bold") for unit in units), Text(), Text()],
    ]
    for row in rows:
        values, style = _values(one, row), STYLES[row.membership]
        name, detail = Text(row.membership.name, style), Text(_standing_detail(row), style)
        made.append([*_front(one, row), *(Text(value) for value, _ in values), name, Text(failed_words(row))])
        made.append([*blank, *(Text(end, "dim") for _, end in values), detail, Text()])
    return _without_empty(made)


def _without_empty(made: list[list[Text]]) -> list[list[Text]]:
    """Without the last column where nothing is in it but its head."""
    return made if any(row[-1] for row in made[2:] or made[1:]) else [row[:-1] for row in made]


def _needed(made: Sequence[Sequence[Text]]) -> int:
    widths: list[int] = [max(text.cell_len for text in column) for column in zip(*made, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1)


def _stacked(one: Shown, row: Row, width: int) -> list[Text]:
    parts = [Text(f"{row.place}  {one.named(row.settings)}", "bold"), Text(standing_words(row), STYLES[row.membership])]
    parts += [Text(f"n {row.n}"), *map(Text, goals_words(one, row))]
    parts += [Text(f"{failed} failed")] if (failed := failed_words(row)) else []
    return labelled(_mark(row), flowing(parts, width - MARK_CELLS), MARK_CELLS)


# ── what was not compared ────────────────────────────────────────────────────────────────────────


def reasons(one: Shown) -> list[tuple[Status, list[Standing]]]:
    """What was not compared, by status and reason, in the order of `Status`."""
    alike: dict[tuple[Status, str], list[Standing]] = {}
    for each in one.excluded:
        alike.setdefault((each.point.status, each.point.why), []).append(each)
    order = list(Status)
    found = sorted(alike.items(), key=lambda item: (order.index(item[0][0]), -len(item[1])))
    return [(status, standings) for (status, _), standings in found]


def excluded_words(one: Shown, standings: Sequence[Standing]) -> str:
    """`slots=8 context=2048: HTTP 500 …`; several settings with one reason are counted."""
    named = [one.named(each.point.settings) for each in standings]
    who = "; ".join(named[:MAX_NAMED]) + (f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else "")
    return f"{who}: {quote(standings[0].point.why) or 'no reason is on record'}"


def excluded(one: Shown, width: int) -> list[Text]:
    """A line each for what was not compared, and why."""
    found = reasons(one)
    lines = []
    start = MARK_CELLS + max((len(status) for status, _ in found), default=0) + GAP
    for status, standings in found[:_REASONS]:
        sign, style = _SIGNS.get(status, ("?", "yellow"))
        label = Text.assemble("  ", (sign, style), f" {status}")
        lines += labelled(label, wrapped(Text(excluded_words(one, standings)), width - start), start)
    if left := unsaid(one):
        lines += wrapped(Text(f"    {left}", "dim"), width)
    return lines


def unsaid(one: Shown) -> str:
    """How many reasons are left out; "" if none."""
    left = len(reasons(one)) - _REASONS
    return f"and {num(left, 'other reason')}, in the record" if left > 0 else ""


def excluded_lines(one: Shown) -> list[str]:
    """The same as plain rows."""
    said = [f"{status}: {excluded_words(one, standings)}" for status, standings in reasons(one)[:_REASONS]]
    return [*said, *([f"not compared: {left}"] if (left := unsaid(one)) else [])]
