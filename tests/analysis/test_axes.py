"""Axes of a sweep: what can be written, what is refused, and the orders in which a grid is measured."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.axes import (
    Axis,
    Declared,
    Lattice,
    config_hash,
    grid,
    parse_axes,
    parse_axis,
    restarting_rarely,
)
from contextlab.model import Setting, UsageError
from contextlab.registry import parse_setting

DECLARED = {
    "context": Declared(
        setting=Setting(name="context", kind="int", default=0, low=1, high=8192, help="-c"), restarts=True
    ),
    "cache": Declared(
        setting=Setting(name="cache", kind="text", default="f16", choices=("f16", "q8_0"), help="KV type"),
        restarts=True,
    ),
    "rate": Declared(setting=Setting(name="rate", kind="float", default=1.0, low=0.1, help="per second")),
    "memory": Declared(setting=Setting(name="memory", kind="size", default=0, help="bytes")),
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("context=512,1024,2048", (512, 1024, 2048)),
        ("context=1..8", (1, 2, 3, 4, 5, 6, 7, 8)),
        ("context=512..4096x2", (512, 1024, 2048, 4096)),
        ("context=100..450+100", (100, 200, 300, 400)),
        ("context=1,4..6", (1, 4, 5, 6)),
        ("context=1..4x1.2", (1, 2, 3, 4)),
        ("rate=2..16x2", (2.0, 4.0, 8.0, 16.0)),
        ("rate=0.5..1+0.1", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        ("cache=f16,q8_0", ("f16", "q8_0")),
        ("memory=1MiB..4MiBx2", (1 << 20, 2 << 20, 4 << 20)),
        ("memory=1KB..3KB+1KB", (1000, 2000, 3000)),
    ],
)
def test_what_can_be_written(text: str, values: tuple[object, ...]) -> None:
    assert parse_axis(text, DECLARED, parse_setting).values == values


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("contxt=512", "did you mean context"),
        ("slots=1,2", "context, cache, rate, memory"),
        ("context", "name=values"),
        ("context=", "empty value"),
        ("context=1,,2", "empty value"),
        ("context=8..1", "crossed"),
        ("context=1..8+0", "step above 0"),
        ("context=1..8x1", "factor above 1"),
        ("context=1..8xtwo", "factor above 1"),
        ("context=1..9000", "between 1 and 8192"),
        ("context=1..8000", "more than 1024"),
        ("context=512,512", "twice"),
        ("context=1..3,2", "twice"),
        ("context=many", "whole number"),
        ("cache=f16..q8_0", "a range is of numbers"),
        ("cache=f32", "one of f16, q8_0"),
    ],
)
def test_what_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_axis(text, DECLARED, parse_setting)
    assert told in f"{refused.value.message} | {refused.value.next_step}"
    assert text.partition("=")[0] in refused.value.message


def test_axes_that_restart_go_first_and_none_is_given_twice() -> None:
    axes = parse_axes(["rate=1,2", "context=512,1024"], DECLARED, parse_setting)
    assert [axis.name for axis in axes] == ["context", "rate"]
    assert grid(axes) == [{"context": c, "rate": r} for c in (512, 1024) for r in (1.0, 2.0)]
    assert grid(()) == [{}]
    with pytest.raises(UsageError, match="given twice"):
        parse_axes(["rate=1", "rate=2"], DECLARED, parse_setting)
    with pytest.raises(UsageError, match="more than 20000"):
        parse_axes(["context=1..1000", "rate=1..100"], DECLARED, parse_setting)


def test_equal_settings_have_equal_hashes() -> None:
    assert config_hash({"a": 1, "b": "x"}) == config_hash({"b": "x", "a": 1.0})
    assert len({config_hash({"a": value}) for value in (1, "1", True, 1.5, None)}) == 5
    assert config_hash({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    with pytest.raises(ValueError):
        config_hash({"a": math.nan})


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_screening_holds_every_setting_once(sizes: list[int], seed: int) -> None:
    axes = [Axis(name=f"a{i}", values=tuple(range(size))) for i, size in enumerate(sizes)]
    lattice = Lattice(grid(axes))
    assert sorted(lattice.screening(Random(seed))) == list(range(math.prod(sizes)))


def test_the_beginning_of_a_screening_covers_every_axis() -> None:
    configs = grid(
        [Axis(name="a", values=(1, 2, 4, 8)), Axis(name="b", values=("x", "y")), Axis(name="c", values=(1, 2, 3))]
    )
    for seed in range(20):
        first = [configs[i] for i in Lattice(configs).screening(Random(seed))[:8]]
        assert {one["a"] for one in first} == {1, 2, 4, 8}
        assert {one["b"] for one in first} == {"x", "y"}
        assert {one["c"] for one in first} == {1, 2, 3}


def test_neighbours_and_what_a_failure_says_of_them() -> None:
    configs = grid([Axis(name="n", values=(8, 1, 2)), Axis(name="word", values=("x", "y", "z"))])
    lattice = Lattice(configs)
    near = [configs[i] for i in lattice.neighbours(configs.index({"n": 2, "word": "x"}))]
    assert {(one["n"], one["word"]) for one in near} == {(1, "x"), (8, "x"), (2, "y"), (2, "z")}
    failed = configs.index({"n": 8, "word": "x"})
    trust = [lattice.trust(configs.index({"n": n, "word": "x"}), [failed]) for n in (8, 2, 1)]
    assert trust == sorted(trust)
    assert trust[0] < 0.5 < trust[2] < 1 == lattice.trust(0, [])


def test_a_block_restarts_once_for_each_server_and_begins_with_the_running_one() -> None:
    tasks = [(server, load) for load in range(4) for server in "abc"]
    for seed in range(10):
        order = restarting_rarely(tasks, lambda task: task[0], Random(seed), running="b")
        assert sorted(order) == sorted(tasks)
        assert order[0][0] == "b"
        assert sum(one[0] != other[0] for one, other in pairwise(order)) == 2
