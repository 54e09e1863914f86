"""A run as plain, stable text: `key: value` rows, one fact a line, for pipes, logs and dumb terminals.

No colour, no columns, no width: the same record gives the same text wherever it is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextlab.model import Run, Verdict
from contextlab.reports import summary
from contextlab.reports.wording import COUNTED_AS, MARKS, clean, listed, quote, value


def lines(run: Run) -> Iterator[str]:
    """The report, line by line, the verdict first."""
    yield f"{summary.headline_word(run)}  {summary.headline(run)}"
    yield f"result: {summary.tally_words(run)}"
    yield f"ended: {summary.exit_words(run)}"
    if stopped_in := summary.unfinished(run):
        yield f"stopped in: {clean(stopped_in)}"
    yield from (f"note: {quote(note)}" for note in summary.notes(run))
    yield ""
    yield from (f"{name}: {', '.join(words)}" for name, words in summary.target_facts(run).items())
    yield from _limits(run)
    yield from _outcomes(run)
    yield from _findings(run, Verdict.FAIL)
    yield from _findings(run, Verdict.UNKNOWN)
    yield from _under([f"passed: {clean(name)}: {words}" for name, words in summary.passed_words(run).items()])
    yield from _under(
        f"skipped: {clean(scenario)}{' ' + listed(probes) if probes else ''}: {quote(reason)}"
        for (scenario, reason), probes in summary.skipped(run).items()
    )
    yield ""
    yield f"record: {clean(run.path)}"
    yield f"next: {' '.join(summary.next_command(run))}"


def _limits(run: Run) -> Iterator[str]:
    for limit in summary.limits(run):
        binding = ", binding" if summary.binds(limit, run) else ""
        yield f"limit: {value(limit.tokens)} tokens, {limit.layer} {clean(limit.name)}, {clean(limit.source)}{binding}"
    if pool := summary.pool_words(run):
        yield f"pool: {pool}"
    if (measured := summary.measured_tokens(run)) is not None:
        yield f"measured limit: {measured} tokens"


def _outcomes(run: Run) -> Iterator[str]:
    matrix = summary.cells(run)
    yield from _under(
        f"scenario: {MARKS[summary.worst(row)]} {clean(scenario)}: "
        + ", ".join(
            f"{MARKS[verdict]} {row[outcome][verdict]} {outcome}"
            for outcome in summary.outcomes(matrix)
            for verdict in sorted(row.get(outcome, ()), reverse=True)
        )
        for scenario, row in matrix.items()
    )


def _findings(run: Run, wanted: Verdict) -> Iterator[str]:
    for group in summary.groups(run, wanted):
        finding = group.first
        yield ""
        yield f"{COUNTED_AS[wanted]}: {finding.outcome}: {finding.outcome.value}"
        yield f"  scenario: {clean(finding.scenario)}"
        yield f"  {'probe' if len(group.probes) == 1 else 'probes'}: {listed(group.probes)}"
        yield f"  layer: {finding.layer}"
        yield f"  why: {quote(finding.why)}"
        yield from (f"  evidence: {clean(name)}: {value(thing)}" for name, thing in group.evidence.items())
        if finding.remedy:
            yield f"  remedy: {clean(finding.remedy)}"


def _under(rows: Iterator[str] | list[str]) -> Iterator[str]:
    """The rows after a blank line, or nothing where there are none."""
    for place, row in enumerate(rows):
        if place == 0:
            yield ""
        yield row
