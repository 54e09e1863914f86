"""The judges and plans of the memory scenarios, on observations made by hand."""

from __future__ import annotations

from random import Random

import pytest

from contextlab.model import (
    Evidence,
    Judgement,
    Knowledge,
    Limits,
    Observation,
    Outcome,
    Policy,
    Probe,
    ProcessEnd,
    Scenario,
    Skip,
    Verdict,
)
from contextlab.scenarios.overflow import attention_memory, memory_fault, stale_view

KNOWN = Knowledge(flavour="other", model="none", limits=Limits(), powers=frozenset({"memory-tasks", "host-memory"}))
DONE = ProcessEnd(exit_code=0)
REFUSED_BY_ALLOCATOR: Evidence = {
    "error_type": "RuntimeError",
    "error": "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried …",
}


def seen(measured: Evidence | None = None, end: ProcessEnd = DONE) -> Observation:
    """What a task left behind."""
    return Observation(exchanges=(), knowledge=KNOWN, client=end, measured=measured or {})


def probes(scenario: Scenario) -> dict[str, Probe]:
    """The probes of a plan that does not look."""
    return {step.name: step for step in scenario.plan(KNOWN, Random(1)) if isinstance(step, Probe)}


def outcomes(scenario: Scenario, probe: Probe, what: Observation) -> list[tuple[Outcome, Verdict]]:
    """What the scenario's own judge says, and what that means."""
    found: list[Judgement] = list(scenario.judge(probe, what))
    return [(one.outcome, Policy().verdict(one.outcome, probe.allowed)) for one in found]


@pytest.mark.parametrize("scenario", [memory_fault.SCENARIO, stale_view.SCENARIO, attention_memory.SCENARIO])
def test_every_probe_is_bounded_and_foretells_one_end(scenario: Scenario) -> None:
    found = probes(scenario)
    assert len(found) >= 2
    for probe in found.values():
        assert probe.memory_limit_bytes is not None
        assert probe.memory_limit_bytes <= 4 << 30
        assert not probe.neighbour
        assert ("signal" in probe.about) <= (probe.allowed == {Outcome.CRASHED})
        assert ("refusal" in probe.about) <= (probe.allowed == {Outcome.REJECTED})


# ── faults and stale views ───────────────────────────────────────────────────────────────────────

FAULTS, STALE = probes(memory_fault.SCENARIO), probes(stale_view.SCENARIO)


def test_a_death_as_foretold_is_left_to_the_common_judgement() -> None:
    assert outcomes(memory_fault.SCENARIO, FAULTS["guard-page-read"], seen(end=ProcessEnd(signal="SIGSEGV"))) == []


@pytest.mark.parametrize("end", [ProcessEnd(signal="SIGKILL"), ProcessEnd(exit_code=1), ProcessEnd(signal="SIGABRT")])
def test_another_death_proves_nothing(end: ProcessEnd) -> None:
    told = outcomes(memory_fault.SCENARIO, FAULTS["guard-page-read"], seen(end=end))
    assert told == [(Outcome.UNKNOWN, Verdict.UNKNOWN)]


def test_an_access_that_nothing_stops_proves_nothing() -> None:
    told = outcomes(memory_fault.SCENARIO, FAULTS["guard-page-read"], seen({"survived": True}))
    assert told == [(Outcome.UNKNOWN, Verdict.UNKNOWN)]


def test_damage_is_told_by_its_bytes() -> None:
    measured: Evidence = {"damaged_bytes": 64, "length": 80, "capacity": 64, "survived": True}
    [told] = memory_fault.SCENARIO.judge(FAULTS["arena-neighbour"], seen(measured))
    assert told.outcome is Outcome.NEIGHBOUR_CORRUPTED
    assert "64 bytes" in told.why
    assert told.evidence["damaged_bytes"] == 64


def test_damage_in_spite_of_the_check_fails() -> None:
    measured: Evidence = {"damaged_bytes": 4, "error_type": "CapacityError", "error": "too late"}
    told = outcomes(memory_fault.SCENARIO, FAULTS["arena-neighbour-checked"], seen(measured))
    assert told == [(Outcome.NEIGHBOUR_CORRUPTED, Verdict.FAIL)]


def test_no_damage_where_it_was_to_show_proves_nothing() -> None:
    told = outcomes(memory_fault.SCENARIO, FAULTS["arena-neighbour"], seen({"damaged_bytes": 0, "survived": True}))
    assert told == [(Outcome.UNKNOWN, Verdict.UNKNOWN)]


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        ({"error_type": "CapacityError", "error": "length=1025"}, (Outcome.REJECTED, Verdict.PASS)),
        ({"error_type": "ImportError", "error": "no torch"}, (Outcome.UNKNOWN, Verdict.UNKNOWN)),
        ({"survived": True}, (Outcome.OK, Verdict.FAIL)),
    ],
)
def test_a_check_holds_or_fails(measured: Evidence, told: tuple[Outcome, Verdict]) -> None:
    assert outcomes(memory_fault.SCENARIO, FAULTS["guard-page-checked"], seen(measured)) == [told]


def test_the_secret_tells_a_leak() -> None:
    probe = STALE["reused-unchecked"]
    read = f"the second request's secret is {probe.about['secret']}"
    assert outcomes(stale_view.SCENARIO, probe, seen({"read": read})) == [(Outcome.LEAKED, Verdict.PASS)]
    told = outcomes(stale_view.SCENARIO, probe, seen({"read": "the first request's own words"}))
    assert told == [(Outcome.UNKNOWN, Verdict.UNKNOWN)]


