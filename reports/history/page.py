"""The history of many runs as one HTML file without a network: the charts and the page are those of `html`; pure.

Each group of runs that can be compared is a section; each metric a chart over its runs, with a table beneath.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TextIO

from contextlab.analysis.history import Group, Series
from contextlab.model import Verdict
from contextlab.reports.charts.axis import fitted, grid, linear, margin
from contextlab.reports.charts.drawing import (
    HALF,
    NARROW,
    Chart,
    Drawing,
    Key,
    Mark,
    Table,
    dots,
    line,
    path,
    polyline,
)
from contextlab.reports.history import text as history
from contextlab.reports.history.text import History, amount, change_words, name_of, summed
from contextlab.reports.page.rendering import rendered
from contextlab.reports.page.section import Section
from contextlab.reports.parts.wording import clean, num

MAX_CHARTS = 200
"""Of all groups together; of more the newest groups', and the page says so."""
_HEIGHT, _TOP, _BOTTOM = 210, 34, 42


def write_page(found: History, out: TextIO) -> None:
    """Write the page; what the stream cannot encode becomes a character reference."""
    text = page(found)
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(text.encode(encoding, "xmlcharrefreplace").decode(encoding))


def page(found: History) -> str:
    """The page of a folder's history."""
    sections, left = [_top(found)], MAX_CHARTS
    for place, group in enumerate(found.groups, 1):
        sections.append(_group(group, place, left))
        left = max(0, left - len(group.series))
    return rendered(f"History · {clean(found.folder)}", sections)


def _top(found: History) -> Section:
    return Section(
        name="history",
        title="",
        facts={
            "headline": history.headline(found),
            "folder": clean(found.folder),
            "left_out": [(clean(one.run), clean(one.why)) for one in found.left_out],
        },
    )


def _group(group: Group, place: int, most: int) -> Section:
    runs = Table(
        heads=("verdict", "began", "run", "exit"),
        rows=tuple(
            (each.verdict.name, each.began_at, clean(each.run), str(each.exit_code)) for each in reversed(group.entries)
        ),
    )
    charts = [chart(series, f"g{place}s{number}") for number, series in enumerate(group.series[:most])]
    left = len(group.series) - len(charts)
    return Section(
        name=f"group-{place}",
        title=f"{place} · {group.command} {clean(group.target)}".strip(),
        facts={
            "template": "history-group",
            "number": place,
            "asked": history.title(group),
            "span": history.span(group),
            "machine": clean(group.machine),
            "verdicts": [(entry.verdict, f"{entry.began_at} {clean(entry.run)}") for entry in group.entries],
            "runs": runs,
            "charts": charts,
            "advice": [_advice(series) for series in group.series if series.changes],
            "left": f"{num(left, 'more metric')} in the JSON document" if left > 0 else "",
        },
    )


def _advice(series: Series) -> tuple[str, str, Verdict | None]:
    """(metric, its changes in words, a mark where one is for the worse)."""
    worse = any(change.worse for change in series.changes)
    words = "; ".join(change_words(change, series) for change in series.changes)
    return name_of(series), words, Verdict.UNKNOWN if worse else None


def chart(series: Series, name: str) -> Chart:
    """One metric over its runs, oldest first."""
    said = [f"{name_of(series)} over {num(len(series.points), 'run')}: last {summed(series)}."]
    said += [f"A change {change_words(change, series)}." for change in series.changes]
    changed = {change.place: change_words(change, series) for change in series.changes}
    rows = [
        (
            point.began_at,
            clean(point.run),
            amount(point.value, series.unit),
            "level changes here" if place in changed else "",
        )
        for place, point in enumerate(series.points)
    ]
    keys = (Key(shape="line", look="limit", words="where the level seems to change"),) if changed else ()
    return Chart(
        name=name,
        title=name_of(series),
        says=" ".join(said),
        wide=_drawn(series, changed, HALF),
        narrow=_drawn(series, changed, NARROW),
        table=Table(heads=("began", "run", "value", "note"), rows=tuple(rows), numbers=frozenset({2})),
        keys=keys,
        caption=series.advice,
        half=True,
    )


def _drawn(series: Series, changed: dict[int, str], width: int) -> Drawing:
    top, bottom = float(_TOP), float(_HEIGHT - _BOTTOM)
    values = [point.value for point in series.points]
    in_unit: Callable[[float], str] = partial(amount, unit=series.unit)
    y = fitted(values, bottom, top, words=in_unit)
    x = linear(
        0, len(values) + 1, max(34.0, margin(y)), width - 10, words=partial(_run_number, len(values)), title="run"
    )
    places = [(x.at(at), y.at(value)) for at, value in enumerate(values, 1)]
    marks: list[Mark] = grid(x, y)
    for place, words in changed.items():
        at = x.at(place + 0.5)  # (between the last run before and the first one after)
        marks.append(line(at, top, at, bottom, "limit", title=words))
    marks += [path(polyline(places), "curve s0", title=name_of(series)), path(dots(places), "dots calm")]
    return Drawing(width=width, height=_HEIGHT, marks=tuple(marks))


def _run_number(most: int, tick: float) -> str:
    return f"{tick:.0f}" if 1 <= tick <= most and tick.is_integer() else ""
