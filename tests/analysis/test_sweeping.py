"""Axes, the race, knee, hypervolume and SLOs of a sweep, on numbers made by hand."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab import registry
from contextlab.analysis.axes import Declared, config_hash, grid, parse_axes
from contextlab.analysis.frontier import Direction, Membership, Objective, Point, Status, best_of, frontier
from contextlab.analysis.racing import BASELINE_EVERY, Race, Result
from contextlab.analysis.tradeoffs import Slo, compare, hypervolume, knee, one_of, recommend, volume
from contextlab.model import Setting, UsageError

GOALS = (Objective(name="speed", direction=Direction.UP), Objective(name="wait", direction=Direction.DOWN))
AXES = {
    "slots": Declared(setting=Setting(name="slots", kind="int", default=1, low=1, high=64, help=""), restarts=True),
    "load": Declared(setting=Setting(name="load", kind="float", default=1.0, low=0.0, help="")),
    "kind": Declared(setting=Setting(name="kind", kind="text", default="a", choices=("a", "b"), help="")),
}


def points(*vectors: tuple[float, float], repeats: int = 4, cv: float = 0.01) -> list[Point]:
    """A setting for each vector, measured a few times with a little noise."""
    rng = Random(1)
    return [
        Point(
            settings={"x": number},
            repeats=tuple((a * rng.gauss(1, cv), b * rng.gauss(1, cv)) for _ in range(repeats)),
        )
        for number, (a, b) in enumerate(vectors)
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("slots=1,2,4", (1, 2, 4)),
        ("slots=1..4", (1, 2, 3, 4)),
        ("slots=2..16x2", (2, 4, 8, 16)),
        ("slots=10..40+10", (10, 20, 30, 40)),
        ("load=0.5,1.5", (0.5, 1.5)),
        ("kind=a,b", ("a", "b")),
    ],
)
def test_an_axis(text: str, values: tuple[object, ...]) -> None:
    [axis] = parse_axes([text], AXES, registry.parse_setting)
    assert axis.values == values


@pytest.mark.parametrize(
    "text", ["slot=1", "slots", "slots=", "slots=4..1", "slots=1,1", "slots=0", "slots=1..4x1", "kind=c", "slots=1..99"]
)
def test_an_axis_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(UsageError):
        parse_axes([text], AXES, registry.parse_setting)


def test_what_restarts_comes_first_and_the_hash_knows_no_order() -> None:
    axes = parse_axes(["load=1,2", "slots=1,2"], AXES, registry.parse_setting)
    assert [axis.name for axis in axes] == ["slots", "load"]
    assert len(grid(axes)) == 4
    assert config_hash({"a": 1, "b": 2.0}) == config_hash({"b": 2, "a": 1})
    assert config_hash({"a": 1}) != config_hash({"a": 2})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_nothing_dominates_what_is_best(vectors: list[tuple[int, int]]) -> None:
    best = best_of([(float(a), float(b)) for a, b in vectors])
    for place, (a, b) in enumerate(vectors):
        dominated = any(c >= a and d >= b and (c, d) != (a, b) for c, d in vectors)
        assert (place in best) is not dominated


def test_what_is_not_finite_or_broken_is_never_on_the_frontier() -> None:
    found = [*points((10, 1.0), (5, 0.5)), Point(settings={"x": 8}, repeats=((float("inf"), 0.0), (1e9, 0.0)))]
    found.append(Point(settings={"x": 9}, status=Status.CRASHED, why="SIGSEGV"))
    result = frontier(found, GOALS, seed=1)
    assert [one.membership for one in result.standings][2:] == [Membership.EXCLUDED] * 2
    assert result.standings[2].point.status is Status.INVALID


def test_clear_cases_are_decided_and_one_repeat_decides_nothing() -> None:
    vectors = ((10.0, 1.0), (5.0, 0.2), (4.0, 0.9), (9.0, 2.0))
    result = frontier(points(*vectors), GOALS, seed=1)
    expected = [Membership.MEMBER, Membership.MEMBER, Membership.DOMINATED, Membership.DOMINATED]
    assert [one.membership for one in result.standings] == expected
    single = frontier(points(*vectors, repeats=1), GOALS, seed=1)
    assert {one.membership for one in single.standings} == {Membership.UNDECIDED}


def test_the_knee_is_at_the_corner() -> None:
    curve = [(float(n), 1.0 + 0.01 * n) for n in range(1, 8)] + [(7.2, 3.0), (7.4, 6.0), (7.6, 9.0)]
    found = knee(frontier(points(*curve, cv=0.002), GOALS, seed=1))
    assert found is not None
    assert found.settings["x"] in (5, 6, 7)


def test_equal_settings_are_on_the_frontier_as_a_group_and_never_one_by_one() -> None:
    """Two pairs of equals, and one that is worse than all: each pair holds one of the frontier, the last none."""
    vectors = ((10.0, 1.0), (10.0, 1.0), (5.0, 0.2), (5.0, 0.2), (4.9, 1.1))
    offs = (0.94, 1.06, 0.98, 1.02)
    measured = [
        Point(settings={"x": x}, repeats=tuple((a * off, b * offs[place - 1]) for place, off in enumerate(offs)))
        for x, (a, b) in enumerate(vectors)
    ]
    result = frontier(measured, GOALS, seed=1)
    assert {one.membership for one in result.standings[:4]} == {Membership.UNDECIDED}
    groups = one_of(result)
    assert sorted(sorted(int(str(one["x"])) for one in group.settings) for group in groups) == [[0, 1], [2, 3]]
    assert all(group.probability >= 0.99 for group in groups)
    assert one_of(frontier(points(*vectors, repeats=1), GOALS, seed=1)) == ()
    assert one_of(frontier(points(*vectors[::2], repeats=6), GOALS, seed=1)) == ()  # each is decided by itself


def test_the_volume_is_the_area_up_to_the_reference() -> None:
    assert volume([(2.0, 1.0)], GOALS, (0.0, 3.0)) == pytest.approx(4.0)
    assert volume([(2.0, 1.0), (1.0, 0.5), (0.5, 2.9)], GOALS, (0.0, 3.0)) == pytest.approx(4.0 + 0.5)
    assert volume([(2.0, 4.0)], GOALS, (0.0, 3.0)) == 0.0
    found = hypervolume(frontier(points((2.0, 1.0), (1.0, 0.5)), GOALS, seed=1), (0.1, 3.0))
    assert found.low < found.value < found.high


def test_the_best_setting_under_an_slo_must_be_proven_feasible() -> None:
    result = frontier(points((10.0, 1.0), (5.0, 0.2)), GOALS, seed=1)
    best = recommend(result, [Slo(objective="wait", op="<", limit=0.5)])
    assert best.standing is not None
    assert best.standing.point.settings == {"x": 1}
    assert recommend(result, [Slo(objective="wait", op="<", limit=0.1)]).standing is None
    assert recommend(result, [Slo(objective="wait", op="<", limit=0.2)]).standing is None


def test_a_frontier_that_moved_is_better_or_worse() -> None:
    old = frontier(points((10.0, 1.0), (5.0, 0.2)), GOALS, seed=1)
    new = frontier(points((13.0, 1.0), (6.5, 0.2)), GOALS, seed=2)
    assert compare(old, new, (1.0, 2.0)).verdict == "better"
    assert compare(new, old, (1.0, 2.0)).verdict == "worse"
    assert compare(old, old, (1.0, 2.0)).verdict == "not told apart"


# ── the race ─────────────────────────────────────────────────────────────────────────────────────

CONFIGS = [{"slots": slots, "load": load} for slots in (1, 2, 4) for load in (1, 2, 4, 8)]


def measure(settings: dict[str, int], rng: Random) -> tuple[float, float]:
    """More slots and more load give more, and take longer; noise of 5 %."""
    speed = min(settings["slots"], settings["load"]) * 10.0 - settings["slots"]
    wait = 0.1 * settings["load"] / settings["slots"] + 0.05 * settings["slots"]
    return speed * rng.gauss(1, 0.05), wait * rng.gauss(1, 0.05)


def raced(budget: float, told: list[Result], most: int = 10_000) -> list[Result]:
    """A race told `told` first, until it asks nothing more or `most` evaluations were made; its new results."""
    race = Race(CONFIGS, GOALS, budget=budget, seed=3, restarts=("slots",))
    race.tell(told)
    new: list[Result] = []
    while len(new) < most and (tasks := race.ask()):
        for task in tasks[: most - len(new)]:
            rng = Random(f"{sorted(task.settings.items())}:{task.block}")
            values = measure(dict(task.settings), rng)  # type: ignore[arg-type]
            new.append(Result(settings=task.settings, block=task.block, values=values))
            race.tell(new[-1:])
    return new


def test_a_race_keeps_its_budget_and_comes_back_to_the_baseline() -> None:
    results = raced(60.0, [])
    assert 40 <= len(results) <= 60
    baseline = [place for place, result in enumerate(results) if result.settings == CONFIGS[0]]
    gaps = [later - earlier for earlier, later in pairwise([*baseline, len(results)])]
    assert max(gaps) <= 2 * BASELINE_EVERY, baseline
    assert max(len([r for r in results if r.settings == config]) for config in CONFIGS) >= 3


def test_a_race_that_was_killed_goes_on_where_it_was() -> None:
    whole = raced(40.0, [])
    first = raced(40.0, [], most=17)
    assert first == whole[:17]
    rest = raced(40.0, first)
    assert sorted(map(repr, first + rest)) == sorted(map(repr, whole))


def test_a_budget_too_small_for_one_round_is_refused() -> None:
    with pytest.raises(UsageError, match="budget"):
        Race(CONFIGS, GOALS, budget=2.0, seed=3)


def test_what_crashed_is_not_asked_again() -> None:
    race = Race(CONFIGS, GOALS, budget=50.0, seed=3, restarts=("slots",))
    asked = 0
    for _ in range(50):
        tasks = race.ask()
        if not tasks:
            break
        for task in tasks:
            crashes = task.settings["slots"] == 4
            asked += crashes
            status = Status.CRASHED if crashes else Status.OK
            values = () if crashes else measure(dict(task.settings), Random(asked))  # type: ignore[arg-type]
            race.tell([Result(settings=task.settings, block=task.block, values=values, status=status, why="it died")])
    assert asked <= 4
    assert {p.status for p in race.points() if p.settings["slots"] == 4} == {Status.CRASHED}
