"""What a server's own words came to, as text or as JSON. No writer of runs: it has a Diagnosis to write, not a run.

On a terminal: a block for each kind of message. Anywhere else: `key: value` rows, one fact a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

from rich.text import Text

from contextlab.analysis.diagnosis import Diagnosis, Sighting
from contextlab.model import ContextlabError, Verdict
from contextlab.reports.parts.layout import labelled, wrapped
from contextlab.reports.parts.output import MAX_PROSE, write_lines
from contextlab.reports.parts.wording import COLOURS, MARKS, clean, num, value

SCHEMA = "contextlab.diagnose/1"
SILENT = "an engine that cuts a prompt in silence says nothing: contextlab overflow TARGET probes it"
_BODY = 12
"""The column at which the body of a block begins, after its labels."""
_CODES = {Verdict.PASS: 0, Verdict.UNKNOWN: 3, Verdict.FAIL: 1}


def exit_code(found: Diagnosis) -> int:
    """0: only what is harmless was said, 1: something that is not, 3: nothing known, 5: there was nothing to read."""
    return 5 if not found.num_lines else _CODES[found.verdict]


def write_text(source: str, found: Diagnosis, out: TextIO) -> None:
    """Write the report; `out` decides between blocks and plain text. `source`: what was read, as the user named it."""
    write_lines(out, lambda width: _lines(source, found, min(width, MAX_PROSE)), lambda: _plain(source, found))


def document(source: str, found: Diagnosis) -> dict[str, Any]:
    """The JSON document."""
    return {
        "schema": SCHEMA,
        "command": "diagnose",
        "target": source,
        "engine": found.engine or None,
        "num_lines": found.num_lines,
        "num_known": found.num_known,
        "verdict": found.verdict.name,
        "sightings": [_fields(one) for one in found.sightings],
        "exit": {"code": exit_code(found), "reason": _reason(found)},
    }


def failure_document(source: str, error: ContextlabError) -> dict[str, Any]:
    """The same keys where nothing could be read, and `next_step`."""
    exit_ = {"code": error.exit_code, "reason": error.message}
    return {**document(source, Diagnosis(engine="", num_lines=0)), "exit": exit_, "next_step": error.next_step}


def _fields(one: Sighting) -> dict[str, Any]:
    return {
        "id": one.id,
        "engine": one.engine,
        "kind": one.kind,
        "happened": one.happened,
        "outcome": one.outcome.name if one.outcome is not None else None,
        "verdict": one.verdict.name,
        "layer": str(one.layer),
        "means": one.means,
        "count": one.count,
        "first_line": one.lines[0],
        "last_line": one.lines[1],
        "text": one.line,
        "numbers": dict(one.numbers),
        "lower_bound": one.lower_bound,
        "remedy": one.remedy,
    }


# ── what both forms say ──────────────────────────────────────────────────────────────────────────


def _headline(source: str, found: Diagnosis) -> str:
    """`server.log: 2 kinds of message about the window, in 14 of 5210 lines; engine llama-server`."""
    name = clean(source)
    if not found.num_lines:
        return f"{name}: there is nothing in it"
    if not found.sightings:
        return f"{name}: none of {num(found.num_lines, 'line')} says anything known about the window"
    kinds = num(len(found.sightings), "kind")
    engine = f"; engine {found.engine}" if found.engine else ""
    return (
        f"{name}: {kinds} of message about the window, in {found.num_known} of {num(found.num_lines, 'line')}{engine}"
    )


def _reason(found: Diagnosis) -> str:
    if not found.num_lines:
        return "there was nothing to read"
    if not found.sightings:
        return f"nothing known was said; {SILENT}"
    bad = [one for one in found.sightings if one.verdict is Verdict.FAIL]
    if bad:
        be = "is" if len(bad) == 1 else "are"
        return f"{num(len(bad), 'kind')} of message that {be} not allowed: {', '.join(one.id for one in bad)}"
    return "only what is harmless was said"


def _name(one: Sighting) -> str:
    return one.outcome.name if one.outcome is not None else one.kind.upper()


def _facts(one: Sighting) -> Iterator[tuple[str, str]]:
    first, last = one.lines
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    yield "seen", f"{num(one.count, 'time')}, {where}"
    yield "says", clean(one.line)
    yield "means", one.means
    if one.numbers:
        least = "at least " if one.lower_bound else ""
        yield "numbers", " · ".join(f"{name} {least}{value(number)}" for name, number in one.numbers.items())
    if one.remedy:
        yield "change", one.remedy


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────


def _lines(source: str, found: Diagnosis, width: int) -> Iterator[Text]:
    yield from wrapped(Text(_headline(source, found), "bold"), width)
    for one in found.sightings:
        yield Text()
        mark = Text(f"{MARKS[one.verdict]} ", f"bold {COLOURS[one.verdict]}")
        head = Text.assemble((_name(one), "bold"), f"  {one.happened} · {one.layer} · ", (one.id, "dim"))
        yield from labelled(mark, wrapped(head, width - 2), 2)
        for label, text in _facts(one):
            yield from labelled(Text(f"    {label}", "dim"), wrapped(Text(text), width - _BODY), _BODY)
    yield Text()
    yield from wrapped(Text(f"exit {exit_code(found)}: {_reason(found)}"), width)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


def _plain(source: str, found: Diagnosis) -> Iterator[str]:
    yield f"diagnosis: {_headline(source, found)}"
    for one in found.sightings:
        yield ""
        yield f"{MARKS[one.verdict]} {_name(one)}: {one.happened} ({one.layer}, {one.id})"
        for label, text in _facts(one):
            yield f"  {label}: {text}"
    yield ""
    yield f"exit {exit_code(found)}: {_reason(found)}"
