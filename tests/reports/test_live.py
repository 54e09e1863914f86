"""The live display and its lines in a log; the clock is given, nothing sleeps."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.reports.live import Live, Progress, view
from tests.reports import sample
from tests.reports.streams import Terminal, surroundings


def scenario(at_s: float, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "scenario", "at_s": at_s, "name": name, "summary": f"about {name}", **more}


def probe(name: str, began_s: float, ended_s: float | None = None) -> Iterator[dict[str, Any]]:
    yield {"kind": "probe", "at_s": began_s, "scenario": "s", "probe": name, "plan": {"name": name}}
    if ended_s is not None:
        yield {"kind": "observed", "at_s": ended_s, "scenario": "s", "probe": name}


def finding(outcome: str, verdict: str) -> dict[str, Any]:
    return {"kind": "finding", "finding": {"outcome": outcome, "verdict": verdict}}


def after(*records: Mapping[str, Any]) -> Progress:
    progress = Progress()
    for record in records:
        progress = progress.after(record)
    return progress


STORY = (
    scenario(1.0, "prompt-too-long", num_probes=4),
    *probe("chat-511", 2.0, 4.0),
    finding("OK", "PASS"),
    *probe("chat-512", 4.0, 8.0),
    finding("TRUNCATED_HEAD", "FAIL"),
    finding("UNKNOWN", "UNKNOWN"),
    *probe("chat-513", 9.0),
)


def test_view_shows_what_runs_and_what_was_found() -> None:
    assert view(after(*STORY), 10.0, 80).plain.splitlines() == [
        "▸  prompt-too-long · chat-513",
        "   0:10 · 2 probes done · 2 of 4 in this scenario · about 0:05 left",
        "   ✗ 1 TRUNCATED_HEAD  ? 1 UNKNOWN  ✓ 1 held",
    ]


def test_view_before_anything_happened() -> None:
    assert view(Progress(), 0.0, 80).plain.splitlines() == ["▸  starting", "   0:00 · 0 probes done"]
    begins = {"kind": "header", "command": "chaos", "at_s": 0.0}
    assert view(after(begins), 0.0, 80).plain.splitlines()[1] == "   0:00 · 0 experiments done"
    text = view(after({"kind": "progress", "text": "waiting for llama-server"}), 3.2, 80).plain
    assert text.splitlines()[0] == "▸  waiting for llama-server"


def test_time_left_is_the_mean_of_the_finished_probes_for_each_to_come() -> None:
    progress = after(*STORY)  # probes took 2 s and 4 s, two of four are to come
    assert [progress.left_s(now_s) for now_s in (9.0, 10.0, 12.0, 60.0)] == [6.0, 5.0, 3.0, 3.0]


def test_time_left_is_unknown_without_a_plan_or_a_finished_probe() -> None:
    assert after(scenario(0.0, "s"), *probe("p", 0.0, 1.0)).left_s(2.0) is None
    assert after(scenario(0.0, "s", num_probes=3), *probe("p", 0.0)).left_s(2.0) is None


def test_time_left_is_that_of_the_whole_run() -> None:
    """Probes of earlier scenarios tell how long one takes; those of later ones are still to come."""
    assert after(*STORY, scenario(20.0, "next", num_probes=3)).left_s(21.0) == 9.0
    assert after(*STORY, scenario(20.0, "next", num_probes=3, num_later=2)).left_s(21.0) == 15.0


def test_more_probes_than_planned_leave_no_negative_time() -> None:
    progress = after(scenario(0.0, "s", num_probes=1), *probe("p", 0.0, 2.0), *probe("q", 2.0, 4.0))
    assert progress.left_s(9.0) == 0.0
    assert "1 of 1 in this scenario" in view(progress, 9.0, 80).plain


def test_a_log_gets_a_line_a_scenario_and_a_heartbeat_when_it_is_due() -> None:
    out = io.StringIO()
    with Live(out, now=lambda: 0.0) as live:
        live({"kind": "header", "at_s": 0.0})
        for record in STORY:
            live(record)
        for at_s in range(10, 42):
            live({"kind": "event", "at_s": float(at_s), "event": {"kind": "token"}})
        live(scenario(42.0, "kv-exhaustion"))
    found = "✗ 1 TRUNCATED_HEAD  ? 1 UNKNOWN  ✓ 1 held"
    doing = "prompt-too-long/chat-513, 2 probes done, 2 of 4 in this scenario, about 0:03 left"
    assert out.getvalue().splitlines() == [
        "0:01 prompt-too-long: about prompt-too-long",
        f"0:16 {doing}, {found}",
        f"0:31 {doing}, {found}",
        "0:42 kv-exhaustion: about kv-exhaustion",
    ]


def test_progress_without_a_time_takes_it_from_the_clock() -> None:
    out = io.StringIO()
    ticks = iter(range(100, 1000, 8))
    with Live(out, now=lambda: float(next(ticks))) as live:
        for _ in range(3):
            live({"kind": "progress", "text": "waiting for llama-server"})
    assert [line.split(" ", 1)[1] for line in out.getvalue().splitlines()] == [
        "waiting for llama-server, 0 probes done"
    ]


def test_names_and_findings_are_found_nested_or_flat() -> None:
    record = {"kind": "finding", "outcome": "CRASHED", "verdict": "FAIL"}
    progress = after(
        {"kind": "probe", "at_s": 1.0, "probe": {"name": "p"}}, record, {**record, "finding": dict(record)}
    )
    assert "p\n" in view(progress, 1.0, 80).plain
    assert "✗ 2 CRASHED" in view(progress, 1.0, 80).plain


@pytest.mark.parametrize("quiet", [True, False])
def test_terminal_display_is_erased_at_the_end(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch)
    out = Terminal()
    with Live(out, quiet=quiet) as live:
        for record in STORY:
            live(record)
    if quiet:
        assert out.getvalue() == ""
        return
    assert "chat-513" in re.sub(r"\x1b\[[0-9;?]*\w", "", out.getvalue())
    assert out.getvalue().endswith("\x1b[1A\x1b[2K"), "the last thing it does is to erase its lines"
    assert "\x1b[?25h" in out.getvalue(), "and the cursor is back"


def test_records_draw_nothing_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch)
    out = Terminal()
    live = Live(out)  # not entered: no thread that draws
    for _ in range(10_000):
        live({"kind": "event", "at_s": 1.0})
    assert out.getvalue() == ""


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch, NO_COLOR="1")
    out = Terminal()
    with Live(out) as live:
        for record in STORY:
            live(record)
    assert not re.search(r"\x1b\[[0-9;]*m", out.getvalue())


def test_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch, TERM="dumb")
    out = Terminal()
    with Live(out) as live:
        live(scenario(1.0, "s"))
    assert out.getvalue() == "0:01 s: about s\n"


def test_hostile_names_stay_on_their_line() -> None:
    out = io.StringIO()
    with Live(out) as live:
        live(scenario(1.0, sample.HOSTILE))
    assert out.getvalue().removesuffix("\n").isprintable()


def test_a_closed_stream_ends_the_display_and_not_the_run() -> None:
    out = io.StringIO()
    with Live(out) as live:
        out.close()
        live(scenario(1.0, "s"))
        live(scenario(2.0, "t"))


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just({"name": 3})
KINDS = st.sampled_from(["header", "scenario", "probe", "observed", "finding", "progress", "event", "end", "other"])
NAMES = ("at_s", "name", "summary", "probe", "text", "num_probes", "outcome", "verdict", "finding")


@pytest.mark.parametrize("at_s", [float("inf"), float("nan"), 10**400, -5.0, "soon", None])
def test_a_time_that_is_none_leaves_the_clock_alone(at_s: Any) -> None:
    assert after({"kind": "note", "at_s": 7.0}, {"kind": "note", "at_s": at_s}).at_s == 7.0


@given(
    st.lists(st.fixed_dictionaries({"kind": KINDS | ANYTHING}, optional=dict.fromkeys(NAMES, ANYTHING)), max_size=12)
)
def test_no_record_makes_it_raise(records: list[dict[str, Any]]) -> None:
    out = io.StringIO()
    with Live(out) as live:
        for record in records:
            live(record)
    view(after(*records), 1.0, 60)
    assert all(line.isprintable() for line in out.getvalue().split("\n"))
