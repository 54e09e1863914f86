"""The outcomes matrix of a terminal: a row a scenario, a column an outcome, the probes in the cells.

Outcome names are long and never shortened, so the matrix has three forms, the first that fits:
names over their columns, names on a ladder over narrow columns, and names under each scenario.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from contextlab.model import Outcome, Verdict
from contextlab.reports.parts import grouping
from contextlab.reports.parts.grouping import Cells
from contextlab.reports.parts.layout import GAP, labelled, ladder, placed, wrapped
from contextlab.reports.parts.wording import COLOURS, MARKS, clean

_NONE = Text("·", "dim")
_RULE = Text("│", "dim")


def matrix(cells: Cells, width: int) -> list[Text]:
    """The matrix as lines of at most `width` cells; no lines where no probe has an outcome."""
    outcomes = grouping.outcomes(cells)
    heads = [Text(outcome.name, "dim") for outcome in outcomes]
    names = [_name(scenario, row) for scenario, row in cells.items()]
    table = [[_cell(row.get(outcome, {})) for outcome in outcomes] for row in cells.values()]
    if not table:
        return []
    margin = max(name.cell_len for name in names) + GAP
    narrow = [max(cell.cell_len for cell in column) for column in zip(*table, strict=True)]
    wide = [max(cells, head.cell_len) for cells, head in zip(narrow, heads, strict=True)]

    starts = _starts(margin, wide)
    if starts[-1] + wide[-1] <= width:
        return [placed([Text(), *heads], [0, *starts]), *_rows(names, table, starts)]
    starts = _starts(margin, narrow)
    if max(start + cells for start, cells in zip(starts, wide, strict=True)) <= width:
        return [*ladder(heads, starts, _RULE), *_rows(names, table, starts)]
    return [line for name, row in zip(names, cells.values(), strict=True) for line in _in_words(name, row, width)]


def _starts(margin: int, widths: Sequence[int]) -> list[int]:
    return [margin + sum(widths[:column]) + GAP * column for column in range(len(widths))]


def _rows(names: Sequence[Text], table: Sequence[Sequence[Text]], starts: Sequence[int]) -> list[Text]:
    return [placed([name, *row], [0, *starts]) for name, row in zip(names, table, strict=True)]


def _name(scenario: str, row: Mapping[Outcome, Mapping[Verdict, int]]) -> Text:
    verdict = grouping.worst(row)
    return Text.assemble("  ", (MARKS[verdict], COLOURS[verdict]), f" {clean(scenario)}")


def _cell(counts: Mapping[Verdict, int]) -> Text:
    """`✗ 2`, or `✗ 2 ✓ 1` where the same outcome was allowed to some probes and not to others."""
    if not counts:
        return _NONE
    marked = [Text(f"{MARKS[verdict]} {counts[verdict]}", COLOURS[verdict]) for verdict in sorted(counts, reverse=True)]
    return Text(" ").join(marked)


def _in_words(name: Text, row: Mapping[Outcome, Mapping[Verdict, int]], width: int) -> list[Text]:
    """The scenario's name, and under it `✓ 4 OK, ✗ 2 SHIFTED`."""
    words = Text(", ").join([_cell(row[outcome]) + Text(f" {outcome}") for outcome in sorted(row)])
    return [*wrapped(name, width), *labelled(Text(), wrapped(words, width - 6), 6)]
