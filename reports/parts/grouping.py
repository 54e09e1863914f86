"""A run's findings, arranged for reading: by probe, by cause, by what passed, by reason for a skip.

Pure functions of `Run`. What many probes show is said once, with how often; nothing here knows about
widths, colours or encodings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contextlab.model import Finding, Layer, Outcome, Run, Verdict
from contextlab.reports.parts.wording import num

_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?: tokens?)?")

MEASURED = "measured_tokens"
"""Evidence of the finding that a whole search was made for: the largest prompt accepted and read."""

Place = tuple[str, str]
"""(scenario, probe)."""

Cells = Mapping[str, Mapping[Outcome, Mapping[Verdict, int]]]
"""Scenario → outcome → verdict → number of probes; scenarios in the order in which they ran."""


def noun(run: Run) -> str:
    """What a probe of the run is called: `chaos` makes experiments."""
    return "experiment" if run.header.get("command") == "chaos" else "probe"


def begun(run: Run) -> tuple[Place, ...]:
    """The probes and experiments that began, in the order in which they did."""
    told = run.records if noun(run) == "experiment" else ()
    experiments = (record for record in told if record.get("kind") == "experiment")
    places = ((str(record.get("scenario", "")), str(record.get("probe", ""))) for record in experiments)
    return tuple(dict.fromkeys((*run.probes, *places)))


def findings(run: Run) -> tuple[Finding, ...]:
    """The run's findings, and an UNKNOWN one for each probe that nobody came to judge."""
    judged = {place(finding) for finding in run.findings}
    unjudged = (
        Finding(
            scenario=scenario,
            probe=probe,
            outcome=Outcome.UNKNOWN,
            verdict=Verdict.UNKNOWN,
            layer=Layer.ENGINE,
            why=f"the run ended before this {noun(run)} was judged",
        )
        for scenario, probe in begun(run)
        if (scenario, probe) not in judged
    )
    return (*run.findings, *unjudged)


def place(finding: Finding) -> Place:
    """Where it was found."""
    return finding.scenario, finding.probe


def verdicts(run: Run) -> dict[Place, Verdict]:
    """The worst verdict that each probe got."""
    by_probe: dict[Place, Verdict] = {}
    for finding in findings(run):
        by_probe[place(finding)] = max(by_probe.get(place(finding), Verdict.PASS), finding.verdict)
    return by_probe


# ── the outcomes matrix ──────────────────────────────────────────────────────────────────────────


def cells(run: Run) -> Cells:
    """The outcomes matrix, in numbers of probes; a probe with two outcomes counts under both."""
    matrix: dict[str, dict[Outcome, dict[Verdict, int]]] = {}
    seen: set[tuple[str, str, Outcome, Verdict]] = set()
    for finding in findings(run):
        key = (*place(finding), finding.outcome, finding.verdict)
        if key not in seen:
            seen.add(key)
            cell = matrix.setdefault(finding.scenario, {}).setdefault(finding.outcome, {})
            cell[finding.verdict] = cell.get(finding.verdict, 0) + 1
    return matrix


def outcomes(matrix: Cells) -> tuple[Outcome, ...]:
    """The outcomes that occurred, in the order of `Outcome`."""
    return tuple(sorted({outcome for row in matrix.values() for outcome in row}))


def worst(row: Mapping[Outcome, Mapping[Verdict, int]]) -> Verdict:
    """The worst verdict of a scenario's row."""
    return max((each for cell in row.values() for each in cell), default=Verdict.UNKNOWN)


# ── what has one cause ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Findings that give the same reason but for its numbers; `example` speaks for them."""

    example: Finding
    num_probes: int

    @property
    def why(self) -> str:
        """The reason in the example's words."""
        return self.example.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Findings with the same outcome, layer and remedy, whatever probe or scenario showed them.

    `reasons`: the most frequent first. `probes`: scenario → probes, in the order in which they ran, each once.
    """

    reasons: tuple[Reason, ...]
    probes: Mapping[str, tuple[str, ...]]

    @property
    def example(self) -> Finding:
        """The finding whose evidence stands for the group: the first with the most frequent reason."""
        return self.reasons[0].example

    @property
    def num_probes(self) -> int:
        """How many probes showed it."""
        return sum(map(len, self.probes.values()))


def groups(run: Run, wanted: Verdict) -> tuple[Group, ...]:
    """Findings of that verdict by their cause: the worst outcome first, then what most probes showed."""
    alike: dict[tuple[Outcome, Layer, str], list[Finding]] = {}
    for finding in findings(run):
        if finding.verdict is wanted:
            alike.setdefault((finding.outcome, finding.layer, finding.remedy), []).append(finding)
    found = [Group(reasons=reasons(members), probes=_by_scenario(map(place, members))) for members in alike.values()]
    return tuple(sorted(found, key=lambda group: (group.example.outcome, group.num_probes), reverse=True))


def reasons(members: Iterable[Finding]) -> tuple[Reason, ...]:
    """The distinct reasons of some findings, the most frequent first.

    Neither numbers make them distinct, nor what stands before another's words: `turn 3: refused …` is `refused …`.
    """
    alike: dict[str, list[Finding]] = {}
    for finding in members:
        alike.setdefault(_NUMBERS.sub("#", finding.why), []).append(finding)
    for why in sorted(alike, key=len, reverse=True):
        core = next((other for other in alike if other and why.endswith(f": {other}")), None)
        if core is not None:
            alike[core] += alike.pop(why)
    found = [Reason(example=same[0], num_probes=len(set(map(place, same)))) for same in alike.values()]
    return tuple(sorted(found, key=lambda reason: reason.num_probes, reverse=True))


def _by_scenario(places: Iterable[Place]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for scenario, probe in dict.fromkeys(places):
        found[scenario] = (*found.get(scenario, ()), probe)
    return found


# ── what passed, what was skipped, and how many ──────────────────────────────────────────────────


def passed(run: Run) -> dict[str, dict[Outcome, Reason]]:
    """Scenario → outcome that passed there → the reason of most of its probes, counted for all of them.

    A measured limit speaks before all others; of equally frequent reasons, the one that rests on most evidence.
    """
    alike: dict[str, dict[Outcome, list[Finding]]] = {}
    for finding in findings(run):
        if finding.verdict is Verdict.PASS:
            alike.setdefault(finding.scenario, {}).setdefault(finding.outcome, []).append(finding)
    return {
        scenario: {outcome: _spoken_for(row[outcome]) for outcome in sorted(row)} for scenario, row in alike.items()
    }


def _spoken_for(members: list[Finding]) -> Reason:
    def weight(reason: Reason) -> tuple[bool, int, int]:
        evidence = reason.example.evidence
        return MEASURED in evidence, reason.num_probes, len(evidence)

    chosen = max(reasons(members), key=weight)
    return Reason(example=chosen.example, num_probes=len(set(map(place, members))))


def skipped(run: Run) -> dict[tuple[str, str], tuple[str, ...]]:
    """(scenario, reason) → the probes skipped for it; no probes where it is the whole scenario."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for skip in run.skips:
        probes = (skip.probe,) if skip.probe else ()
        found[skip.scenario, skip.reason] = (*found.get((skip.scenario, skip.reason), ()), *probes)
    return found


def tally(run: Run) -> Counter[Verdict]:
    """Number of probes by the worst verdict that each of them got."""
    return Counter(verdicts(run).values())


def num_probes(run: Run) -> str:
    """`41 probes`, of those that got a verdict."""
    return num(len(verdicts(run)), noun(run))
