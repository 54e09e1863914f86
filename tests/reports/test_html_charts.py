"""Charts as numbers and path strings: what is drawn where, and what the caption admits."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.quantiles import Distribution
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.charts import arm, axis, bars, drawing, ecdf, flame, forest, frontier, lines
from contextlab.reports.charts.drawing import Chart, Drawing
from contextlab.reports.page import sweep
from contextlab.reports.pareto import figures as pareto_figures
from tests.reports import chaos_sample, pareto_sample

FINITE = st.floats(min_value=-1e9, max_value=1e9)


def looks(drawn: Drawing, look: str) -> list[drawing.Mark]:
    """The marks of a class."""
    return [mark for mark in drawn.marks if mark.attributes.get("class") == look]


def words(drawn: Drawing) -> list[str]:
    return [mark.text for mark in drawn.marks if mark.text]


# ── points and paths ─────────────────────────────────────────────────────────────────────────────


def test_paths_are_short_strings() -> None:
    points = [(1.0, 2.04), (3.25, -0.01)]
    assert drawing.polyline(points) == "M1 2L3.2 0"
    assert drawing.steps(points) == "M1 2H3.2V0"
    assert drawing.area(points, [(1.0, 5.0), (3.0, 5.0)]) == "M1 2L3.2 0L3 5L1 5Z"
    assert drawing.dots(points) == "M1 2h0M3.2 0h0"
    assert drawing.crosses([(5.0, 5.0)]) == "M2 2l6 6m-6 0l6 -6"
    assert [make([]) for make in (drawing.polyline, drawing.steps, drawing.dots, drawing.crosses)] == [""] * 4
    assert drawing.area([], []) == ""


@given(st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=300), st.integers(min_value=2, max_value=50))
def test_thinned_keeps_the_ends_and_the_order(points: list[tuple[float, float]], most: int) -> None:
    kept = drawing.thinned(points, most)
    assert len(kept) == min(most, len(points))
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    rest = iter(points)
    assert all(each in rest for each in kept)


def test_words_that_do_not_fit_end_in_a_sign() -> None:
    assert drawing.shortened("n_ctx", 100) == "n_ctx"
    assert drawing.shortened("x" * 99, 68) == "x" * 9 + "…"


# ── axes ─────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=30))
def test_an_axis_holds_its_values_in_order(values: list[float]) -> None:
    made = axis.fitted(values, 300, 20)
    places = [made.at(value) for value in sorted(values)]
    assert places == sorted(places, reverse=True)
    assert all(20 <= place <= 300 for place in places)
    assert all(20 <= made.at(tick) <= 300 for tick in made.ticks(30))


def test_what_is_beyond_an_axis_stands_at_its_end() -> None:
    made = axis.linear(0, 10, 0, 100)
    assert [made.at(value) for value in (-5, 0, 5, 10, math.inf, math.nan)] == [0, 0, 50, 100, 100, 0]
    assert made.holds(10)
    assert not made.holds(10.1)
    wide = axis.fitted([0.001, 1.0], 0, 100, title="s")
    assert wide.shown_title == "s, log scale"
    assert wide.at(-1.0) == 0


# ── limits ───────────────────────────────────────────────────────────────────────────────────────


def test_limits_are_bars_against_the_window() -> None:
    made = [
        bars.Bar(layer="positions", name="n_ctx_train", tokens=8192, source="GGUF"),
        bars.Bar(layer="engine", name="n_ctx", tokens=512, source="/props", look="binds"),
        bars.Bar(layer="tokenizer", name="max", tokens=None, source="-"),
    ]
    chart = bars.limits(made, 512, "Two limits.")
    widths = {mark.title: float(mark.attributes["width"]) for mark in chart.wide.marks if mark.tag == "rect"}
    assert widths["8192 tokens"] / widths["512 tokens"] == pytest.approx(bars.MOST_WINDOWS, rel=0.01)
    assert {"window 512", "8192", "not declared"} <= set(words(chart.wide))
    assert len([mark for mark in chart.wide.marks if mark.tag == "path"]) == 1  # the arrow of what goes on
    assert chart.table.rows[1] == ("engine", "n_ctx", "512", "/props", "met first")


# ── chaos ────────────────────────────────────────────────────────────────────────────────────────


def timeline(run: object, most_points: int = drawing.MOST_POINTS) -> Chart:
    (one, *_), _ = chaos_figures.shown(run)  # type: ignore[arg-type]
    chart = arm.chart(one, "timeline", most_points)
    assert chart is not None
    return chart


def test_a_timeline_draws_every_request_once() -> None:
    run = chaos_sample.damaged()
    chart = timeline(run)
    (one,), _ = chaos_figures.shown(run)
    assert one.arm is not None
    num_dots = sum(
        str(mark.attributes["d"]).count("h0") for look in ("dots calm", "dots hit") for mark in looks(chart.wide, look)
    )
    assert num_dots == sum(bool(sample.content_s) for sample in one.arm.samples)
    assert len(looks(chart.wide, "window")) == 2
    (failed,) = looks(chart.wide, "cross")
    assert str(failed.attributes["d"]).count("M") == sum(int(row[3]) for row in chart.table.rows)
    assert "cut at event:5" in words(chart.wide)


def test_many_requests_are_binned_and_the_caption_says_so() -> None:
    chart = timeline(chaos_sample.loss(), most_points=100)
    assert not looks(chart.wide, "dots calm")
    assert looks(chart.wide, "band")
    assert re.search(r"\d+ requests are drawn in bins of [\d.]+ s", chart.caption)
    assert "p10 to p90" in [key.words for key in chart.keys]


def test_moments_are_marked_where_they_were() -> None:
    chart = timeline(chaos_sample.beside())
    assert {"died", "recovered"} <= set(words(chart.wide))
    assert len(looks(chart.wide, "deed")) == 3
    (died,) = looks(chart.wide, "moment died")
    (back,) = looks(chart.wide, "moment back")
    assert float(died.attributes["x1"]) < float(back.attributes["x1"])
    assert "died at 24.2 s" in chart.says


def test_the_control_has_no_windows() -> None:
    chart = timeline(chaos_sample.gate())
    assert chart.title == "The control arm over time"
    assert not looks(chart.wide, "window")


def test_the_median_breaks_where_nothing_came() -> None:
    (median,) = looks(timeline(chaos_sample.beside()).wide, "median")
    assert str(median.attributes["d"]).count("M") > 1


def test_an_ecdf_ends_where_failures_begin() -> None:
    times = Distribution([value] for value in [*([0.1] * 60), *([math.inf] * 40)])
    curve = ecdf.Curve(name="during", ordered=times.ordered, quantiles=tuple(map(times.quantile, ecdf.SHOWN)))
    limit = ecdf.Limit(text="p90 ttft < 96ms", value_s=0.096, quantile=0.9)
    chart = ecdf.ecdf("x", "TTFT", [curve], [limit])
    assert chart is not None
    assert "40 failed" in chart.says
    assert "ends below 100 %" in chart.caption
    (drawn,) = looks(chart.wide, "curve s0")
    end_px = float(str(drawn.attributes["d"]).rpartition("V")[2])
    top_px, bottom_px = 34.0, 254.0
    assert (bottom_px - end_px) / (bottom_px - top_px) == pytest.approx(0.6, abs=0.01)
    assert looks(chart.wide, "limit")
    assert chart.table.rows[0][3].startswith("100 ms")
    assert ecdf.ecdf("x", "TTFT", [replace(curve, ordered=[math.inf])]) is None


def test_a_bound_that_is_far_away_is_named_all_the_same() -> None:
    times = Distribution([value / 1000] for value in range(40, 50))
    curve = ecdf.Curve(name="a", ordered=times.ordered, quantiles=tuple(map(times.quantile, ecdf.SHOWN)))
    chart = ecdf.ecdf("x", "TTFT", [curve], [ecdf.Limit(text="p90 ttft < 9s", value_s=9.0, quantile=0.9)])
    assert chart is not None
    assert "p90 ttft < 9s (beyond the chart)" in [key.words for key in chart.keys]


def test_readings_are_lines_with_the_faults_behind() -> None:
    series = [lines.Series(name="target", points=[(float(place), place % 3) for place in range(500)])]
    chart = lines.lines("x", "Processors", "processors", series, [(10.0, 20.0)], 500.0)
    assert chart is not None
    assert "Thinned" in chart.caption
    assert looks(chart.wide, "window")
    assert len(chart.table.rows) == lines.MOST_READINGS
    assert lines.lines("x", "Processors", "processors", [lines.Series(name="a", points=[(0, 1)])], [], 1.0) is None


def test_where_nothing_was_ever_read_but_zero_the_axis_goes_to_one() -> None:
    chart = lines.lines("x", "Requests", "requests", [lines.Series(name="waiting", points=[(0, 0), (9, 0)])], [], 9.0)
    assert chart is not None
    for drawn in (chart.wide, chart.narrow):
        assert {"0", "1"} <= set(words(drawn))
        assert not any("e-" in word for word in words(drawn))


# ── pareto ───────────────────────────────────────────────────────────────────────────────────────


def plot(run: object) -> Chart | None:
    one, _ = pareto_figures.shown(run)  # type: ignore[arg-type]
    assert one is not None
    return frontier.chart(one, sweep.table(one, one.rows))


def test_the_frontier_shows_everyone_and_the_chosen_one() -> None:
    run = pareto_sample.whole()
    one, _ = pareto_figures.shown(run)
    chart = plot(run)
    assert chart is not None
    assert one is not None
    points = [mark for mark in chart.wide.marks if str(mark.attributes.get("class", "")).startswith(("point", "best"))]
    assert len(points) == len(one.rows)
    (best,) = looks(chart.wide, "best")
    assert "slots=4 concurrency=4" in best.title
    (broken,) = looks(chart.wide, "broken")
    assert float(broken.attributes["x"]) + float(broken.attributes["width"]) == pytest.approx(866, abs=0.2)
    assert "Not drawn, because not compared: 1 infeasible, 1 crashed." in chart.caption
    assert looks(chart.wide, "knee")
    assert looks(chart.wide, "cross-member")


def test_one_repeat_has_no_intervals() -> None:
    chart = plot(pareto_sample.once())
    assert chart is not None
    assert "One repeat each" in chart.caption
    assert not [mark for mark in chart.wide.marks if str(mark.attributes.get("class", "")).startswith("cross-")]


def test_nothing_compared_is_no_chart() -> None:
    assert plot(pareto_sample.invalid()) is None


# ── the gate ─────────────────────────────────────────────────────────────────────────────────────


def test_worse_is_to_the_right_and_the_margin_is_drawn() -> None:
    table = drawing.Table(heads=(), rows=())
    effects = [
        forest.Effect(name="ttft", word="REGRESSED", worse=0.2, low=0.15, high=0.25, margin=0.05, look="failed"),
        forest.Effect(name="itl", word="OK", worse=0.0, low=-0.02, high=0.02, margin=0.05, look="held"),
    ]
    chart = forest.forest(effects, "Two.", table, 0.9)
    assert chart is not None
    dots = {
        str(mark.attributes["class"]): float(mark.attributes["cx"]) for mark in chart.wide.marks if mark.tag == "circle"
    }
    margin = max(float(mark.attributes["x1"]) for mark in looks(chart.wide, "limit"))
    (zero,) = (float(mark.attributes["x"]) for mark in chart.wide.marks if mark.text == "no change")
    assert dots["effect held"] == pytest.approx(zero, abs=0.2)
    assert dots["effect held"] < margin < dots["effect failed"]
    assert forest.forest([], "", table, 0.9) is None


# ── profiles ─────────────────────────────────────────────────────────────────────────────────────


def test_stacks_become_bars_as_wide_as_their_share() -> None:
    chart = flame.flame("x", "Profile", ["main;decode;matmul 75", "main;poll 25", "not a stack", ""])
    assert chart is not None
    widths = {mark.title: float(mark.attributes["width"]) for mark in chart.wide.marks if mark.tag == "rect"}
    assert widths["main: 100%"] == pytest.approx(879)
    assert widths["matmul: 75%"] / widths["poll: 25%"] == pytest.approx(3, rel=0.01)
    assert chart.table.rows == (("matmul", "75%", "75"), ("poll", "25%", "25"))
    assert chart.says == "100 samples; most of them ended in matmul, 75%."
    assert flame.flame("x", "Profile", ["nothing"]) is None
