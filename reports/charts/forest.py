"""How much worse each metric of a gate became, with its interval, against the margin; pure.

                 better  |  worse      margin
    ttft_p50  ↓          |      ────●───|──         an interval that lies beyond the margin is a regression
    itl_p50   ↓        ──●──    |                   one that ends before it is shown to be none

Whatever a metric counts, worse is to the right: a ratio of what should be more is turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextlab.reports.charts.axis import Axis, ground, linear
from contextlab.reports.charts.drawing import (
    NARROW,
    WIDE,
    Chart,
    Drawing,
    Key,
    Mark,
    Table,
    line,
    rect,
    shortened,
    text,
)
from contextlab.reports.pareto.figures import signed

MOST_WORSE = 3.0
"""The axis ends where something is so many times worse or better; what lies beyond is cut there."""
_ROW, _TOP = 42, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One metric: relative change for the worse (0.1 is 10 % worse), the ends of its interval, the margin.

    `look`: "failed", "unknown", "held", or "" where it is only reported.
    """

    name: str
    word: str
    worse: float
    low: float
    high: float
    margin: float
    look: str = ""


def forest(effects: Sequence[Effect], says: str, table: Table, confidence: float) -> Chart | None:
    """The chart; None where nothing was compared."""
    if not effects:
        return None
    return Chart(
        name="forest",
        title="Change for the worse, against the margin",
        says=says,
        wide=_drawn(effects, WIDE),
        narrow=_drawn(effects, NARROW),
        table=table,
        keys=(
            Key(shape="area", look="broken", words="beyond the margin"),
            Key(shape="line", look="limit", words="margin"),
        ),
        caption=f"Intervals of {confidence * 100:g} %. Right of the middle line is worse, whatever is counted.",
    )


def _drawn(effects: Sequence[Effect], width: int) -> Drawing:
    edges = [end for one in effects for end in (one.low, one.high, one.worse, 1.4 * one.margin, -one.margin)]
    low, high = (max(-MOST_WORSE, min(MOST_WORSE, pick(edges))) for pick in (min, max))
    pad = 0.04 * (high - low)
    bottom = _TOP + _ROW * len(effects)
    x = linear(low - pad, high + pad, 8, width - 8, words=signed, title="worse →")
    marks: list[Mark] = []
    for row, one in enumerate(effects):
        marks += _row(x, one, _TOP + _ROW * row, width)
    zero = x.at(0.0)
    marks += [line(zero, _TOP - 6, zero, bottom, "axis"), text(zero, _TOP - 10, "no change", "tick", anchor="middle")]
    marks += [line(x.start, bottom, x.end, bottom, "axis"), *ground(x, bottom)]
    return Drawing(width=width, height=bottom + 40, marks=tuple(marks))


def _row(x: Axis, one: Effect, y: float, width: int) -> list[Mark]:
    at, middle = x.at(one.margin), y + 27.0
    title = f"{one.name}: {signed(one.worse)} worse ({signed(one.low)} to {signed(one.high)}), {one.word}"
    marks = [
        rect(at, y + 18, x.end - at, 18, "broken"),
        line(at, y + 18, at, y + 36, "limit", title=f"margin {signed(one.margin)}"),
        line(x.at(one.low), middle, x.at(one.high), middle, f"effect {one.look}".strip(), title=title),
        text(8, y + 12, shortened(f"{one.name}  {one.word}", width - 16), f"effect-name {one.look}".strip()),
    ]
    dot = {"class": f"effect {one.look}".strip(), "cx": f"{x.at(one.worse):.1f}", "cy": f"{middle:.1f}", "r": "5"}
    return [*marks, Mark(tag="circle", attributes=dot, title=title)]
