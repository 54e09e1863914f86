"""The scenarios on the cache: what they plan, what the second experiment learns of the first, and their judgement."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from contextlab import registry
from contextlab.analysis import caching
from contextlab.analysis.coupled import Foretold, Thresholds, measured
from contextlab.experiment import Asked, Experiment, Placed, Trial
from contextlab.model import Outcome
from contextlab.scenarios.chaos import cache_flap, cache_outage, coupled_failure
from tests.analysis.test_caching import KNOWN, ONE_S, arm


def planned(name: str, asked: Asked | None = None) -> list[Experiment]:
    """The plan of a scenario that is told nothing."""
    scenario = registry.scenarios("chaos")[name]
    return [one for one in scenario.plan(KNOWN, asked or Asked(), Random(0)) if isinstance(one, Experiment)]


@pytest.mark.parametrize("name", ["cache-outage", "cache-flap", "coupled-failure"])
def test_each_has_a_tier_a_popular_load_and_a_fault_with_an_afterwards(name: str) -> None:
    for one in planned(name):
        assert one.tier is not None
        weights = [mixed.weight for mixed in one.load.mix]
        assert weights == sorted(weights, reverse=True)
        assert len(weights) > one.tier.local_entries
        assert one.tier.ttl_s > one.load.duration_s
        assert 0 < one.faults[0].start_s < one.faults[0].end_s < one.load.duration_s


def test_the_outage_is_run_with_guards_and_without_on_the_same_load() -> None:
    with_, without = planned("cache-outage")
    assert with_.tier is not None
    assert without.tier is not None
    assert (with_.tier.guards, without.tier.guards) == (True, False)
    assert replace(with_.tier, guards=False) == without.tier
    assert with_.load == without.load
    assert with_.faults == without.faults
    assert Outcome.BOUND_BROKEN not in with_.allowed
    assert Outcome.BOUND_BROKEN in without.allowed


def outage(*, guarded: float | None) -> tuple[Experiment, Trial]:
    """The experiment without guards and what it saw, after one with guards that amplified so much."""
    without = planned("cache-outage")[1]
    about = dict(without.about) if guarded is None else {**without.about, cache_outage.GUARDED: guarded}
    one = replace(without, about=about)
    return one, Trial(experiment=one, knowledge=KNOWN, fault=arm(one))


def test_the_second_is_told_what_the_first_measured() -> None:
    plan = cache_outage.plan(KNOWN, Asked(), Random(0))
    first = next(plan)
    assert isinstance(first, Experiment)
    seen = arm(first)
    second = plan.send(Trial(experiment=first, knowledge=KNOWN, fault=seen))
    assert isinstance(second, Experiment)
    figures = measured(seen, 10.0, 10.0)
    assert figures is not None
    assert second.about[cache_outage.GUARDED] == pytest.approx(figures.amplification, abs=1e-3)


@pytest.mark.parametrize(("guarded", "outcome"), [(1.0, Outcome.OK), (99.0, Outcome.UNKNOWN)])
def test_guards_must_be_worth_something(guarded: float, outcome: Outcome) -> None:
    one, trial = outage(guarded=guarded)
    model, worth = cache_outage.judge(one, trial)
    assert model.outcome is Outcome.OK
    assert worth.outcome is outcome
    assert worth.evidence[cache_outage.GUARDED] == guarded
    assert "origin requests for each key without guards" in worth.why


def test_without_the_first_there_is_nothing_to_compare_with() -> None:
    one, trial = outage(guarded=None)
    assert len(list(cache_outage.judge(one, trial))) == 1


def test_a_flap_is_judged_by_the_model() -> None:
    [one] = planned("cache-flap")
    [placed] = one.faults
    assert placed.options == {"down_s": 1.0, "up_s": 2.0}
    steady = replace(one, faults=(Placed(name="redis-refused", start_s=10.0, length_s=10.0),))
    [found] = cache_flap.judge(steady, Trial(experiment=steady, knowledge=KNOWN, fault=arm(steady)))
    assert found.outcome is Outcome.OK, found.why


def test_the_matrix_is_two_faults_by_two_loads() -> None:
    cells = planned("coupled-failure")
    assert [one.name for one in cells] == [
        "redis-gone-low-load",
        "rtt-jitter-low-load",
        "redis-gone-high-load",
        "rtt-jitter-high-load",
    ]
    rates = [one.load.arrivals.rate_per_s for one in cells]
    assert rates[0] == rates[1] < rates[2] == rates[3]
    [swing] = cells[1].faults
    mean_s, spread_s = (float(swing.options[name] or 0) for name in ("delay_s", "jitter_s"))
    assert (2 * (mean_s - spread_s), 2 * (mean_s + spread_s)) == pytest.approx(coupled_failure.ROUND_TRIP_S)


@pytest.mark.parametrize(
    ("foretold", "longer_s", "outcome", "words"),
    [
        (True, 1.0, Outcome.OK, "it degrades, as foretold"),
        (False, 0.01, Outcome.OK, "it does not degrade, as foretold"),
        (False, -0.04, Outcome.OK, "p90 of TTFT is 0.04 s shorter"),
        (True, 0.01, Outcome.UNKNOWN, "the model says otherwise"),
        (False, 1.0, Outcome.UNKNOWN, "the model says otherwise"),
        (False, None, Outcome.UNKNOWN, "too few requests"),
    ],
)
def test_a_cell_is_as_foretold_or_not(
    foretold: bool, longer_s: float | None, outcome: Outcome, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = planned("coupled-failure")[2]
    made = arm(cell)
    trial = Trial(experiment=cell, knowledge=KNOWN, control=replace(made, name="control"), fault=made)
    real = caching.expected_of(cell, trial, ONE_S, Thresholds())
    assert real is not None
    crossed = ("one", "two", "three") if foretold else ("one",)

    def expected(*_: object) -> Foretold:
        return replace(real, crossed=crossed)

    monkeypatch.setattr(coupled_failure, "expected_of", expected)
    monkeypatch.setattr(coupled_failure, "waits_longer", lambda *_: longer_s)
    [found] = coupled_failure.judge(cell, trial)
    assert found.outcome is outcome
    assert words in found.why


def test_nothing_is_said_of_a_cell_without_its_arms() -> None:
    [cell, *_] = planned("coupled-failure")
    assert list(coupled_failure.judge(cell, Trial(experiment=cell, knowledge=KNOWN))) == []
