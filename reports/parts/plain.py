"""A run as plain, stable text: `key: value` rows, one fact a line, for pipes, logs and dumb terminals.

No colour, no columns, no width: the same record gives the same text wherever it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from contextlab.model import Run, Verdict
from contextlab.reports.chaos.evidence import own
from contextlab.reports.parts import grouping, headline, rooms, summary
from contextlab.reports.parts.grouping import Group
from contextlab.reports.parts.wording import (
    COUNTED_AS,
    MARKS,
    MAX_REASONS,
    clean,
    grounds,
    listed,
    named,
    num,
    pairs,
    quote,
    unsaid,
    value,
)


def lines(run: Run) -> Iterator[str]:
    """The report, line by line, the verdict first."""
    yield f"{headline.word(run)}  {headline.sentence(run)}"
    yield f"result: {summary.tally_words(run)}"
    yield f"ended: {summary.exit_words(run)}"
    if stopped_in := summary.unfinished(run):
        yield f"stopped in: {clean(stopped_in)}"
    yield from (f"note: {quote(note)}" for note in summary.notes(run))
    if tested := summary.target_facts(run):
        yield f"target: {', '.join(tested)}"
    if (room := rooms.text_of(summary.command(run))) is not None:
        for rows in room.lines(run):
            yield from _under(rows)
    else:
        yield from _under(_limits(run))
        yield from _under(_outcomes(run))
    if summary.command(run) != "gate":  # whose findings are the rows of its table
        for wanted in (Verdict.FAIL, Verdict.UNKNOWN):
            for group in grouping.groups(run, wanted):
                yield from _under(_group(run, group))
        yield from _under(_passed(run))
        yield from _under(_skipped(run))
    yield ""
    if command := summary.command_line(run):
        yield f"command: {' '.join(command)}"
    yield from (f"{name}: {', '.join(words)}" for name, words in summary.provenance(run).items())
    yield f"record: {clean(run.path)}"
    yield f"next: {' '.join(summary.next_command(run))}"


def _limits(run: Run) -> Iterator[str]:
    for limit in summary.limits(run):
        binding = ", binding" if summary.binds(limit, run) else ""
        yield f"limit: {value(limit.tokens)} tokens, {limit.layer} {clean(limit.name)}, {clean(limit.source)}{binding}"
    if pool := summary.pool_words(run):
        yield f"pool: {pool}"
    if measured := summary.measured_words(run):
        yield f"measured: {measured}"


def _outcomes(run: Run) -> Iterator[str]:
    matrix = grouping.cells(run)
    for scenario, row in matrix.items():
        words = (
            f"{MARKS[verdict]} {row[outcome][verdict]} {outcome}"
            for outcome in grouping.outcomes(matrix)
            for verdict in sorted(row.get(outcome, ()), reverse=True)
        )
        yield f"scenario: {MARKS[grouping.worst(row)]} {clean(scenario)}: {', '.join(words)}"


def _group(run: Run, group: Group) -> Iterator[str]:
    """Findings with one cause; the number of probes stands at each reason where there are several."""
    finding, noun = group.example, grouping.noun(run)
    yield f"{COUNTED_AS[finding.verdict]}: {finding.outcome}: {finding.outcome.value}"
    yield f"  layer: {finding.layer}"
    yield from (f"  {noun}s: {clean(scenario)}: {listed(probes)}" for scenario, probes in group.probes.items())
    for reason in group.reasons[:MAX_REASONS]:
        count = f"{num(reason.num_probes, noun)}: " if len(group.reasons) > 1 else ""
        yield f"  why: {count}{quote(reason.why)}"
    if rest := unsaid(len(group.reasons)):
        yield f"  why: {rest}"
    if group.num_probes > 1:
        yield f"  example: {named(finding)}"
    if evidence := own(run, finding.evidence):
        yield f"  evidence: {' · '.join(' '.join(pair) for pair in pairs(evidence))}"
    if finding.remedy:
        yield f"  remedy: {clean(finding.remedy)}"


def _passed(run: Run) -> Iterator[str]:
    for scenario, row in grouping.passed(run).items():
        for outcome, reason in row.items():
            yield f"passed: {clean(scenario)}: {reason.num_probes} {outcome}: {grounds(reason.example)}"


def _skipped(run: Run) -> Iterator[str]:
    for (scenario, reason), probes in grouping.skipped(run).items():
        yield f"skipped: {clean(scenario)}{' ' + listed(probes) if probes else ''}: {quote(reason)}"


def _under(rows: Iterable[str]) -> Iterator[str]:
    """The rows after a blank line, or nothing where there are none."""
    for place, row in enumerate(rows):
        if place == 0:
            yield ""
        yield row
