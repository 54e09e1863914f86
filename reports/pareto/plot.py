"""Points in the plane as lines of a terminal: axes with units, crosses for intervals, a line where a limit is; pure.

    tokens_per_s, tokens/s, more is better
    1000 ┤         ┆     ──●──
         │     K   ┆
     500 ┤  ★      ┆  ∙
         └──┬──────┬───────────
            20     50            p99 ttft, ms, less is better

An axis whose values span more than twenty times is logarithmic. The sign of the greatest `rank` is seen where several
share a cell; intervals are drawn where they are larger than a cell, and end at the edge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from contextlab.reports.parts.layout import wrapped

LOG_SPAN = 20.0
"""Values that span more than this are drawn by their logarithm."""
WIDEST_LOG_SPAN = 1e12
"""Beyond that the smaller ones are nothing beside the larger ones, and their labels would be longer than the plot."""
PAD = 0.05
REACH = 0.3
"""An interval, or a limit, widens the axis by at most this share of the values' span."""
DOWN, ACROSS = "┆", "╌"
"""The line of a limit."""
_MAX_TICKS = 12
_TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A point: values, ends of their intervals (infinite: not known), and its sign."""

    x: float
    y: float
    sign: str
    rank: int = 0
    style: str = ""
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One axis: what stands at it, and limits by name, which are drawn as lines."""

    title: str
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """What was drawn. `num_hidden`: spots behind others. `beyond`: names of limits that lie outside."""

    lines: tuple[Text, ...] = ()
    num_hidden: int = 0
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to cells 0 … cells − 1."""

    low: float
    high: float
    cells: int
    is_log: bool

    def at(self, value: float) -> int:
        """The cell of a value; beyond the edge, or not finite, the cell outside it (−1, `cells`)."""
        low, high, value = (_log(each) if self.is_log else each for each in (self.low, self.high, value))
        if math.isnan(value):
            return -1
        share = (value - low) / (high - low)
        if not 0 <= share <= 1:
            return -1 if share < 0 else self.cells
        return min(self.cells - 1, int(share * self.cells))

    def ticks(self, most: int) -> list[float]:
        """At most so many round values within it."""
        found = (_powers if self.is_log else _multiples)(self.low, self.high, most)
        return [tick for tick in found if 0 <= self.at(tick) < self.cells]


def scale(values: Sequence[float], others: Sequence[float], cells: int) -> Scale:
    """A scale that holds the values, and the others as far as they are near."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    is_log = low > 0 and LOG_SPAN < high / low <= WIDEST_LOG_SPAN
    low, high = (_log(low), _log(high)) if is_log else (low, high)
    size = max(abs(low), abs(high), _TINY)
    span = high - low if high - low > size * _TINY else size * 0.2
    near = [_log(value) if is_log else value for value in others if math.isfinite(value) and (value > 0 or not is_log)]
    least = min([low, *(max(value, low - REACH * span) for value in near)])
    most = max([high, *(min(value, high + REACH * span) for value in near)])
    floor = 0.0 if not is_log and low >= 0 else -math.inf
    least, most = max(floor, least - PAD * span), most + PAD * span
    if is_log:
        return Scale(math.exp(least), math.exp(most), cells, is_log)
    return Scale(least, most, cells, is_log)


