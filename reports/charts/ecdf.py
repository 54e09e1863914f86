"""Which share of requests was served within which time: one curve a phase, or a run; pure.

Failed requests stay in the share: a curve that ends below 100 % lost the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from contextlab.analysis.quantiles import Quantile
from contextlab.reports.chaos.figures import Unit, quantile
from contextlab.reports.chaos.table import cell
from contextlab.reports.chaos.words import number, seconds, unit_of
from contextlab.reports.charts.axis import Axis, fitted, grid, linear
from contextlab.reports.charts.drawing import (
    HALF,
    NARROW,
    Chart,
    Drawing,
    Key,
    Mark,
    Point,
    Table,
    line,
    path,
    steps,
    text,
    thinned,
)

MOST_STEPS = 240
"""A curve has at most so many steps; more could not be told apart at this size."""
SHOWN = (0.5, 0.9, 0.99)
_HEIGHT, _TOP, _BOTTOM = 300, 34, 46


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The times of one phase in seconds, in order, failures as inf, and its quantiles at `SHOWN`."""

    name: str
    ordered: Sequence[float]
    quantiles: tuple[Quantile, ...]

    @property
    def num_failed(self) -> int:
        """How many never came."""
        return sum(map(math.isinf, self.ordered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound: so many seconds at a quantile, in the user's words. `quantile` None: of all."""

    text: str
    value_s: float
    quantile: float | None


def ecdf(name: str, title: str, curves: Sequence[Curve], limits: Sequence[Limit] = ()) -> Chart | None:
    """The chart; None where nothing was served."""
    finite = [value for curve in curves for value in curve.ordered if math.isfinite(value)]
    if not finite:
        return None
    caption = "Ticks at 50, 90 and 99 %."
    if any(curve.num_failed for curve in curves):
        caption += " A curve that ends below 100 % lost the rest: those requests failed."
    if any(len(curve.ordered) > MOST_STEPS for curve in curves):
        caption += f" Curves are thinned to {MOST_STEPS} steps."
    return Chart(
        name=name,
        title=title,
        says=f"{title}: " + "; ".join(map(_said, curves)) + ".",
        wide=_drawn(curves, limits, finite, HALF),
        narrow=_drawn(curves, limits, finite, NARROW),
        table=_table(curves),
        keys=(
            *(Key(shape="line", look=f"curve s{place}", words=curve.name) for place, curve in enumerate(curves)),
            *(Key(shape="line", look="limit", words=_named(limit, finite)) for limit in limits),
        ),
        caption=caption,
        half=True,
    )


def _named(limit: Limit, finite: Sequence[float]) -> str:
    others = [limit.value_s]
    return (
        limit.text if fitted(finite, 0, 100, others=others).holds(limit.value_s) else f"{limit.text} (beyond the chart)"
    )


def _said(curve: Curve) -> str:
    told = ", ".join(
        f"p{found.q * 100:g} {seconds(found.value)}" for found in curve.quantiles if not math.isnan(found.value)
    )
    failed = f", {curve.num_failed} failed" if curve.num_failed else ""
    return f"{curve.name} {told} of {len(curve.ordered)} requests{failed}"


def _table(curves: Sequence[Curve]) -> Table:
    rows = []
    for curve in curves:
        cells = [cell(quantile(found), Unit.SECONDS) for found in curve.quantiles]
        told = [f"{value} ({ends})" if ends else value for value, ends in cells]
        rows.append((curve.name, f"{len(curve.ordered)}", f"{curve.num_failed}", *told))
    heads = ("phase", "requests", "failed", *(f"P{q * 100:g} (95 % interval)" for q in SHOWN))
    return Table(heads=heads, rows=tuple(rows), numbers=frozenset(range(1, len(heads))))


def _drawn(curves: Sequence[Curve], limits: Sequence[Limit], finite: Sequence[float], width: int) -> Drawing:
    unit, unit_name = unit_of(max(finite))
    top, bottom = float(_TOP), float(_HEIGHT - _BOTTOM)
    x = fitted(
        finite,
        58,
        width - 12,
        others=[limit.value_s for limit in limits],
        words=lambda tick: number(tick / unit).rstrip("0").rstrip(".") if tick / unit < 100 else f"{tick / unit:.9g}",
        title=unit_name,
    )
    y = linear(0, 1, bottom, top, words=lambda tick: f"{tick * 100:.3g} %", title="share of requests served within")
    marks: list[Mark] = [*grid(x, y)]
    for q in SHOWN:
        at = y.at(q)
        marks += [
            line(x.start, at, x.end, at, "grid quantile"),
            text(x.end, at + 13, f"P{q * 100:g}", "tick", anchor="end"),
        ]
    for limit in limits:
        if x.holds(limit.value_s):
            at = x.at(limit.value_s)
            marks.append(line(at, top, at, bottom, "limit", title=limit.text))
            if limit.quantile is not None:
                marks.append(path(f"M{at - 4:.1f} {y.at(limit.quantile):.1f}h8", "limit thick", title=limit.text))
    for place, curve in enumerate(curves):
        points = [(x.start, y.at(0)), *_points(curve, x, y)]
        if curve.num_failed < len(curve.ordered):
            points.append((x.end, points[-1][1]))
        marks.append(path(steps(points), f"curve s{place}", title=_said(curve)))
    return Drawing(width=width, height=_HEIGHT, marks=tuple(marks))


def _points(curve: Curve, x: Axis, y: Axis) -> list[Point]:
    n = len(curve.ordered)
    seen = [(value, (rank + 1) / n) for rank, value in enumerate(curve.ordered) if math.isfinite(value)]
    return [(x.at(value), y.at(share)) for value, share in thinned(seen, MOST_STEPS)]
