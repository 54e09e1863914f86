"""Time from left to right in the cells of one line: how much was under way, where faults acted, what failed.

Pure: times and numbers in, characters out. A cell covers an equal share of the time; what it shows is the most that
was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from rich.text import Text

LEVELS = "▁▂▃▄▅▆▇█"
QUIET, SHADES = "─", "░▒▓"
"""A cell of the track without a fault; with one to come; with one that acts, or several."""
FAILED, RECOVERED, STOPPED, DIED = "✗", "R", "S", "D"
"""Marks on the track: a request failed; the steady state held again; a safety condition ended the arm; the target's
process died."""


def cell_of(at_s: float, length_s: float, num_cells: int) -> int:
    """The cell that a time falls into; times outside go to the nearest one."""
    if not length_s > 0:
        return 0
    return max(0, min(num_cells - 1, int(at_s / length_s * num_cells)))


def fitted(values: Sequence[int], num_cells: int) -> list[int]:
    """The values in that many cells: the largest of those that share one, repeated where one fills several."""
    if not values:
        return [0] * num_cells
    edges = [cell * len(values) // num_cells for cell in range(num_cells + 1)]
    return [max(values[begin : max(begin + 1, end)]) for begin, end in pairwise(edges)]


def sparkline(values: Sequence[int]) -> str:
    """One character for each value, its height in eighths of the largest."""
    top = max(values, default=0)
    if top <= 0:
        return LEVELS[0] * len(values)
    return "".join(LEVELS[min(7, value * 8 // top)] for value in values)


def shades(windows_s: Iterable[tuple[float, float]], length_s: float, num_cells: int) -> list[int]:
    """How many of the windows (begin, end) reach into each cell; one that is short still fills a cell."""
    found = [0] * num_cells
    for begin_s, end_s in windows_s:
        first, last = cell_of(begin_s, length_s, num_cells), cell_of(end_s, length_s, num_cells)
        if last > first and end_s <= last * length_s / num_cells:
            last -= 1  # it ends where that cell begins
        for cell in range(first, last + 1):
            found[cell] += 1
    return found


def track(acting: Sequence[int], marks: Mapping[int, tuple[str, str]], now: int | None = None) -> Text:
    """The line of faults: shaded where they act, with marks (character, style) in their cells.

    `now`: the cell that time has come to; what lies beyond is drawn lighter. None: all of it is over.
    """
    line = Text()
    for cell, num_faults in enumerate(acting):
        to_come = now is not None and cell > now
        if mark := marks.get(cell):
            line.append(*mark)
        elif num_faults:
            line.append(SHADES[0] if to_come else SHADES[min(num_faults, 2)], "yellow")
        else:
            line.append("·" if to_come else QUIET, "dim")
    return line


def graph(values: Sequence[int], acting: Sequence[int]) -> Text:
    """The sparkline, in another colour where faults act."""
    line = Text(sparkline(values), "cyan")
    for cell, num_faults in enumerate(acting):
        if num_faults:
            line.stylize("yellow", cell, cell + 1)
    return line