def scatter(spots: Sequence[Spot], across: Side, up: Side, width: int, height: int) -> Plot:
    """The spots in `height` lines of `width` cells, and the axes; no lines where there are no spots."""
    if not spots:
        return Plot()
    y_scale = scale([spot.y for spot in spots], _reaching([s.y_ends for s in spots], up), height)
    labels = {y_scale.at(tick): _label(tick) for tick in y_scale.ticks(max(2, height // 3))}
    margin = max(map(len, labels.values()), default=0) + 1
    cells = max(8, width - margin - 1)
    x_scale = scale([spot.x for spot in spots], _reaching([s.x_ends for s in spots], across), cells)
    canvas = _canvas(spots, x_scale, y_scale, across, up)
    lines = wrapped(_title(up, y_scale), width)
    for row in reversed(range(height)):
        label = labels.get(row, "")
        line = Text(f"{label:>{margin - 1}} {'┤' if label else '│'}", "dim")
        for sign, style in canvas[row]:
            line.append(sign, style)
        line.rstrip()
        lines.append(line)
    seen = {(x_scale.at(spot.x), y_scale.at(spot.y)) for spot in spots}
    limits = [(x_scale, name, limit) for name, limit in across.limits.items()]
    limits += [(y_scale, name, limit) for name, limit in up.limits.items()]
    return Plot(
        lines=(*lines, *_foot(x_scale, across, margin, cells)),
        num_hidden=len(spots) - len(seen),
        beyond=tuple(name for along, name, limit in limits if not 0 <= along.at(limit) < along.cells),
    )


def _reaching(intervals: Sequence[tuple[float, float] | None], side: Side) -> list[float]:
    return [*(end for one in intervals if one is not None for end in one), *side.limits.values()]


def _canvas(
    spots: Sequence[Spot], x_scale: Scale, y_scale: Scale, across: Side, up: Side
) -> list[list[tuple[str, str]]]:
    """The cells, lowest row first: limits, above them the crosses, above them the signs."""
    canvas = [[(" ", "")] * x_scale.cells for _ in range(y_scale.cells)]
    for limit in up.limits.values():
        row = y_scale.at(limit)
        if 0 <= row < y_scale.cells:
            canvas[row] = [(ACROSS, "yellow")] * x_scale.cells
    for limit in across.limits.values():
        column = x_scale.at(limit)
        if 0 <= column < x_scale.cells:
            for line in canvas:
                line[column] = (DOWN, "yellow")
    for spot in spots:
        row, column = y_scale.at(spot.y), x_scale.at(spot.x)
        for cell in _reach(spot.x_ends, x_scale):
            canvas[row][cell] = ("─", "dim")
        for cell in _reach(spot.y_ends, y_scale):
            canvas[cell][column] = ("│", "dim")
    for spot in sorted(spots, key=lambda each: each.rank):
        canvas[y_scale.at(spot.y)][x_scale.at(spot.x)] = (spot.sign, spot.style)
    return canvas


def _reach(ends: tuple[float, float] | None, along: Scale) -> range:
    """The cells of an interval, none where it is not known or within one cell."""
    if ends is None or not all(map(math.isfinite, ends)):
        return range(0)
    first, last = (max(0, min(along.cells - 1, along.at(end))) for end in ends)
    return range(first, last + 1) if last > first else range(0)


# ── axes ─────────────────────────────────────────────────────────────────────────────────────────


def _title(side: Side, along: Scale) -> Text:
    return Text(side.title + (", log scale" if along.is_log else ""), "dim")


def _foot(x_scale: Scale, across: Side, margin: int, cells: int) -> list[Text]:
    """The axis with its ticks, their values, and the title flush right under them."""
    axis, values = ["─"] * cells, [" "] * (cells + margin + 1)
    free = 0
    for tick in x_scale.ticks(min(_MAX_TICKS, max(2, cells // 10))):
        column, words = x_scale.at(tick), _label(tick)
        start = max(0, min(len(values) - len(words), margin + 1 + column - (len(words) - 1) // 2))
        if start < free:
            continue
        axis[column] = "┬"
        values[start : start + len(words)] = words
        free = start + len(words) + 2
    title = _title(across, x_scale)
    titles = wrapped(title, margin + 1 + cells)
    for line in titles:
        line.pad_left(max(0, margin + 1 + cells - line.cell_len))
    return [Text(f"{'':{margin}}└{''.join(axis)}", "dim"), Text("".join(values).rstrip(), "dim"), *titles]


def _label(tick: float) -> str:
    return f"{tick:.9g}"


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _multiples(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    step = 10.0 ** math.floor(math.log10((high - low) / max(1, most)))
    while (last := math.floor(high / step)) - (first := math.ceil(low / step)) >= most:
        step *= 2.5 if f"{step:.0e}".startswith("2") else 2.0
    return [float(f"{step * index:.12g}") for index in range(first, last + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 of every power of ten, or only 1, or only some of these."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        found = [float(f"{tick:.12g}") for tick in found if low <= tick <= high]
        if len(found) <= most:
            break
    return found[:: max(1, math.ceil(len(found) / most))]
