"""One axis of a chart: from values to positions, its ticks, and what is drawn of both axes; pure.

An axis whose values span more than twenty times is logarithmic (`pareto_plot.scale`), and says so in its title.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from contextlab.reports.charts.drawing import Mark, line, text
from contextlab.reports.pareto.plot import Scale, scale

_PX_PER_X_TICK = 74
_PX_PER_Y_TICK = 34
_GAP = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`start` and `end` are the positions of the scale's ends: of an axis that goes up, `start` is the larger one."""

    scale: Scale
    start: float
    end: float
    words: Callable[[float], str]
    title: str = ""

    def at(self, value: float) -> float:
        """The position of a value; what is beyond an end, or endless, stands at that end."""
        low, high = self.scale.low, self.scale.high
        if self.scale.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value) if value > 0 else -math.inf
        share = 0.0 if math.isnan(value) else max(0.0, min(1.0, (value - low) / (high - low)))
        return self.start + share * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value lies between the ends."""
        return self.scale.low <= value <= self.scale.high

    def ticks(self, px_per_tick: float) -> list[float]:
        """Round values, not nearer to each other than that."""
        return self.scale.ticks(max(2, int(abs(self.end - self.start) / px_per_tick)))

    @property
    def shown_title(self) -> str:
        """What stands at the axis."""
        return self.title + (", log scale" if self.scale.is_log else "")


def fitted(
    values: Sequence[float],
    start: float,
    end: float,
    *,
    others: Iterable[float] = (),
    words: Callable[[float], str] = "{:.9g}".format,
    title: str = "",
) -> Axis:
    """An axis that holds all the values, and the others where they are near."""
    return Axis(
        scale=scale(values, list(others), max(2, int(abs(end - start)))),
        start=start,
        end=end,
        words=words,
        title=title,
    )


def linear(
    low: float, high: float, start: float, end: float, words: Callable[[float], str] = "{:.9g}".format, title: str = ""
) -> Axis:
    """An axis between two values."""
    cells = max(2, int(abs(end - start)))
    return Axis(
        scale=Scale(low, max(high, low + 1e-9), cells, is_log=False), start=start, end=end, words=words, title=title
    )


def margin(*axes: Axis) -> float:
    """How much room the words at the ticks of upright axes take."""
    widest = max((len(axis.words(tick)) for axis in axes for tick in axis.ticks(_PX_PER_Y_TICK)), default=1)
    return 12.0 + 7.0 * widest


def grid(x: Axis, y: Axis, *, x_words: bool = True) -> list[Mark]:
    """Lines at the ticks of y, words at those of both axes, and the titles: y's above it, x's under its right end."""
    marks = []
    for tick in y.ticks(_PX_PER_Y_TICK):
        at = y.at(tick)
        marks.append(line(x.start, at, x.end, at, "grid"))
        marks.append(text(x.start - _GAP, at + 4, y.words(tick), "tick", anchor="end"))
    if y.title:
        marks.append(text(0, y.end - 10, y.shown_title, "title"))
    marks.append(line(x.start, y.start, x.end, y.start, "axis"))
    return marks + (ground(x, y.start) if x_words else [])


def ground(x: Axis, y_px: float) -> list[Mark]:
    """The ticks of the level axis under a line at `y_px`, their words, and the title."""
    marks = []
    for tick in x.ticks(_PX_PER_X_TICK):
        at = x.at(tick)
        anchor = "end" if at > x.end - 12 else "start" if at < x.start + 6 else "middle"
        marks.append(line(at, y_px, at, y_px + 4, "axis"))
        marks.append(text(at, y_px + 17, x.words(tick), "tick", anchor=anchor))
    if x.title:
        marks.append(text(x.end, y_px + 34, x.shown_title, "title", anchor="end"))
    return marks
