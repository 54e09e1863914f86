"""A run as the summary of a CI job: GitHub's Markdown, the verdict first, within what a job summary may hold.

Headings begin at the third level, because the page around it has the first two. What does not fit is counted, never
dropped in silence: the record has it all. `comment` is the same in one short table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO

from contextlab.model import Run, Verdict
from contextlab.reports.chaos.evidence import own
from contextlab.reports.parts import figures, grouping, headline, summary
from contextlab.reports.parts.grouping import Group
from contextlab.reports.parts.markdown_text import code, folded, prose, put, table
from contextlab.reports.parts.wording import COUNTED_AS, MARKS, MAX_REASONS, listed, num, pairs, quote, unsaid, value

MAX_BYTES = 200 << 10
"""GitHub drops a whole summary above 1 MiB, and several steps share it."""
_RESERVE_BYTES = 2 << 10
"""Kept free for the end: what was left out, where it comes from."""
_MAX_PROBES = 12


def write(run: Run, out: TextIO) -> None:
    """Write the summary, smaller than `MAX_BYTES` in UTF-8."""
    put(lines(run), out)


def lines(run: Run) -> list[str]:
    """The summary's lines; blocks that no longer fit are left out whole, and counted."""
    ending = list(_ending(run))
    room = MAX_BYTES - _RESERVE_BYTES - _size(ending)
    kept: list[str] = []
    left_out = 0
    for block in filter(None, _blocks(run)):
        size = _size(block)
        if size <= room:
            kept += [*block, ""]
            room -= size + 1
        else:
            left_out += 1
    if left_out:
        what = num(left_out, "part")
        kept += [f"**{what} left out**: a summary is kept below {MAX_BYTES >> 10} KiB; the record has everything.", ""]
    return [*kept, *ending]


def _blocks(run: Run) -> Iterator[list[str]]:
    yield list(_top(run))
    for title, heads, rows in figures.tables(run):
        yield (
            [f"#### {prose(title)}", "", *table(heads, ([prose(cell) for cell in row] for row in rows))] if rows else []
        )
    if summary.command(run) == "overflow":
        yield _limits(run)
    if summary.command(run) == "gate":  # whose findings are the rows of its table
        return
    yield _outcomes(run)
    for wanted in (Verdict.FAIL, Verdict.UNKNOWN):
        found = grouping.groups(run, wanted)
        yield [f"#### {COUNTED_AS[wanted].capitalize()}"] if found else []
        for place, group in enumerate(found):
            yield list(_group(run, group, is_open=wanted is Verdict.FAIL and place == 0))
    yield _skipped(run)


def _top(run: Run) -> Iterator[str]:
    mark = MARKS[summary.verdict(run)]
    yield f"### {mark} {headline.word(run)}: {prose(headline.sentence(run))}"
    yield ""
    yield f"{prose(summary.tally_words(run))} · {prose(summary.exit_words(run))}"
    if stopped_in := summary.unfinished(run):
        yield ""
        yield f"Stopped in {code(stopped_in)}."
    for note in summary.notes(run):
        yield ""
        yield f"Note: {prose(quote(note))}"


def _limits(run: Run) -> list[str]:
    rows = [
        (
            f"**{value(limit.tokens)}**" if summary.binds(limit, run) else value(limit.tokens),
            prose(str(limit.layer)),
            code(limit.name),
            prose(limit.source),
        )
        for limit in summary.limits(run)
    ]
    found = table(("tokens", "layer", "limit", "said by"), rows)
    if measured := summary.measured_words(run):
        found = [*found, "", prose(f"{measured[0].upper()}{measured[1:]}.")]
    return ["#### Limits", "", *found] if found else []


def _outcomes(run: Run) -> list[str]:
    matrix = grouping.cells(run)
    rows = []
    for scenario, row in matrix.items():
        words = [
            f"{MARKS[verdict]} {row[outcome][verdict]} {outcome}"
            for outcome in grouping.outcomes(matrix)
            for verdict in sorted(row.get(outcome, ()), reverse=True)
        ]
        rows.append((MARKS[grouping.worst(row)], code(scenario), prose(", ".join(words))))
    found = table(("", "scenario", f"{grouping.noun(run)}s by outcome"), rows)
    return ["#### Outcomes", "", *found] if found else []


def _group(run: Run, group: Group, *, is_open: bool) -> Iterator[str]:
    """One cause: opened where it is the worst, so that a reader sees a remedy without a click."""
    finding = group.example
    title = f"<b>{finding.outcome}</b> {prose(finding.outcome.value)}: {num(group.num_probes, grouping.noun(run))}"
    body = list(_group_body(run, group))
    yield from [f"{MARKS[finding.verdict]} {title}", "", *body] if is_open else folded(title, body)


def _group_body(run: Run, group: Group) -> Iterator[str]:
    finding, noun = group.example, grouping.noun(run)
    for reason in group.reasons[:MAX_REASONS]:
        count = f"{num(reason.num_probes, noun)}: " if len(group.reasons) > 1 else ""
        yield f"- **why** {count}{prose(quote(reason.why))}"
    if rest := unsaid(len(group.reasons)):
        yield f"- {prose(rest)}"
    if finding.remedy:
        yield f"- **what to change** {prose(quote(finding.remedy))}"
    yield f"- **layer** {prose(str(finding.layer))}"
    for scenario, probes in group.probes.items():
        yield f"- **{noun}s** {code(scenario)}: {prose(listed(probes, _MAX_PROBES))}"
    if evidence := pairs(own(run, finding.evidence)):
        shown = " · ".join(f"{prose(name)} {code(thing)}" for name, thing in evidence)
        yield f"- **evidence** {shown}"


def _skipped(run: Run) -> list[str]:
    rows = [
        f"- {code(scenario)}{': ' + prose(listed(probes, _MAX_PROBES)) if probes else ''}: {prose(quote(reason))}"
        for (scenario, reason), probes in grouping.skipped(run).items()
    ]
    return folded(f"Skipped: {len(run.skips)}", rows) if rows else []


def _ending(run: Run) -> Iterator[str]:
    told = {"command": summary.command_line(run), **summary.provenance(run), "record": [run.path]}
    rows = [
        (prose(name), code(" ".join(words) if name == "command" else ", ".join(words))) for name, words in told.items()
    ]
    yield from folded("Where this comes from", table(("", ""), (row for row in rows if row[1])))
    yield ""
    yield f"Next: {code(' '.join(summary.next_command(run)))}"


def _size(lines_of: Iterable[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines_of)
