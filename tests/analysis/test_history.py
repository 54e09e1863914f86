"""Trends over runs: what is compared, when a change is told, how often one is told where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contextlab.analysis.history import (
    MIN_RUNS,
    Better,
    Entry,
    Point,
    Series,
    Value,
    autocorrelation,
    cusum,
    groups,
    studied,
)
from contextlab.model import Verdict


def series(values: Sequence[float], better: Better = "less") -> Series:
    points = tuple(Point(run=f"run-{n}", began_at=f"2026-01-{n:04}", value=value) for n, value in enumerate(values))
    return studied("s", "ttft", "s", better, points)


def entry(run: str, began_at: str, value: float = 1.0, **more: Any) -> Entry:
    fields: dict[str, Any] = {
        "command": "overflow",
        "target": "x",
        "asked": "overflow x",
        "machine": "m",
        "verdict": Verdict.PASS,
        "exit_code": 0,
        "values": (Value(scenario="s", metric="ttft", value=value, unit="s"),),
        **more,
    }
    return Entry(run=run, began_at=began_at, **fields)


def noisy(num: int, seed: int, sigma: float = 0.03) -> list[float]:
    rng = Random(seed)
    return [math.exp(sigma * rng.gauss(0, 1)) for _ in range(num)]


def creeping(num: int, seed: int, rho: float) -> list[float]:
    """A first-order autoregressive series around 1."""
    rng, level, found = Random(seed), 0.0, []
    for _ in range(num):
        level = rho * level + math.sqrt(1 - rho * rho) * rng.gauss(0, 1)
        found.append(1 + 0.05 * level)
    return found


# ── what is compared ─────────────────────────────────────────────────────────────────────────────


def test_runs_are_grouped_by_what_must_be_equal_and_sorted_by_time() -> None:
    found = groups(
        [
            entry("b", "2026-01-02"),
            entry("a", "2026-01-01"),
            entry("c", "2026-01-03", machine="other"),
            entry("d", "2026-01-01", asked="overflow x --set context=9"),
        ]
    )
    assert [[one.run for one in group.entries] for group in found] == [["c"], ["a", "b"], ["d"]]


def test_a_value_in_another_unit_or_that_is_not_finite_is_in_no_series() -> None:
    milliseconds = (Value(scenario="s", metric="ttft", value=900.0, unit="ms"),)
    [group] = groups(
        [
            entry("a", "2026-01-01", values=milliseconds),
            entry("b", "2026-01-02", 0.9),
            entry("c", "2026-01-03", math.nan),
            entry("d", "2026-01-04", 1.1),
        ]
    )
    [only] = group.series
    assert [(point.run, point.value) for point in only.points] == [("b", 0.9), ("d", 1.1)]
    assert only.unit == "s"


# ── a change ─────────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_found_where_it_is() -> None:
    values = [*noisy(20, 1), *(1.2 * value for value in noisy(10, 2))]
    [change] = series(values).changes
    assert (change.place, change.run) == (20, "run-20")
    assert change.ratio == pytest.approx(1.2, rel=0.05)
    assert change.worse
    assert change.p <= 0.01
    assert not series(values, "more").changes[0].worse
    assert not series(values, "neither").changes[0].worse


def test_two_steps_are_two_changes_in_order_each_against_its_neighbour() -> None:
    values = [*noisy(20, 1), *(1.5 * value for value in noisy(20, 2)), *noisy(20, 3)]
    changes = series(values).changes
    assert [change.place for change in changes] == [20, 40]
    assert [round(change.ratio or 0, 1) for change in changes] == [1.5, 0.7]


@pytest.mark.parametrize("outlier", [0, 14, 29])
def test_one_run_alone_is_no_change(outlier: int) -> None:
    values = noisy(30, 4)
    values[outlier] *= 5
    assert series(values).changes == ()


def test_a_change_too_small_to_matter_is_not_told() -> None:
    values = [100.0 + 0.01 * (n % 3) for n in range(20)] + [101.0 + 0.01 * (n % 3) for n in range(20)]
    assert series(values).changes == ()


@pytest.mark.parametrize("num", [1, 2, MIN_RUNS - 1])
def test_of_few_runs_nothing_is_said_but_that(num: int) -> None:
    found = series(noisy(num, 5))
    assert (found.changes, found.autocorrelation) == ((), None)
    assert found.advice == f"{num} of the {MIN_RUNS} runs that it takes to look for changes"


def test_a_series_that_never_changes_says_so() -> None:
    assert series([7.0] * 30).advice == "the same in every run"


def test_from_nothing_to_something_has_no_ratio() -> None:
    rng = Random(1)
    values = [0.0] * 15 + [float(rng.choice((4, 5, 6))) for _ in range(15)]
    [change] = series(values).changes
    assert (change.before, change.ratio, change.worse) == (0.0, None, True)


# ── where it is switched off ─────────────────────────────────────────────────────────────────────


def test_a_series_that_creeps_is_left_alone_and_says_why() -> None:
    found = series(creeping(60, 1, 0.8))
    assert found.changes == ()
    assert found.autocorrelation is not None
    assert found.autocorrelation > 0.2
    assert "each run resembles the one before it" in found.advice


def test_one_step_alone_is_no_autocorrelation() -> None:
    values = [*noisy(15, 6), *(3 * value for value in noisy(15, 7))]
    assert autocorrelation(values) > 0.8
    assert len(series(values).changes) == 1


NULLS: dict[str, tuple[Callable[[int], list[float]], float]] = {
    "normal": (lambda seed: [1 + 0.05 * Random(seed * 97 + n).gauss(0, 1) for n in range(30)], 0.05),
    "heavy": (lambda seed: noisy(30, seed, 0.6), 0.05),
    "two levels": (lambda seed: [Random(seed * 97 + n).choice((1.0, 1.2)) for n in range(30)], 0.05),
    "creeping": (lambda seed: creeping(30, seed, 0.6), 0.15),
}
"""Series without any change, and how many of them may show one: 1 in 100 is meant, and 30 are drawn here."""


@pytest.mark.parametrize("name", NULLS)
def test_series_without_a_change_rarely_show_one(name: str) -> None:
    draw, most = NULLS[name]
    shown = sum(bool(series(draw(seed)).changes) for seed in range(30))
    assert shown / 30 <= most


def test_a_fifth_more_in_the_last_three_runs_is_mostly_seen() -> None:
    seen = sum(bool(series([*noisy(27, seed), *(1.2 * v for v in noisy(3, seed + 999))]).changes) for seed in range(20))
    assert seen >= 12


# ── algebra ──────────────────────────────────────────────────────────────────────────────────────

VALUES = st.lists(st.floats(0.1, 10.0).map(lambda value: round(value, 3)), min_size=4, max_size=24)


@given(VALUES, st.sampled_from([0.001, 0.5, 1000.0]))
@example([7.0] * 5, 0.001)  # whose mean is not quite 0.007
def test_units_change_nothing(values: list[float], factor: float) -> None:
    scaled = [value * factor for value in values]
    assert autocorrelation(scaled) == pytest.approx(autocorrelation(values), abs=1e-6)
    assert cusum(scaled) == pytest.approx(cusum(values) * factor, rel=1e-6, abs=1e-9)


@given(VALUES)
def test_backwards_is_as_much(values: list[float]) -> None:
    assert cusum(values[::-1]) == pytest.approx(cusum(values), abs=1e-9)
    assert autocorrelation(values[::-1]) == pytest.approx(autocorrelation(values), abs=1e-9)
    assert -1 <= autocorrelation(values) <= 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_whatever_was_measured_is_studied_and_again_the_same(values: list[float]) -> None:
    found = series(values)
    assert found == series(values)
    assert [change.place for change in found.changes] == sorted({change.place for change in found.changes})
    assert found.changes or found.advice
