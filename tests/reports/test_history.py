"""The history as text, JSON and HTML, and what of a run goes into it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.cells import cell_len

from contextlab.analysis.gate.nouns import GateResult, Metric, MetricResult, MetricVerdict
from contextlab.analysis.gate.stored import GateBegins
from contextlab.lab.journal import plain
from contextlab.model import NothingMeasured, Run, Verdict
from contextlab.reports.history import page as history_page
from contextlab.reports.history import text as history
from contextlab.reports.history.entries import entry
from contextlab.reports.history.text import History
from contextlab.reports.json import encoded
from tests.reports import sample
from tests.reports.every import MAKERS, made
from tests.reports.history_sample import HISTORIES, drifting, short, stepped
from tests.reports.streams import Terminal, surroundings
from tests.reports.test_schema import strictly
from tests.reports.test_terminal import ANSI, compare


def piped(found: History) -> str:
    out = io.StringIO()
    history.write_text(found, out)
    return out.getvalue()


def shown(found: History, columns: int, **environ: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        surroundings(patch, columns=columns, **environ)
        out = Terminal()
        history.write_text(found, out)
        return out.getvalue()


# ── text ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", HISTORIES)
def test_piped_history_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare(f"history-{name}-piped", piped(HISTORIES[name]()), pytestconfig)


@pytest.mark.parametrize("name", HISTORIES)
def test_history_in_a_terminal_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare(f"history-{name}-80", shown(HISTORIES[name](), 80, NO_COLOR="1"), pytestconfig)


@pytest.mark.parametrize("columns", [40, 61, 80, 140])
@pytest.mark.parametrize("name", HISTORIES)
def test_every_line_fits_and_nothing_is_shortened(name: str, columns: int) -> None:
    lines = ANSI.sub("", shown(HISTORIES[name](), columns)).splitlines()
    assert [line for line in lines if cell_len(line) > columns or line != line.rstrip() or "…" in line] == []


def test_colour_is_only_added_and_a_stream_without_unicode_has_plain_bars() -> None:
    assert ANSI.sub("", shown(stepped(), 80)) == shown(stepped(), 80, NO_COLOR="1")
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    history.write_text(stepped(), out)
    out.flush()
    assert b"longest prompt read: 255 tokens, median 503 (255 to 503): ########______\n" in raw.getvalue()


def test_a_change_is_told_with_its_run_and_both_levels() -> None:
    assert "change: from 20261109-030000-overflow-smollm2 on 255 tokens instead of 503 tokens (-49.3%, worse)" in (
        piped(stepped())
    )


def test_why_nothing_is_looked_for_is_told() -> None:
    assert "changes: 3 of the 10 runs that it takes" in piped(short())
    assert "each run resembles the one before it" in piped(drifting())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0412, "s", "41.2 ms"),
        (0.025, "share", "2.5%"),
        (503.0, "tokens", "503 tokens"),
        (40.25, "tokens/s", "40.2 tokens/s"),
        (3 * 2**20, "bytes", "3.00 MiB"),
        (2.0, "", "2"),
    ],
)
def test_amounts(value: float, unit: str, text: str) -> None:
    assert history.amount(value, unit) == text


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", HISTORIES)
def test_every_document_validates(name: str) -> None:
    strictly("history").validate(json.loads(encoded(history.document(HISTORIES[name]()))))


def test_a_folder_without_a_history_validates() -> None:
    document = history.failure_document("runs", NothingMeasured("none is there", "run one"))
    strictly("history").validate(json.loads(encoded(document)))
    assert document["exit"]["code"] == 5


def test_what_the_document_says() -> None:
    document = history.document(stepped())
    assert (document["num_runs"], len(document["left_out"])) == (15, 2)
    [group] = [one for one in document["groups"] if len(one["runs"]) > 1]
    longest, decode = group["series"]
    assert [len(one["points"]) for one in (longest, decode)] == [14, 14]
    [change] = longest["changes"]
    assert (change["run"], change["before"], change["after"]) == ("20261109-030000-overflow-smollm2", 503, 255)
    assert (change["worse"], decode["changes"], decode["advice"]) == (True, [], "no lasting change")


# ── HTML ─────────────────────────────────────────────────────────────────────────────────────────


class Parts(HTMLParser):
    """Counts elements, and collects what would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.tags.append(tag)
        self.loads += [
            str(value) for name, value in attrs if name in ("src", "href") and not str(value).startswith("#")
        ]


