"""Lines of styled text put beside and under each other, within a width, with nothing ever cut off.

Words wrap at spaces and fold where they are longer than a line; a column never turns into an
ellipsis. Lines carry no trailing blanks. Only cells are measured here: see `wording` for what is safe
to print, and `terminal` for what is said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GAP = 2
"""Blank cells between two columns."""

MARK_CELLS = 4
"""What stands beside a mark, like `  ✗ `, begins here."""

_MIN_CELLS = 4
"""A column is never narrower, however little room there is."""

_MEASURE = Console(width=1000, force_jupyter=False)  # wrapping asks for a console and uses none of it


def wrapped(text: Text, width: int) -> list[Text]:
    """`text` as lines of at most `width` cells; no lines where it is empty."""
    lines = list(text.wrap(_MEASURE, max(width, 2), overflow="fold")) if text else []
    for line in lines:
        line.rstrip()
    return lines


def command(words: Sequence[str], width: int) -> list[Text]:
    """A shell command broken between its words only, so that what is copied still runs."""
    lines = [words[0]]
    for word in words[1:]:
        if cell_len(f"{lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(word)
    return [Text(line, "bold") for line in lines]


def flowing(parts: Sequence[Text], width: int, between: str = " · ") -> list[Text]:
    """The parts after each other, with lines broken between them where that helps, and within them where it must."""
    lines: list[Text] = []
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        whole = part if last else Text.assemble(part, (between.rstrip(), "dim"))
        if lines and lines[-1].cell_len + 1 + whole.cell_len <= width:
            lines[-1].append(" ").append_text(whole)
        else:
            lines += wrapped(whole, width)
    return lines


def placed(cells: Sequence[Text], starts: Sequence[int]) -> Text:
    """One line with each cell at its column; the first stands at 0, empty ones leave no trace."""
    line = Text()
    for cell, start in zip(cells, starts, strict=True):
        if cell:
            line.pad_right(start - line.cell_len)
            line.append_text(cell)
    return line


def labelled(label: Text, lines: Sequence[Text], start: int) -> list[Text]:
    """The lines at column `start`, the label left of the first of them; nothing where there are no lines."""
    labels = [label, *[Text()] * (len(lines) - 1)]
    return [placed(cells, [0, start]) for cells in zip(labels, lines, strict=False) if any(cells)]


def grid(
    rows: Sequence[Sequence[Text]], width: int, *, right: Collection[int] = (), marks: Sequence[Text] = ()
) -> list[Text]:
    """Rows of as many cells each, in columns as wide as their widest cell, or folded at a fair share of `width`.

    `right` names the columns that are set flush right. `marks`, one a row, stand left of the first column.
    """
    indent = MARK_CELLS if marks else 0
    columns = list(zip(*rows, strict=True))
    natural = [max(cell.cell_len for cell in column) for column in columns]
    widths = _shares(natural, width - indent - GAP * (len(columns) - 1))
    marked = zip(marks or [Text()] * len(rows), rows, strict=True)
    return [line for mark, row in marked for line in labelled(mark, _row(row, widths, right), indent)]


def ladder(names: Sequence[Text], columns: Sequence[int], rule: Text) -> list[Text]:
    """One name a line, each starting at its column, and a rule down from every name above it.

    It heads columns that are much narrower than their names:

        OK
        │    REJECTED
        ✓ 4  ✓ 2
    """
    return [
        placed([*[rule] * step, name], columns[: step + 1])  # (rules of the names above, then the name)
        for step, name in enumerate(names)
    ]


def _shares(natural: Sequence[int], room: int) -> list[int]:
    """A width for each column: what it asks for, or an equal share of what the narrower ones leave."""
    widths = list(natural)
    for served, column in enumerate(sorted(range(len(natural)), key=natural.__getitem__)):
        widths[column] = min(natural[column], max(_MIN_CELLS, room // (len(natural) - served)))
        room -= widths[column]
    return widths


def _row(cells: Sequence[Text], widths: Sequence[int], right: Collection[int]) -> list[Text]:
    lines = []
    for parts in zip_longest(*map(wrapped, cells, widths), fillvalue=Text()):
        starts, start = [], 0
        for column, (part, width) in enumerate(zip(parts, widths, strict=True)):
            starts.append(start + (width - part.cell_len if column in right else 0))
            start += width + GAP
        lines.append(placed(parts, starts))
    return lines
