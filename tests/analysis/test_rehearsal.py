"""The cache played through in virtual time, on schedules small enough to be done by hand, and properties on any."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.rehearsal import JOINED, LOCAL, ORIGIN, REDIS, Stage, abreast_of, played
from contextlab.deeds import Tier

STAGE = Stage(tier=Tier(local_entries=1), answer_s=1.0, num_slots=1, abreast=1.0)
A, B, C = range(3)
schedules = st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(0, 5)), max_size=40)
stages = st.builds(
    Stage,
    tier=st.builds(Tier, guards=st.booleans(), local_entries=st.integers(1, 4), breaker_failures=st.integers(1, 3)),
    answer_s=st.floats(0.01, 2.0),
    num_slots=st.integers(1, 3),
    abreast=st.floats(0.5, 3.0),
    outages=st.sampled_from([(), ((5.0, 15.0),), ((5.0, 6.0), (8.0, 9.0))]),
    forgets=st.booleans(),
    wait_s=st.sampled_from([0.0, 0.25]),
    patience_s=st.sampled_from([3.0, math.inf]),
)


def ways(stage: Stage, *schedule: tuple[float, int]) -> list[str]:
    return [way for _, _, way in played(stage, schedule).ways]


def test_first_the_origin_then_the_local_tier_then_redis() -> None:
    assert ways(STAGE, (0.0, A), (2.0, A), (3.0, B), (5.0, A)) == [ORIGIN, LOCAL, ORIGIN, REDIS]


def test_who_asks_meanwhile_joins_or_is_one_more() -> None:
    assert ways(STAGE, (0.0, A), (0.5, A), (1.5, A)) == [ORIGIN, JOINED, LOCAL]
    bare = replace(STAGE, tier=replace(STAGE.tier, guards=False))
    assert ways(bare, (0.0, A), (0.5, A), (1.5, A)) == [ORIGIN, ORIGIN, LOCAL]


def test_the_target_is_a_queue() -> None:
    took = [took_s for _, took_s in played(STAGE, [(0.0, A), (0.0, B), (0.0, C)]).answers]
    assert took == pytest.approx([1.0, 2.0, 3.0])
    side_by_side = replace(STAGE, num_slots=3, abreast=1.5)
    took = [took_s for _, took_s in played(side_by_side, [(0.0, A), (0.0, B), (0.0, C)]).answers]
    assert took == pytest.approx([2.0, 2.0, 2.0])


def test_an_outage_makes_misses_of_what_redis_held_and_empties_it() -> None:
    schedule = [(0.0, A), (2.0, B), (10.0, A), (20.0, B), (30.0, A), (40.0, B)]
    forgets = replace(STAGE, outages=((9.0, 12.0),))
    assert ways(forgets, *schedule) == [ORIGIN, ORIGIN, ORIGIN, ORIGIN, ORIGIN, REDIS]
    assert ways(replace(forgets, forgets=False), *schedule) == [ORIGIN, ORIGIN, ORIGIN, REDIS, REDIS, REDIS]


def test_the_breaker_opens_and_closes_at_the_first_ask_after_its_time() -> None:
    tier = Tier(local_entries=1, breaker_failures=2, breaker_reset_s=3.0)
    stage = replace(STAGE, tier=tier, answer_s=0.1, outages=((5.0, 20.0),))
    schedule = [(0.0, A), (1.0, B), *((float(second), second % 2) for second in range(6, 30))]
    play = played(stage, schedule)
    assert play.opened[0] == pytest.approx(6.1)  # read and write of one miss
    assert all(later - earlier >= 3.0 for earlier, later in zip(play.opened, play.opened[1:], strict=False))
    [(from_s, to_s)] = play.open_s
    assert from_s == play.opened[0]
    assert 20.0 <= to_s <= 24.0
    found = play.figures(5.0, 15.0)
    assert found is not None
    assert found.breaker_open_s == pytest.approx(to_s - from_s)
    assert found.breaker_openings == len(play.opened)


def test_who_has_no_patience_gives_up() -> None:
    play = played(replace(STAGE, patience_s=1.5), [(0.0, A), (0.0, B), (0.0, C)])
    assert len(play.answers) == 1


def test_how_many_answers_at_a_time_is_found_again() -> None:
    stage = replace(STAGE, num_slots=4, tier=Tier(local_entries=2))
    schedule = [(0.3 * number, number % 7) for number in range(60)]
    for abreast in (0.8, 1.7, 3.0):
        took_s = played(replace(stage, abreast=abreast), schedule).mean_answer_s(20.0)
        again = abreast_of(stage, schedule, 20.0, took_s)
        assert played(replace(stage, abreast=again), schedule).mean_answer_s(20.0) == pytest.approx(took_s, rel=0.05)


def test_nothing_due_nothing_to_say() -> None:
    assert played(STAGE, []).figures(0.0, 10.0) is None
    assert played(STAGE, []).mean_answer_s(10.0) == 0.0


@given(stages, schedules)
def test_each_request_goes_one_way_and_nothing_is_owed_at_the_end(
    stage: Stage, schedule: list[tuple[float, int]]
) -> None:
    play = played(stage, schedule)
    assert Counter(key for _, key, _ in play.ways) == Counter(key for _, key in schedule)
    num = Counter(way for _, _, way in play.ways)
    if math.isinf(stage.patience_s):
        assert len(play.answers) == num[ORIGIN]
    assert len(play.answers) <= num[ORIGIN]
    assert all(took_s >= stage.answer_s - 1e-6 for _, took_s in play.answers)
    if not stage.tier.guards:
        assert num[JOINED] == 0
        assert play.opened == []
    assert all(from_s <= to_s for from_s, to_s in play.open_s)


@given(stages, schedules)
def test_the_same_is_played_the_same(stage: Stage, schedule: list[tuple[float, int]]) -> None:
    assert played(stage, schedule) == played(stage, schedule)
