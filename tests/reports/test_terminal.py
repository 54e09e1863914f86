"""The terminal report: golden pages, and what must hold whatever the record says."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from contextlab.model import Limits, Outcome, Run, Skip, Verdict
from contextlab.reports import summary, terminal
from tests.reports import sample
from tests.reports.streams import Terminal, surroundings

GOLDEN = Path(__file__).parent / "golden"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
RUNS = ("failing", "held", "undecided", "killed", "interrupted", "empty", "bare", "hostile")


def made(name: str) -> Run:
    run = getattr(sample, name)()
    assert isinstance(run, Run)
    return run


def piped(run: Run) -> str:
    out = io.StringIO()
    terminal.write(run, out)
    return out.getvalue()


def shown(run: Run, columns: int, **environ: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        surroundings(patch, columns=columns, **environ)
        out = Terminal()
        terminal.write(run, out)
        return out.getvalue()


def compare(name: str, text: str, config: pytest.Config) -> None:
    path = GOLDEN / f"{name}.txt"
    if config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; `pytest --update-golden` writes it anew"


@pytest.mark.parametrize("name", RUNS)
def test_piped_report_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare(f"{name}-piped", piped(made(name)), pytestconfig)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", RUNS)
def test_terminal_report_is_the_golden_one(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    compare(f"{name}-{columns}", shown(made(name), columns, NO_COLOR="1"), pytestconfig)


@pytest.mark.parametrize("columns", [40, 61, 80, 100, 140, 200])
@pytest.mark.parametrize("name", RUNS)
def test_every_line_fits_and_nothing_is_shortened(name: str, columns: int) -> None:
    text = ANSI.sub("", shown(made(name), columns))
    text, _ = text.split("next:")  # a command is broken between its words only
    assert all(cell_len(line) <= columns and line == line.rstrip() for line in text.splitlines())
    assert "…" not in text
    assert "…" not in piped(made(name))


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_outcome_names_and_remedies_stay_whole(columns: int) -> None:
    run = made("failing")
    text = shown(run, columns, NO_COLOR="1")
    words = " ".join(text.split())
    for finding in run.findings:
        assert finding.outcome.name in words
        assert finding.remedy in words


def test_matrix_names_every_outcome_even_if_all_occur() -> None:
    found = [sample.finding("everything", outcome.name, outcome, Verdict.FAIL) for outcome in Outcome]
    for columns in (40, 80, 140, 250):
        matrix = shown(sample.run(*found), columns, NO_COLOR="1").split("OUTCOMES")[1].split("FAILED")[0]
        assert [each.name for each in Outcome if each.name in re.findall(r"\w+", matrix)] == [o.name for o in Outcome]


def test_same_outcome_with_two_verdicts_shows_both() -> None:
    found = [
        sample.finding("s", "small", Outcome.REJECTED, Verdict.FAIL),
        sample.finding("s", "large", Outcome.REJECTED, Verdict.PASS),
    ]
    assert "✗ 1 ✓ 1" in shown(sample.run(*found), 80, NO_COLOR="1")


def test_colour_is_only_added() -> None:
    run = made("failing")
    coloured = shown(run, 80)
    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured) == shown(run, 80, NO_COLOR="1")


def test_no_color_leaves_no_escape_at_all() -> None:
    assert "\x1b" not in shown(made("failing"), 80, NO_COLOR="1")


def test_dumb_terminal_gets_the_plain_text() -> None:
    run = made("failing")
    assert shown(run, 80, TERM="dumb") == piped(run)


def test_plain_text_does_not_depend_on_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made("failing")
    monkeypatch.setenv("COLUMNS", "20")
    narrow = piped(run)
    monkeypatch.setenv("COLUMNS", "200")
    assert piped(run) == narrow
    assert all(each.remedy in narrow for each in run.findings)


def test_a_stream_without_unicode_gets_plain_marks() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    terminal.write(made("failing"), out)
    out.flush()
    assert b"scenario: x kv-exhaustion: + 1 OK, x 3 NEIGHBOUR_ABORTED, ? 1 UNKNOWN\n" in raw.getvalue()


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("failing", "FAILED  smollm2 (llama-server) breaks at its window of 512 tokens: NEIGHBOUR_ABORTED, SHIFTED, "),
        ("held", "HELD  smollm2 (llama-server) holds at its window of 512 tokens: OK, REJECTED, CAPPED\n"),
        (
            "undecided",
            "UNKNOWN  1 of 6 probes of smollm2 (llama-server) at its window of 512 tokens could not be told\n",
        ),
        ("killed", "UNKNOWN  smollm2 (llama-server): the run was killed before it could finish; failed so far: CUT\n"),
        ("interrupted", "INTERRUPTED  smollm2 (llama-server) was stopped after 5 probes\n"),
        ("empty", "UNKNOWN  smollm2: nothing was measured\n"),
        ("bare", "UNKNOWN  the target: the run was killed before it could finish\n"),
    ],
)
def test_the_verdict_comes_first(name: str, first: str) -> None:
    assert piped(made(name)).startswith(first)


def test_unknown_without_an_unknown_probe_gives_the_reason() -> None:
    end = {"kind": "end", "verdict": "UNKNOWN", "exit": {"code": 3, "reason": "the load generator lagged"}}
    sentence = "smollm2 (llama-server) at its window of 512 tokens: the load generator lagged"
    assert piped(replace(made("held"), end=end)).startswith(f"UNKNOWN  {sentence}\n")


def test_killed_run_says_where_it_was() -> None:
    assert "stopped in: prompt-too-long/chat-512\n" in piped(made("killed"))
    assert "probe: chat-512" in piped(made("killed")), "the probe nobody judged is unknown, not forgotten"


def test_findings_that_say_the_same_are_one() -> None:
    groups = summary.groups(made("failing"), Verdict.FAIL)
    assert [(group.first.outcome.name, len(group.probes)) for group in groups] == [
        ("NEIGHBOUR_ABORTED", 3),
        ("SHIFTED", 1),
        ("REJECTED_BADLY", 1),
    ]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("failing", f"contextlab replay {sample.PATH} --probe together-2x250"),
        ("undecided", f"contextlab replay {sample.PATH} --probe bisect-1"),
        ("held", f"contextlab report {sample.PATH} --as json"),
        ("bare", "contextlab overflow --help"),
        ("interrupted", "contextlab overflow smollm2 --set context=512 --set kv_unified=true --seed 7"),
    ],
)
def test_next_names_one_command(name: str, command: str) -> None:
    assert piped(made(name)).endswith(f"next: {command}\n")
    shell = shown(made(name), 60, NO_COLOR="1").split("next:")[1]
    assert " ".join(shell.replace("\\\n", " ").split()) == command, "it still runs when it is copied from two lines"


def test_the_window_binds_and_not_a_smaller_number_that_is_none() -> None:
    run = made("failing")
    assert [limit.name for limit in summary.limits(run) if summary.binds(limit, run)] == [
        "n_ctx (all slots)",
        "n_ctx (slot)",
    ]


def test_a_window_without_layers_is_still_a_limit() -> None:
    run = made("held")
    assert run.knowledge
    known = replace(run.knowledge, limits=Limits(context_tokens=64, num_slots=1))
    assert "limit: 64 tokens, engine window, the target, binding\npool: 1 slot\n" in piped(
        replace(run, knowledge=known)
    )


def test_skipped_probes_share_a_reason() -> None:
    skips = tuple(Skip(scenario="s", probe=f"p{place}", reason="no log") for place in range(3))
    assert "skipped: s p0, p1, p2: no log\n" in piped(replace(made("held"), skips=skips))


def test_long_words_of_a_target_say_what_is_left_out() -> None:
    long = sample.finding("s", "p", Outcome.CUT, Verdict.FAIL, evidence={"reply": "ab" * 500})
    assert f"reply: {'ab' * 300} (and 400 more characters, in the record)\n" in piped(sample.run(long))


TEXTS = st.text(st.characters(codec=None), max_size=80) | st.sampled_from([sample.HOSTILE, "", "a" * 300, "[/]"])
VALUES: Any = TEXTS | st.none() | st.booleans() | st.integers() | st.floats()


@settings(deadline=None, max_examples=60)
@given(text=TEXTS, thing=VALUES, columns=st.integers(20, 160))
def test_no_text_breaks_the_report_or_leaks_a_control_character(text: str, thing: Any, columns: int) -> None:
    run = sample.hostile(text)
    bad = replace(run.findings[0], evidence={text: thing})
    run = replace(run, findings=(bad,))
    for report in (piped(run), shown(run, columns, NO_COLOR="1")):
        assert all(line.isprintable() for line in report.split("\n"))
        report.encode()
        assert "LEAKED" in report
    text = ANSI.sub("", shown(run, columns))
    assert all(line.isprintable() for line in text.split("\n"))
    text, _ = text.rsplit("next:", 1)
    assert all(cell_len(line) <= max(columns, terminal.MIN_WIDTH) for line in text.split("\n"))
