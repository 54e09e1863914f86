"""Something that was read now and then, along the time of an arm: processors, memory, slots; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextlab.reports.chaos.words import number, short
from contextlab.reports.charts.axis import fitted, grid, linear, margin
from contextlab.reports.charts.drawing import (
    HALF,
    NARROW,
    Chart,
    Drawing,
    Key,
    Mark,
    Table,
    path,
    polyline,
    rect,
    thinned,
)

MOST_READINGS = 240
_HEIGHT, _TOP, _BOTTOM = 210, 34, 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One source: (seconds since the arm began, value)."""

    name: str
    points: Sequence[tuple[float, float]]


def lines(
    name: str, title: str, unit: str, series: Sequence[Series], windows: Sequence[tuple[float, float]], length_s: float
) -> Chart | None:
    """The chart; None where nothing was read twice."""
    told = [one for one in series if len(one.points) > 1]
    if not told:
        return None
    peaks = ", ".join(f"{one.name} at most {number(max(value for _, value in one.points))}" for one in told)
    rows = [
        (one.name, f"{short(round(at_s, 2))} s", number(value))
        for one in told
        for at_s, value in thinned(one.points, MOST_READINGS)
    ]
    caption = ""
    if any(len(one.points) > MOST_READINGS for one in told):
        caption = f"Thinned to {MOST_READINGS} readings of each."
    return Chart(
        name=name,
        title=title,
        says=f"{title}: {peaks} ({unit}).",
        wide=_drawn(unit, told, windows, length_s, HALF),
        narrow=_drawn(unit, told, windows, length_s, NARROW),
        table=Table(heads=("what", "at", unit), rows=tuple(rows), numbers=frozenset({1, 2})),
        keys=tuple(Key(shape="line", look=f"curve s{place}", words=one.name) for place, one in enumerate(told)),
        caption=caption,
        half=True,
    )


def _drawn(
    unit: str, series: Sequence[Series], windows: Sequence[tuple[float, float]], length_s: float, width: int
) -> Drawing:
    top, bottom = float(_TOP), float(_HEIGHT - _BOTTOM)
    values = [0.0, *(value for one in series for _, value in one.points)]
    y = fitted(values, bottom, top, title=unit) if any(values) else linear(0, 1, bottom, top, title=unit)
    x = linear(0, length_s, max(34.0, margin(y)), width - 10, words=lambda tick: f"{tick:.6g} s")
    marks: list[Mark] = [
        rect(x.at(start_s), top, x.at(end_s) - x.at(start_s), bottom - top, "window") for start_s, end_s in windows
    ]
    marks += grid(x, y)
    for place, one in enumerate(series):
        points = [(x.at(at_s), y.at(value)) for at_s, value in thinned(one.points, MOST_READINGS)]
        marks.append(path(polyline(points), f"curve s{place}", title=one.name))
    return Drawing(width=width, height=_HEIGHT, marks=tuple(marks))