def test_a_leak_in_spite_of_the_check_fails() -> None:
    probe = STALE["reused-generation"]
    read = f"secret is {probe.about['secret']}"
    assert outcomes(stale_view.SCENARIO, probe, seen({"read": read})) == [(Outcome.LEAKED, Verdict.FAIL)]


# ── attention memory ─────────────────────────────────────────────────────────────────────────────

BASELINE_BYTES = 300 << 20
ROOM = attention_memory.ROOM_BYTES


def machine(probe: Probe, bytes_per_square: float, how: str = "cgroup") -> Observation:
    """A machine whose eager attention takes that many bytes for each pair of tokens, and SDPA 2 KiB a token."""
    measured: dict[str, int | float | str | bool | None] = {"baseline_bytes": BASELINE_BYTES}
    for length in map(int, str(probe.about["lengths"]).split()):
        eager = probe.about["attention"] == "eager"
        growth = round(length * 2048 + (bytes_per_square * length**2 if eager else 0))
        measured["trying_tokens"] = length
        if BASELINE_BYTES + growth > (probe.memory_limit_bytes or 0):
            if how == "cgroup":
                return seen(measured, ProcessEnd(signal="SIGKILL", out_of_memory=True))
            if how == "address space":
                return seen({**measured, **REFUSED_BY_ALLOCATOR})
            return seen(measured, ProcessEnd(signal="SIGKILL"))
        measured[f"growth_bytes_{length}"] = growth
    return seen({**measured, "survived": True})


def run(bytes_per_square: float, how: str = "cgroup", later: float | None = None) -> dict[str, list[Judgement]]:
    """The whole scenario on such a machine; `later`: what a square really takes once the curve is measured."""
    plan = attention_memory.SCENARIO.plan(KNOWN, Random(0))
    found: dict[str, list[Judgement]] = {}
    what: Observation | None = None
    while True:
        try:
            step = plan.send(what)
        except StopIteration:
            return found
        if isinstance(step, Skip):
            found[f"skip {step.probe}"], what = [], None
            continue
        curve = step.about["role"] == "curve"
        what = machine(step, bytes_per_square if curve or later is None else later, how)
        found[step.name] = list(attention_memory.SCENARIO.judge(step, what))


@pytest.mark.parametrize("how", ["cgroup", "address space"])
@pytest.mark.parametrize("bytes_per_square", [8.0, 20.0, 60.0])
def test_the_kill_is_found_around_the_prediction(bytes_per_square: float, how: str) -> None:
    found = run(bytes_per_square, how)
    assert len(found) == 6
    assert 1.7 < float(found["curve-eager"][0].evidence["exponent"] or 0) <= 2
    assert found["curve-sdpa"][0].evidence["exponent"] == 1
    *_, (control, search) = found.values()
    assert (control.outcome, search.outcome) == (Outcome.OK, Outcome.OK)
    numbers = search.evidence
    real = (ROOM / bytes_per_square) ** 0.5
    assert int(numbers["survived_tokens"] or 0) < int(numbers["killed_tokens"] or 0) <= real * 1.07
    assert float(numbers["off_ratio"] or 0) <= 0.25


@pytest.mark.parametrize(("later", "words"), [(80.0, "every length was killed"), (5.0, "no length was killed")])
def test_a_prediction_that_is_far_off_is_unknown(later: float, words: str) -> None:
    *_, (_, search) = run(20.0, later=later).values()
    assert search.outcome is Outcome.UNKNOWN
    assert words in search.why


def test_a_kill_without_evidence_is_unknown_and_ends_the_search() -> None:
    found = run(60.0, "nobody knows")
    limited = [judgements for name, judgements in found.items() if name.startswith("limit-eager")]
    assert [[one.outcome for one in judgements] for judgements in limited] == [[Outcome.UNKNOWN]]
    *_, (_, search) = found.values()
    assert search.outcome is Outcome.UNKNOWN


def test_a_refusal_of_the_allocator_is_a_reading() -> None:
    found = run(20.0, "address space")
    told = {one.outcome for name, ones in found.items() if name.startswith("limit-eager") for one in ones}
    assert told <= attention_memory.READINGS
    assert Outcome.REJECTED in told


@pytest.mark.parametrize("measured", [{}, {"growth_bytes_512": 0}, {"error_type": "ImportError", "error": "no"}])
def test_a_curve_without_points_is_unknown_and_foretells_nothing(measured: Evidence) -> None:
    plan = attention_memory.SCENARIO.plan(KNOWN, Random(0))
    first = next(plan)
    assert isinstance(first, Probe)
    assert outcomes(attention_memory.SCENARIO, first, seen(measured)) == [(Outcome.UNKNOWN, Verdict.UNKNOWN)]
    assert isinstance(plan.send(seen(measured)), Probe)
    assert isinstance(plan.send(seen(measured)), Skip)


def test_a_flat_curve_foretells_nothing() -> None:
    plan = attention_memory.SCENARIO.plan(KNOWN, Random(0))
    next(plan)
    flat: Evidence = {"baseline_bytes": BASELINE_BYTES, **{f"growth_bytes_{n}": 1000 for n in (512, 1024, 2048)}}
    plan.send(seen(flat))
    assert isinstance(plan.send(seen(flat)), Skip)


def test_points_that_scatter_pin_nothing_down() -> None:
    probe = probes(attention_memory.SCENARIO)["curve-eager"]
    wild: Evidence = {f"growth_bytes_{n}": size for n, size in ((512, 900), (1024, 300), (2048, 90_000))}
    assert outcomes(attention_memory.SCENARIO, probe, seen(wild)) == [(Outcome.UNKNOWN, Verdict.UNKNOWN)]
