"""Settings in the plane of two goals: intervals, who is on the frontier, where SLOs break, what was chosen; pure.

A point's number is its row in the table. The line joins the members that nothing measured beats, from end to end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contextlab.analysis.frontier import Direction, Interval, Membership
from contextlab.analysis.sweeps import Goal
from contextlab.reports.charts.axis import Axis, fitted, grid, margin
from contextlab.reports.charts.drawing import (
    NARROW,
    WIDE,
    Chart,
    Drawing,
    Key,
    Mark,
    Table,
    line,
    path,
    rect,
    shortened,
    steps,
    text,
)
from contextlab.reports.pareto.figures import Row, Shown, goal_names, scaled, slo_text, statuses, unit_of
from contextlab.reports.parts.wording import clean, listed, num

_LOOKS = {Membership.MEMBER: "member", Membership.UNDECIDED: "undecided", Membership.DOMINATED: "dominated"}
_RANKS = {Membership.DOMINATED: 0, Membership.UNDECIDED: 1, Membership.MEMBER: 2}
_STAR = "M0-9l2.6 5.6 6 .7-4.4 4.2 1.1 6L0 3.6l-5.3 2.9 1.1-6-4.4-4.2 6-.7z"
_TOP, _BOTTOM = 34, 46
_LOOSE_PX = 11
"""Numbers of points nearer to each other than this would cover one another: only the first stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One goal as an axis: its factor to the shown unit, its title, and the limits of the SLOs on it."""

    place: int
    goal: Goal
    factor: float
    title: str
    limits: tuple[tuple[str, float, bool], ...]
    """(words, limit in the shown unit, whether what is above it breaks the SLO)."""


def chart(one: Shown, table: Table) -> Chart | None:
    """The first goal against the second; None where there are not two, or where nothing was compared."""
    if len(one.sweep.goals) < 2 or not one.rows:
        return None
    up, across = (_side(one, place) for place in (0, 1))
    says = f"{goal_names(one.sweep)}: " + ", ".join(
        f"{len(one.of(membership))} {membership}" for membership in _LOOKS if one.of(membership)
    )
    for role, row in (("best under the SLO", one.best), ("knee", next((row for row in one.rows if row.is_knee), None))):
        says += f"; {role}: {one.named(row.settings)}" if row is not None else ""
    return Chart(
        name="frontier",
        title="The frontier",
        says=f"{says}.",
        wide=_drawn(one, up, across, WIDE, 420),
        narrow=_drawn(one, up, across, NARROW, 340),
        table=table,
        keys=tuple(_keys(one, up, across)),
        caption=_caption(one),
    )


def _caption(one: Shown) -> str:
    said = [f"Crosses are {one.sweep.confidence * 100:g} % intervals; numbers are those of the table's rows."]
    if not one.concluded.frontier.known:
        said = ["One repeat each: nothing is known of the noise, so there are no intervals and nothing is decided."]
    if one.excluded:
        said.append(f"Not drawn, because not compared: {statuses(one.excluded)}.")
    if len(one.sweep.goals) > 2:
        said.append(f"Not drawn: {listed([goal.text for goal in one.sweep.goals[2:]])}.")
    return " ".join(said)


def _keys(one: Shown, up: _Side, across: _Side) -> Iterator[Key]:
    shapes = {Membership.MEMBER: "dot", Membership.UNDECIDED: "ring", Membership.DOMINATED: "dot"}
    for membership, look in _LOOKS.items():
        if count := len(one.of(membership)):
            words = num(count, "member") if membership is Membership.MEMBER else f"{count} {membership}"
            yield Key(shape=shapes[membership], look=f"point {look}", words=words)
    if one.best is not None:
        yield Key(shape="star", look="best", words="best under the SLO")
    if any(row.is_knee for row in one.rows):
        yield Key(shape="ring", look="knee", words="knee")
    for words, _, _ in (*up.limits, *across.limits):
        yield Key(shape="area", look="broken", words=f"breaks {words}")


def _side(one: Shown, place: int) -> _Side:
    goal = one.sweep.goals[place]
    factor, unit = scaled(unit_of(goal), [row.standing.values[place].value for row in one.rows])
    better = "more is better" if goal.direction is Direction.UP else "less is better"
    limits = tuple(
        (slo_text(slo, one.sweep), slo.limit / factor, slo.op.startswith("<"))
        for slo in one.sweep.slos
        if slo.objective == goal.text
    )
    title = ", ".join(part for part in (clean(goal.text), clean(unit), better) if part)
    return _Side(place=place, goal=goal, factor=factor, title=title, limits=limits)


def _axis(one: Shown, side: _Side, start: float, end: float) -> Axis:
    values = [row.standing.values[side.place].value / side.factor for row in one.rows]
    others = [limit for _, limit, _ in side.limits]
    for row in one.rows:
        others += _ends(row.standing.values[side.place], side.factor) if _certain(row) else ()
    return fitted(values, start, end, others=others, title=side.title)


def _certain(row: Row) -> bool:
    """Whether its intervals are drawn: what is dominated for sure would only cover the rest."""
    return row.membership is not Membership.DOMINATED or row.is_best or row.is_knee


def _ends(one: Interval, factor: float) -> tuple[float, float] | tuple[()]:
    known = math.isfinite(one.low) and math.isfinite(one.high)
    return (one.low / factor, one.high / factor) if known else ()


def _drawn(one: Shown, up: _Side, across: _Side, width: int, height: int) -> Drawing:
    top, bottom = float(_TOP), float(height - _BOTTOM)
    y = _axis(one, up, bottom, top)
    x = _axis(one, across, max(34.0, margin(y)), width - 14)
    marks: list[Mark] = [*_broken(x, y, across, up), *grid(x, y), *_line(one, up, across, x, y)]
    numbers: list[tuple[float, float, str, str]] = []
    for row in sorted(one.rows, key=lambda each: (each.is_best or each.is_knee, _RANKS[each.membership])):
        at_x = x.at(row.standing.values[across.place].value / across.factor)
        at_y = y.at(row.standing.values[up.place].value / up.factor)
        title = f"{row.place}: {one.named(row.settings)}, {row.membership}"
        if _certain(row):
            look = f"cross-{_LOOKS[row.membership]}"
            if ends := _ends(row.standing.values[across.place], across.factor):
                marks.append(line(x.at(ends[0]), at_y, x.at(ends[1]), at_y, look))
            if ends := _ends(row.standing.values[up.place], up.factor):
                marks.append(line(at_x, y.at(ends[0]), at_x, y.at(ends[1]), look))
            words = shortened(f"{row.place} {one.named(row.settings)}", width / 2) if row.is_best else f"{row.place}"
            numbers.append((at_x, at_y, words, "strong" if row.is_best else "number"))
        marks += _sign(row, at_x, at_y, title)
    return Drawing(width=width, height=height, marks=(*marks, *_numbers(numbers[::-1], x)))


def _sign(row: Row, x: float, y: float, title: str) -> list[Mark]:
    found = []
    if row.is_knee:
        found.append(Mark(tag="circle", attributes={"class": "knee", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": 11}))
    if row.is_best:
        at = {"class": "best", "d": _STAR, "transform": f"translate({x:.1f} {y:.1f})"}
        return [*found, Mark(tag="path", attributes=at, title=title)]
    size = 3 if row.membership is Membership.DOMINATED else 5.5
    at = {"class": f"point {_LOOKS[row.membership]}", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{size}"}
    return [*found, Mark(tag="circle", attributes=at, title=title)]


def _numbers(wanted: Sequence[tuple[float, float, str, str]], x: Axis) -> Iterator[Mark]:
    """The numbers beside their points, the important ones first, where there is room for them."""
    taken: list[tuple[float, float]] = []
    for at_x, at_y, words, look in wanted:
        if all(abs(at_x - other) > 2 * _LOOSE_PX or abs(at_y - another) > _LOOSE_PX for other, another in taken):
            taken.append((at_x, at_y))
            left = at_x + 12 + 7 * len(words) > x.end
            yield text(at_x - 12 if left else at_x + 12, at_y - 8, words, look, anchor="end" if left else "start")


def _broken(x: Axis, y: Axis, across: _Side, up: _Side) -> Iterator[Mark]:
    """Where an SLO does not hold, and its limit as a line."""
    for words, limit, above in across.limits:
        at = x.at(limit)
        begin, end = (at, x.end) if above else (x.start, at)
        yield rect(begin, y.end, end - begin, y.start - y.end, "broken", title=f"breaks {words}")
        yield line(at, y.end, at, y.start, "limit", title=words)
    for words, limit, above in up.limits:
        at = y.at(limit)
        begin, end = (y.end, at) if above else (at, y.start)
        yield rect(x.start, begin, x.end - x.start, end - begin, "broken", title=f"breaks {words}")
        yield line(x.start, at, x.end, at, "limit", title=words)


def _line(one: Shown, up: _Side, across: _Side, x: Axis, y: Axis) -> Iterator[Mark]:
    """The staircase through the members, from the least of the second goal on."""
    members = [
        (row.standing.values[across.place].value / across.factor, row.standing.values[up.place].value / up.factor)
        for row in one.of(Membership.MEMBER)
    ]
    if len(members) > 1 and len(one.sweep.goals) == 2:
        yield path(steps([(x.at(across_), y.at(up_)) for across_, up_ in sorted(members)]), "frontier")
