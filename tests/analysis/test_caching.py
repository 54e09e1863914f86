"""What is judged of a cache experiment, on arms that a cache of the model's own kind made, true and bent."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from contextlab.analysis import caching
from contextlab.analysis.arrivals import schedule
from contextlab.analysis.caching import answer_times_s, cache, judged, mean_answer_s, outage_rate_per_s, waits_longer
from contextlab.analysis.coupled import GONE, Situation, Thresholds, foretold
from contextlab.analysis.popularity import SUBJECTS, answer_s, popular_load, popular_mix
from contextlab.analysis.rehearsal import LOCAL, ORIGIN, Stage, played
from contextlab.deeds import Reading, Tier
from contextlab.experiment import Arm, Asked, Ending, Experiment, Placed, Sample, Trial
from contextlab.model import Judgement, Knowledge, Limits, Outcome

KNOWN = Knowledge(
    flavour="other",
    model="m",
    limits=Limits(num_slots=2),
    powers=frozenset({"completions"}),
    decode_tokens_per_s=40.0,
    prefill_tokens_per_s=100.0,
)
ONE_S = answer_s(KNOWN, 8)
MIX = popular_mix(KNOWN, 8, Random(0))
GONE_FAULT = Placed(name="redis-refused", start_s=10.0, length_s=10.0)


def experiment(*faults: Placed, guards: bool = True) -> Experiment:
    rate = outage_rate_per_s(tuple(mixed.weight for mixed in MIX), ONE_S, 2.0)
    load = popular_load(KNOWN, Asked(), MIX, rate_per_s=rate)
    return Experiment(name="x", load=load, faults=faults or (GONE_FAULT,), tier=cache(guards=guards))


def arm(one: Experiment, *, answer_s: float = ONE_S, bend: dict[str, float] | None = None) -> Arm:
    """An arm as a cache before a target of two slots would make it; `bend` multiplies counts during the fault."""
    tier = one.tier or Tier()
    outages = tuple((placed.start_s, placed.end_s) for placed in one.faults)
    stage = Stage(tier=tier, answer_s=answer_s, num_slots=2, abreast=2.0, outages=outages)
    due = [(each.at_s, each.mixed) for each in schedule(one.load, 0)]
    play = played(stage, due)
    names = {LOCAL: "local_hits", "redis": "redis_hits", "joined": "joined", ORIGIN: "origin_requests"}
    readings = []
    for step in range(120):
        at_s = step / 4
        counts: dict[str, float] = dict.fromkeys(["requests", *names.values()], 0.0)
        for due_s, _, way in play.ways:
            if due_s <= at_s:
                factor = (bend or {}).get(names[way], 1.0) if due_s >= 10.0 else 1.0
                counts["requests"] += 1
                counts[names[way]] += factor
        whole = [took_s for end_s, took_s in play.answers if end_s <= at_s]
        counts |= {"origin_answers": float(len(whole)), "origin_s": sum(whole)}
        counts["breaker_openings"] = float(sum(opened_s <= at_s for opened_s in play.opened))
        counts["breaker_open_s"] = sum(max(0.0, min(at_s, to_s) - from_s) for from_s, to_s in play.open_s)
        readings.append(Reading(source="tier", at_s=at_s, values=counts))
    samples = [
        Sample(index=index, mixed=mixed, due_s=due_s, sent_s=due_s, ending=Ending.WHOLE, content_s=(due_s + 0.1,))
        for index, (due_s, mixed) in enumerate(due)
    ]
    return Arm(name="fault", length_s=31.0, samples=tuple(samples), readings=tuple(readings))


def judgements(one: Experiment, fault: Arm | None, **fields: Any) -> list[Judgement]:
    return list(judged(one, Trial(experiment=one, knowledge=KNOWN, fault=fault, **fields), ONE_S))


# ── the load ──


def test_prompts_are_as_popular_as_zipf_says_and_the_seed_says_which() -> None:
    assert [round(one.weight, 3) for one in MIX[:3]] == [1.0, 0.536, 0.372]
    assert len({one.request.messages for one in MIX}) == len(SUBJECTS)
    again, other = (popular_mix(KNOWN, 8, Random(seed)) for seed in (0, 1))
    assert again == MIX
    assert other != MIX
    assert {one.request.name for one in other} == {one.request.name for one in MIX}


def test_the_misses_of_an_outage_take_the_part_of_the_target_that_was_asked_for() -> None:
    weights = tuple(mixed.weight for mixed in MIX)
    rate = outage_rate_per_s(weights, 1e-3, 2.0, 0.5)
    one = Situation(
        weights=weights,
        rate_per_s=rate,
        tier=cache(),
        answer_s=1e-3,
        abreast=2.0,
        start_s=10.0,
        length_s=10.0,
        redis_latency_s=GONE,
    )
    assert foretold(one).utilisation == pytest.approx(0.5, rel=0.2)


def test_what_the_user_asked_for_wins() -> None:
    asked = Asked(rate_per_s=3.0, duration_s=7.0)
    load = popular_load(KNOWN, asked, MIX, rate_per_s=9.0)
    assert (load.arrivals.rate_per_s, load.duration_s) == (3.0, 7.0)


# ── the judgement ──


@pytest.mark.parametrize("guards", [True, False])
def test_a_cache_that_does_as_the_model_says(guards: bool) -> None:
    one = experiment(guards=guards)
    [found] = judgements(one, arm(one))
    assert found.outcome is Outcome.OK, found.why
    assert "amplification" in found.why
    assert found.evidence["during_local"] == pytest.approx(
        float(found.evidence["during_local_foretold"] or 0), abs=0.05
    )
    assert found.evidence["answers_abreast"] == pytest.approx(2.0, abs=0.2)
    assert ("during_breaker_open_s" in found.evidence) is guards
    assert "before_breaker_open_s" not in found.evidence


def test_it_is_the_target_that_is_slow_and_not_the_cache_that_is_wrong() -> None:
    one = experiment()
    [found] = judgements(one, arm(one, answer_s=2 * ONE_S))
    assert found.outcome is Outcome.OK, found.why
    assert float(found.evidence["answers_abreast"] or 0) == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("name", ["origin_requests", "local_hits"])
def test_a_cache_that_does_otherwise(name: str) -> None:
    one = experiment()
    [found] = judgements(one, arm(one, bend={name: 2.0}))
    assert found.outcome is Outcome.UNKNOWN
    assert "does not behave as foretold: during: " in found.why


def test_a_cache_that_is_out_when_the_model_says_that_it_serves() -> None:
    """An outage that nobody placed: what was measured is not what the plan says."""
    one = experiment()
    early = replace(one, faults=(Placed(name="redis-refused", start_s=20.0, length_s=5.0),))
    [found] = judgements(early, arm(one))
    assert found.outcome is Outcome.UNKNOWN


def test_a_tier_that_was_not_read_is_unknown() -> None:
    one = experiment()
    [found] = judgements(one, replace(arm(one), readings=()))
    assert found.outcome is Outcome.UNKNOWN
    assert "not read" in found.why
    assert judgements(one, None) == []
    assert judgements(replace(one, tier=None), arm(one)) == []


def test_outages_of_each_fault() -> None:
    tier = Tier(redis_timeout_s=0.25)
    flaps = Placed(name="redis-restarted", start_s=10.0, length_s=5.0, options={"down_s": 1.0, "up_s": 2.0})
    once = replace(flaps, options={"down_s": 1.5})
    late = Placed(name="redis-slow", start_s=10.0, length_s=5.0, options={"delay_s": 0.8})
    later = replace(late, options={"delay_s": 0.12})
    jitter = Placed(name="jitter", start_s=10.0, length_s=5.0)
    outages = [
        caching.staged(experiment(one), KNOWN, tier, ONE_S).outages for one in (flaps, once, late, later, jitter)
    ]
    assert outages == [((10.0, 11.0), (13.0, 14.0)), ((10.0, 11.5),), ((10.0, 15.0),), (), ()]
    stage = caching.staged(experiment(late), KNOWN, tier, ONE_S)
    assert (stage.wait_s, stage.forgets) == (0.25, False)


# ── small ones ──


def test_how_long_answers_took_is_read_off_the_counts() -> None:
    values = [(0.0, 0.0), (1.0, 0.4), (1.0, 0.4), (4.0, 2.2)]
    readings = tuple(
        Reading(source="tier", at_s=float(at_s), values={"origin_answers": answers, "origin_s": spent_s})
        for at_s, (answers, spent_s) in enumerate(values)
    )
    one = Arm(name="fault", length_s=9.0, readings=readings)
    assert list(answer_times_s(one, 9.0)) == pytest.approx([0.4, 0.6])
    assert list(answer_times_s(one, 2.0)) == pytest.approx([0.4])
    assert mean_answer_s(one, 9.0) == pytest.approx(0.55)
    assert mean_answer_s(one, 2.0) is None, "one answer is too few"


def test_how_much_longer_clients_wait() -> None:
    def waiting(ttft_s: float | None, num: int = 20) -> Arm:
        samples = [
            Sample(
                index=index,
                mixed=0,
                due_s=10.0 + index / 10,
                ending=Ending.WHOLE,
                content_s=() if ttft_s is None else (10.0 + index / 10 + ttft_s,),
            )
            for index in range(num)
        ]
        return Arm(name="a", length_s=30.0, samples=tuple(samples))

    assert waits_longer(waiting(0.1), waiting(0.4), GONE_FAULT) == pytest.approx(0.3)
    assert waits_longer(waiting(0.1), waiting(None), GONE_FAULT) == pytest.approx(9.9)
    assert waits_longer(waiting(0.1), waiting(0.4, num=5), GONE_FAULT) is None


def test_thresholds_reach_what_is_expected() -> None:
    one = experiment()
    made = arm(one)
    trial = Trial(experiment=one, knowledge=KNOWN, control=replace(made, name="control"), fault=made)
    usual = caching.expected_of(one, trial, ONE_S, Thresholds())
    lenient = caching.expected_of(one, trial, ONE_S, Thresholds(local_hit_rate=0.0))
    assert usual is not None
    assert lenient is not None
    assert len(lenient.crossed) == len(usual.crossed) - 1
    assert caching.expected_of(one, replace(trial, control=None), ONE_S, Thresholds()) is None
