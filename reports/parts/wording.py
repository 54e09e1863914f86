"""How names, numbers and a target's own words are put into text that people read.

Pure and the same for every writer. What a target says is hostile: `clean` shows anything that could
move a cursor, change a colour or reorder a line as an escape, and nothing here is ever read as markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from contextlab.analysis.quantities import count
from contextlab.model import Evidence, Finding, Verdict

num = count
"""`1 probe`, `2 probes`."""

MARKS = {Verdict.PASS: "✓", Verdict.UNKNOWN: "?", Verdict.FAIL: "✗"}
"""One mark a verdict, so that colour is never the only sign."""

COLOURS = {Verdict.PASS: "green", Verdict.UNKNOWN: "yellow", Verdict.FAIL: "red"}
"""The colour of a mark, by the terminal's own palette."""

COUNTED_AS = {Verdict.PASS: "held", Verdict.UNKNOWN: "unknown", Verdict.FAIL: "failed"}
"""How probes are counted by verdict: "3 failed"."""

MAX_QUOTE_CHARS = 600
"""Longer words of a target are cut, and the report says by how much: the record has them all."""

MAX_REASONS = 3
"""Different reasons given for one outcome before the rest are counted."""

_ASCII = str.maketrans(
    {
        "✓": "+",
        "✗": "x",
        "·": "-",
        "│": "|",
        "▸": ">",
        "×": "x",
        "—": "-",
        "–": "-",
        "−": "-",
        "→": ">",
        "∞": "inf",
        **dict(zip("●◌∙★┆╌┤└┬↑↓", "o?.*:=+++^v", strict=True)),
        **dict(zip("▁▂▃▄▅▆▇█─░▒▓", "_.-~=+*#-:%#", strict=True)),
    }
)


def clean(text: str) -> str:
    """`text` on one line, with every character that is not printable written as its escape (`\\x1b`, `\\n`)."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def quote(text: str) -> str:
    """The start of what somebody else said, cleaned; says how many characters are left out, if any."""
    if len(text) <= MAX_QUOTE_CHARS:
        return clean(text)
    return f"{clean(text[:MAX_QUOTE_CHARS])} (and {len(text) - MAX_QUOTE_CHARS} more characters, in the record)"


def value(thing: object) -> str:
    """A number, a text or a truth as reports print it; what nobody knows is "–"."""
    if thing is None or (isinstance(thing, float) and math.isnan(thing)):
        return "–"
    if isinstance(thing, bool):
        return "yes" if thing else "no"
    if isinstance(thing, float):
        return f"{thing:.0f}" if thing.is_integer() or abs(thing) >= 10_000 else f"{thing:.4g}"
    return quote(str(thing))


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names with commas between; past `most` of them, how many more there are."""
    if most is None or len(names) <= most + 1:  # "and 1 more" is no shorter than the name
        return ", ".join(clean(name) for name in names)
    return f"{', '.join(clean(name) for name in names[:most])} and {len(names) - most} more"


def named(finding: Finding) -> str:
    """`scenario/probe`."""
    return f"{clean(finding.scenario)}/{clean(finding.probe)}"


def grounds(finding: Finding) -> str:
    """Why, in its own words, and the server's name for its error where it gave one: `… [exceed_context_size_error]`."""
    error_type = finding.evidence.get("error_type")
    return f"{quote(finding.why)} [{quote(str(error_type))}]" if error_type else quote(finding.why)


def pairs(evidence: Evidence, *, beside: str = "") -> list[tuple[str, str]]:
    """Evidence as names and values to print; sentences that stand `beside` it are left out, unless nothing is left."""
    kept = {
        name: thing
        for name, thing in evidence.items()
        if not (isinstance(thing, str) and " " in thing and thing in beside)
    }
    return [(clean(name), value(thing)) for name, thing in (kept or evidence).items()]


def then(first: str, more: str) -> str:
    """Two sentences after each other, with a full stop between where the first has no end of its own."""
    return f"{first}{'' if first.endswith(('.', '!', '?')) else '.'} {more}" if first and more else first or more


def unsaid(num_reasons: int) -> str:
    """How many reasons are left out past `MAX_REASONS`; "" if none."""
    left = num_reasons - MAX_REASONS
    return f"and {num(left, 'other reason')}, in the record" if left > 0 else ""


def clock(seconds: float) -> str:
    """A duration as a stopwatch shows it: `0:07`, `2:31`, `1:02:31`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def encodable(text: str, encoding: str | None) -> str:
    """`text` as a stream of that encoding can take it: plain marks and escapes where it is not Unicode."""
    encoding = encoding or "utf-8"
    if encoding.lower().replace("-", "").startswith("utf"):
        return text
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
