"""One arm of a chaos experiment along its time: latency by due time, faults, recovery, deaths, backlog; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from contextlab.analysis.deaths import settled
from contextlab.analysis.phases import Backlog, Bin, Span, disturbances, is_disturbed, phase_of, timeline, took_part
from contextlab.analysis.quantiles import value_at
from contextlab.analysis.replies import answered, ttft_s
from contextlab.deeds import Deed
from contextlab.experiment import Arm, Phase, Sample
from contextlab.reports.chaos.figures import Shown
from contextlab.reports.chaos.words import fault_words, number, seconds, short, unit_of
from contextlab.reports.charts.axis import Axis, fitted, grid, ground, linear, margin
from contextlab.reports.charts.drawing import (
    MOST_POINTS,
    NARROW,
    WIDE,
    Chart,
    Drawing,
    Key,
    Mark,
    Point,
    Table,
    area,
    crosses,
    dots,
    line,
    path,
    polyline,
    rect,
    shortened,
    steps,
    text,
)
from contextlab.reports.charts.ecdf import Limit
from contextlab.reports.parts.wording import clean, num

MOST_LABELS = 3
"""So many faults are named in the drawing; the text beside it names all of them."""
MOST_DEEDS = 60
_ROW, _LATENCY, _BACKLOG, _STRIP, _LABELS = 15, 190, 64, 18, 32
_PX_PER_BIN = 5
_BACK, _DIED, _STOPPED = "recovered", "died", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of the arm in which something disturbed it."""

    start_s: float
    end_s: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What is drawn: bins, points, windows, moments (at, look, words), bounds."""

    length_s: float
    samples: Sequence[Sample]
    bins: tuple[Bin, ...]
    windows: tuple[Window, ...]
    moments: tuple[tuple[float, str, str], ...]
    limits: tuple[Limit, ...]
    disturbed: frozenset[int]
    backlogs: tuple[tuple[float, int], ...]
    deeds: tuple[Deed, ...]
    binned: bool


def chart(one: Shown, name: str, most_points: int = MOST_POINTS) -> Chart | None:
    """The arm with the faults, else the control; None where nobody was asked anything.

    More requests than `most_points` are drawn in bins.
    """
    arm = one.arm
    if arm is None:
        return None
    view = _view(one, arm, most_points)
    failed = sum(each.errors for each in view.bins)
    most = max((each.backlog.total for each in view.bins), default=0)
    binned = view.binned
    words = [f"{num(len(view.samples), 'request')} in {short(round(view.length_s, 1))} s", f"{failed} failed"]
    words += [f"backlog at most {most}", *(f"{what} at {short(round(at, 1))} s" for at, _, what in view.moments)]
    words += [f"{window.words} from {short(window.start_s)} s to {short(window.end_s)} s" for window in view.windows]
    caption = "Time to first token by when a request was due; below, how many were due and not ended."
    if binned:
        step = view.bins[0].span.length_s if view.bins else 0.0
        caption += (
            f" {len(view.samples)} requests are drawn in bins of {short(_bin_s(view, WIDE))} s: the band holds the"
            f" middle 80 %, the line is the median. The table has bins of {short(step)} s."
        )
    return Chart(
        name=name,
        title=f"The {clean(arm.name)} arm over time",
        says=f"The {clean(arm.name)} arm: {', '.join(words)}.",
        wide=_drawn(view, WIDE),
        narrow=_drawn(view, NARROW),
        table=_table(view.bins),
        keys=tuple(_keys(view, binned, failed)),
        caption=caption,
    )


def _keys(view: _View, binned: bool, failed: int) -> Iterator[Key]:
    if binned:
        yield Key(shape="area", look="band", words="p10 to p90")
    else:
        yield Key(shape="dot", look="dots calm", words="a request")
        if view.disturbed:
            yield Key(shape="dot", look="dots hit", words="under way while a fault acted")
    yield Key(shape="line", look="median", words="median")
    if failed:
        yield Key(shape="cross", look="cross", words="failed")
    if view.windows:
        yield Key(shape="area", look="window", words="faults act" if len(view.windows) > 1 else view.windows[0].words)
    yield Key(shape="area", look="backlog", words="backlog")
    y = _upright(view, _LATENCY, 0.0)
    for limit in view.limits:
        beyond = "" if y.holds(limit.value_s) else " (beyond the chart)"
        yield Key(shape="line", look="limit", words=limit.text + beyond)
    if view.deeds:
        yield Key(shape="deed", look="deed", words="done to the target")
    looks = {look: words for _, look, words in view.moments}
    yield from (Key(shape="line", look=look, words=words) for look, words in looks.items())


def limits_of(one: Shown, metric: str) -> tuple[Limit, ...]:
    """The bounds on a time that are a number of seconds."""
    return tuple(
        Limit(text=clean(bound.text), value_s=bound.value, quantile=bound.quantile)
        for bound in one.trial.experiment.hypothesis
        if bound.metric == metric and bound.against is None
    )


def _view(one: Shown, arm: Arm, most_points: int) -> _View:
    made, is_fault = one.trial.experiment, arm is one.trial.fault
    samples = took_part(arm.samples, made, arm.length_s)
    length_s = max([arm.length_s, 0.001, *(sample.due_s for sample in samples)])
    spans = disturbances(made) if is_fault and is_disturbed(made) else ()
    windows = [Window(start_s=each.start_s, end_s=each.end_s, words=fault_words(each, 1)) for each in made.faults]
    if made.extra is not None:
        end_s = made.extra.start_s + made.extra.load.duration_s
        windows.append(Window(start_s=made.extra.start_s, end_s=end_s, words="more load"))
    if not windows:
        windows = [Window(start_s=span.start_s, end_s=span.end_s, words="more load") for span in spans]
    hit = (
        {each.index for each in samples if phase_of(each, spans, 0.0, arm.length_s) is Phase.DURING} if spans else set()
    )
    return _View(
        length_s=length_s,
        samples=samples,
        bins=timeline(arm, made),
        windows=tuple(sorted(windows, key=lambda each: each.start_s)) if spans else (),
        moments=tuple(_moments(one, arm, max((span.end_s for span in spans), default=0.0))),
        limits=limits_of(one, "ttft"),
        disturbed=frozenset(hit),
        backlogs=tuple(_backlogs(samples, length_s)),
        deeds=arm.deeds[:MOST_DEEDS] if is_fault else (),
        binned=len(samples) > most_points,
    )


def _backlogs(samples: Sequence[Sample], length_s: float) -> Iterator[tuple[float, int]]:
    """(begin, most that waited) of short stretches of time."""
    backlog, num_bins = Backlog(samples, length_s), (WIDE - 60) // _PX_PER_BIN
    for place in range(num_bins):
        span = Span(place * length_s / num_bins, (place + 1) * length_s / num_bins)
        yield span.start_s, backlog.peak(span).total


def _moments(one: Shown, arm: Arm, last_s: float) -> Iterator[tuple[float, str, str]]:
    back = one.study.recovery if arm is one.trial.fault else None
    if back is not None and back.after_s is not None and last_s:
        yield last_s + back.after_s, "moment back", _BACK
    for death in settled(arm.deaths):
        yield death.at_s, "moment died", _DIED
    if arm.stopped:
        yield arm.length_s, "moment died", _STOPPED


# ── the drawing ──────────────────────────────────────────────────────────────────────────────────


def _drawn(view: _View, width: int) -> Drawing:
    named = view.windows[:MOST_LABELS]
    head = _ROW * (len(named) + bool(view.moments)) + _LABELS + 4.0
    top = head + _STRIP
    bottom = top + _LATENCY
    below, ground_y = bottom + 30, bottom + 30 + _BACKLOG
    y = _upright(view, bottom, top)
    most = max((count for _, count in view.backlogs), default=1)
    piled = linear(0, max(1, most), ground_y, below, title="backlog")
    left = max(44.0, margin(y, piled))  # ("failed" stands there)
    x = linear(0, view.length_s, left, width - 10, words=lambda tick: f"{tick:.6g} s")
    log = ", log scale" if y.scale.is_log else ""
    marks: list[Mark] = [text(0, 12, f"TTFT, {y.title}{log}", "title")]
    for window in view.windows:
        begin, end = x.at(window.start_s), x.at(window.end_s)
        title = f"{window.words}, {short(window.start_s)}–{short(window.end_s)} s"
        marks.append(rect(begin, head - 6, end - begin, ground_y - head + 6, "window", title=title))
    for row, window in enumerate(named):
        marks.append(_label(x, (window.start_s + window.end_s) / 2, _LABELS - 4.0 + _ROW * row, window.words, "warn"))
    marks += _latency(view, x, y, head)
    marks += _pile(view, x, piled)
    for deed in view.deeds:
        title = f"{clean(deed.what)} by {clean(deed.fault)} at {seconds(deed.at_s)}"
        marks.append(path(f"M{x.at(deed.at_s):.1f} {bottom:.1f}l-5 9h10z", "deed", title=title))
    for at_s, look, words in view.moments:
        marks.append(line(x.at(at_s), head - 6, x.at(at_s), ground_y, look, title=f"{words} at {seconds(at_s)}"))
        marks.append(_label(x, at_s, _LABELS - 4.0 + _ROW * len(named), words, look.replace("moment", "said")))
    return Drawing(width=width, height=ground_y + 26, marks=(*marks, *ground(x, ground_y)))


def _upright(view: _View, bottom: float, top: float) -> Axis:
    """The axis of latencies, in the unit that is its title."""
    values = [value for each in view.samples if math.isfinite(value := ttft_s(each))]
    unit, name = unit_of(max(values, default=1.0))
    others = [limit.value_s for limit in view.limits]
    return fitted(values, bottom, top, others=others, words=lambda tick: f"{tick / unit:.6g}", title=name)


def _label(x: Axis, at_s: float, y: float, words: str, look: str) -> Mark:
    """Words over a moment, kept inside the drawing."""
    words = shortened(words, x.end)
    half, at = 3.4 * len(words), x.at(at_s)
    return text(max(half, min(x.end - half, at)), y, words, look, anchor="middle")


def _bin_s(view: _View, width: int) -> float:
    return float(f"{view.length_s / ((width - 60) / _PX_PER_BIN):.2g}")


def _latency(view: _View, x: Axis, y: Axis, head: float) -> list[Mark]:
    marks = grid(x, replace(y, title=""), x_words=False)
    for limit in view.limits:
        if y.holds(limit.value_s):
            marks.append(line(x.start, y.at(limit.value_s), x.end, y.at(limit.value_s), "limit", title=limit.text))
    step_s = _bin_s(view, int(x.end + 10))
    stacks = _stacks(view, step_s)
    if view.binned:
        tops = [(x.at(at_s), y.at(value_at(told, 0.9))) for at_s, told in stacks]
        lows = [(x.at(at_s), y.at(value_at(told, 0.1))) for at_s, told in stacks]
        marks.append(path(area(tops, lows), "band"))
    else:
        for look, wanted in (("dots calm", False), ("dots hit", True)):
            points = [
                (x.at(each.due_s), y.at(value))
                for each in view.samples
                if (each.index in view.disturbed) is wanted and math.isfinite(value := ttft_s(each))
            ]
            marks += [path(dots(points), look)] if points else []
    middle = stacks if view.binned else _stacks(view, max(step_s, view.bins[0].span.length_s))
    step_s = middle[1][0] - middle[0][0] if len(middle) > 1 else 0.0
    step_s = min([step_s, *(later - earlier for (earlier, _), (later, _) in pairwise(middle))])
    lines, last_s = [], -math.inf
    for at_s, told in middle:  # where nothing came, the line is broken
        if at_s - last_s > 1.5 * step_s:
            lines.append([(x.at(at_s), y.at(value_at(told, 0.5)))])
        else:
            lines[-1].append((x.at(at_s), y.at(value_at(told, 0.5))))
        last_s = at_s
    marks.append(path("".join(map(polyline, lines)), "median"))
    failed = [x.at(each.due_s) for each in view.samples if not answered(each)]
    if failed:
        if view.binned:
            failed = sorted(set(map(round, failed)))
        marks.append(path(crosses((at, head + 7) for at in failed), "cross"))
        marks.append(text(x.start - 6, head + 11, "failed", "tick", anchor="end"))
    return marks


def _stacks(view: _View, step_s: float) -> list[tuple[float, list[float]]]:
    """(middle of a bin, the times of what was due in it, in order), where something came."""
    found: dict[int, list[float]] = {}
    for each in view.samples:
        if math.isfinite(value := ttft_s(each)):
            found.setdefault(int(each.due_s / step_s), []).append(value)
    return [((place + 0.5) * step_s, sorted(found[place])) for place in sorted(found)]


def _pile(view: _View, x: Axis, piled: Axis) -> list[Mark]:
    points: list[Point] = [(x.at(at_s), piled.at(count)) for at_s, count in view.backlogs]
    points.append((x.end, piled.at(0)))
    return [
        path(f"{steps([(x.start, piled.start), *points])}V{piled.start:.1f}Z", "backlog"),
        *grid(x, piled, x_words=False),
    ]


# ── its table ────────────────────────────────────────────────────────────────────────────────────


def _table(bins: Sequence[Bin]) -> Table:
    heads = ("from", "to", "due", "failed", "TTFT p50", "TTFT p90", "answers/s", "backlog", "faults")
    rows = tuple(
        (
            f"{short(round(each.span.start_s, 2))} s",
            f"{short(round(each.span.end_s, 2))} s",
            f"{each.due}",
            f"{each.errors}",
            _seconds(each.ttft_p50_s),
            _seconds(each.ttft_p90_s),
            number(each.rate_per_s),
            f"{each.backlog.total}",
            "act" if each.disturbed else "",
        )
        for each in bins
    )
    return Table(heads=heads, rows=rows, numbers=frozenset(range(8)))


def _seconds(time_s: float) -> str:
    return "–" if math.isnan(time_s) else seconds(time_s)
