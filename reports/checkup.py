"""What a check-up found, as text or as JSON. No writer of runs: it has checks to write, not a run.

On a terminal: a table for each section. Anywhere else: `section: mark name: detail` rows, one check a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TextIO

from rich.text import Text

from contextlab.analysis.checkup import Check, Grade, exit_code, summary
from contextlab.model import ContextlabError
from contextlab.reports.parts.layout import labelled, wrapped
from contextlab.reports.parts.output import MAX_PROSE, write_lines
from contextlab.reports.parts.wording import clean

SCHEMA = "contextlab.doctor/1"
MARKS = {Grade.OK: "✓", Grade.WARN: "!", Grade.FAIL: "✗", Grade.SKIP: "–"}
COLOURS = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "red", Grade.SKIP: "dim"}
_NAME_CELLS = 14
_INDENT = 2


def write_text(checks: Sequence[Check], out: TextIO) -> None:
    """Write the report; `out` decides between tables and plain text."""
    write_lines(out, lambda width: _lines(checks, min(width, MAX_PROSE)), lambda: _plain(checks))


def document(target: str | None, checks: Sequence[Check]) -> dict[str, Any]:
    """The JSON document."""
    counts = Counter(one.grade for one in checks)
    return {
        "schema": SCHEMA,
        "command": "doctor",
        "target": target,
        "checks": [
            {"section": one.section, "name": one.name, "grade": one.grade.value, "detail": one.detail, "fix": one.fix}
            for one in checks
        ],
        "counts": {grade.value: counts[grade] for grade in Grade},
        "exit": {"code": exit_code(checks), "reason": summary(checks)},
    }


def failure_document(target: str | None, error: ContextlabError) -> dict[str, Any]:
    """The same keys where nothing was looked at, and `next_step`."""
    exit_ = {"code": error.exit_code, "reason": error.message}
    return {**document(target, ()), "exit": exit_, "next_step": error.next_step}


def _lines(checks: Sequence[Check], width: int) -> Iterator[Text]:
    yield from wrapped(Text(_conclusion(checks), "bold"), width)
    start = _INDENT + 2 + _NAME_CELLS
    for section, members in groupby(checks, key=lambda one: one.section):
        yield Text()
        yield Text(section.upper(), "bold")
        for one in members:
            mark = Text(f"{'':{_INDENT}}{MARKS[one.grade]} ", COLOURS[one.grade]).append(clean(one.name), "default")
            name_cells = start if mark.cell_len < start else mark.cell_len + 1
            body = wrapped(Text(clean(one.detail)), width - name_cells)
            yield from labelled(mark, body, name_cells)
            if one.fix:
                fix = labelled(Text("→ ", "cyan"), wrapped(Text(clean(one.fix), "cyan"), width - start - 2), 2)
                yield from labelled(Text(), fix, start)


def _plain(checks: Sequence[Check]) -> Iterator[str]:
    for one in checks:
        fix = f" → {clean(one.fix)}" if one.fix else ""
        yield f"{one.section}: {MARKS[one.grade]} {clean(one.name)}: {clean(one.detail)}{fix}"
    yield f"exit {exit_code(checks)}: {_conclusion(checks)}"


def _conclusion(checks: Sequence[Check]) -> str:
    return clean(summary(checks))
