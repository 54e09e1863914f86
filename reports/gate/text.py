"""The gate of a run in a terminal: a table with a row a metric, what the verdict rests on; elsewhere plain rows.

COUNTED   ✗ over.outcome · DIFFERS · REJECTED → TRUNCATED_HEAD
METRICS   ✗ ttft_p50 ↓  REGRESSED  123 ms  141 ms  +14%  +9.8% to +18.9%  5%  ≥ 8.4%
              worse by more than the margin, and again in 10 fresh blocks (+13% there)
RESTS ON  equal, failed, plan, load, host, what was left out or waived
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from contextlab.model import Run, Verdict
from contextlab.reports.chaos.words import NONE
from contextlab.reports.gate import facts as gate_facts
from contextlab.reports.gate.facts import Row, Shown
from contextlab.reports.parts.layout import GAP, MARK_CELLS, flowing, grid, labelled, wrapped
from contextlab.reports.parts.wording import COLOURS, MARKS, clean

_LABEL = 14
_REPORTED = "·"


def sections(run: Run, width: int, prose: int) -> Iterator[tuple[str, list[Text]]]:
    """(title, lines) of a gate's part of the report in a terminal; sentences are as wide as `prose`."""
    one, damage = gate_facts.shown(run)
    if one is None:
        if damage:
            yield "gate", wrapped(Text(f"  {clean(damage)}"), prose)
        return
    if one.stored.begins.calibrates:
        yield "noise of a pair", table(gate_facts.noises(one), width, prose, change="noise")
    else:
        yield (
            "counted",
            [line for row in one.counted for line in (*_stacked(row, width), *_reason(row, prose, told=True))],
        )
        yield "metrics", [*table(one.metrics, width, prose), *_legend(one.metrics)]
        yield "budgets", table(one.budgets, width, prose, change="")
    yield "rests on", _facts(one, prose)


def lines(run: Run) -> Iterator[Iterator[str]]:
    """The same as plain rows, in groups."""
    one, damage = gate_facts.shown(run)
    if one is None:
        if damage:
            yield iter([f"gate: {clean(damage)}"])
        return
    rows = (*one.counted, *one.metrics, *one.budgets)
    rows = tuple(gate_facts.noises(one)) if one.stored.begins.calibrates else rows
    yield (line for row in rows for line in _plain(row))
    yield (f"{label}: {words}" for label, every in gate_facts.facts(one) for words in every)


def table(rows: Sequence[Row], width: int, prose: int, *, change: str = "change") -> list[Text]:
    """The rows as lines of at most `width` cells: in columns where they fit, else each in lines of its own.

    `change`: the head of that column.
    """
    if not rows:
        return []
    wide = ("", "", "base", "candidate", change, "interval", "margin", "could see")
    narrow = ("", "", "base", "candidate", change, "margin", "sees")
    for heads, cells in ((wide, _cells), (narrow, _narrow_cells)):
        kept = [
            place
            for place in range(len(heads))
            if place < 2 or any(cells(row)[place].plain != NONE and cells(row)[place] for row in rows)
        ]
        made = [[Text(heads[place], "dim") for place in kept], *([cells(row)[place] for place in kept] for row in rows)]
        if _needed(made) <= width - MARK_CELLS:
            right = {where for where, place in enumerate(kept) if place >= 2}
            marks = [Text(), *(_mark(row) for row in rows)]
            drawn = grid(made, width, right=right, marks=marks)
            return _with_reasons(drawn, rows, prose, told=cells is _cells)
    return [line for row in rows for line in (*_stacked(row, width), *_reason(row, prose, told=True))]


def _legend(rows: Sequence[Row]) -> list[Text]:
    """What the mark of a row means that decides nothing."""
    return [Text(f"  {_REPORTED} only reported", "dim")] if any(row.verdict is None for row in rows) else []


def _with_reasons(drawn: list[Text], rows: Sequence[Row], prose: int, *, told: bool) -> list[Text]:
    num_heads = len(drawn) - len(rows)  # none where every head is empty
    found = drawn[:num_heads]
    for line, row in zip(drawn[num_heads:], rows, strict=True):
        found += [line, *_reason(row, prose, told=told)]
    return found


def _reason(row: Row, prose: int, *, told: bool) -> list[Text]:
    """Why, under its row; the interval before it, where no column has `told` that."""
    start = MARK_CELLS + 2
    parts = [part for part in ("" if told else row.interval, clean(row.why)) if part]
    return labelled(Text(), wrapped(Text(" · ".join(parts), "dim"), prose - start), start)


def _cells(row: Row) -> list[Text]:
    return [
        Text(row.name),
        Text(row.word, _style(row)),
        Text(row.base),
        Text(row.candidate),
        Text(row.change),
        Text(row.interval, "dim"),
        Text(row.margin),
        Text(row.sees),
    ]


def _narrow_cells(row: Row) -> list[Text]:
    cells = _cells(row)
    return [*cells[:5], *cells[6:]]


def _stacked(row: Row, width: int) -> list[Text]:
    parts = [Text(row.name, "bold"), Text(row.word, _style(row)), *map(Text, _words(row))]
    return labelled(_mark(row), flowing(parts, width - MARK_CELLS), MARK_CELLS)


def _words(row: Row) -> list[str]:
    """What the row says, each with its name."""
    found = [f"{row.base} → {row.candidate}"] if row.base != NONE else [row.candidate] if row.candidate != NONE else []
    if row.change != NONE:
        found.append(row.change + (f" ({row.interval})" if row.interval else ""))
    elif row.interval:
        found.append(row.interval)
    found += [f"margin {row.margin}"] if row.margin != NONE else []
    return found + ([f"could see {row.sees}"] if row.sees != NONE else [])


def _plain(row: Row) -> Iterator[str]:
    mark = _REPORTED if row.verdict is None else MARKS[row.verdict]
    yield f"metric: {mark} {clean(row.name)}: {row.word}: {', '.join(clean(words) for words in _words(row))}".rstrip(
        ": "
    )
    if row.why:
        yield f"  why: {clean(row.why)}"


def _mark(row: Row) -> Text:
    if row.verdict is None:
        return Text(f"  {_REPORTED}", "dim")
    return Text.assemble("  ", (MARKS[row.verdict], COLOURS[row.verdict]))


def _style(row: Row) -> str:
    return (
        "dim"
        if row.verdict is None
        else f"bold {COLOURS[row.verdict]}"
        if row.verdict is not Verdict.PASS
        else COLOURS[row.verdict]
    )


def _needed(made: Sequence[Sequence[Text]]) -> int:
    widths: list[int] = [max(text.cell_len for text in column) for column in zip(*made, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1)


def _facts(one: Shown, prose: int) -> list[Text]:
    found: list[Text] = []
    for label, words in gate_facts.facts(one):
        body = flowing([Text(each) for each in words], prose - _LABEL)
        found += labelled(Text(f"    {label}", "dim"), body, _LABEL)
    return found
