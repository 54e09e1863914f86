"""The model of the cache against what is known without it: closed forms, limits, a simulation of its premises."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.coupled import (
    GONE,
    Figures,
    Situation,
    Thresholds,
    compared,
    foretold,
    local_age_s,
    measured,
    value_at,
)
from contextlab.analysis.rehearsal import Stage, played
from contextlab.deeds import Reading, Tier
from contextlab.experiment import Arm, Ending, Sample

WEIGHTS = tuple(1 / rank**0.9 for rank in range(1, 25))
ONE = Situation(
    weights=WEIGHTS,
    rate_per_s=3.0,
    tier=Tier(local_entries=4, ttl_s=600.0),
    answer_s=0.4,
    abreast=1.0,
    start_s=10.0,
    length_s=10.0,
    redis_latency_s=GONE,
)
situations = st.builds(
    replace,
    st.just(ONE),
    rate_per_s=st.floats(0.1, 30.0),
    answer_s=st.floats(0.01, 2.0),
    abreast=st.floats(0.5, 8.0),
    start_s=st.floats(1.0, 60.0),
    length_s=st.floats(1.0, 60.0),
    redis_latency_s=st.sampled_from([0.0, 0.12, 0.8, GONE]),
    tier=st.builds(Tier, guards=st.booleans(), local_entries=st.integers(1, 30)),
)


def test_room_for_all_keeps_all() -> None:
    assert local_age_s([1.0, 2.0], 2) == math.inf
    found = foretold(replace(ONE, tier=Tier(local_entries=24))).figures
    assert (found.origin, found.joined) == pytest.approx((0.0, 0.0))


def test_equal_keys_hit_as_often_as_there_is_room() -> None:
    """Without popularity an LRU of C of N keys holds what is asked for with probability C/N."""
    fast = replace(ONE, weights=(1.0,) * 20, answer_s=1e-6, tier=Tier(local_entries=5))
    assert foretold(fast).figures.local == pytest.approx(5 / 20, abs=1e-3)


def test_an_lru_in_a_long_simulation_hits_as_often() -> None:
    rng = Random(1)
    schedule, at_s = [], 0.0
    while at_s < 4000.0:
        at_s += rng.expovariate(3.0)
        schedule.append((at_s, rng.choices(range(24), WEIGHTS)[0]))
    stage = Stage(tier=ONE.tier, answer_s=1e-6, num_slots=1, abreast=1.0, outages=((0.0, math.inf),))
    simulated = played(stage, schedule).figures(10.0, 3990.0)
    assert simulated is not None
    assert foretold(replace(ONE, answer_s=1e-6)).figures.local == pytest.approx(simulated.local, abs=0.02)


@pytest.mark.parametrize("guards", [True, False])
def test_its_misses_are_those_of_a_long_simulation(guards: bool) -> None:
    """With delayed hits: each miss takes as long as the model says, whoever else waits."""
    one = replace(ONE, tier=replace(ONE.tier, guards=guards, breaker_failures=1), rate_per_s=2.0, length_s=2000.0)
    rng = Random(2)
    schedule, at_s = [], 0.0
    while at_s < 2000.0:
        at_s += rng.expovariate(2.0)
        schedule.append((at_s, rng.choices(range(24), WEIGHTS)[0]))
    miss_s = foretold(one).miss_s
    stage = Stage(tier=one.tier, answer_s=miss_s, num_slots=10_000, abreast=10_000.0, outages=((0.0, math.inf),))
    simulated = played(stage, schedule).figures(0.0, 2000.0)
    assert simulated is not None
    assert foretold(one).figures.origin == pytest.approx(simulated.origin, abs=0.03)


@given(situations)
def test_every_request_goes_one_of_four_ways(one: Situation) -> None:
    found = foretold(one).figures
    shares = (found.local, found.redis, found.joined, found.origin)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares)
    assert sum(shares) == pytest.approx(1.0, abs=1e-6)
    if one.redis_serves:
        assert (found.breaker_open_s, found.breaker_openings) == (0.0, 0.0)
    else:
        assert found.redis == 0.0


@given(situations)
def test_guards_never_make_more_work(one: Situation) -> None:
    with_, without = (foretold(replace(one, tier=replace(one.tier, guards=guards))) for guards in (True, False))
    assert with_.figures.amplification <= without.figures.amplification * 1.0001
    assert with_.miss_s <= without.miss_s * 1.0001


@given(st.floats(0.5, 3.0), st.floats(1.1, 3.0))
def test_more_load_makes_misses_longer(rate: float, factor: float) -> None:
    less, more = (foretold(replace(ONE, rate_per_s=each)) for each in (rate, rate * factor))
    assert more.miss_s >= less.miss_s * 0.9999
    assert more.misses >= less.misses * 0.9999


def test_it_takes_all_three_to_degrade() -> None:
    assert foretold(ONE).degrades
    assert len(foretold(ONE).crossed) == 3
    for harmless in (
        replace(ONE, redis_latency_s=0.1),
        replace(ONE, tier=Tier(local_entries=20)),
        replace(ONE, rate_per_s=0.5),
        replace(ONE, abreast=16.0),
    ):
        assert not foretold(harmless).degrades


def test_thresholds_are_options() -> None:
    assert not foretold(ONE, Thresholds(concurrent_misses=50.0)).degrades
    assert not foretold(ONE, Thresholds(local_hit_rate=0.1)).degrades
    slow = replace(ONE, redis_latency_s=0.2)
    assert "Redis takes 0.2 s (at most 0.15 s)" in foretold(slow, Thresholds(redis_latency_s=0.15)).crossed


def test_the_breaker_is_open_from_its_failures_until_after_the_fault() -> None:
    found = foretold(ONE).figures
    assert ONE.length_s - 5.0 < found.breaker_open_s < ONE.length_s + ONE.tier.breaker_reset_s
    assert found.breaker_openings >= 2
    rare = replace(ONE, rate_per_s=0.05)
    assert foretold(rare).figures.breaker_openings == 0.0


# ── what was measured ──


def reading(at_s: float, **values: float) -> Reading:
    return Reading(source="tier", at_s=at_s, values=values)


def sample(index: int, due_s: float, mixed: int) -> Sample:
    return Sample(index=index, mixed=mixed, due_s=due_s, sent_s=due_s, ending=Ending.WHOLE)


def test_counts_between_readings_are_on_a_line() -> None:
    readings = [reading(1.0, requests=10.0), reading(3.0, requests=20.0)]
    assert [value_at(readings, "requests", at_s) for at_s in (0.0, 0.5, 1.0, 2.0, 3.0, 9.0)] == [0, 5, 10, 15, 20, 20]
    assert value_at(readings, "unheard", 2.0) == 0.0


def test_what_was_measured_in_a_window() -> None:
    before = {"requests": 10.0, "local_hits": 5.0, "origin_requests": 5.0}
    after = {"requests": 30.0, "local_hits": 10.0, "origin_requests": 17.0, "redis_hits": 1.0, "joined": 2.0}
    late = {**after, "breaker_open_s": 4.0, "breaker_openings": 2.0}
    arm = Arm(
        name="fault",
        length_s=30.0,
        samples=tuple(sample(number, number, number % 4) for number in range(30)),
        readings=(
            Reading(source="process", at_s=9.0, values={"requests": 999.0}),
            reading(10.0, **before),
            reading(20.0, **after),
            reading(25.0, **late),
        ),
    )
    found = measured(arm, 10.0, 10.0)
    assert found is not None
    assert (found.local, found.redis, found.joined, found.origin) == (0.25, 0.05, 0.1, 0.6)
    assert (found.num_keys, found.amplification) == (4.0, 3.0)
    assert (found.breaker_open_s, found.breaker_openings) == (4.0, 2.0)
    assert measured(replace(arm, readings=()), 10.0, 10.0) is None
    assert measured(arm, 26.0, 2.0) is None


FIGURES = Figures(
    local=0.3,
    redis=0.0,
    joined=0.1,
    origin=0.6,
    amplification=2.0,
    breaker_open_s=9.0,
    breaker_openings=3.0,
    num_requests=100.0,
    num_keys=20.0,
)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, set()),
        ({"local": 0.41, "origin": 0.49}, set()),
        ({"local": 0.5, "origin": 0.4}, {"local", "origin"}),
        ({"amplification": 2.4}, set()),
        ({"amplification": 2.6}, {"amplification"}),
        ({"redis": 0.2}, {"redis"}),
        ({"breaker_open_s": 12.5}, set()),
        ({"breaker_open_s": 4.0, "breaker_openings": 1.0}, {"breaker_open_s", "breaker_openings"}),
    ],
)
def test_how_far_apart_they_may_be(change: dict[str, float], wrong: set[str]) -> None:
    found = compared(FIGURES, replace(FIGURES, **change), Tier(), 10.0)
    assert {one.name for one in found if not one.agrees} == wrong
    assert all(f"{one.measured:.3g} (foretold {one.foretold:.3g}" in one.words for one in found)


def test_without_guards_there_is_no_breaker_to_compare() -> None:
    names = {one.name for one in compared(FIGURES, FIGURES, Tier(guards=False), 10.0)}
    assert names == {"local", "redis", "origin", "amplification"}
