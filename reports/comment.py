"""A run as the comment that CI keeps on a pull request: one short table, under a mark by which it is found again.

The first line is an HTML comment that holds the command and the target; a workflow looks for it and replaces that
comment instead of adding one more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from contextlab.model import Run, Verdict
from contextlab.reports.parts import figures, grouping, headline, summary
from contextlab.reports.parts.cases import slug
from contextlab.reports.parts.markdown_text import code, prose, put, table
from contextlab.reports.parts.wording import MARKS, listed, num

MAX_ROWS = 8
MAX_CHARS = 160
"""Of a reason, in its row; the report has all of it."""
MAX_SENTENCE_CHARS = 400


def write(run: Run, out: TextIO) -> None:
    """Write the comment: at most `MAX_ROWS` rows, a few kilobytes whatever the run holds."""
    put(lines(run), out)


def marker(run: Run) -> str:
    """The hidden line: the same for every run of one command on one target."""
    return f"<!-- contextlab: {slug(summary.command(run))} {slug(summary.target(run))[:80]} -->"


def lines(run: Run) -> Iterator[str]:
    """The comment, line by line."""
    yield marker(run)
    sentence = _cut(headline.sentence(run), MAX_SENTENCE_CHARS)
    yield f"**{MARKS[summary.verdict(run)]} {headline.word(run)}** {prose(sentence)}"
    yield ""
    heads, rows = _rows(run)
    yield from table(heads, rows[:MAX_ROWS])
    if len(rows) > MAX_ROWS:
        yield ""
        yield f"and {len(rows) - MAX_ROWS} more in the report"
    if rows:
        yield ""
    yield f"{prose(summary.tally_words(run))} · {prose(_cut(summary.exit_words(run), MAX_CHARS))}"


def _rows(run: Run) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The metrics of a gate, the settings of a sweep; else what failed or could not be told, the worst first."""
    if summary.command(run) in ("gate", "pareto") and (tables := figures.tables(run)):
        _, heads, rows = tables[0]
        return tuple(map(prose, heads)), [tuple(prose(_cut(cell, MAX_CHARS)) for cell in row) for row in rows]
    found: list[tuple[str, ...]] = []
    for wanted in (Verdict.FAIL, Verdict.UNKNOWN):
        for group in grouping.groups(run, wanted):
            finding = group.example
            found.append(
                (
                    f"{MARKS[wanted]} {finding.outcome}",
                    code(_cut(listed(list(group.probes), 2), 80)),
                    num(group.num_probes, grouping.noun(run)),
                    prose(_cut(finding.why or finding.outcome.value, MAX_CHARS)),
                )
            )
    return ("outcome", "scenario", "how often", "why"), found


def _cut(text: str, most: int) -> str:
    """The start of a text, and how much more there is."""
    return text if len(text) <= most else f"{text[:most]} (and {len(text) - most} more characters)"
