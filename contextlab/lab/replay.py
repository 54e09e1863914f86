"""Repeats one recorded probe, and compares what came of it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from contextlab import registry
from contextlab.lab.journal import revive
from contextlab.model import NothingMeasured, Outcome, Policy, Probe, Run, Scenario, TargetSpec, UsageError

NOT_THE_SAME = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a record tells of one probe: enough to run it again, and what its outcomes were."""

    spec: TargetSpec
    policy: Policy
    scenario: Scenario
    probe: Probe
    outcomes: frozenset[Outcome]


def recall(run: Run, name: str) -> Memory:
    """The probe of that name (or SCENARIO/NAME) in a record. Raises UsageError where it is not there, or not unique."""
    scenario_name, _, probe_name = name.rpartition("/")
    places = [place for place in run.probes if place[1] == probe_name and scenario_name in ("", place[0])]
    if not run.probes:
        command = run.header.get("command")
        repeats = (
            f"a run of {command} has none: repeat its command, with its seed" if command in ("chaos", "pareto") else ""
        )
        raise NothingMeasured(f"{run.path}: the record holds no probe", repeats or "name a run that came to one")
    if len(places) != 1:
        every = ", ".join(f"{scenario}/{probe}" for scenario, probe in (places or run.probes))
        rule = "more than one probe has that name" if places else "the record holds no such probe"
        raise UsageError(f"probe={name!r}: {rule}", f"choose from: {every}")
    [place] = places
    scenarios = registry.scenarios("overflow")
    if place[0] not in scenarios:
        raise UsageError(f"scenario={place[0]!r}: it is not installed here", "install the package that brings it")
    try:
        spec = revive(run.header["target"], TargetSpec)
        policy = revive(run.header.get("policy", {}), Policy)
    except (KeyError, msgspec.ValidationError) as error:
        raise NothingMeasured(f"{run.path}: its header is damaged: {error}", "run the command again") from error
    return Memory(
        spec=spec,
        policy=policy,
        scenario=scenarios[place[0]],
        probe=run.probes[place],
        outcomes=outcomes(run, place),
    )


def outcomes(run: Run, place: tuple[str, str]) -> frozenset[Outcome]:
    """The outcomes of one probe in a record."""
    return frozenset(finding.outcome for finding in run.findings if (finding.scenario, finding.probe) == place)


def compare(memory: Memory, new: Run, code: int) -> tuple[int, str]:
    """The exit code of a replay, and whether the outcome is the same, in words.

    A probe that did not repeat has told nothing certain (3), unless what it shows now is a finding itself (1).
    """
    place = (memory.scenario.name, memory.probe.name)
    now = outcomes(new, place)
    before_words, now_words = (
        " + ".join(one.name for one in sorted(some)) or "nothing" for some in (memory.outcomes, now)
    )
    if now == memory.outcomes:
        return code, f"the same: {now_words}"
    return (code if code not in (0, 5) else NOT_THE_SAME), f"not the same: it was {before_words}, now it is {now_words}"
