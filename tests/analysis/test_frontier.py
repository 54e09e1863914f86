"""Points, their noise, the frontier, and what is said of it as a whole."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.frontier import (
    Direction,
    Frontier,
    Membership,
    Objective,
    Point,
    Status,
    best_of,
    frontier,
)
from contextlab.analysis.noise import Noise, digamma, drift, inverse_trigamma, prior_variance, t_bound, trigamma
from contextlab.analysis.tradeoffs import (
    Slo,
    bend,
    compare,
    feasibility,
    hypervolume,
    knee,
    measured,
    recommend,
    volume,
)
from contextlab.model import NothingMeasured, UsageError
from tests.quality.systems import GOODPUT, TTFT, concave, kneed, listed, queue

BOTH = (GOODPUT, TTFT)
GRID = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)


def point(x: int, *repeats: tuple[float, ...]) -> Point:
    return Point(settings={"x": x}, repeats=repeats)


def steady(*vectors: tuple[float, ...], spread: float = 0.005) -> list[Point]:
    """Points with five repeats close to a vector."""
    rng = Random(1)
    return [
        point(i, *(tuple(v * rng.gauss(1, spread) for v in vector) for _ in range(5)))
        for i, vector in enumerate(vectors)
    ]


def standings(result: Frontier) -> list[str]:
    return [one.membership.value for one in result.standings]


# ── dominance ──


@given(vectors=GRID)
def test_the_best_are_those_that_none_dominates(vectors: list[tuple[int, int]]) -> None:
    expected = {
        i for i, one in enumerate(vectors) if not any(a >= one[0] and b >= one[1] and (a, b) != one for a, b in vectors)
    }
    floats = [(float(a), float(b)) for a, b in vectors]
    assert set(best_of(floats)) == expected
    assert set(best_of([(*one, 1.0) for one in floats])) == expected  # the way of three objectives


def test_members_dominated_and_ties() -> None:
    result = frontier(steady((100, 0.1), (200, 0.4), (150, 0.5), (100.2, 0.1003)), BOTH)
    assert standings(result) == ["member", "member", "dominated", "member"]
    assert result.standings[2].by == {"x": 1}
    assert all(one.values[0].low < one.values[0].value < one.values[0].high for one in result.standings)


def test_a_sure_tie_in_one_objective_does_not_save_a_point() -> None:
    """Worse by a fifth, and faster by half a percent of what counts as nothing."""
    result = frontier(steady((100, 0.2), (80, 0.199)), BOTH)
    assert standings(result) == ["member", "dominated"]


def test_a_dense_frontier_is_thinned_and_never_emptied() -> None:
    vectors = [(100 * 1.05**i, 0.1 * 1.01**i) for i in range(10)]
    found = standings(frontier(steady(*vectors, spread=0.0005), BOTH))
    assert found[-1] == "member"
    assert 3 <= found.count("member") < 10
    assert found.count("dominated") >= 3


def test_what_is_not_finite_never_is_on_the_frontier() -> None:
    points = steady((100, 0.1), (90, 0.2))
    for bad in (math.nan, math.inf):
        result = frontier([*points, point(9, (500.0, 0.01), (500.0, bad))], BOTH)
        assert result.standings[2].membership is Membership.EXCLUDED
        assert result.standings[2].point.status is Status.INVALID
        assert "repeat 2" in result.standings[2].point.why
        assert standings(result)[0] == "member"


def test_points_that_failed_keep_their_place_and_reason() -> None:
    crashed = Point(settings={"x": 7}, status=Status.CRASHED, why="SIGSEGV")
    result = frontier([crashed, *steady((100, 0.1)), Point(settings={"x": 8})], BOTH)
    assert standings(result) == ["excluded", "member", "excluded"]
    assert result.standings[0].point.why == "SIGSEGV"
    assert result.standings[2].point.status is Status.INVALID
    with pytest.raises(NothingMeasured, match="no setting") as nothing:
        measured(frontier([crashed], BOTH))
    assert "SIGSEGV" in nothing.value.next_step


def test_one_repeat_each_decides_nothing() -> None:
    result = frontier([point(0, (100.0, 0.1)), point(1, (50.0, 0.5))], BOTH)
    assert standings(result) == ["undecided", "undecided"]
    assert result.standings[0].probability is None
    assert result.standings[0].values[0].high == math.inf
    assert recommend(result, [Slo(objective="p90 ttft", op="<", limit=1.0)]).standing is None


def test_values_that_are_zero_or_negative_are_compared_as_they_are() -> None:
    rng = Random(2)
    points = [
        point(i, *((v + rng.gauss(0, 0.01), t + rng.gauss(0, 0.01)) for _ in range(5)))
        for i, (v, t) in enumerate([(0, 1), (-1, 2), (2, 3)])
    ]
    assert standings(frontier(points, BOTH)) == ["member", "dominated", "member"]


def test_equal_seeds_give_equal_answers() -> None:
    points = concave(3).points(Random(3), (0.1, 0.1), 3)
    one, other = (frontier(points, BOTH, seed=5, resamples=200) for _ in range(2))
    assert one == other
    assert one.draws == other.draws


@pytest.mark.parametrize(
    ("points", "objectives", "confidence", "told"),
    [
        ([], (), 0.95, "none"),
        ([], (GOODPUT, GOODPUT), 0.95, "each once"),
        ([], (replace(GOODPUT, epsilon=1.5),), 0.95, "epsilon=1.5"),
        ([], BOTH, 1.0, "confidence=1"),
        ([point(1, (1.0, 1.0)), point(1, (1.0, 1.0))], BOTH, 0.95, "two points"),
    ],
)
def test_what_cannot_be_meant(
    points: list[Point], objectives: tuple[Objective, ...], confidence: float, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        frontier(points, objectives, confidence=confidence)


def test_a_third_objective_that_is_equal_changes_nothing() -> None:
    """The quick way of two objectives against the plain one of three, of which one is the same for all."""
    points = queue(3, slots=(1, 2), batch=(128, 512), concurrency=(1, 2, 4)).points(Random(3), (0.05, 0.05), 3)
    three = [replace(one, repeats=tuple((*vector, 1.0) for vector in one.repeats)) for one in points]
    constant = Objective(name="memory", direction=Direction.DOWN)
    two_way, three_way = frontier(points, BOTH), frontier(three, (*BOTH, constant))
    assert [one.probability for one in two_way.standings] == [one.probability for one in three_way.standings]


# ── noise ──


def test_polygamma_functions() -> None:
    assert digamma(1.0) == pytest.approx(-0.5772156649, abs=1e-8)
    assert trigamma(0.5) == pytest.approx(math.pi**2 / 2, abs=1e-6)
    assert inverse_trigamma(trigamma(3.7)) == pytest.approx(3.7, rel=1e-6)


def test_alike_noise_is_pooled_and_unlike_noise_is_not() -> None:
    rng = Random(4)
    alike = [(fmean(rng.gauss(0, 1) ** 2 for _ in range(4)), 4) for _ in range(400)]
    variance, degrees = prior_variance(alike)
    assert variance == pytest.approx(1.0, rel=0.2)
    assert degrees > 20
    unlike = [(value * 10.0 ** rng.uniform(-2, 2), one) for value, one in alike]
    assert prior_variance(unlike)[1] < 4


def test_bounds_are_wide_where_little_is_known() -> None:
    assert t_bound(0.975, 0.5) == math.inf
    assert t_bound(0.975, 4) == pytest.approx(2.776, abs=1e-3)
    assert t_bound(0.975, 1e9) == pytest.approx(1.960, abs=1e-3)


def test_draws_scatter_as_the_means_do_and_keep_objectives_together() -> None:
    rng = Random(6)
    samples = []
    for _ in range(30):
        common = [rng.gauss(0, 0.1) for _ in range(4)]
        samples.append([(one, -one + rng.gauss(0, 0.01)) for one in common])
    drawn = Noise(samples).draws(Random(1), 2000)
    first = [row[0] for row in drawn]
    middle = [fmean(column) for column in zip(*first, strict=True)]
    spread = [math.sqrt(fmean((v[j] - middle[j]) ** 2 for v in first)) for j in (0, 1)]
    assert spread[0] == pytest.approx(0.1 / 2, rel=0.2)
    assert fmean((a - middle[0]) * (b - middle[1]) for a, b in first) / spread[0] / spread[1] < -0.9


def test_drift() -> None:
    rng = Random(8)
    times = [60.0 * i for i in range(8)]
    vectors = [(100 * (1 - 0.02 * i) * rng.gauss(1, 0.005), 0.1 * rng.gauss(1, 0.02)) for i in range(8)]
    falling, level = drift(times, vectors, ["goodput", "ttft"], 0.95)
    assert falling.shown
    assert falling.change.low < -0.14 / 0.93 < falling.change.high
    assert not level.shown
    assert drift(times[:2], vectors[:2], ["goodput", "ttft"], 0.95) == ()


# ── the frontier as a whole ──


def test_volumes() -> None:
    assert volume([(3.0, 1.0), (2.0, 0.5), (1.0, 3.0)], BOTH, (0.0, 2.0)) == pytest.approx(3 * 1 + 2 * 0.5)
    three = (*BOTH, Objective(name="memory", direction=Direction.DOWN))
    assert volume([(2.0, 1.0, 1.0)], three, (0.0, 3.0, 4.0)) == pytest.approx(2 * 2 * 3)
    assert volume([(2.0, 1.0, 1.0), (1.0, 0.0, 3.0)], three, (0.0, 3.0, 4.0)) == pytest.approx(12 + 1 * 1 * 1)
    assert volume([], BOTH, (0.0, 1.0)) == 0
    for reference in ((0.0,), (0.0, math.inf)):
        with pytest.raises(UsageError):
            volume([(1.0, 1.0)], BOTH, reference)


@given(vectors=st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1, max_size=6))
def test_a_volume_of_three_is_the_sum_of_its_cells(vectors: list[tuple[float, float, float]]) -> None:
    up = tuple(Objective(name=name, direction=Direction.UP) for name in "abc")
    edges = [sorted({0.0, *column}) for column in zip(*vectors, strict=True)]
    cells = 0.0
    for x0, x1 in zip(edges[0], edges[0][1:], strict=False):
        for y0, y1 in zip(edges[1], edges[1][1:], strict=False):
            for z0, z1 in zip(edges[2], edges[2][1:], strict=False):
                if any(x >= x1 and y >= y1 and z >= z1 for x, y, z in vectors):
                    cells += (x1 - x0) * (y1 - y0) * (z1 - z0)
    assert volume(vectors, up, (0.0, 0.0, 0.0)) == pytest.approx(cells)


def test_knee() -> None:
    result = frontier(kneed(1).points(Random(1), (0.01, 0.01), 5), BOTH, resamples=300)
    found = knee(result)
    assert found is not None
    assert found.settings["server"] == 0
    assert 6 < float(str(found.settings["concurrency"])) < 11  # the corner is at 8
    assert found.values[0].low <= found.values[0].value <= found.values[0].high
    assert found.probability + found.none + sum(share for _, share in found.others) == pytest.approx(1)
    low, high = found.ranges["concurrency"]
    assert low <= float(str(found.settings["concurrency"])) <= high


def test_no_knee_where_there_is_none() -> None:
    assert bend([(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]) is None
    assert bend([(1.0, 3.0), (3.0, 1.0)]) is None
    assert bend([(1.0, 3.0), (2.8, 2.8), (3.0, 1.0)]) == 1
    assert knee(frontier(steady((100, 0.1), (200, 0.4)), BOTH)) is None
    assert knee(frontier([], BOTH)) is None


def test_best_under_an_slo() -> None:
    result = frontier(steady((100, 0.1), (200, 0.4), (300, 2.0), (250, 0.5), spread=0.02), BOTH)
    slo = Slo(objective="p90 ttft", op="<", limit=0.45)
    found = recommend(result, [slo])
    assert found.standing is not None
    assert found.standing.point.settings == {"x": 1}
    assert found.feasible[0] == 1.0
    assert found.feasible[2] == 0.0
    close = recommend(result, [replace(slo, limit=0.401)])
    assert close.standing is not None
    assert close.standing.point.settings == {"x": 0}  # the second is not proven
    none = recommend(result, [replace(slo, limit=0.05)])
    assert none.standing is None
    assert "none is proven feasible" in none.why
    both = [slo, Slo(objective="goodput", op=">=", limit=150.0)]
    assert feasibility(result, both)[0] == 0.0
    for bad in (Slo(objective="itl", op="<", limit=1.0), replace(slo, op="=")):
        with pytest.raises(UsageError):
            feasibility(result, [bad])


def test_a_better_frontier_is_told_from_an_equal_one() -> None:
    system = concave(2)
    faster = replace(system, truth=tuple((g * 1.2, t) for g, t in system.truth))
    old, same, new = (
        frontier(one.points(Random(seed), (0.03, 0.03), 5), BOTH, resamples=300, seed=seed)
        for seed, one in enumerate((system, system, faster))
    )
    found, alike = compare(old, new, (50.0, 2.0)), compare(old, same, (50.0, 2.0))
    assert found.verdict == "better"
    assert found.shift is not None
    assert found.shift.low < 0.2 < found.shift.high
    assert compare(new, old, (50.0, 2.0)).verdict == "worse"
    assert alike.verdict == "not told apart"
    assert alike.missing == ()


def test_what_cannot_be_compared() -> None:
    one = frontier(steady((100, 0.1), (200, 0.4)), BOTH)
    with pytest.raises(NothingMeasured, match="different objectives"):
        compare(one, frontier(steady((100, 0.1)), (GOODPUT, replace(TTFT, name="itl"))), (1.0, 1.0))
    with pytest.raises(NothingMeasured, match="reference"):
        compare(one, one, (500.0, 1.0))
    with pytest.raises(NothingMeasured):
        compare(frontier([], BOTH), one, (1.0, 1.0))


def test_intervals_hold_what_they_promise() -> None:
    """Of 95 %: values of 3 repeats each, and the hypervolume of noisy points, which is flattered."""
    inside = total = held = 0
    systems = [queue(seed, slots=(1, 2, 4), batch=(128, 512), concurrency=(1, 2, 4, 8)) for seed in range(24)]
    for seed, system in enumerate(systems):
        result = frontier(system.points(Random(seed), (0.1, 0.1), 3), BOTH, seed=seed, resamples=200)
        for standing, truth in zip(result.standings, system.truth, strict=True):
            total += len(truth)
            inside += sum(one.low <= value <= one.high for one, value in zip(standing.values, truth, strict=True))
        best = [system.truth[i] for i in system.on_frontier()]
        reference = (min(g for g, _ in best) * 0.9, max(t for _, t in best) * 1.1)
        found = hypervolume(result, reference)
        held += found.low <= volume(system.truth, BOTH, reference) <= found.high
    assert 0.90 <= inside / total <= 0.98
    assert held >= 19


def test_one_point_alone_is_the_frontier() -> None:
    system = listed("one", [(10.0, 1.0)])
    assert standings(frontier(system.points(Random(1), (0.1, 0.1), 2), BOTH)) == ["member"]
