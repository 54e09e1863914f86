"""The table of an experiment: a metric a row, a phase a column, each number with its interval, in what width there is.

wide      TTFT p50   42.1 ms  41.7–42.4   …         intervals beside their numbers
narrow    TTFT p50   42.1 ms   …                    intervals under them
          stacked    phase after phase, in lines    where not even that fits
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from contextlab.experiment import Phase
from contextlab.reports.chaos.figures import Figure, Row, Unit
from contextlab.reports.chaos.words import NEVER, NONE, between, number, percent, seconds, times, unit_of
from contextlab.reports.parts.layout import GAP, flowing, grid, labelled
from contextlab.reports.parts.wording import clean

INSUFFICIENT = "insufficient"
"""Stands where there are too few requests for an interval; a ratio of such numbers is left out."""
RATIO = "ratio"
_STYLES = {Phase.DURING: "yellow"}


def cell(figure: Figure | None, unit: Unit) -> tuple[str, str]:
    """A figure and its interval, `("42.1 ms", "41.7–42.4")`; the interval is in the unit of the number, "" if none."""
    if figure is None or figure.value is None:
        return NONE, ""
    if not figure.enough:
        return NONE if unit is Unit.RATIO else INSUFFICIENT, ""
    value, has_ends = figure.value, figure.low is not None or figure.high is not None
    match unit:
        case Unit.SECONDS if math.isinf(value):
            return NEVER, f"> {seconds(figure.low)}" if figure.low is not None and math.isfinite(figure.low) else ""
        case Unit.SECONDS:
            scale, _ = unit_of(value)
            return seconds(value), between(figure.low, figure.high, scale) if has_ends else ""
        case Unit.SHARE:
            ends = f"{_bare(figure.low, '0')}–{_bare(figure.high, '100')}%" if has_ends else ""
            return percent(value), ends
        case Unit.PER_S:
            text = f"{number(value)}/s"
        case Unit.RATIO:
            ends = f"{times(figure.low)}–{times(figure.high)}" if has_ends and math.isfinite(value) else ""
            return f"{times(value)}×", ends
        case _:
            text = f"{value:.0f}"
    return text, between(figure.low, figure.high) if has_ends else ""


def needs(rows: Sequence[Row]) -> str:
    """`p50 takes 6, p99 takes 368`: how many requests a phase must have for what is insufficient; "" if nothing is."""
    found = {
        f"{row.name.rpartition(' ')[2]} takes {figure.needs}"
        for row in rows
        for figure in row.figures.values()
        if figure.needs is not None
    }
    return ", ".join(sorted(found))


def has_endless(rows: Sequence[Row]) -> bool:
    """Whether a number of theirs is beyond every request that came to an end."""
    return any(figure.value == math.inf for row in rows for figure in row.figures.values())


def _bare(share: float | None, unknown: str) -> str:
    """An end of an interval in percent: an estimate, and so rounded as one."""
    return unknown if share is None else f"{round(share * 100, 2):.3g}"


def table(rows: Sequence[Row], phases: Sequence[Phase], width: int) -> list[Text]:
    """The rows as lines of at most `width` cells; no lines where there is nothing to show."""
    if not rows or not phases:
        return []
    ratio = any(row.ratio is not None for row in rows)
    wide, narrow = _wide(rows, phases, ratio), _narrow(rows, phases, ratio)
    if _needed(wide) <= width:
        return grid(wide, width, right=range(1, len(wide[0]), 2))  # (intervals stand left in their columns)
    if _needed(narrow) <= width:
        return grid(narrow, width, right=range(1, len(narrow[0])))
    return _stacked(rows, phases, width)


def sentences(row: Row, phases: Sequence[Phase]) -> list[str]:
    """The row in words, a phase each: `control 42.1 ms (41.7–42.4)`."""
    parts = [(str(phase), *cell(row.figures.get(phase), row.unit)) for phase in phases]
    if all(value == INSUFFICIENT for _, value, _ in parts):
        return [f"{INSUFFICIENT} in every phase"] if len(parts) > 1 else [INSUFFICIENT]
    if row.ratio is not None:
        parts.append((RATIO, *cell(row.ratio, Unit.RATIO)))
    return [f"{name} {value}{f' ({ends})' if ends else ''}" for name, value, ends in parts]


def _cells(row: Row, phases: Sequence[Phase], ratio: bool) -> list[tuple[Text, Text]]:
    """The numbers of a row, each with its interval, the ratio last."""
    columns = [(cell(row.figures.get(phase), row.unit), _STYLES.get(phase, "")) for phase in phases]
    if ratio:
        columns.append((cell(row.ratio, Unit.RATIO) if row.ratio is not None else ("", ""), ""))
    return [
        (Text(value, "dim" if value in (NONE, INSUFFICIENT) else style), Text(ends, "dim"))
        for (value, ends), style in columns
    ]


def _heads(phases: Sequence[Phase], ratio: bool) -> list[Text]:
    return [Text(str(name), "bold") for name in (*phases, *([RATIO] if ratio else []))]


def _wide(rows: Sequence[Row], phases: Sequence[Phase], ratio: bool) -> list[list[Text]]:
    heads = [Text(), *(text for head in _heads(phases, ratio) for text in (head, Text()))]
    cells = [[Text(row.name), *(text for pair in _cells(row, phases, ratio) for text in pair)] for row in rows]
    return [heads, *cells]


def _narrow(rows: Sequence[Row], phases: Sequence[Phase], ratio: bool) -> list[list[Text]]:
    made = [[Text(), *_heads(phases, ratio)]]
    for row in rows:
        cells = _cells(row, phases, ratio)
        made.append([Text(row.name), *(value for value, _ in cells)])
        if any(ends for _, ends in cells):
            made.append([Text(), *(ends for _, ends in cells)])
    return made


def _needed(made: Sequence[Sequence[Text]]) -> int:
    widths: list[int] = [max(text.cell_len for text in column) for column in zip(*made, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1)


def _stacked(rows: Sequence[Row], phases: Sequence[Phase], width: int) -> list[Text]:
    lines: list[Text] = []
    for row in rows:
        start = max(len(each.name) for each in rows) + GAP
        parts = [Text(words) for words in sentences(row, phases)]
        lines += labelled(Text(clean(row.name), "dim"), flowing(parts, width - start), start)
    return lines
