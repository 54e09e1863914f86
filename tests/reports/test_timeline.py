"""Cells of a timeline: which hold what, and how it is drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.reports.chaos.timeline import LEVELS, cell_of, fitted, graph, shades, sparkline, track


@pytest.mark.parametrize(
    ("at_s", "length_s", "cell"),
    [(0.0, 10.0, 0), (9.99, 10.0, 9), (10.0, 10.0, 9), (99.0, 10.0, 9), (-1.0, 10.0, 0), (5.0, 10.0, 5), (3.0, 0.0, 0)],
)
def test_times_outside_go_to_the_nearest_cell(at_s: float, length_s: float, cell: int) -> None:
    assert cell_of(at_s, length_s, 10) == cell


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 50))
def test_no_peak_is_lost_however_few_cells_there_are(values: list[int], num_cells: int) -> None:
    cells = fitted(values, num_cells)
    assert len(cells) == num_cells
    assert max(cells) == max(values, default=0)
    assert set(cells) <= {*values, 0}


def test_few_values_fill_many_cells() -> None:
    assert fitted([1, 5], 6) == [1, 1, 1, 5, 5, 5]


def test_sparkline_is_highest_where_most_was() -> None:
    assert sparkline([0, 4, 8, 1]) == "▁▅█▂"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_sparkline_keeps_the_order_of_its_values(values: list[int]) -> None:
    heights = [LEVELS.index(char) for char in sparkline(values)]
    in_order = [height for _, height in sorted(zip(values, heights, strict=True))]
    assert in_order == sorted(heights)


def test_windows_shade_the_cells_that_they_reach_into() -> None:
    assert shades([(2.0, 4.0)], 10.0, 10) == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert shades([(2.0, 4.5), (4.0, 6.0)], 10.0, 10) == [0, 0, 1, 1, 2, 1, 0, 0, 0, 0]
    assert shades([(3.2, 3.3)], 10.0, 10)[3] == 1
    assert shades([(9.0, 99.0)], 10.0, 10) == [0] * 9 + [1]
    assert shades([], 10.0, 3) == [0, 0, 0]


def test_track_shades_what_acts_and_draws_lighter_what_is_to_come() -> None:
    acting = [0, 1, 1, 2, 1, 0]
    assert track(acting, {2: ("✗", "red")}).plain == "─▒✗▓▒─"
    assert track(acting, {}, now=1).plain == "─▒░░░·"


def test_graph_is_another_colour_where_faults_act() -> None:
    line = graph([1, 2, 3], [0, 1, 0])
    assert line.plain == sparkline([1, 2, 3])
    assert [(span.start, span.end) for span in line.spans if span.style == "yellow"] == [(1, 2)]
