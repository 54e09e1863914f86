"""From an observation to its findings, and from findings to a verdict and an exit code; pure.

A finding never hides: not behind a judge that raises, not behind another exit code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contextlab.analysis.judging import FINAL, aftermath_evidence, common
from contextlab.analysis.quantities import count
from contextlab.analysis.remedies import remedy
from contextlab.experiment import Experiment
from contextlab.model import (
    REFUSES,
    Finding,
    Judgement,
    Knowledge,
    Observation,
    Outcome,
    Policy,
    Probe,
    Scenario,
    Verdict,
)


def judge(scenario: Scenario, probe: Probe, seen: Observation) -> list[Judgement]:
    """The common judgements, then the scenario's own; a judge that raises has told nothing, which is UNKNOWN."""
    try:
        found = common(probe, seen)
    except Exception as error:  # whatever it is, it must not become a pass, nor end the run
        return [Judgement(outcome=Outcome.UNKNOWN, why=f"it could not be judged: {type(error).__name__}: {error}")]
    if seen.client_note:
        note = Judgement(outcome=Outcome.UNKNOWN, why=f"the probe could not be made: {seen.client_note}")
        return found or [note]
    if any(judgement.outcome in FINAL - probe.allowed for judgement in found):
        return found
    if probe.requests and not seen.exchanges and not seen.measured:
        words = seen.client.stderr_tail[-1] if seen.client.stderr_tail else "no request was sent"
        return [*found, Judgement(outcome=Outcome.UNKNOWN, why=f"nothing was seen: {words}")]
    try:
        found += scenario.judge(probe, seen)
    except Exception as error:  # whatever it is, it must not become a pass
        found.append(Judgement(outcome=Outcome.UNKNOWN, why=f"the judge failed: {type(error).__name__}: {error}"))
    if not found:
        found.append(Judgement(outcome=Outcome.UNKNOWN, why="the scenario did not judge this probe"))
    return found


def finding_of(scenario: Scenario, probe: Probe, judgement: Judgement, seen: Observation, policy: Policy) -> Finding:
    """A judgement in its place: its verdict under the policy, and what to change if it needs changing."""
    found = _finding(scenario.name, probe.name, probe.allowed, judgement, seen.knowledge, policy)
    return replace(found, evidence={**found.evidence, **aftermath_evidence(seen)})


def chaos_finding(
    scenario: str, experiment: Experiment, judgement: Judgement, known: Knowledge, policy: Policy
) -> Finding:
    """The same of a judgement of a chaos experiment."""
    return _finding(scenario, experiment.name, experiment.allowed, judgement, known, policy)


def _finding(
    scenario: str, probe: str, allowed: frozenset[Outcome], judgement: Judgement, known: Knowledge, policy: Policy
) -> Finding:
    verdict = policy.verdict(judgement.outcome, allowed)
    advice = ""
    if verdict is not Verdict.PASS or judgement.outcome in REFUSES:
        advice = remedy(
            judgement.outcome,
            flavour=known.flavour,
            scenario=scenario,
            layer=judgement.layer,
            evidence=judgement.evidence,
        )
    return Finding(
        scenario=scenario,
        probe=probe,
        outcome=judgement.outcome,
        verdict=verdict,
        layer=judgement.layer,
        why=judgement.why,
        evidence=judgement.evidence,
        remedy=advice,
    )


def conclude(
    findings: Sequence[Finding], reasons: Mapping[int, str], noun: str = "probe"
) -> tuple[Verdict, int, list[tuple[int, str]]]:
    """The run's verdict, its exit code, and every (code, reason) in the order of their weight. `noun`: what ran.

    A real finding never hides behind another code, except an interruption by the user, an undo that failed (6) or
    an error of our own (70): then the run is not what it should have been.
    """
    every = dict(reasons)
    failed = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    unknown = [finding for finding in findings if finding.verdict is Verdict.UNKNOWN]
    if failed:
        names = ", ".join(outcome.name for outcome in sorted({finding.outcome for finding in failed}))
        every[1] = f"{count(len(failed), 'finding')} not allowed: {names}"
    if unknown:
        places = {(finding.scenario, finding.probe) for finding in unknown}
        every[3] = f"{count(len(places), noun)} whose outcome could not be told"
    if not findings and not reasons:
        every[5] = "nothing was measured"
    weight = [130, 143, 2, 6, 70, 1, 4, 5, 3]
    ordered = sorted(every.items(), key=lambda pair: weight.index(pair[0]) if pair[0] in weight else 0)
    if not ordered:
        ordered = [(0, "every outcome is allowed")]
    verdict = max((finding.verdict for finding in findings), default=Verdict.UNKNOWN)
    return verdict, ordered[0][0], ordered
