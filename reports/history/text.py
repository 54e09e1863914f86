"""The history of many runs as text or as JSON: for each group a line of verdicts, and each metric run by run.

    overflow smollm2            12 runs, 2026-11-01 to 2026-11-29
      verdicts                  ✓✓✓✗✗✓✓✓✓✓✓✓
      longest prompt read       ▆▆▆▁▁▆▆▆▆▆▆▆  503 tokens, median 503 (255 to 503)

A bar stands for a run, oldest first, its height between the least and the most of the line. No writer of runs: it has
groups to write. `history_page` is the same in HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from rich.text import Text

from contextlab.analysis.history import Change, Group, Point, Series
from contextlab.model import ContextlabError, Verdict
from contextlab.reports.chaos.timeline import LEVELS
from contextlab.reports.chaos.words import number, percent, seconds, unit_of
from contextlab.reports.parts.layout import GAP, grid, labelled, wrapped
from contextlab.reports.parts.output import MAX_PROSE, write_lines
from contextlab.reports.parts.wording import COLOURS, COUNTED_AS, MARKS, clean, num

SCHEMA = "contextlab.history/1"
MAX_BARS = 40
"""Runs in a line; of more the newest."""
MAX_LISTED = 5
"""Runs, and folders left out, that are named one by one."""
_INDENT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A folder that is in no group, and why."""

    run: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a folder of runs tells."""

    folder: str
    groups: tuple[Group, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def num_runs(self) -> int:
        """Runs that are in a group."""
        return sum(len(group.entries) for group in self.groups)


def write_text(found: History, out: TextIO) -> None:
    """Write the history; `out` decides between columns and plain rows."""
    write_lines(out, lambda width: _lines(found, min(width, MAX_PROSE)), lambda: _plain(found))


# ── words that all forms share ───────────────────────────────────────────────────────────────────


def headline(found: History) -> str:
    """`12 runs in 2 groups of runs, 3 changes; 1 folder left out`."""
    changes = sum(len(series.changes) for group in found.groups for series in group.series)
    said = f"{num(found.num_runs, 'run')} in {num(len(found.groups), 'group')}, {num(changes, 'change')} seen"
    return said + (f"; {num(len(found.left_out), 'folder')} left out" if found.left_out else "")


def title(group: Group) -> str:
    """What the group's runs were asked."""
    return clean(group.asked or f"{group.command} {group.target}")


def span(group: Group) -> str:
    """`12 runs, 2026-11-01 to 2026-11-29`."""
    days = [entry.began_at[:10] for entry in (group.entries[0], group.entries[-1])]
    return f"{num(len(group.entries), 'run')}, {days[0] if days[0] == days[1] else ' to '.join(days)}"


def amount(value: float, unit: str) -> str:
    """A value with its unit: `41.2 ms`, `2.5%`, `503 tokens`."""
    match unit:
        case "s":
            return seconds(value)
        case "share":
            return percent(value)
        case "bytes":
            return f"{number(value / 2**20)} MiB"
    words = f"{value:.0f}" if float(value).is_integer() else number(value)
    return f"{words} {clean(unit)}".rstrip()


