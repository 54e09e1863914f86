"""Where a process spent its time, from the stacks that py-spy sampled (`a;b;c 12`, a line each); pure.

all                 100 %, the outermost call at the top
main      97 %
generate  80 %  | poll 17 %
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from contextlab.reports.chaos.words import percent
from contextlab.reports.charts.drawing import NARROW, WIDE, Chart, Drawing, Mark, Table, rect, shortened, text
from contextlab.reports.parts.wording import clean

LEAST_SHARE = 0.003
"""Calls in which less of the time was spent are left out, as are those that are deeper than `MOST_DEEP`."""
MOST_DEEP = 36
MOST_ROWS = 25
_ROW, _CHAR_PX = 18, 6.4


@dataclass(slots=True)
class _Call:
    count: int = 0
    own: int = 0
    within: dict[str, _Call] = field(default_factory=dict)


def flame(name: str, title: str, stacks: Iterable[str]) -> Chart | None:
    """The chart; None where no line is a stack."""
    root = _Call()
    for one in stacks:
        words, _, count = one.rpartition(" ")
        if not words or not count.isdecimal():
            continue
        root.count += int(count)
        call = root
        for frame in words.split(";")[:MOST_DEEP]:
            call = call.within.setdefault(frame, _Call())
            call.count += int(count)
        call.own += int(count)
    if not root.count:
        return None
    own: dict[str, int] = {}
    _sum_own(root, own)
    rows = sorted(own.items(), key=lambda item: -item[1])[:MOST_ROWS]
    told = tuple((clean(frame), percent(round(count / root.count, 3)), f"{count}") for frame, count in rows)
    says = f"{root.count} samples; most of them ended in {told[0][0]}, {told[0][1]}." if told else ""
    return Chart(
        name=name,
        title=title,
        says=says,
        wide=_drawn(root, WIDE),
        narrow=_drawn(root, NARROW),
        table=Table(heads=("function", "of the time", "samples"), rows=told, numbers=frozenset({1, 2})),
        caption="The outermost call at the top; a bar is as wide as the share of samples in it. Calls below "
        f"{percent(LEAST_SHARE)} are left out.",
    )


def _sum_own(call: _Call, own: dict[str, int]) -> None:
    for frame, below in call.within.items():
        if below.own:
            own[frame] = own.get(frame, 0) + below.own
        _sum_own(below, own)


def _drawn(root: _Call, width: int) -> Drawing:
    marks: list[Mark] = []
    depth = _bars(marks, root, root.count, 0.0, width, 0)
    return Drawing(width=width, height=max(1, depth) * _ROW + 2, marks=tuple(marks))


def _bars(marks: list[Mark], call: _Call, total: int, start: float, width: float, row: int) -> int:
    """Draw the calls within one; how many rows there are then."""
    deepest = row
    for frame, below in sorted(call.within.items()):
        share = below.count / total
        if share >= LEAST_SHARE:
            size, name = share * width, clean(frame)
            title = f"{name}: {percent(round(share, 3))}"
            marks.append(rect(start, row * _ROW, size - 1, _ROW - 1, f"flame f{row % 4}", title=title))
            if size > 8 + 4 * _CHAR_PX:
                marks.append(text(start + 4, row * _ROW + 13, shortened(name, size - 8, _CHAR_PX), "flamed"))
            deepest = max(deepest, row + 1, _bars(marks, below, total, start, width, row + 1))
            start += size
    return deepest
