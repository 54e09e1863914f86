"""How a sweep is shown: golden pages, and what must hold whatever was measured."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from contextlab.analysis.frontier import Frontier, Interval, Membership, Point, Standing, Status
from contextlab.analysis.sweeps import GIVEN_UP, SWEEP, Concluded, Goal, objectives
from contextlab.lab.journal import RECORD, read_run
from contextlab.model import Finding, Layer, Outcome, Run, Verdict
from contextlab.reports import terminal
from contextlab.reports.pareto import facts as pareto_facts
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.pareto import table as pareto_table
from contextlab.reports.pareto import text as pareto
from contextlab.reports.pareto.figures import Shown
from contextlab.reports.parts import headline, summary
from contextlab.reports.parts.wording import encodable
from tests.reports import pareto_sample as sample
from tests.reports.streams import Terminal, surroundings
from tests.reports.test_terminal import ANSI, piped, shown
from tests.reports.test_terminal import compare as compare_golden

RUNS = (
    "whole",
    "decided",
    "infeasible",
    "once",
    "three",
    "killed",
    "interrupted",
    "invalid",
    "empty",
    "bare",
    "hostile",
)
SUBJECT = "smollm2 (llama-server)"


@cache
def made(name: str) -> Run:
    run = getattr(sample, name)()
    assert isinstance(run, Run)
    return run


def concluded(probe: str, outcome: Outcome, verdict: Verdict) -> Finding:
    """A finding of a sweep, as its lab writes it."""
    return Finding(scenario=SWEEP, probe=probe, outcome=outcome, verdict=verdict, layer=Layer.ENGINE, why="why")


def of(name: str) -> Shown:
    one, damage = pareto_figures.shown(made(name))
    assert one is not None, damage
    return one


@pytest.mark.parametrize("name", RUNS)
def test_piped_report_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare_golden(f"pareto-{name}-piped", piped(made(name)), pytestconfig)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", RUNS)
def test_terminal_report_is_the_golden_one(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    text = shown(made(name), columns, NO_COLOR="1")
    compare_golden(f"pareto-{name}-{columns}", text, pytestconfig)
    assert all(fits(line, columns) for line in text.split("next:")[0].splitlines())


def fits(line: str, columns: int) -> bool:
    return cell_len(line) <= columns and line == line.rstrip() and "…" not in line


@pytest.mark.parametrize("columns", [40, 61, 100])
@pytest.mark.parametrize("name", ["three", "hostile", "once"])
def test_every_line_fits_and_nothing_is_shortened(name: str, columns: int) -> None:
    text, _ = ANSI.sub("", shown(made(name), columns)).split("next:")
    assert all(fits(line, columns) for line in text.splitlines())


def test_a_recorded_run_is_reported_as_it_was_when_it_ended(tmp_path: Path) -> None:
    run = made("decided")
    (tmp_path / RECORD).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in run.records))
    read = read_run(tmp_path / RECORD)
    assert piped(replace(read, path=run.path, knowledge=run.knowledge)) == piped(run)


def test_a_run_is_concluded_once() -> None:
    run = made("decided")
    assert pareto_figures.shown(run) is pareto_figures.shown(run)
    assert pareto_figures.shown(replace(run)) is not pareto_figures.shown(run)


# ── what is said ─────────────────────────────────────────────────────────────────────────────────


def lines_of(run: Run, label: str) -> list[str]:
    return [line for line in piped(run).splitlines() if line.startswith(f"{label}: ")]


def test_sentence_counts_members_and_names_the_best() -> None:
    one = of("whole")
    members, undecided = (len(one.of(each)) for each in (Membership.MEMBER, Membership.UNDECIDED))
    assert headline.word(made("whole")) == "MEASURED"
    assert headline.sentence(made("whole")) == (
        f"{SUBJECT}: {members} settings on the frontier of tokens_per_s and p99 ttft, and one of a group, "
        f"{undecided} undecided; "
        "best under p99 ttft < 200ms: slots=4 concurrency=4"
    )


@pytest.mark.parametrize(
    ("name", "word", "part"),
    [
        ("once", "MEASURED", ": no setting is for sure on the frontier of tokens_per_s and p99 ttft, 12 undecided; "),
        ("infeasible", "MEASURED", "; under p99 ttft < 2ms and errors < 1% none is proven feasible"),
        ("three", "MEASURED", "on the frontier of tokens_per_s, p99 ttft and memory"),
        ("killed", "UNKNOWN", " (the run was killed before it could finish)"),
        ("interrupted", "INTERRUPTED", " (stopped before its end)"),
        ("invalid", "UNKNOWN", ": nothing could be measured: 12 invalid"),
        ("empty", "UNKNOWN", ": nothing was measured"),
        ("bare", "UNKNOWN", ": nothing was measured"),
    ],
)
def test_headline(name: str, word: str, part: str) -> None:
    assert headline.word(made(name)) == word
    assert part in headline.sentence(made(name))


def test_what_cannot_be_compared_is_told_with_its_reason_and_has_no_row() -> None:
    text = piped(made("whole"))
    assert f"\ninfeasible: slots=4 concurrency=1: {sample.REFUSED}\n" in text
    assert "\ncrashed: slots=1 concurrency=8: killed by SIGSEGV while it answered\n" in text
    assert not re.search(r"setting \d+: . (slots=4 concurrency=1|slots=1 concurrency=8):", text)
    [left_out] = lines_of(made("whole"), "left out")
    assert left_out.startswith("left out: ? 3 repeats of ")
    assert left_out.endswith(sample.LATE)


def test_settings_on_the_frontier_come_first_then_by_the_first_goal() -> None:
    rows = of("whole").rows
    ranks = [(row.membership is Membership.DOMINATED, -row.standing.values[0].value) for row in rows]
    assert ranks == sorted(ranks)
    assert [row.place for row in rows] == list(range(1, len(rows) + 1))
    assert all(rows[row.by - 1].membership is not Membership.DOMINATED for row in rows if row.by is not None)


def test_failed_requests_are_counted_by_cause() -> None:
    assert lines_of(made("whole"), "requests")[0].endswith(" failed: 8 timeout, 4 http 500")
    assert "12 of 768 failed" in piped(made("whole"))


def test_windows_that_are_not_the_ones_asked_for_are_told() -> None:
    assert "window: tokens: as asked everywhere" in lines_of(made("whole"), "window")[0]
    [line] = lines_of(made("decided"), "window")
    assert line.startswith("window: tokens: context=512 gave 508 (slots=1 concurrency=1; ")
    [line] = lines_of(made("decided"), "Little")
    assert line.startswith("Little: ? littles law holds in 18 of 24, not in ")


def test_a_label_is_not_said_twice() -> None:
    run = made("decided")
    records = [
        {**one, "measurement": {**one["measurement"], "facts": {"little_gap": 0.01, "client_cpu_share": 0.02}}}
        if one["kind"] == "measurement"
        else one
        for one in run.records
    ]
    said = replace(run, records=tuple(records))
    assert lines_of(said, "Little") == ["Little: gap 0.01"]
    assert lines_of(said, "client") == ["client: cpu 2%"]


def test_drift_is_marked_where_it_is_one() -> None:
    [line] = lines_of(made("infeasible"), "drift")
    assert line.startswith("drift: ? the baseline drifted: tokens_per_s −9.0% (−14.0% to −4.0%) over 3 repeats")
    assert all(line.startswith("drift: ✓ none shown") for line in lines_of(made("whole"), "drift"))
    assert lines_of(made("killed"), "drift") == ["drift: not told: the run ended before it was worked out"]
    records = tuple(record for record in made("whole").records if record["kind"] != "undecided")
    searched = replace(made("whole"), records=records, findings=(concluded("frontier", Outcome.OK, Verdict.PASS),))
    assert lines_of(searched, "drift") == ["drift: not told: this search does not repeat its baseline"]


def test_what_is_open_is_told_also_of_a_run_that_could_not_say_it() -> None:
    assert lines_of(made("whole"), "undecided") == [
        "undecided: ? slots=4 concurrency=2; slots=2 concurrency=1: 4 repeats; the budget left 0 evaluations"
    ]
    assert lines_of(made("killed"), "undecided")[0].endswith(": the run was killed before it could tell")
    assert lines_of(made("once"), "undecided")[1:] == ["undecided: ? 4 of 16 settings were never measured"]


def test_without_noise_nothing_is_decided_and_no_interval_is_shown() -> None:
    text = piped(made("once"))
    assert "one repeat each: nothing is known of the noise" in text
    assert not re.search(r"setting \d.*\(", text)
    assert of("once").best is None


def test_a_damaged_record_is_said_to_be_one() -> None:
    run = made("decided")
    bad = tuple(
        {**each, "measurement": {"block": "x"}} if each["kind"] == "measurement" else each for each in run.records
    )
    for text in (piped(replace(run, records=bad)), shown(replace(run, records=bad), 80, NO_COLOR="1")):
        assert "the record of the sweep is damaged" in " ".join(text.split())
    odd = tuple(
        {**each, "undecided": 3, "drift": [{"change": 4}, 5]} if each["kind"] == "undecided" else each
        for each in run.records
    )
    assert "setting 1: " in piped(replace(run, records=odd))


# ── the plot in the page, and what stands where there is no Unicode ──────────────────────────────


class Latin(Terminal):
    """A terminal that knows nothing but Latin 1."""

    encoding = "latin-1"


def test_plot_has_plain_signs_where_there_is_no_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch, NO_COLOR="1")
    out = Latin()
    terminal.write(made("whole"), out)
    text = out.getvalue()
    assert text.isascii()
    assert "\\u" not in text
    assert re.search(r"^ +250 \+ .*\*", text, re.MULTILINE), "the best one, at its height"
    assert re.search(r"^ +o \d member", text, re.MULTILINE)


def test_signs_have_plain_forms() -> None:
    assert encodable("●◌∙★┆╌┤└┬↑↓", "ascii") == "o?.*:=+++^v"


def test_plot_says_what_it_does_not_show() -> None:
    text = " ".join(shown(made("infeasible"), 140, NO_COLOR="1").split())
    assert "p99 ttft < 2ms (outside the plot)" in text
    assert "not drawn: memory" in " ".join(shown(made("three"), 140, NO_COLOR="1").split())
    assert "not drawn: 1 infeasible, 1 crashed" in " ".join(shown(made("whole"), 140, NO_COLOR="1").split())


# ── tables of another size ───────────────────────────────────────────────────────────────────────


def by_hand(*standings: Standing, goals: tuple[Goal, ...] = (sample.TOKENS, sample.TTFT)) -> Shown:
    what = sample.sweep(goals=goals, slos=())
    result = Frontier(
        objectives=objectives(what),
        standings=standings,
        confidence=0.95,
        known=True,
        compared=tuple(k for k, each in enumerate(standings) if each.membership is not Membership.EXCLUDED),
    )
    return pareto_figures.of(
        Concluded(
            sweep=what,
            measurements=(),
            points=tuple(each.point for each in standings),
            frontier=result,
            one_of=(),
            knee=None,
            reference=None,
            hypervolume=None,
            recommended=None,
        )
    )


def standing(slots: int, membership: Membership, *values: float, **more: Any) -> Standing:
    point = Point(settings={"slots": slots, "context": 2048, "concurrency": 1}, repeats=((1.0,),) * 3)
    there = tuple(Interval(value=value, low=value * 0.9, high=value * 1.1) for value in values)
    return Standing(point=point, membership=membership, values=there, **more)


def many(count: int) -> Shown:
    first = standing(0, Membership.MEMBER, 900.0, 0.01, probability=1.0)
    others = [
        standing(slots, Membership.DOMINATED, 900.0 - slots, 0.02, by=first.point.settings)
        for slots in range(1, count + 1)
    ]
    return by_hand(first, *others)


def test_dominated_settings_past_forty_rows_are_counted() -> None:
    lines = [line.plain for line in pareto_table.table(many(96), 140)]
    assert lines[-1] == "    and 57 more, dominated for sure"
    assert len(lines) == 1 + 40 + 1
    assert lines[40].split()[1] == "40"
    assert len(pareto_table.table(many(39), 140)) == 41
    assert len(pareto_table.table(many(40), 140)) == 42, "and 1 more is no shorter than the row"


def test_all_that_may_be_on_the_frontier_has_a_row() -> None:
    one = by_hand(*(standing(slots, Membership.UNDECIDED, 900.0 - slots, 0.02) for slots in range(60)))
    rows, num_left = pareto_table.rows_shown(one)
    assert (len(rows), num_left) == (60, 0)


def test_table_takes_the_widest_form_that_fits() -> None:
    wide, narrow, stacked = ([line.plain for line in pareto_table.table(of("whole"), width)] for width in (140, 80, 60))
    num = len(of("whole").rows)
    assert (len(wide), len(narrow)) == (1 + num, 2 + 2 * num)
    assert re.search(r"★ +2 +4 +4 +3 +\d+  \d+–\d+ +[\d.]+  [\d.]+–[\d.]+ +MEMBER 1.00 +0 of 288$", wide[2])
    assert any("slots=4 concurrency=4 · MEMBER" in line for line in stacked)
    assert pareto_table.table(of("invalid"), 80) == []


def test_requests_that_are_not_on_record_have_no_column() -> None:
    assert not any("failed" in line.plain for line in pareto_table.table(many(2), 140))


def test_reasons_past_a_few_are_counted() -> None:
    points_ = [
        Point(settings={"slots": slots, "concurrency": 1}, status=Status.INFEASIBLE, why=f"reason {slots}")
        for slots in range(12)
    ]
    one = by_hand(*(Standing(point=point, membership=Membership.EXCLUDED) for point in points_))
    for lines in ([line.plain.strip() for line in pareto_table.excluded(one, 80)], pareto_table.excluded_lines(one)):
        assert len(lines) == 9
        assert lines[-1].endswith("and 4 other reasons, in the record")


def test_one_goal_has_a_table_and_no_plot() -> None:
    one = by_hand(standing(1, Membership.MEMBER, 900.0), goals=(sample.TOKENS,))
    assert pareto.drawn(one, 80) == []
    assert "MEMBER" in pareto_table.table(one, 80)[1].plain
    assert not [fact for fact in pareto_facts.facts(one) if fact.label in ("knee", "volume", "best")]


# ── what to do next ──────────────────────────────────────────────────────────────────────────────


def test_next_goes_on_where_something_is_open() -> None:
    again = ["contextlab", *(word if " " not in word else f"'{word}'" for word in sample.HEADER["argv"])]
    assert summary.next_command(made("killed")) == [*again, "--resume", sample.PATH]
    assert summary.next_command(made("interrupted")) == [*again, "--resume", sample.PATH]
    assert summary.next_command(made("whole")) == [*again[:-2], "--resume", sample.PATH, "--budget", "960s"]
    assert summary.next_command(made("decided")) == ["contextlab", "report", sample.PATH, "--as", "json"]
    for name in ("invalid", "empty", "bare"):
        assert summary.next_command(made(name)) == again
    kept = replace(made("empty"), header={**sample.HEADER, "argv": ["pareto", "x", "-o", "here", "--json"]})
    assert summary.next_command(kept) == ["contextlab", "pareto", "x", "--json"]  # that folder is there already
    host = concluded(GIVEN_UP, Outcome.UNKNOWN, Verdict.UNKNOWN)
    given_up = replace(made("whole"), findings=(*made("whole").findings, host))
    assert summary.next_command(given_up) == [*again, "--resume", sample.PATH]  # its budget was not used up
    resumed = replace(made("killed"), header={**sample.HEADER, "argv": ["pareto", "x", "--resume=runs/a", "--json"]})
    assert summary.next_command(resumed) == ["contextlab", "pareto", "x", "--json", "--resume", sample.PATH]


def test_result_says_how_much_was_measured() -> None:
    assert summary.tally_words(made("whole")) == ("48 measurements of 12 settings in 4 blocks; 1 infeasible, 1 crashed")
    assert summary.tally_words(made("once")).endswith("; 4 of 16 settings never measured")
    assert summary.tally_words(made("bare")) == "0 measurements"
    assert headline.tells_exit(made("whole"))


# ── nothing is markup ─────────────────────────────────────────────────────────────────────────────


def test_lines_are_texts_without_markup() -> None:
    for title, lines in pareto.sections(made("hostile"), 80, 80):
        assert title in ("frontier", "settings", "not compared", "found")
        assert all(isinstance(line, Text) and line.plain.isprintable() for line in lines)
    out = io.StringIO()
    terminal.write(made("hostile"), out)
    assert all(line.isprintable() for line in out.getvalue().splitlines())