@pytest.mark.parametrize("name", HISTORIES)
def test_the_page_loads_nothing_and_every_chart_has_words_and_a_table(name: str) -> None:
    text = history_page.page(HISTORIES[name]())
    parts = Parts()
    parts.feed(text)
    assert parts.loads == ["data:,"]  # (the icon that browsers ask for otherwise)
    charts = sum(len(group.series) for group in HISTORIES[name]().groups)
    assert parts.tags.count("figure") == charts
    assert text.count("<desc ") == 2 * charts
    assert len(text.encode()) < 300_000
    assert "\x1b" not in text


def test_a_script_in_a_name_stays_text() -> None:
    page = history_page.page(HISTORIES["hostile"]()) + history_page.page(_named("<script>alert(1)</script>"))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def _named(text: str) -> History:
    found = stepped()
    return replace(found, folder=text, groups=tuple(replace(group, asked=text) for group in found.groups))


def test_a_change_is_drawn_and_said() -> None:
    text = history_page.page(stepped())
    assert len(re.findall(r'<line class="limit"', text)) == 2  # (the wide drawing and the narrow one)
    assert "A change from 20261109-030000-overflow-smollm2 on 255 tokens" in text


# ── what of a run goes into it ───────────────────────────────────────────────────────────────────


def values(run: Run) -> dict[tuple[str, str], tuple[float, str, str]]:
    return {(each.scenario, each.metric): (each.value, each.unit, each.better) for each in entry(run).values}


@pytest.mark.parametrize("name", MAKERS)
def test_every_run_that_ended_has_an_entry_and_no_other(name: str) -> None:
    run = made(name)
    whole = run.end is not None and run.end["exit"]["code"] not in (130, 143)
    timed = str(run.header.get("started_at", "")).startswith("2026")
    if whole and timed:
        assert entry(run).began_at == "2026-11-29T16:02:03+00:00"
    else:
        with pytest.raises(NothingMeasured):
            entry(run)


def test_an_overflow_run() -> None:
    found = values(sample.failing())
    assert found["find-limit", "longest prompt read"] == (503, "tokens", "more")
    assert found["", "failed probes"] == (6, "", "less")
    assert sample.KNOWLEDGE.decode_tokens_per_s is None
    assert ("", "decode") not in found


def test_a_chaos_run() -> None:
    found = values(made("chaos-loss"))
    place = next(scenario for scenario, metric in found if metric == "TTFT p50 undisturbed")
    assert place == "packet-loss/loss-15%"
    assert 0.01 < found[place, "TTFT p50 undisturbed"][0] < found[place, "TTFT p50 during"][0]
    assert found[place, "errors during"][1:] == ("share", "less")


def test_a_sweep() -> None:
    found = values(made("pareto-whole"))
    assert found["baseline", "tokens_per_s"][2] == "more"
    assert found["best of all settings", "tokens_per_s"][0] > found["baseline", "tokens_per_s"][0]
    assert found["best of all settings", "p99 ttft"][0] <= found["baseline", "p99 ttft"][0]


def test_a_gate() -> None:
    metric = MetricResult(
        metric=Metric(name="ttft_p50_s"), verdict=MetricVerdict.OK, gating=True, why="", base=0.1, candidate=0.2
    )
    header = {**sample.HEADER, "command": "gate"}
    records = (
        {"kind": "gate", "gate": plain(GateBegins(base="a", candidate="b"))},
        {"kind": "gate_result", "result": plain(GateResult(metrics=(metric,)))},
    )
    run = replace(sample.held(), header=header, records=records)
    assert values(run) == {("candidate", "ttft_p50"): (0.2, "s", "less")}


def test_what_changes_nothing_makes_no_group_of_its_own() -> None:
    def asked(*words: str, **more: Any) -> str:
        return entry(replace(sample.held(), header={**sample.HEADER, "argv": list(words), **more})).asked

    assert asked("overflow", "x", "--seed", "7", "--json", "-o", "here") == "overflow x"
    assert asked("overflow", "x", "--seed=7", "--set", "context=9") == "overflow x --set context=9"
    assert asked("gate", "run", "--base", "x --set a=1") == "gate run --base 'x --set a=1'"
    assert asked(target={"name": "x", "settings": {"b": 1, "a": 2}}) == "a=2 b=1"


def test_times_are_compared_in_one_zone() -> None:
    header = {**sample.HEADER, "started_at": "2026-11-29T18:02:03+02:00"}
    assert entry(replace(sample.held(), header=header)).began_at == "2026-11-29T16:02:03+00:00"


def test_the_verdict_is_the_runs_own() -> None:
    assert entry(sample.failing()).verdict is Verdict.FAIL
