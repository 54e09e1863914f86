"""A run as a person reads it in a terminal: the verdict first, then why, then what to change.

On a terminal: columns and a few colours, within its width. Anywhere else: `plain`. Colour is never the
only sign, nothing is shortened to an ellipsis, and nothing that a target said is read as markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.text import Text

from contextlab.model import Run, Verdict
from contextlab.reports.chaos.evidence import own
from contextlab.reports.parts import grouping, headline, plain, rooms, summary
from contextlab.reports.parts.grouping import Group
from contextlab.reports.parts.layout import GAP, MARK_CELLS, command, flowing, grid, labelled, wrapped
from contextlab.reports.parts.matrix import matrix
from contextlab.reports.parts.output import MAX_PROSE, write_lines
from contextlab.reports.parts.wording import (
    COLOURS,
    MARKS,
    MAX_REASONS,
    clean,
    grounds,
    named,
    num,
    pairs,
    quote,
    unsaid,
    value,
)

_HEADLINES = {
    "FAILED": "bold red",
    "HELD": "bold green",
    "MEASURED": "bold green",
    "UNKNOWN": "bold yellow",
    "INTERRUPTED": "bold yellow",
}
_BODY = 14
"""The column at which the body of a finding begins, after its labels."""
_MIN_GROUNDS = 56
"""What passed is set in columns where its reasons get as many cells, else under each scenario."""


def write(run: Run, out: TextIO) -> None:
    """Write the report of a run; `out` decides between columns and plain text."""
    write_lines(out, lambda width: _lines(run, width), lambda: plain.lines(run))


def _lines(run: Run, width: int) -> Iterator[Text]:
    prose = min(width, MAX_PROSE)
    yield from _verdict(run, prose)
    if (room := rooms.text_of(summary.command(run))) is not None:
        for title, part in room.sections(run, width, prose):
            yield from _section(title, part)
    else:
        yield from _section("limits", _limits(run, prose))
        yield from _section("outcomes", matrix(grouping.cells(run), width))
    if summary.command(run) != "gate":  # whose findings are the rows of its table
        yield from _section("failed", _groups(run, Verdict.FAIL, prose))
        yield from _section("unknown", _groups(run, Verdict.UNKNOWN, prose))
        yield from _section("passed", _passed(run, prose))
        yield from _section("skipped", _skipped(run, prose))
    yield from _section("", _provenance(run, prose))


def _section(title: str, lines: Sequence[Text]) -> Iterator[Text]:
    if lines:
        yield Text()
        if title:
            yield Text(title.upper(), "bold")
        yield from lines


def _row(style: str, *texts: str) -> list[Text]:
    return [Text(text, style) for text in texts]


# ── the verdict, and what it was reached against ─────────────────────────────────────────────────


def _verdict(run: Run, width: int) -> list[Text]:
    """The word, and beside it the sentence, the count of probes, the exit code with its reason, and the target."""
    lines = [Text(headline.sentence(run), "bold"), Text(summary.tally_words(run))]
    if run.end is not None:
        code, said = summary.exit_status(run)["code"], headline.tells_exit(run)
        lines += [lines.pop() + Text(f" · exit {code}")] if said else [Text(summary.exit_words(run))]
    if stopped_in := summary.unfinished(run):
        lines.append(Text(f"stopped in {clean(stopped_in)}"))
    lines += [Text(f"note: {quote(note)}") for note in summary.notes(run)]
    word = headline.word(run)
    rows = [[Text(), line] for line in lines]
    rows[0][0] = Text(word, _HEADLINES.get(word) or f"bold {COLOURS[summary.verdict(run)]}")
    if tested := summary.target_facts(run):
        rows.append([Text("target", "dim"), Text(" · ".join(tested))])
    return grid(rows, width)


def _limits(run: Run, width: int) -> list[Text]:
    rows, marks = [], []
    for limit in summary.limits(run):
        binding = summary.binds(limit, run)
        style, unit = "bold" if binding else "", " tokens" if limit.tokens is not None else ""
        tokens = f"{value(limit.tokens)}{unit}"
        rows.append(_row(style, str(limit.layer), clean(limit.name), tokens, clean(limit.source)))
        marks.append(Text("  ▸" if binding else "", style))
    table = grid(rows, width, right={2}, marks=marks) if rows else []
    facts = ["▸ met first"] if any(marks) else []
    facts += [words for words in (summary.pool_words(run), summary.measured_words(run)) if words]
    return [*table, *_beside_mark(Text(), Text(" · ".join(facts)), width)]


# ── what was found ───────────────────────────────────────────────────────────────────────────────


def _groups(run: Run, wanted: Verdict, width: int) -> list[Text]:
    lines: list[Text] = []
    for group in grouping.groups(run, wanted):
        lines += [Text()] if lines else []
        lines += _group(run, group, width)
    return lines


def _group(run: Run, group: Group, width: int) -> list[Text]:
    """Findings with one cause: where, why, the evidence of one of them, and what to change."""
    finding, room = group.example, width - _BODY
    name = (finding.outcome.name, f"bold {COLOURS[finding.verdict]}")
    head = Text.assemble(name, f"  {finding.outcome.value} · {finding.layer}")
    parts = {
        "where": wrapped(Text(_where(group)), room),
        "why": _reasons(group, room),
        "evidence": flowing(_evidence(run, group), room),
        "remedy": wrapped(Text(clean(finding.remedy)), room),
    }
    body = [line for label, lines in parts.items() for line in labelled(Text(f"    {label}", "dim"), lines, _BODY)]
    return [*_beside_mark(_mark(finding.verdict), head, width), *body]


def _where(group: Group) -> str:
    """`kv-exhaustion/together-3`, or `kv-exhaustion 3, reply-past-window 1` probes of each."""
    counts = ", ".join(f"{clean(scenario)} {len(probes)}" for scenario, probes in group.probes.items())
    return counts if group.num_probes > 1 else named(group.example)


def _reasons(group: Group, width: int) -> list[Text]:
    if len(group.reasons) == 1:
        return wrapped(Text(quote(group.example.why)), width)
    shown = group.reasons[:MAX_REASONS]
    rows = [[Text(f"{reason.num_probes}×"), Text(quote(reason.why))] for reason in shown]
    return [*grid(rows, width, right={0}), *wrapped(Text(unsaid(len(group.reasons))), width)]


def _evidence(run: Run, group: Group) -> list[Text]:
    """The example's place where it is one of several, then its numbers and words."""
    found = pairs(own(run, group.example.evidence), beside=group.example.why)
    shown = [Text.assemble((name, "dim"), f" {thing}") for name, thing in found]
    return [Text(f"of {named(group.example)}"), *shown] if shown and group.num_probes > 1 else shown


