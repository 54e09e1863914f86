"""The live display of a sweep; records are given, the clock is given, nothing sleeps."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from contextlab.lab.journal import plain
from contextlab.model import Record
from contextlab.reports.live import Live, Progress, heartbeat, view
from contextlab.reports.pareto.live import Scope
from tests.reports import pareto_sample as sample
from tests.reports.streams import Terminal, surroundings
from tests.reports.test_pareto import made

MEASURING: Record = {
    "kind": "progress",
    "text": "warm-up",
    "block": 1,
    "settings": {"slots": 2, "context": 2048, "concurrency": 4},
}


def scope(num: int, name: str = "whole", *more: Record) -> Scope:
    """A sweep after so many measurements."""
    told = [record for record in made(name).records if record["kind"] == "measurement"]
    [begins] = [record for record in made(name).records if record["kind"] == "sweep"]
    found = Scope(begins)
    for record in (*told[:num], *more):
        found.take(record)
    return found


def drawn(found: Scope, width: int = 80) -> list[str]:
    return view(Progress(), 42.0, width, found).plain.splitlines()


def log(*told: Record) -> list[str]:
    out = io.StringIO()
    with Live(out, now=lambda: 0.0) as live:
        for record in told:
            live(record)
    return out.getvalue().splitlines()


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────


def test_view_tells_what_is_measured_what_is_left_and_the_best_so_far() -> None:
    lines = drawn(scope(12, "killed", MEASURING))
    assert lines[0] == "▸  pareto · block 2 · slots=2 concurrency=4 · warm-up"
    assert lines[1] == "   0:42 · 12 measurements · 12 of 12 settings · at most 39 more ·"
    assert lines[2].endswith(" of 8 min left")
    text = " ".join(" ".join(lines[3:]).split())
    assert re.search(r"best tokens_per_s \d+ tokens/s \(slots=4 concurrency=8\) · best p99 ttft 2\d\.\d ms \(", text)
    assert text.endswith("on the frontier so far")


def test_what_cannot_be_used_is_counted_and_is_never_the_best() -> None:
    lines = drawn(scope(12), 140)
    assert lines[-1] == "   1 infeasible · 1 crashed"
    assert "slots=4 concurrency=1)" not in "\n".join(lines)


def test_before_the_first_measurement() -> None:
    assert drawn(scope(0)) == [
        "▸  pareto · starting",
        "   0:42 · 0 measurements · 0 of 12 settings · 8 min of 8 min left",
    ]
    assert drawn(scope(0, "whole", {"kind": "progress", "text": "starting the server"}))[0].endswith("the server")


def test_a_measurement_ends_what_was_being_measured() -> None:
    found = scope(12, "whole", MEASURING)
    assert "warm-up" in drawn(found)[0]
    found.take(next(record for record in made("whole").records if record["kind"] == "measurement"))
    assert drawn(found)[0] == "▸  pareto · block 1"


def test_every_line_fits() -> None:
    for name in ("whole", "hostile", "three"):
        for width in (40, 80, 140):
            for line in drawn(scope(9, name, MEASURING), width):
                assert cell_len(line) <= width
                assert line.isprintable()


def test_records_draw_nothing_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch)
    out = Terminal()
    live = Live(out)
    for record in made("whole").records:
        live(record)
    assert out.getvalue() == ""


def test_display_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch)
    out = Terminal()
    with Live(out) as live:
        for record in made("killed").records:
            live(record)
    assert "on the frontier so far" in out.getvalue()
    assert "\x1b[?25h" in out.getvalue(), "the cursor is back"


# ── in a log ─────────────────────────────────────────────────────────────────────────────────────


def test_a_log_gets_a_line_for_each_measurement() -> None:
    lines = log(*made("whole").records)
    assert (
        lines[0]
        == "0:02 sweep of slots, context, concurrency: 12 settings, for tokens_per_s and p99 ttft, within 8 min"
    )
    measured = [line.partition(" ")[2] for line in lines[1:]]
    assert len(measured) == 48
    assert measured[0].startswith("block 1: slots=1 concurrency=1 (baseline): tokens_per_s 1")
    assert measured[0].endswith(", 0 of 24 failed")
    assert measured[8] == f"block 1: slots=4 concurrency=1: infeasible: {sample.REFUSED}"
    assert measured[7].endswith(", 3 of 192 failed")


def test_a_measurement_that_has_no_finite_value_is_told_as_invalid() -> None:
    one = sample.measured({"slots": 1, "context": 2048, "concurrency": 1}, 0, values={"tokens_per_s": None})
    said = scope(0).take({"kind": "measurement", "measurement": plain(one)})
    assert said == "block 1: slots=1 concurrency=1: invalid: no finite value of tokens_per_s, p99 ttft"


def test_heartbeat_is_one_line() -> None:
    told = [
        *(record for record in made("killed").records if record["kind"] == "sweep"),
        {**MEASURING, "at_s": 31.0},
    ]
    assert (
        log(*told)[-1]
        == "0:31 block 2: slots=2 concurrency=4: warm-up, 0 measurements, 0 of 12 settings, 8 min of 8 min left"
    )
    assert "best p99 ttft" in heartbeat(Progress(), 3.0, scope(12))


# ── it only looks ────────────────────────────────────────────────────────────────────────────────


def test_a_sweep_that_cannot_be_read_shows_what_it_can() -> None:
    found = Scope({"kind": "sweep", "sweep": {"axes": 3}})
    assert found.begins() == "the sweep begins"
    record = next(record for record in made("whole").records if record["kind"] == "measurement")
    assert found.take(record) == "block 1: ok"
    assert drawn(found) == ["▸  pareto · block 1", "   0:42 · 1 measurement"]


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(10**400)
NAMES = ("status", "why", "num_requests", "num_failed", "cost_s", "baseline", "facts")
SETTINGS = st.dictionaries(st.sampled_from(["slots", "concurrency", "x"]), ODD, max_size=3)
VALUES = st.fixed_dictionaries({}, optional={"tokens_per_s": ODD, "p99 ttft": ODD})
FIELDS: Any = {**dict.fromkeys(NAMES, ODD), "values": VALUES | ODD}
MEASUREMENT = st.fixed_dictionaries({"settings": SETTINGS, "block": st.integers(0, 9)}, optional=FIELDS)
MORE: Any = {**dict.fromkeys(("at_s", "text", "sweep", "block"), ODD), "settings": SETTINGS | ODD}
KINDS = ("measurement", "progress", "sweep", "undecided", "reference")
RECORDS = st.fixed_dictionaries({"kind": st.sampled_from(KINDS)}, optional={**MORE, "measurement": MEASUREMENT | ODD})


@settings(deadline=None, max_examples=60)
@given(st.lists(RECORDS, max_size=9), st.floats(0, 1e6))
def test_no_record_makes_it_raise(told: list[dict[str, Any]], now_s: float) -> None:
    out = io.StringIO()
    found = scope(0)
    with Live(out) as live:
        live({"kind": "sweep", "sweep": plain(sample.sweep())})
        for record in told:
            live(record)
            found.take(record)
    assert all(line.isprintable() for line in out.getvalue().split("\n"))
    assert all(line.plain.isprintable() for line in found.view(now_s, 60))
    assert found.heartbeat(now_s).isprintable()
