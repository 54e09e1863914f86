"""The search within a budget: what is asked, when it ends, and that a killed one goes on where it was."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from contextlab.analysis.axes import config_hash
from contextlab.analysis.frontier import Membership, Status, frontier
from contextlab.analysis.racing import BASELINE_EVERY, BLOCK, Race, Result, Task
from contextlab.model import UsageError
from tests.quality.systems import GOODPUT, TTFT, System, kneed, listed, queue

SYSTEM = queue(0, slots=(1, 2, 4), batch=(128, 512), concurrency=(1, 2, 4, 8))


def race_on(system: System = SYSTEM, budget: float = 40.0, **more: object) -> Race:
    return Race(system.configs, system.objectives, budget=budget, restarts=system.restarts, **more)  # type: ignore[arg-type]


def result(system: System, task: Task, cv: float = 0.03, cost: float = 1.0) -> Result:
    """What a task gives: the same whenever it is run, as long as setting and block are the same."""
    place = next(i for i, config in enumerate(system.configs) if config == task.settings)
    values = system.measure(place, Random(f"{config_hash(task.settings)}{task.block}"), (cv,) * len(system.objectives))
    return Result(settings=task.settings, block=task.block, values=values, cost=cost, at_s=10.0 * task.block)


def run(race: Race, system: System = SYSTEM, most: int = 10_000, cv: float = 0.03, cost: float = 1.0) -> list[Task]:
    """Measure what the race asks for until it ends, or that many tasks."""
    done: list[Task] = []
    while tasks := race.ask():
        for task in tasks:
            if len(done) == most:
                return done
            race.tell([result(system, task, cv, cost)])
            done.append(task)
    return done


def test_budget_is_kept_and_blocks_hold_the_baseline() -> None:
    race = race_on(budget=40)
    tasks = run(race)
    assert len(tasks) == 40
    assert race.done()
    for block in {task.block for task in tasks}:
        settings = [config_hash(task.settings) for task in tasks if task.block == block]
        assert len(settings) == len(set(settings))
        assert len(settings) <= BLOCK + 1
    gaps = [place for place, task in enumerate(tasks) if task.baseline]
    assert gaps[0] <= BLOCK
    assert max(b - a for a, b in pairwise(gaps)) <= 2 * BLOCK + BASELINE_EVERY
    assert len(race.drift()) == 2


def test_costs_are_told_and_a_budget_of_time_is_kept() -> None:
    race = race_on(budget=300.0, expected_cost=10.0)
    tasks = run(race, cost=20.0)
    assert 240 <= 20.0 * len(tasks) <= 300


@pytest.mark.parametrize("killed_after", [0, 3, 12, 25])
def test_a_killed_race_goes_on_where_it_was(killed_after: int) -> None:
    whole = run(race_on(budget=36, seed=3))
    first = race_on(budget=36, seed=3)
    begun = run(first, most=killed_after)
    again = race_on(budget=36, seed=3)
    results = [result(SYSTEM, task) for task in begun]
    Random(1).shuffle(results)
    again.tell(results)
    assert begun + run(again) == whole


def test_equal_seeds_ask_alike_and_others_do_not() -> None:
    assert run(race_on(seed=1)) == run(race_on(seed=1))
    assert run(race_on(seed=1)) != run(race_on(seed=2))


def test_repeats_go_where_the_frontier_is() -> None:
    race = race_on(budget=60, repeats=5)
    tasks = run(race)
    counts = Counter(config_hash(task.settings) for task in tasks if not task.baseline)
    on = SYSTEM.near_frontier()
    best = [counts[config_hash(SYSTEM.configs[i])] for i in on]
    rest = [counts[config_hash(config)] for i, config in enumerate(SYSTEM.configs) if i not in on]
    assert sum(best) / len(best) > 2 * sum(rest) / len(rest)


def test_with_budget_enough_everything_is_measured_and_it_ends() -> None:
    system = listed("few", [(100.0, 0.1), (200.0, 0.4), (150.0, 0.6), (90.0, 0.5)])
    race = Race(system.configs, (GOODPUT, TTFT), budget=1000, repeats=3, max_repeats=6)
    tasks = run(race, system, cv=0.01)
    assert len(tasks) < 60
    assert {config_hash(task.settings) for task in tasks} == {config_hash(config) for config in system.configs}
    found = frontier(race.points(), race.objectives)
    assert [one.membership for one in found.standings[:3]] == [
        Membership.MEMBER,
        Membership.MEMBER,
        Membership.DOMINATED,
    ]
    assert race.why_undecided() == ()


def test_equal_settings_stay_undecided_and_that_is_said() -> None:
    system = listed("twins", [(100.0, 0.1), (100.0, 0.1), (50.0, 0.5)])
    race = Race(system.configs, (GOODPUT, TTFT), budget=500, repeats=3, max_repeats=5)
    run(race, system, cv=0.1)
    assert race.done()
    assert any("noise is still larger" in one.why for one in race.why_undecided())


def test_what_was_never_measured_is_said() -> None:
    race = race_on(budget=12)
    run(race)
    last = race.why_undecided()[-1]
    assert last.settings is None
    assert "never measured" in last.why


def test_what_the_budget_leaves_is_counted_as_people_count() -> None:
    for budget, leaves in ((8.0, "leaves 1 evaluation"), (10.0, "leaves 2 evaluations")):
        race = Race([{"x": 1}, {"x": 2}], (GOODPUT, TTFT), budget=budget, expected_cost=1.0)
        for block, settings in enumerate(race.configs * 3):
            race.tell([Result(settings=settings, block=block, values=(1.0 + block % 3, 1.0), cost=1.5)])
        race.ask()
        assert {one.why.rpartition("budget ")[2] for one in race.why_undecided() if "budget" in one.why} == {leaves}


def test_a_setting_that_dies_is_not_tried_again_and_the_race_goes_on() -> None:
    race, crashes = race_on(budget=25), Counter[str]()
    while tasks := race.ask():
        for task in tasks:
            told = result(SYSTEM, task)
            if task.settings["slots"] == 4 and not task.baseline:
                crashes[config_hash(task.settings)] += 1
                told = replace(told, values=(), status=Status.CRASHED, why="out of memory")
            race.tell([told])
    assert set(crashes.values()) == {1}
    assert len(crashes) < 8  # of its 8 settings: nearby failures speak against a setting
    assert {point.status for point in race.points()} == {Status.OK, Status.CRASHED}


def test_repeats_that_cannot_be_used_are_asked_again_but_not_for_ever() -> None:
    race, asked = race_on(budget=200, repeats=3, max_repeats=3), Counter[str]()
    bad = config_hash(SYSTEM.configs[5])
    while tasks := race.ask():
        for task in tasks:
            key = config_hash(task.settings)
            asked[key] += 1
            told = result(SYSTEM, task)
            race.tell([replace(told, values=(), status=Status.INVALID, why="client late") if key == bad else told])
    assert asked[bad] == 3
    assert next(point for point in race.points() if point.key == bad).status is Status.INVALID


def test_if_nothing_can_be_measured_it_ends() -> None:
    race = race_on(budget=500)
    while tasks := race.ask():
        race.tell([Result(settings=t.settings, block=t.block, status=Status.INFEASIBLE, why="refused") for t in tasks])
    assert {point.status for point in race.points()} == {Status.INFEASIBLE}


def test_servers_are_started_rarely() -> None:
    system = kneed(2)
    tasks = run(race_on(system, budget=60), system)
    starts = sum(a.settings["server"] != b.settings["server"] for a, b in pairwise(tasks))
    assert starts < 30  # at random: 40


def test_what_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match="one round of 5 settings") as small:
        race_on(budget=30, expected_cost=10.0, unit=" s")
    assert small.value.message == "budget=30 s: one round of 5 settings and the baseline takes about 60 s"
    assert "larger budget, at least 60 s" in small.value.next_step
    with pytest.raises(UsageError, match="no setting"):
        Race((), (GOODPUT, TTFT), budget=10)
    with pytest.raises(UsageError, match="repeats=1"):
        race_on(repeats=1)
    race = race_on()
    with pytest.raises(UsageError, match="not in this race"):
        race.tell([Result(settings={"slots": 99}, block=0, values=(1.0, 1.0))])
    with pytest.raises(UsageError, match="2 objectives"):
        race.tell([Result(settings=SYSTEM.configs[0], block=0, values=(1.0,))])


def test_a_baseline_outside_the_grid_is_measured_too() -> None:
    race = Race([{"x": 1}, {"x": 2}], (GOODPUT, TTFT), budget=10, baseline={"x": 0})
    assert {"x": 0} in [dict(task.settings) for task in race.ask()]
    assert len(race.configs) == 3
