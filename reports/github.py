"""A run as annotations of a GitHub workflow: at most five, and one notice that says what there is beside them.

    ::error title=NEIGHBOUR_ABORTED::kv-exhaustion: 3 probes: …

The runner shows ten of a kind for each step and drops the rest in silence, so one cause is one annotation. Every value
is escaped as the runner unescapes it: no text of a target can end its line or begin a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from contextlab.model import Run, Verdict
from contextlab.reports.chaos.words import NONE
from contextlab.reports.gate import facts as gate_facts
from contextlab.reports.parts import anchors, cases, grouping, headline, summary
from contextlab.reports.parts.cases import Status
from contextlab.reports.parts.grouping import Group
from contextlab.reports.parts.wording import encodable, listed, num, quote, then

MAX_ANNOTATIONS = 5
_LEVELS = {Verdict.FAIL: "error", Verdict.UNKNOWN: "warning"}


def write(run: Run, out: TextIO) -> None:
    """Write the annotations, the worst cause first, then the notice."""
    out.write(encodable("".join(f"{line}\n" for line in lines(run)), getattr(out, "encoding", None)))


def lines(run: Run) -> Iterator[str]:
    """The workflow commands, one a line."""
    told = list(_annotations(run))
    yield from told[:MAX_ANNOTATIONS]
    left = len(told) - MAX_ANNOTATIONS
    more = f" {num(left, 'more cause')} in the report." if left > 0 else ""
    sentence = f"{headline.sentence(run)}. {summary.tally_words(run)}; {summary.exit_words(run)}.{more}"
    yield _command("notice", f"contextlab {summary.command(run)}: {headline.word(run)}", sentence)


def _annotations(run: Run) -> Iterator[str]:
    itself = cases.cases(run)[0]
    if itself.status is Status.BROKEN:
        yield _command("error", itself.kind, f"{summary.command(run)} could not be made whole: {itself.message}")
    if summary.command(run) == "gate":
        yield from _compared(run)
        return
    for wanted, level in _LEVELS.items():
        for group in grouping.groups(run, wanted):
            where = anchors.of_finding(run, group.example)
            yield _command(level, str(group.example.outcome), _message(run, group), file=where)


def _compared(run: Run) -> Iterator[str]:
    """What a gate compared, one thing an annotation: its findings have one cause only on paper."""
    one, _ = gate_facts.shown(run)
    rows = (*one.counted, *one.metrics, *one.budgets) if one is not None else ()
    for wanted, level in _LEVELS.items():
        for row in rows:
            if row.verdict is wanted:
                numbers = f"{row.base} to {row.candidate}, {row.change}, margin {row.margin}: "
                yield _command(level, f"{row.name} {row.word}", f"{'' if row.change == NONE else numbers}{row.why}")


def _message(run: Run, group: Group) -> str:
    finding = group.example
    why = quote(finding.why) or finding.outcome.value
    remedy = f"What to change: {quote(finding.remedy)}" if finding.remedy else ""
    return then(f"{listed(list(group.probes), 2)}: {num(group.num_probes, grouping.noun(run))}: {why}", remedy)


def _command(level: str, title: str, message: str, *, file: str = "") -> str:
    placed = f"file={_property(file)},line=1," if file else ""
    return f"::{level} {placed}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
