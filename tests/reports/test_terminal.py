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
from contextlab.reports import terminal
from contextlab.reports.parts import summary
from contextlab.reports.parts.output import MIN_WIDTH
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
        (
            "held",
            "HELD  smollm2 (llama-server) holds at its window of 512 tokens: prompts are answered and read whole (OK), "
            "too much is refused clearly (REJECTED), replies end at it and say so (CAPPED)\n",
        ),
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
    assert "probes: prompt-too-long: chat-512\n" in piped(made("killed")), (
        "the probe nobody judged is unknown, not forgotten"
    )


def test_a_cause_is_told_once_with_its_counts_and_one_example() -> None:
    text = shown(made("failing"), 140, NO_COLOR="1")
    block = text.split("✗ NEIGHBOUR_ABORTED  ")[1].split("✗ SHIFTED  ")[0]
    assert block.count("remedy") == 1
    assert block.startswith("another client's request was ended · KV cache\n")
    assert "where     reply-past-window 1, kv-exhaustion 3\n" in block
    assert "3×  a small stream beside 2 others" in block
    assert "1×  another client's small stream was ended after 3 tokens" in block
    assert "of kv-exhaustion/together-2x250 · status 500 · " in block


def test_piped_groups_name_every_probe() -> None:
    text = piped(made("failing"))
    assert "  probes: kv-exhaustion: together-2x250, together-3x170, together-4x128\n" in text
    assert "  why: 3 probes: a small stream beside 2 others" in text
    assert "  example: kv-exhaustion/together-2x250\n" in text


def test_no_more_than_three_reasons_are_given_and_the_rest_is_counted() -> None:
    words = ("no end", "no finish_reason", "it broke", "it closed", "it stopped")
    run = sample.run(*(sample.finding("s", word[::-1], Outcome.CUT, Verdict.FAIL, word) for word in words))
    for text in (piped(run), shown(run, 80, NO_COLOR="1")):
        assert [word for word in words if re.search(rf"{word}$", text, re.MULTILINE)] == list(words[:3])
        assert "and 2 other reasons, in the record\n" in text


def test_evidence_does_not_repeat_the_reason_on_a_terminal() -> None:
    error = "Context size has been exceeded."
    bad = sample.finding("s", "p", Outcome.CUT, Verdict.FAIL, f"ended: {error}", evidence={"error": error, "status": 5})
    assert "evidence  status 5\n" in shown(sample.run(bad), 80, NO_COLOR="1")
    assert f"evidence: error {error} · status 5\n" in piped(sample.run(bad))


def test_what_passed_says_why_with_the_servers_name_for_its_error() -> None:
    why = "refused with HTTP 400: request (512 tokens) exceeds the available context size (512 tokens)"
    assert f"passed: prompt-too-long: 4 REJECTED: {why} [exceed_context_size_error]\n" in piped(made("failing"))


def test_provenance_comes_last_and_gives_settings_only_where_the_command_line_does_not() -> None:
    run = made("failing")
    _, end = piped(run).rsplit("\n\n", 1)
    assert [line.partition(":")[0] for line in end.splitlines()] == [
        "command",
        "policy",
        "began",
        "versions",
        "machine",
        "record",
        "next",
    ]
    for argv in ([], ["replay", "runs/x", "--probe", "p"]):
        text = piped(replace(run, header={**run.header, "argv": argv}))
        assert "settings: context=512 slots=4 kv_unified=true context_shift=true\n" in text


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (504, "longest prompt read: 503 of 504 declared"),
        (512, "longest prompt read: only 503 of 512 declared"),
        (256, "longest prompt read: 503 tokens, more than the 256 declared"),
        (None, "longest prompt read: 503 tokens, none declared"),
    ],
)
def test_declared_and_measured_limit_stand_together(declared: int | None, words: str) -> None:
    run = made("failing")
    assert run.knowledge
    known = replace(run.knowledge, limits=replace(run.knowledge.limits, context_tokens=declared))
    assert f"measured: {words}\n" in piped(replace(run, knowledge=known))
    assert words in " ".join(shown(replace(run, knowledge=known), 80, NO_COLOR="1").split())


def test_next_says_which_of_two_probes_of_one_name() -> None:
    found = [sample.finding(scenario, "p", Outcome.CUT, Verdict.FAIL) for scenario in ("one", "two")]
    assert piped(sample.run(*found)).endswith(f"next: contextlab replay {sample.PATH} --probe one/p\n")


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


def test_skips_share_a_reason() -> None:
    skips = tuple(Skip(scenario="s", probe=f"p{place}", reason="no log") for place in range(3))
    whole = (Skip(scenario="t", reason="no log"), Skip(scenario="u", probe="p", reason="no log"))
    assert "  – 3 probes of s, t, u/p  no log\n" in shown(
        replace(made("held"), skips=(*skips, *whole)), 80, NO_COLOR="1"
    )
    assert "skipped: s p0, p1, p2: no log\n" in piped(replace(made("held"), skips=skips))


def test_long_words_of_a_target_say_what_is_left_out() -> None:
    long = sample.finding("s", "p", Outcome.CUT, Verdict.FAIL, evidence={"reply": "ab" * 500})
    assert f"evidence: reply {'ab' * 300} (and 400 more characters, in the record)\n" in piped(sample.run(long))


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
    assert all(cell_len(line) <= max(columns, MIN_WIDTH) for line in text.split("\n"))
