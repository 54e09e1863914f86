"""The nouns of a chart, and how points become the path strings of SVG; pure.

Positions are in the units of the drawing's view box, about a pixel each, from the upper left corner. A chart is drawn
twice, wide and narrow, so that its words keep their size on a small screen; the page shows the one that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

WIDE, HALF, NARROW = 880, 430, 340
"""Widths of a drawing: of the whole page, of half of it, and of a telephone."""
MOST_POINTS = 2000
"""More points than this are not drawn one by one, but in bins; the caption says so."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One element of SVG. `text` is its content; `title` what a pointer that rests on it is told."""

    tag: str
    attributes: Mapping[str, str | float] = field(default_factory=dict)
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A view box and what is in it, the hindmost first."""

    width: float
    height: float
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A line of the legend; `look`: the classes of its marks.

    `shape`: "line", "dot", "ring", "cross", "area", "star", "deed".
    """

    shape: str
    look: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The same as a chart in words: heads, rows of as many cells, and which columns are numbers (set flush right)."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure of the page. `name` is unique in it; `says`: one sentence with numbers; `caption`: how to read it."""

    name: str
    title: str
    says: str
    wide: Drawing
    narrow: Drawing
    table: Table
    keys: tuple[Key, ...] = ()
    caption: str = ""
    half: bool = False


# ── marks ────────────────────────────────────────────────────────────────────────────────────────


def text(x: float, y: float, words: str, look: str = "", *, anchor: str = "start") -> Mark:
    """Words whose baseline begins, ends or has its middle there."""
    return Mark(tag="text", attributes=_of(look, x=rounded(x), y=rounded(y), **{"text-anchor": anchor}), text=words)


def shortened(words: str, room: float, px_per_char: float = 6.8) -> str:
    """The words as far as they fit; the table beside a drawing has them whole."""
    most = max(4, int(room / px_per_char))
    return words if len(words) <= most else f"{words[: most - 1]}…"


def line(x1: float, y1: float, x2: float, y2: float, look: str = "", title: str = "") -> Mark:
    """A straight line."""
    ends = {"x1": rounded(x1), "y1": rounded(y1), "x2": rounded(x2), "y2": rounded(y2)}
    return Mark(tag="line", attributes=_of(look, **ends), title=title)


def rect(x: float, y: float, width: float, height: float, look: str = "", title: str = "") -> Mark:
    """A rectangle; one that has no width is still seen."""
    size = {"x": rounded(x), "y": rounded(y), "width": rounded(max(width, 0.5)), "height": rounded(max(height, 0.0))}
    return Mark(tag="rect", attributes=_of(look, **size), title=title)


def path(shape: str, look: str = "", title: str = "") -> Mark:
    """A path of the strings below."""
    return Mark(tag="path", attributes=_of(look, d=shape), title=title)


def _of(look: str, **attributes: str | float) -> dict[str, str | float]:
    return {"class": look, **attributes} if look else attributes


# ── path strings ─────────────────────────────────────────────────────────────────────────────────


def rounded(position: float) -> str:
    """A tenth of a pixel is enough: `41`, `41.5`."""
    words = f"{position:.1f}"
    return words.removesuffix(".0") if words != "-0.0" else "0"


def polyline(points: Iterable[Point]) -> str:
    """Straight lines from point to point; "" of none."""
    return "".join(f"{'L' if place else 'M'}{rounded(x)} {rounded(y)}" for place, (x, y) in enumerate(points))


def steps(points: Sequence[Point]) -> str:
    """Level to the next point's x, then up or down to it; "" of none."""
    if not points:
        return ""
    (x, y), *rest = points
    return f"M{rounded(x)} {rounded(y)}" + "".join(f"H{rounded(x)}V{rounded(y)}" for x, y in rest)


def area(upper: Sequence[Point], lower: Sequence[Point]) -> str:
    """What lies between two lines; "" of none."""
    return f"{polyline([*upper, *reversed(lower)])}Z" if upper and lower else ""


def dots(points: Iterable[Point]) -> str:
    """One dot a point, for a stroke with round ends: one path of twelve bytes a point, not an element each."""
    return "".join(f"M{rounded(x)} {rounded(y)}h0" for x, y in points)


def crosses(points: Iterable[Point], size: float = 3.0) -> str:
    """One oblique cross a point."""
    side = rounded(2 * size)
    return "".join(
        f"M{rounded(x - size)} {rounded(y - size)}l{side} {side}m-{side} 0l{side} -{side}" for x, y in points
    )


def thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most so many of the points, evenly by their place, the first and the last among them."""
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]
