"""A run as a person reads it in a terminal: the verdict first, then why, then what to change.

On a terminal: columns and a few colours, within its width. Anywhere else: `plain`. Colour is never the
only sign, nothing is shortened to an ellipsis, and nothing that a target said is read as markup.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from contextlab.model import Run, Verdict
from contextlab.reports import plain, summary
from contextlab.reports.layout import MARK_CELLS, command, grid, labelled, wrapped
from contextlab.reports.matrix import matrix
from contextlab.reports.summary import Group
from contextlab.reports.wording import COLOURS, MARKS, clean, encodable, listed, quote, value

MIN_WIDTH = 40
"""A narrower terminal gets lines of this width, and wraps them itself."""

MAX_PROSE = 112
"""Sentences are not set wider than this, however wide the terminal."""

MAX_PROBES = 8
"""Probe names listed before the rest are counted."""

_HEADLINES = {"FAILED": "bold red", "HELD": "bold green", "UNKNOWN": "bold yellow", "INTERRUPTED": "bold yellow"}
_BODY = 14
"""The column at which the body of a finding begins, after its labels."""


def write(run: Run, out: TextIO) -> None:
    """Write the report of a run; `out` decides between columns and plain text."""
    console = Console(file=out, force_jupyter=False, color_system=None if os.environ.get("NO_COLOR") else "auto")
    if console.is_terminal and not console.is_dumb_terminal:
        text = _painted(run, console)
    else:
        text = "".join(f"{line}\n" for line in plain.lines(run))
    out.write(encodable(text, getattr(out, "encoding", None)))


def _painted(run: Run, console: Console) -> str:
    with console.capture() as capture:
        lines = _lines(run, max(MIN_WIDTH, console.width))
        console.print(Text("\n").join(lines), soft_wrap=True, highlight=False)
    return capture.get()


def _lines(run: Run, width: int) -> Iterator[Text]:
    prose = min(width, MAX_PROSE)
    yield from _verdict(run, prose)
    yield from _section("", _target(run, prose))
    yield from _section("limits", _limits(run, prose))
    yield from _section("outcomes", matrix(summary.cells(run), width))
    yield from _section("failed", _findings(run, Verdict.FAIL, prose))
    yield from _section("unknown", _findings(run, Verdict.UNKNOWN, prose))
    yield from _section("passed", _passed(run, prose))
    yield from _section("skipped", _skipped(run, prose))
    yield from _section("", _record(run, width))


def _section(title: str, lines: Sequence[Text]) -> Iterator[Text]:
    if lines:
        yield Text()
        if title:
            yield Text(title.upper(), "bold")
        yield from lines


def _verdict(run: Run, width: int) -> list[Text]:
    """The word, and beside it the sentence, the count of probes, and the exit code with its reason."""
    lines = [Text(summary.headline(run), "bold"), Text(summary.tally_words(run))]
    if run.end is not None:
        lines.append(Text(summary.exit_words(run)))
    if stopped_in := summary.unfinished(run):
        lines.append(Text(f"stopped in {clean(stopped_in)}"))
    lines += [Text(f"note: {quote(note)}") for note in summary.notes(run)]
    word = summary.headline_word(run)
    words = [Text(word, _HEADLINES[word]), *[Text()] * (len(lines) - 1)]
    return grid(list(zip(words, lines, strict=True)), width)


def _target(run: Run, width: int) -> list[Text]:
    facts = summary.target_facts(run)
    return grid([[Text(name, "dim"), Text(" · ".join(words))] for name, words in facts.items()], width)


def _limits(run: Run, width: int) -> list[Text]:
    rows, marks = [_row("dim", "layer", "name", "tokens", "said by")], [Text()]
    for limit in summary.limits(run):
        binding = summary.binds(limit, run)
        style = "bold" if binding else ""
        rows.append(_row(style, str(limit.layer), clean(limit.name), value(limit.tokens), clean(limit.source)))
        marks.append(Text("  ▸" if binding else "", style))
    if (measured := summary.measured_tokens(run)) is not None:
        rows.append(_row("", "measured", "longest prompt read", str(measured), "find-limit"))
        marks.append(Text())
    table = grid(rows, width, right={2}, marks=marks) if len(rows) > 1 else []
    return [*table, *_beside_mark(Text(), Text(summary.pool_words(run)), width)]


def _row(style: str, *texts: str) -> list[Text]:
    return [Text(text, style) for text in texts]


def _findings(run: Run, wanted: Verdict, width: int) -> list[Text]:
    lines: list[Text] = []
    for group in summary.groups(run, wanted):
        lines += [Text()] if lines else []
        lines += _finding(group, width)
    return lines


def _finding(group: Group, width: int) -> list[Text]:
    """One finding, or several that say the same; the evidence shown is that of the first."""
    finding, colour = group.first, COLOURS[group.first.verdict]
    head = Text.assemble((finding.outcome.name, f"bold {colour}"), f"  {finding.outcome.value}")
    room = width - _BODY
    parts = {
        "where": wrapped(Text(_where(group)), room),
        "why": wrapped(Text(quote(finding.why)), room),
        "evidence": grid(
            [[Text(clean(name), "dim"), Text(value(thing))] for name, thing in group.evidence.items()], room
        ),
        "remedy": wrapped(Text(clean(finding.remedy)), room),
    }
    body = [line for label, lines in parts.items() for line in labelled(Text(f"    {label}", "dim"), lines, _BODY)]
    return [*_beside_mark(_mark(finding.verdict), head, width), *body]


def _where(group: Group) -> str:
    """`kv-exhaustion · 2 probes: a, b · layer KV cache`."""
    count = f"{len(group.probes)} probes: " if len(group.probes) > 1 else ""
    probes = f"{count}{listed(group.probes, MAX_PROBES)}"
    return f"{clean(group.first.scenario)} · {probes} · layer {group.first.layer}"


def _passed(run: Run, width: int) -> list[Text]:
    rows = [_row("", clean(name), words) for name, words in summary.passed_words(run).items()]
    return grid(rows, width, marks=[_mark(Verdict.PASS)] * len(rows))


def _skipped(run: Run, width: int) -> list[Text]:
    rows = []
    for (scenario, reason), probes in summary.skipped(run).items():
        name = f"{clean(scenario)}: {listed(probes, MAX_PROBES)}" if probes else clean(scenario)
        rows.append(_row("", name, quote(reason)))
    return grid(rows, width, marks=[Text("  –")] * len(rows))


def _record(run: Run, width: int) -> list[Text]:
    where = labelled(Text("record", "dim"), wrapped(Text(clean(run.path)), width - 8), 8)
    return [*where, *labelled(Text("next:", "dim"), command(summary.next_command(run), width - 8), 8)]


def _beside_mark(mark: Text, text: Text, width: int) -> list[Text]:
    return labelled(mark, wrapped(text, width - MARK_CELLS), MARK_CELLS)


def _mark(verdict: Verdict) -> Text:
    return Text.assemble("  ", (MARKS[verdict], COLOURS[verdict]))
