"""The chaos experiments of a run as a report shows them: on a terminal a block each, elsewhere rows of plain text.

✗ packet-loss/loss-15%  failed: BOUND_BROKEN
  load, path, faults              what was done            facts
  backlog  ▂▃▂▁▃▇█▅▂▁             how it went              timeline
  faults   ────▒▒✗▒▒▒R──
  TTFT p50 …                      what was measured        table
  served badly …                  who lost what            qos
  proof, client, A/A, …           what it rests on         facts
  done, death, CPU, health, …     beside the wire          beside
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from contextlab.analysis.deaths import settled
from contextlab.analysis.phases import disturbances, is_disturbed, timeline
from contextlab.experiment import Phase
from contextlab.model import Outcome, Run
from contextlab.reports.chaos import beside as chaos_beside
from contextlab.reports.chaos import facts as chaos_facts
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.chaos import qos as chaos_qos
from contextlab.reports.chaos.figures import Row, Shown, Unit
from contextlab.reports.chaos.table import INSUFFICIENT, cell, has_endless, needs, sentences, table
from contextlab.reports.chaos.timeline import (
    DIED,
    FAILED,
    RECOVERED,
    SHADES,
    STOPPED,
    cell_of,
    fitted,
    graph,
    shades,
    track,
)
from contextlab.reports.chaos.words import EMULATED, short
from contextlab.reports.parts.facts import INDENT, LABEL, Fact, painted
from contextlab.reports.parts.layout import GAP, flowing, grid, labelled, wrapped
from contextlab.reports.parts.wording import COLOURS, COUNTED_AS, MARKS, clean, listed

_TABLE_INDENT = 2
_UNTOLD = {str(Outcome.UNKNOWN)}


def sections(run: Run, width: int, prose: int) -> Iterator[tuple[str, list[Text]]]:
    """(title, lines) of the parts that chaos adds to the report of a terminal; sentences are as wide as `prose`."""
    found, damage = chaos_figures.shown(run)
    if damage:
        yield "experiments", wrapped(Text(f"  {clean(damage)}"), prose)
    if len(found) > 1:
        yield "during the faults", overview(found, width)
    for one in found:
        yield "", block(one, width, prose, was_killed=run.end is None)


def lines(run: Run) -> Iterator[Iterator[str]]:
    """The same as plain rows, a group for each experiment."""
    found, damage = chaos_figures.shown(run)
    if damage:
        yield iter([f"experiments: {clean(damage)}"])
    for one in found:
        yield _rows(one, was_killed=run.end is None)


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────


def block(one: Shown, width: int, prose: int, *, was_killed: bool = False) -> list[Text]:
    """All that is shown of one experiment, in lines of at most `width` cells."""
    mark = Text.assemble("  ", (MARKS[one.verdict], COLOURS[one.verdict]))
    name = Text.assemble((f"{clean(one.scenario)}/{clean(one.name)}", "bold"), "  ", _said(one))
    shown = labelled(mark, wrapped(name, prose - INDENT), INDENT)
    if why := chaos_facts.why_empty(one, was_killed):
        shown += labelled(Text(), wrapped(Text(clean(why), "yellow"), prose - INDENT), INDENT)
    shown += painted(chaos_facts.setup(one), prose)
    served = chaos_qos.table(one, width - _TABLE_INDENT)
    told = [] if served else chaos_qos.sentences(one)
    facts = painted([*chaos_facts.results(one), *chaos_beside.facts(one), *told, *chaos_qos.facts(one)], prose)
    for part in (drawn(one, prose), _measured(one, width), labelled(Text(), served, _TABLE_INDENT), facts):
        shown += [Text(), *part] if part else []
    return shown


def _said(one: Shown) -> Text:
    outcomes = listed(sorted({str(each.outcome) for each in one.findings if each.verdict is one.verdict} - _UNTOLD))
    words = COUNTED_AS[one.verdict] + (f": {outcomes}" if outcomes else "")
    return Text.assemble((words, COLOURS[one.verdict]), f"  {EMULATED}" if one.is_emulated else "")


def drawn(one: Shown, width: int) -> list[Text]:
    """The arm along its time: backlog, the windows of the faults, what failed, recovery, and what the signs mean."""
    arm = one.arm
    if arm is None:
        return []
    made, start = one.trial.experiment, INDENT + LABEL
    is_fault = arm is one.trial.fault
    length_s, num_cells = max(arm.length_s, 0.001), max(8, width - start)
    bins = timeline(arm, made, length_s / num_cells)
    windows = disturbances(made) if is_fault and is_disturbed(made) else ()
    acting = shades([(window.start_s, window.end_s) for window in windows], length_s, num_cells)
    failed = fitted([each.errors for each in bins], num_cells)
    marks = {number: (FAILED, "red") for number, count in enumerate(failed) if count}
    deaths = settled(arm.deaths)
    marks |= {cell_of(death.at_s, length_s, num_cells): (DIED, "bold red") for death in deaths}
    back = one.study.recovery if is_fault else None
    if windows and back is not None and back.after_s is not None:
        at_s = max(window.end_s for window in windows) + back.after_s
        marks[cell_of(at_s, length_s, num_cells)] = (RECOVERED, "bold green")
    if arm.stopped:
        marks[num_cells - 1] = (STOPPED, "bold red")
    backlog = fitted([each.backlog.total for each in bins], num_cells)
    num_failed, drawn_marks = sum(each.errors for each in bins), {mark for mark, _ in marks.values()}
    legend = [f"{clean(arm.name)} arm", f"backlog at most {max(backlog)}"]
    legend += [f"{SHADES[1]} {_acting(one)}"] if any(acting) else []
    legend += [f"{FAILED} {num_failed} failed"] if num_failed else []
    legend += [f"{DIED} died"] if deaths else []
    legend += [f"{RECOVERED} recovered"] if RECOVERED in drawn_marks else []
    legend += [f"{STOPPED} stopped"] if STOPPED in drawn_marks else []
    return [
        *labelled(_label("backlog"), [graph(backlog, acting)], start),
        *labelled(_label("faults" if windows else "time"), [track(acting, marks)], start),
        *labelled(Text(), _axis(length_s, num_cells, legend), start),
    ]


def _label(words: str) -> Text:
    return Text(f"{'':{INDENT}}{words}", "dim")


def _acting(one: Shown) -> str:
    """What the shaded cells are."""
    return "faults act" if one.trial.experiment.faults else "more load"


def _axis(length_s: float, num_cells: int, legend: Sequence[str]) -> list[Text]:
    """Where time begins and ends, with the legend between them, or under them where it does not fit."""
    begin, end, words = "0 s", f"{short(round(length_s, 1))} s", " · ".join(legend)
    room = num_cells - len(begin) - len(end)
    if len(words) + 2 * GAP <= room:
        return [Text(f"{begin}{words:^{room}}{end}", "dim")]
    axis = Text(f"{begin}{'':{max(1, room)}}{end}", "dim")
    return [axis, *(Text(line.plain, "dim") for line in flowing([Text(part) for part in legend], num_cells))]


def _measured(one: Shown, width: int) -> list[Text]:
    rows = chaos_figures.rows(one)
    shown = labelled(Text(), table(rows, one.phases, width - _TABLE_INDENT), _TABLE_INDENT)
    notes = [Text(note, "dim") for note in _notes(one, rows)]
    return [*shown, *labelled(Text(), flowing(notes, width - INDENT), INDENT)] if shown else []


def _notes(one: Shown, rows: Sequence[Row]) -> Iterator[str]:
    """How the table is to be read."""
    yield "95% intervals"
    yield "TTFT, e2e: from when due"
    yield "service: e2e from when sent"
    if any(row.ratio is not None for row in rows):
        yield f"ratio: during / {one.against}"
    if needed := needs(rows):
        yield f"{INSUFFICIENT}: {needed} requests in a phase"
    if has_endless(rows):
        yield "failed requests count as endless"
    if chaos_figures.has_unbegun(one):
        yield "integrity: of the streams that began"


def overview(found: Sequence[Shown], width: int) -> list[Text]:
    """One line an experiment: what was seen during the faults."""
    names = ("errors", "TTFT p90", "goodput", "integrity")
    body, marks = [[Text(), *(Text(name, "bold") for name in (*names[:2], "ratio", *names[2:]))]], [Text()]
    for one in found:
        rows = {row.name: row for row in chaos_figures.rows(one)}
        cells = [_during(rows.get(name)) for name in names]
        ratio = rows["TTFT p90"].ratio if "TTFT p90" in rows else None
        cells.insert(2, cell(ratio, Unit.RATIO)[0])
        name = f"{clean(one.scenario)}/{clean(one.name)}" + (f" {EMULATED}" if one.is_emulated else "")
        body.append([Text(name), *map(Text, cells)])
        marks.append(Text.assemble("  ", (MARKS[one.verdict], COLOURS[one.verdict])))
    return grid(body, width, right=range(1, len(body[0])), marks=marks)


def _during(row: Row | None) -> str:
    return cell(row.figures.get(Phase.DURING), row.unit)[0] if row is not None else cell(None, Unit.COUNT)[0]


# ── as plain text ────────────────────────────────────────────────────────────────────────────────


def _rows(one: Shown, *, was_killed: bool) -> Iterator[str]:
    yield f"experiment: {MARKS[one.verdict]} {clean(one.scenario)}/{clean(one.name)}: {_said(one).plain}"
    if why := chaos_facts.why_empty(one, was_killed):
        yield f"  empty: {clean(why)}"
    yield from map(_plain, chaos_facts.setup(one))
    rows = chaos_figures.rows(one)
    yield from (f"  {row.name}: {', '.join(sentences(row, one.phases))}" for row in rows)
    if rows:
        yield f"  note: {'; '.join(_notes(one, rows))}"
    beside = [*chaos_beside.facts(one), *chaos_qos.sentences(one), *chaos_qos.facts(one)]
    yield from map(_plain, [*chaos_facts.results(one), *beside])


def _plain(fact: Fact) -> str:
    mark = f"{MARKS[fact.verdict]} " if fact.verdict is not None else ""
    return f"  {fact.label}: {mark}{clean(fact.text)}"