def _passed(run: Run, width: int) -> list[Text]:
    """Each scenario's outcomes that passed, how often, and why; in columns where there is room for them."""
    rows, marks, stacked = [], [], []
    for scenario, row in grouping.passed(run).items():
        name, mark = clean(scenario), _mark(Verdict.PASS)
        stacked += _beside_mark(mark, Text(name), width)
        for outcome, reason in row.items():
            why = grounds(reason.example)
            rows.append(_row("", name, str(reason.num_probes), outcome.name, why))
            marks.append(mark)
            stacked += labelled(Text(), wrapped(Text(f"{reason.num_probes} {outcome}: {why}"), width - 6), 6)
            name, mark = "", Text()  # said once
    if sum(_widest(rows, column) + GAP for column in range(3)) + MARK_CELLS + _MIN_GROUNDS > width:
        return stacked
    return grid(rows, width, right={1}, marks=marks)


def _widest(rows: Sequence[Sequence[Text]], column: int) -> int:
    return max((row[column].cell_len for row in rows), default=0)


def _skipped(run: Run, width: int) -> list[Text]:
    by_reason: dict[str, list[str]] = {}
    for (scenario, reason), probes in grouping.skipped(run).items():
        name = clean(scenario)
        if probes:
            several = f"{num(len(probes), grouping.noun(run))} of {name}"
            name = f"{name}/{clean(probes[0])}" if len(probes) == 1 else several
        by_reason.setdefault(reason, []).append(name)
    rows = [_row("", ", ".join(names), quote(reason)) for reason, names in by_reason.items()]
    return grid(rows, width, marks=[Text("  –")] * len(rows))


# ── where it comes from, and where to go ─────────────────────────────────────────────────────────


def _provenance(run: Run, width: int) -> list[Text]:
    facts = {
        name: flowing([Text(word) for word in words], width - 10) for name, words in summary.provenance(run).items()
    }
    asked = summary.command_line(run)
    parts = {
        "command": command(asked, width - 10) if asked else [],
        **facts,
        "record": wrapped(Text(clean(run.path)), width - 10),
        "next:": command(summary.next_command(run), width - 10),
    }
    return [line for name, lines in parts.items() for line in labelled(Text(name, "dim"), lines, 10)]


def _beside_mark(mark: Text, text: Text, width: int) -> list[Text]:
    return labelled(mark, wrapped(text, width - MARK_CELLS), MARK_CELLS)


def _mark(verdict: Verdict) -> Text:
    return Text.assemble("  ", (MARKS[verdict], COLOURS[verdict]))