def bars(values: Sequence[float]) -> str:
    """One character for each value, its height between the least and the most; equal ones are level."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high <= low:
        return LEVELS[3] * len(values)
    return "".join(LEVELS[min(7, int((value - low) / (high - low) * 8))] for value in values)


def summed(series: Series) -> str:
    """`255 tokens, median 503 (255 to 503)`: the last, and what is usual, in its unit."""
    values = [point.value for point in series.points]
    last, usual = amount(values[-1], series.unit), (median(values), min(values), max(values))
    if len(set(values)) == 1:
        return f"{last} in {'this run' if len(values) == 1 else 'every run'}"
    middle, low, high = (_bare(value, series.unit, values[-1]) for value in usual)
    return f"{last}, median {middle} ({low} to {high})"


def _bare(value: float, unit: str, beside: float) -> str:
    """A value without its unit, which is that of the one beside it."""
    match unit:
        case "s":
            return number(value / unit_of(beside)[0])
        case "share":
            return percent(value).removesuffix("%")
        case "bytes":
            return number(value / 2**20)
    return f"{value:.0f}" if float(value).is_integer() else number(value)


def change_words(change: Change, series: Series) -> str:
    """`from RUN on 55.0 ms instead of 41.2 ms (+33%, worse), p 0.001`."""
    relative = "" if change.ratio is None else f"{(change.ratio - 1) * 100:+.3g}%"
    judged = {"less": "better", "more": "better", "neither": ""}[series.better]
    how = ", ".join(word for word in (relative, "worse" if change.worse else judged) if word)
    levels = f"{amount(change.after, series.unit)} instead of {amount(change.before, series.unit)}"
    return f"from {clean(change.run)} on {levels} ({how}), p {change.p:.2g}"


def name_of(series: Series) -> str:
    """`scenario: metric`."""
    return clean(f"{series.scenario}: {series.metric}" if series.scenario else series.metric)


def _counts(group: Group) -> str:
    verdicts = [entry.verdict for entry in group.entries]
    return ", ".join(f"{verdicts.count(each)} {COUNTED_AS[each]}" for each in reversed(Verdict) if each in verdicts)


def _advice(series: Series) -> list[str]:
    """What is said beneath a line: changes, or that none are looked for; silence where nothing changed."""
    if series.changes:
        return [change_words(change, series) for change in series.changes]
    return [series.advice] if series.autocorrelation is not None and "resembles" in series.advice else []


def _too_few(group: Group) -> str:
    """The one reason that all series of a short group share."""
    reasons = {series.advice for series in group.series if "runs that it takes" in series.advice}
    return f"changes: {max(reasons)}" if reasons else ""


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────


def _lines(found: History, width: int) -> list[Text]:
    lines = wrapped(Text(headline(found), "bold"), width)
    for group in found.groups:
        lines += [Text(), *_group(group, width)]
    if found.left_out:
        lines += [Text(), Text("LEFT OUT", "bold")]
        for one in found.left_out[:MAX_LISTED]:
            lines += labelled(Text("  – "), wrapped(Text(f"{clean(one.run)}: {clean(one.why)}"), width - 4), 4)
        if (more := len(found.left_out) - MAX_LISTED) > 0:
            lines += wrapped(Text(f"    and {more} more (--json names them)"), width)
    lines += [Text(), *wrapped(Text("Changes are advice: runs of a history were not made side by side.", "dim"), width)]
    return lines


def _group(group: Group, width: int) -> list[Text]:
    lines = [
        *wrapped(Text(title(group), "bold"), width),
        *_indented(Text(f"{span(group)} · {clean(group.machine)} · {_counts(group)}", "dim"), width),
        *_indented(_marks(group), width),
    ]
    start = _INDENT + GAP + min(max((len(name_of(series)) for series in group.series), default=0), width // 2)
    for series in group.series:
        lines += _drawn(series, width, start)
    if few := _too_few(group):
        lines += _indented(Text(few, "dim"), width)
    return [*lines, *_newest(group, width)]


def _marks(group: Group) -> Text:
    """A mark for each run, oldest first."""
    shown = group.entries[-MAX_BARS:]
    line = Text.assemble(*((MARKS[entry.verdict], COLOURS[entry.verdict]) for entry in shown))
    if len(shown) < len(group.entries):
        line.append(f"  the last {MAX_BARS} of {len(group.entries)}", "dim")
    return line


def _drawn(series: Series, width: int, start: int) -> list[Text]:
    values = [point.value for point in series.points][-MAX_BARS:]
    drawn = Text.assemble((bars(values), "cyan"), f"  {summed(series)}")
    label = Text(f"{' ' * _INDENT}{name_of(series)}")
    body = wrapped(drawn, width - start)
    lines = (
        labelled(label, body, start)
        if label.cell_len + GAP <= start
        else [*_indented(Text(name_of(series)), width), *labelled(Text(), body, start)]
    )
    style = "yellow" if any(change.worse for change in series.changes) else "dim"
    for words in _advice(series):
        lines += labelled(Text(), wrapped(Text(words, style), width - start), start)
    return lines


def _indented(text: Text, width: int) -> list[Text]:
    return labelled(Text(), wrapped(text, width - _INDENT), _INDENT)


def _newest(group: Group, width: int) -> list[Text]:
    """The newest runs of a group, one a row."""
    rows = [
        [Text(entry.began_at[:16].replace("T", " ")), Text(clean(entry.run)), Text(f"exit {entry.exit_code}")]
        for entry in group.entries[-MAX_LISTED:]
    ]
    marks = [Text.assemble("  ", (MARKS[e.verdict], COLOURS[e.verdict])) for e in group.entries[-MAX_LISTED:]]
    older = _indented(Text(words, "dim"), width) if (words := _older(group)) else []
    return [*older, *grid(rows, width, marks=marks)]


def _older(group: Group) -> str:
    """`the newest 5 (8 older: --json names them)`; "" where all runs are named."""
    more = len(group.entries) - MAX_LISTED
    return f"the newest {MAX_LISTED} ({more} older: --json names them)" if more > 0 else ""


# ── one fact a line ──────────────────────────────────────────────────────────────────────────────


def _plain(found: History) -> Iterator[str]:
    yield headline(found)
    for group in found.groups:
        yield ""
        yield f"group: {title(group)}"
        yield f"  machine: {clean(group.machine)}"
        yield f"  runs: {span(group)}: {_counts(group)}"
        if older := _older(group):
            yield f"  listed: {older}"
        for entry in group.entries[-MAX_LISTED:]:
            yield f"  run: {MARKS[entry.verdict]} {entry.began_at} {clean(entry.run)}: exit {entry.exit_code}"
        for series in group.series:
            values = [point.value for point in series.points]
            yield f"  {name_of(series)}: {summed(series)}: {bars(values[-MAX_BARS:])}"
            yield from (f"    change: {words}" for words in _advice(series))
        if few := _too_few(group):
            yield f"  {few}"
    for one in found.left_out:
        yield f"left out: {clean(one.run)}: {clean(one.why)}"
    yield "note: changes are advice: runs of a history were not made side by side"


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def document(found: History) -> dict[str, Any]:
    """The history as a JSON document."""
    return {
        **_frame(found.folder),
        "exit": {"code": 0, "reason": headline(found)},
        "num_runs": found.num_runs,
        "left_out": [{"run": one.run, "why": one.why} for one in found.left_out],
        "groups": [_group_document(group) for group in found.groups],
    }


def failure_document(folder: str, error: ContextlabError) -> dict[str, Any]:
    """The document of a folder without a history: the same keys, nothing in them, and `next_step`."""
    return {
        **_frame(folder),
        "exit": {"code": error.exit_code, "reason": error.message},
        "num_runs": 0,
        "left_out": [],
        "groups": [],
        "next_step": error.next_step,
    }


def _frame(folder: str) -> dict[str, Any]:
    return {"schema": SCHEMA, "command": "history", "folder": str(Path(folder))}


def _group_document(group: Group) -> dict[str, Any]:
    return {
        "command": group.command,
        "target": group.target,
        "asked": group.asked,
        "machine": group.machine,
        "runs": [
            {
                "run": entry.run,
                "began_at": entry.began_at,
                "verdict": entry.verdict.name,
                "exit_code": entry.exit_code,
            }
            for entry in group.entries
        ],
        "series": [_series_document(series) for series in group.series],
    }


def _series_document(series: Series) -> dict[str, Any]:
    return {
        "scenario": series.scenario,
        "metric": series.metric,
        "unit": series.unit,
        "better": series.better,
        "points": [_point(point) for point in series.points],
        "changes": [
            {
                "run": change.run,
                "began_at": change.began_at,
                "before": change.before,
                "after": change.after,
                "ratio": change.ratio,
                "p": round(change.p, 6),
                "worse": change.worse,
            }
            for change in series.changes
        ],
        "advice": series.advice,
        "autocorrelation": None if series.autocorrelation is None else round(series.autocorrelation, 4),
    }


def _point(point: Point) -> dict[str, Any]:
    return {"run": point.run, "began_at": point.began_at, "value": point.value}
