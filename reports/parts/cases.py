"""A run as test cases, for every format that a CI system reads: what passed, failed, broke, or was not told; pure.

    finding that is not allowed     FAILED     the target did it
    infrastructure                  BROKEN     the run could not be made, or not to its end: no verdict on the target
    not told, not run               SKIPPED    with the reason: never a pass, never a failure
    everything else                 PASSED

The first case is the run itself, so that a run that measured nothing is never a page without failures. Names hold no
measured value: a CI system that follows a case over many runs finds it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from contextlab.model import Finding, Run, Verdict
from contextlab.reports.chaos.evidence import own
from contextlab.reports.parts import grouping, summary
from contextlab.reports.parts.wording import named, pairs, quote

ITSELF = "the run"
"""The name of the first case."""
WHOLE_SCENARIO = "the whole scenario"
BREAKS = {
    2: "WrongUsage",
    4: "TargetUnavailable",
    5: "NothingMeasured",
    6: "UndoFailed",
    70: "InternalError",
    130: "Interrupted",
    143: "Terminated",
}
"""Exit codes that say something of the run, not of the target, and what a report calls them."""


class Status(Enum):
    """What became of a case; the value is the word that a reader sees."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "could not be measured"
    SKIPPED = "not told"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One probe, experiment, metric, or the run itself. `kind`: an outcome's name, or why it broke; stable.

    `message`: one printable line. `body`: lines with the evidence, what to change, and how to see it again.
    `length_s`: how long it took; None where the record does not say.
    """

    scenario: str
    name: str
    status: Status
    kind: str = ""
    message: str = ""
    body: tuple[str, ...] = ()
    length_s: float | None = None


def cases(run: Run) -> tuple[Case, ...]:
    """The run itself, then its probes in the order in which they began, then what was not run."""
    return (_itself(run), *_judged(run), *_skipped(run))


def slug(text: str) -> str:
    """`text` as part of a name that dots and slashes would split: `http://127.0.0.1:8080` is `http-127-0-0-1-8080`."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-") or "unnamed"


def _itself(run: Run) -> Case:
    """Broken where any of its exit codes says so, also behind a finding that outweighs it."""
    status = summary.exit_status(run)
    broken = [(code, reason) for code, reason in _reasons(status) if code is None or code in BREAKS]
    if not broken:
        return Case(scenario=summary.command(run), name=ITSELF, status=Status.PASSED, message=summary.exit_words(run))
    code, reason = broken[0]
    return Case(
        scenario=summary.command(run),
        name=ITSELF,
        status=Status.BROKEN,
        kind="Killed" if code is None else BREAKS[code],
        message=quote(reason) or "no reason is on record",
        body=tuple(f"exit {code}: {quote(reason)}" for code, reason in broken if code is not None),
    )


def _reasons(status: Mapping[str, object]) -> list[tuple[int | None, str]]:
    """(exit code, reason), the one that decided first."""
    code, every = status["code"], status["all"]
    found: list[tuple[int | None, str]] = [(code if isinstance(code, int) else None, str(status["reason"]))]
    found += [
        (pair[0], str(pair[1]))
        for pair in (every if isinstance(every, list) else [])
        if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], int)
    ]
    return list(dict.fromkeys(found))


def _judged(run: Run) -> Iterator[Case]:
    by_place: dict[grouping.Place, list[Finding]] = {}
    for finding in grouping.findings(run):
        by_place.setdefault(grouping.place(finding), []).append(finding)
    lengths = _lengths(run)
    for (scenario, probe), found in by_place.items():
        worst = max(each.verdict for each in found)
        loudest = [each for each in found if each.verdict is worst]
        first = max(loudest, key=lambda each: each.outcome)
        yield Case(
            scenario=scenario,
            name=probe,
            status={Verdict.FAIL: Status.FAILED, Verdict.UNKNOWN: Status.SKIPPED}.get(worst, Status.PASSED),
            kind=first.outcome.name,
            message=quote(first.why) or first.outcome.value,
            body=tuple(_body(run, loudest)),
            length_s=lengths.get((scenario, probe)),
        )


def _body(run: Run, found: Iterable[Finding]) -> Iterator[str]:
    for finding in found:
        yield f"{finding.outcome}: {finding.outcome.value}"
        yield f"  why: {quote(finding.why)}"
        yield f"  layer: {finding.layer}"
        yield from (f"  {name}: {thing}" for name, thing in pairs(own(run, finding.evidence)))
        if finding.remedy:
            yield f"  remedy: {quote(finding.remedy)}"
    yield f"again: {' '.join(again(run, finding))}"


def again(run: Run, finding: Finding) -> list[str]:
    """The command that shows a finding again, in shell words: an overflow probe alone, every other run whole."""
    if summary.command(run) in ("overflow", "replay") and finding in run.findings:
        return summary.shell_words("contextlab", "replay", run.path, "--probe", named(finding))
    return summary.command_line(run) or summary.next_command(run)


def _skipped(run: Run) -> Iterator[Case]:
    judged = {grouping.place(finding) for finding in grouping.findings(run)}
    reasons: dict[grouping.Place, list[str]] = {}
    for skip in run.skips:
        place = (skip.scenario, skip.probe or WHOLE_SCENARIO)
        if place not in judged:
            reasons.setdefault(place, []).append(quote(skip.reason))
    for (scenario, probe), said in reasons.items():
        yield Case(
            scenario=scenario,
            name=probe,
            status=Status.SKIPPED,
            kind="NotRun",
            message=f"not run: {'; '.join(dict.fromkeys(said))}",
        )


def _lengths(run: Run) -> dict[grouping.Place, float]:
    """Seconds from the beginning of a probe or experiment to its end, where both are on record."""
    began: dict[grouping.Place, float] = {}
    found: dict[grouping.Place, float] = {}
    for record in run.records:
        probe = record.get("probe")
        name = probe.get("name") if isinstance(probe, Mapping) else probe
        place, at_s = (str(record.get("scenario", "")), str(name or "")), record.get("at_s")
        if not isinstance(at_s, int | float):
            continue
        if record.get("kind") in ("probe", "experiment"):
            began[place] = at_s
        elif record.get("kind") in ("observed", "trial") and place in began:
            found[place] = max(0.0, at_s - began[place])
    return found


def counted(found: Iterable[Case]) -> dict[Status, int]:
    """How many cases there are of each status, zero included."""
    counts = dict.fromkeys(Status, 0)
    for case in found:
        counts[case.status] += 1
    return counts
