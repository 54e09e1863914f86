"""Points in the plane as lines of a terminal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.reports.pareto.plot import ACROSS, DOWN, Side, Spot, scale, scatter

INF = math.inf
BARE = Side(title="x")


def drawn(*spots: Spot, across: Side = BARE, up: Side = BARE, width: int = 60, height: int = 10) -> list[str]:
    return [line.plain for line in scatter(spots, across, up, width, height).lines]


def column(line: str, sign: str) -> int:
    return line.index(sign)


def test_more_is_up_and_right() -> None:
    lines = drawn(Spot(x=1, y=1, sign="a"), Spot(x=5, y=9, sign="b"), Spot(x=9, y=5, sign="c"))
    rows = {sign: next(place for place, line in enumerate(lines) if sign in line) for sign in "abc"}
    assert rows["b"] < rows["c"] < rows["a"]
    assert column(lines[rows["a"]], "a") < column(lines[rows["b"]], "b") < column(lines[rows["c"]], "c")


def test_axes_have_titles_and_round_numbers_at_their_places() -> None:
    spots = [Spot(x=x, y=2 * x, sign="o") for x in (0, 10, 20, 40)]
    lines = drawn(*spots, across=Side(title="p99 ttft, ms"), up=Side(title="tokens/s"), width=70, height=20)
    assert lines[0] == "tokens/s"
    assert lines[-1].endswith("p99 ttft, ms")
    assert len(lines[-1]) == 70
    marks = [place for place, char in enumerate(lines[-3]) if char == "┬"]
    labels = [(part, lines[-2].index(part)) for part in lines[-2].split()]
    assert len(marks) == len(labels) >= 4
    assert all(abs(at - mark) <= 1 for mark, (_, at) in zip(marks, labels, strict=True))
    for spot in spots[1:]:
        row = next(line for line in lines if line.lstrip().startswith(f"{spot.y:g} ┤"))
        assert "o" in row


@pytest.mark.parametrize(("most", "is_log"), [(19.0, False), (21.0, True)])
def test_a_span_of_more_than_twenty_times_is_logarithmic(most: float, is_log: bool) -> None:
    assert scale([1.0, most], [], 40).is_log is is_log
    lines = drawn(Spot(x=1, y=1, sign="a"), Spot(x=most, y=1, sign="b"), across=Side(title="x"))
    assert lines[-1].endswith("x, log scale") is is_log


def test_logarithms_give_equal_room_to_equal_ratios() -> None:
    along = scale([1.0, 10.0, 100.0], [], 90)
    first, second, third = (along.at(value) for value in (1.0, 10.0, 100.0))
    assert abs((second - first) - (third - second)) <= 1
    assert along.ticks(9) == [1, 2, 5, 10, 20, 50, 100]
    assert along.ticks(3) == [1, 10, 100]


def test_values_that_are_not_positive_are_never_logarithmic() -> None:
    for values in ([0.0, 1.0, 1000.0], [-5.0, 5.0]):
        along = scale(values, [], 30)
        assert not along.is_log
        assert all(0 <= along.at(value) < 30 for value in values)


def test_intervals_are_crosses_where_they_are_larger_than_a_cell() -> None:
    whole = Spot(x=5, y=5, sign="o", x_ends=(3, 7), y_ends=(3, 7))
    tight = Spot(x=9, y=9, sign="t", x_ends=(8.999, 9.001), y_ends=(8.999, 9.001))
    unknown = Spot(x=1, y=1, sign="u", x_ends=(-INF, INF), y_ends=(-INF, INF))
    lines = drawn(whole, tight, unknown, width=60, height=20)
    [row] = [line for line in lines if "o" in line]
    assert "──o──" in row
    at = row.index("o")
    assert sum(line[at : at + 1] == "│" for line in lines) >= 4
    for sign in "tu":
        [row] = [line for line in lines if sign in line]
        assert "─" not in row


def test_an_interval_that_goes_far_ends_at_the_edge() -> None:
    far = Spot(x=2, y=2, sign="o", x_ends=(0.5, 1e6))
    lines = drawn(far, Spot(x=1, y=1, sign="a"), Spot(x=3, y=3, sign="b"))
    [row] = [line for line in lines if "o" in line]
    assert row.endswith("─")
    assert len(row) == 60


def test_limits_are_lines() -> None:
    spots = [Spot(x=x, y=x, sign="o") for x in (1.0, 2.0, 3.0)]
    across, up = Side(title="x", limits={"x < 2.5": 2.5}), Side(title="y", limits={"y > 1.5": 1.5})
    lines = drawn(*spots, across=across, up=up, height=12)
    assert sum(DOWN in line for line in lines) == 12
    assert sum(ACROSS in line for line in lines) == 1
    far = scatter(spots, Side(title="x", limits={"x < 90": 90.0}), up, 60, 12)
    assert far.beyond == ("x < 90",)
    assert not any(DOWN in line.plain for line in far.lines)


def test_the_greatest_rank_is_seen_and_what_is_hidden_is_counted() -> None:
    spots = [Spot(x=1, y=1, sign="c", rank=2), Spot(x=1, y=1, sign="a", rank=0), Spot(x=2, y=2, sign="b")]
    plot = scatter(spots, BARE, BARE, 60, 10)
    text = "\n".join(line.plain for line in plot.lines)
    assert "c" in text
    assert "a" not in text
    assert plot.num_hidden == 1


def test_nothing_and_one_spot() -> None:
    assert scatter([], BARE, BARE, 60, 10).lines == ()
    for value in (0.0, 5.0, -3.0, 1e-9, 1e9):
        lines = drawn(Spot(x=value, y=value, sign="o"))
        assert sum("o" in line for line in lines) == 1


NUMBERS = st.floats(-1e9, 1e9, allow_nan=False, allow_subnormal=True) | st.floats(1e-6, 1e9)
ENDS = st.none() | st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair))) | st.just((-INF, INF))


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.builds(Spot, x=NUMBERS, y=NUMBERS, sign=st.just("@"), x_ends=ENDS, y_ends=ENDS), min_size=1, max_size=9
    ),
    st.lists(NUMBERS, max_size=2),
    st.integers(24, 140),
    st.integers(4, 20),
)
def test_whatever_is_drawn_fits(spots: list[Spot], limits: list[float], width: int, height: int) -> None:
    side = Side(title="title", limits={str(limit): limit for limit in limits})
    plot = scatter(spots, side, side, width, height)
    assert all(line.cell_len <= width for line in plot.lines)
    assert sum(line.plain.count("@") for line in plot.lines) == len(spots) - plot.num_hidden
    assert all(line.plain == line.plain.rstrip() for line in plot.lines)
