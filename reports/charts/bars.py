"""Declared limits as bars against the window of one request; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextlab.reports.charts.axis import ground, linear
from contextlab.reports.charts.drawing import (
    NARROW,
    WIDE,
    Chart,
    Drawing,
    Key,
    Mark,
    Table,
    line,
    path,
    rect,
    shortened,
    text,
)

MOST_WINDOWS = 2.5
"""The axis ends at so many windows; a bar that goes on is cut there, with an arrow and its number."""
_ROW, _BAR, _LABEL, _TOP = 44, 14, 18, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A limit. `tokens` None: not declared. `look`: "binds", "measured" or ""."""

    layer: str
    name: str
    tokens: int | None
    source: str
    look: str = ""


def limits(bars: Sequence[Bar], window: int | None, says: str) -> Chart:
    """A bar a limit, each with its name above it, and a line where the window ends."""
    return Chart(
        name="limits-by-layer",
        title="Limits by layer",
        says=says,
        wide=_drawn(bars, window, WIDE),
        narrow=_drawn(bars, window, NARROW),
        table=Table(
            heads=("layer", "limit", "tokens", "said by", "role"),
            rows=tuple(
                (
                    bar.layer,
                    bar.name,
                    "not declared" if bar.tokens is None else f"{bar.tokens}",
                    bar.source,
                    {"binds": "met first", "measured": "measured"}.get(bar.look, ""),
                )
                for bar in bars
            ),
            numbers=frozenset({2}),
        ),
        keys=_keys(bars, window),
    )


def _keys(bars: Sequence[Bar], window: int | None) -> tuple[Key, ...]:
    looks = {bar.look for bar in bars if bar.tokens is not None}
    names = (("binds", "met first"), ("", "declared"), ("measured", "measured here"))
    found = [Key(shape="area", look=f"bar {look}".strip(), words=words) for look, words in names if look in looks]
    return (*found, *([Key(shape="line", look="limit", words="the window of one request")] if window else []))


def _drawn(bars: Sequence[Bar], window: int | None, width: int) -> Drawing:
    known = [bar.tokens for bar in bars if bar.tokens is not None]
    most = max([*known, window or 0, 1])
    top = min(most, round((window or most) * MOST_WINDOWS))
    bottom = _TOP + _ROW * len(bars)
    x = linear(0, top * 1.0, 4, width - 78, title="tokens")
    marks: list[Mark] = []
    if window:
        at = x.at(window)
        marks += [
            line(at, _TOP - 8, at, bottom, "limit"),
            text(at, _TOP - 14, f"window {window}", "title", anchor="middle"),
        ]
    for row, bar in enumerate(bars):
        y = _TOP + _ROW * row
        marks.append(text(4, y + 12, shortened(f"{bar.layer} · {bar.name}", width - 8), "strong" if bar.look else ""))
        if bar.tokens is None:
            marks.append(text(4, y + _LABEL + 12, "not declared", "tick"))
            continue
        end = x.at(bar.tokens)
        marks.append(rect(4, y + _LABEL, end - 4, _BAR, f"bar {bar.look}".strip(), title=f"{bar.tokens} tokens"))
        if bar.tokens > top:
            marks.append(path(f"M{end:.0f} {y + _LABEL}l9 {_BAR // 2}l-9 {_BAR // 2}z", f"bar {bar.look}".strip()))
            end += 9
        marks.append(text(end + 6, y + _LABEL + 12, f"{bar.tokens}", "value"))
    marks += [line(x.start, bottom, x.end, bottom, "axis"), *ground(x, bottom)]
    return Drawing(width=width, height=bottom + 40, marks=tuple(marks))
