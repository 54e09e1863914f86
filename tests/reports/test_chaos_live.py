"""The live display of a chaos experiment; records are given, the clock is given, nothing sleeps."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.analysis.arrivals import schedule
from contextlab.experiment import Arrivals, Extra, Load, Pace
from contextlab.lab.journal import plain
from contextlab.model import Record
from contextlab.reports.chaos.live import MAX_SCHEDULE, Scope, Steps
from contextlab.reports.chaos.timeline import DIED, FAILED
from contextlab.reports.live import Live, Progress, view
from tests.reports import chaos_sample as sample
from tests.reports.streams import Terminal, surroundings
from tests.reports.test_chaos import made


@cache
def records(name: str) -> tuple[Record, ...]:
    """The records of a sample run behind the one of its scenario."""
    told = [record for record in made(name).records if record["kind"] != "header"]
    return ({"kind": "scenario", "at_s": 1.0, "name": "packet-loss", "summary": "packets are lost"}, *told)


def until(at_s: float, name: str = "loss", arm: str = "fault") -> tuple[Progress, Scope, float]:
    """What is known so many seconds after the zero of an arm, and that moment."""
    told = records(name)
    [zero_s] = [each["zero_at_s"] for each in told if each["kind"] == "arm" and each["arm"] == arm]
    progress, scope = Progress(), None
    for record in told:
        if record["at_s"] > zero_s + at_s:
            break
        progress = progress.after(record)
        if record["kind"] == "experiment":
            scope = Scope(record)
        elif scope is not None:
            scope.take(record)
    assert scope is not None
    return progress, scope, zero_s + at_s


def drawn(at_s: float, width: int = 80, **where: str) -> list[str]:
    progress, scope, now_s = until(at_s, **where)
    return view(progress, now_s, width, scope).plain.splitlines()


def log(*told: Record) -> list[str]:
    out = io.StringIO()
    with Live(out, now=lambda: 0.0) as live:
        for record in told:
            live(record)
    return out.getvalue().splitlines()


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────


def test_view_during_a_fault() -> None:
    lines = drawn(25.2, name="damaged")
    assert lines[0] == "▸  packet-loss · cut-and-loss · fault arm: during (EMULATED)"
    assert lines[1].startswith("   1:")
    assert lines[1].endswith(" · 0 experiments done")
    label, graph = lines[2].split()
    assert (label, len(graph)) == ("backlog", 35), "half of 50 s have gone by, in 68 cells"
    track = lines[3].split()[1]
    assert len(track) == 68
    assert set(track[:16]) == {"─"}
    assert FAILED in track[:35]
    assert set(track[35:44]) == {"░"}, "the rest of the fault is still to come"
    assert set(track[45:]) == {"·"}
    words = " ".join(lines[4:])
    for part in ("8/s planned", "/s answered", "backlog ", "server ", "TTFT p50 ", " failed"):
        assert part in words


def test_track_grows_with_time_and_every_line_fits() -> None:
    for at_s in (0.5, 5.0, 20.0, 40.0, 49.0, 70.0):
        for width in (60, 80, 140):
            assert all(len(line) <= width for line in drawn(at_s, width))


@pytest.mark.parametrize(
    ("at_s", "arm", "phase"),
    [
        (1.0, "control", "warm-up"),
        (5.0, "control", "control"),
        (25.0, "control", "control"),
        (1.0, "fault", "warm-up"),
        (9.0, "fault", "before"),
        (10.5, "fault", "during"),
        (39.0, "fault", "during"),
        (45.0, "fault", "after"),
        (0.1, "reference", "reference"),
    ],
)
def test_phases(at_s: float, arm: str, phase: str) -> None:
    _, scope, now_s = until(at_s, arm=arm)
    assert scope.phase(now_s) == phase


def test_backlog_is_what_was_due_and_has_not_ended() -> None:
    _, scope, now_s = until(25.0)
    [arm] = [trial.fault for trial in [made_trial("loss")] if trial.fault is not None]
    waiting = sum(each.due_s <= 25.0 and (each.ended_s or 0.0) > 25.0 for each in arm.samples)
    assert waiting > 0
    assert f"backlog {waiting}, " in scope.heartbeat(now_s)


def made_trial(name: str) -> Any:
    from contextlab.analysis.trials import trials

    [trial] = trials(made(name).records, made(name).knowledge).values()
    return trial


def test_quantiles_so_far_are_near_and_count_failures() -> None:
    steps = Steps()
    assert steps.quantile(0.5) is None
    for number in range(1, 101):
        steps.add(number / 100)
    assert steps.quantile(0.5) == pytest.approx(0.5, rel=0.03)
    assert steps.quantile(0.9) == pytest.approx(0.9, rel=0.03)
    for _ in range(20):
        steps.add(None)
    assert steps.quantile(0.9) == float("inf")
    steps.add(1e9)
    steps.add(0.0)
    assert steps.quantile(1.0) == float("inf")


def test_nothing_is_planned_in_a_closed_loop_or_for_too_many_requests() -> None:
    _, scope, now_s = until(5.0, name="undecided")
    assert "planned" not in scope.heartbeat(now_s)
    assert "backlog" not in scope.heartbeat(now_s)
    many = Load(arrivals=Arrivals(rate_per_s=MAX_SCHEDULE / 10), duration_s=50.0, mix=sample.MIX)
    scope = begun(many)
    assert "backlog" not in scope.heartbeat(5.0)
    assert f"{MAX_SCHEDULE / 10:.3g}/s planned" in scope.heartbeat(5.0)


def begun(load: Load, **more: Any) -> Scope:
    """A fault arm of this load that has just begun."""
    what = sample.experiment("x", load=load, **more)
    scope = Scope({"kind": "experiment", "experiment": plain(what)})
    scope.take({"kind": "decisions", "seed": sample.SEED})
    scope.take({"kind": "arm", "arm": "fault", "zero_at_s": 0.0})
    return scope


def test_planned_rate_follows_a_burst_and_an_extra_load() -> None:
    pace = Arrivals(pace=Pace.BURST, rate_per_s=8.0, factor=10.0, burst_at_s=4.0, burst_s=2.0)
    load = Load(arrivals=pace, duration_s=12.0, mix=sample.MIX)
    assert ["80/s planned" in begun(load).heartbeat(at_s) for at_s in (2.0, 5.0, 9.0)] == [False, True, False]
    assert begun(load).phase(5.0) == "during"
    steady = Load(arrivals=Arrivals(rate_per_s=8.0), duration_s=12.0, mix=sample.MIX)
    extra = Extra(load=Load(arrivals=Arrivals(rate_per_s=32.0), duration_s=3.0, mix=sample.MIX), start_s=4.0)
    scope = begun(steady, extra=extra)
    due = [each.at_s for each in schedule(steady, sample.SEED)]
    due += [4.0 + each.at_s for each in schedule(extra.load, sample.SEED + 1)]
    assert "40/s planned" in scope.heartbeat(5.0)
    assert f"backlog {sum(at_s <= 6.0 for at_s in due)}" in scope.heartbeat(6.0)


def test_requests_of_an_extra_load_that_does_not_count_are_no_failures() -> None:
    load = Load(arrivals=Arrivals(rate_per_s=8.0), duration_s=12.0, mix=sample.MIX)
    scope = begun(load, extra=Extra(load=load, start_s=4.0, counts=False))
    for mixed in (0, 2, 3):
        scope.take({"kind": "sample", "arm": "fault", "sample": {"due_s": 1.0, "ended_s": 1.1, "mixed": mixed}})
    assert "1 failed" in scope.heartbeat(2.0)


def test_samples_of_another_arm_are_left_out() -> None:
    scope = begun(sample.experiment().load)
    scope.take({"kind": "sample", "arm": "control", "sample": {"due_s": 1.0, "ended_s": 1.1}})
    assert "0 failed" in scope.heartbeat(2.0)


# ── in a log ─────────────────────────────────────────────────────────────────────────────────────


def test_a_log_gets_a_line_for_each_arm_and_fault_and_a_heartbeat_between() -> None:
    lines = log(*records("loss"))
    said = [line.partition(" packet-loss")[2] for line in lines]
    name = "/loss-15%"
    assert said[0] == ": packets are lost"
    assert said[1] == f"{name}: reference arm begins"
    begins = f"{name}: {{}} arm begins: Poisson 8/s for 50s"
    places = [
        next(place for place, line in enumerate(said) if line.startswith(start))
        for start in (
            begins.format("control"),
            f"{name}, control arm, 8/s planned, ",
            f"{name}: control arm ends, ",
            begins.format("fault"),
            f"{name}: loss:rate=0.15@10s+30s begins",
            f"{name}, fault arm: during, ",
            f"{name}: loss:rate=0.15@10s+30s ends",
            f"{name}: fault arm ends, ",
        )
    ]
    assert places == sorted(places)
    assert len(lines) < 20
    assert any("1 experiment done, ✗ 1 BOUND_BROKEN" in line for line in lines)


def test_a_shared_control_is_said_to_be_one() -> None:
    scope = begun(sample.experiment().load)
    said = scope.take({"kind": "arm", "arm": "control", "zero_at_s": 3.0, "of": "loss-5%"})
    assert said == "control arm: that of loss-5%"


def test_an_arm_that_was_stopped_says_why() -> None:
    scope = begun(sample.experiment().load)
    assert scope.take({"kind": "arm_end", "arm": "fault", "stopped": "errors > 50%"}) == (
        "fault arm ends, 0 requests, 0 failed, stopped: errors > 50%"
    )


# ── it only looks ────────────────────────────────────────────────────────────────────────────────


def test_samples_draw_nothing_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch)
    out = Terminal()
    live = Live(out)
    for record in records("loss"):
        live(record)
    assert out.getvalue() == ""


def test_display_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(monkeypatch)
    out = Terminal()
    with Live(out) as live:
        for record in records("damaged"):
            live(record)
    assert "\x1b[?25h" in out.getvalue(), "the cursor is back"


def test_an_experiment_that_cannot_be_read_shows_what_it_can() -> None:
    scope = Scope({"kind": "experiment", "experiment": {"name": 3}})
    assert scope.take({"kind": "arm", "arm": "fault", "zero_at_s": None}) == "fault arm begins"
    assert scope.lines(3.0, 80)
    assert scope.heartbeat(3.0).startswith("fault arm: starting, 0/s answered")


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(10**400)
SAMPLE = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(("due_s", "ended_s", "mixed", "status"), ODD), "content_s": st.lists(ODD) | ODD}
)
KINDS = ("arm", "fault", "sample", "gauge", "arm_end", "decisions", "experiment", "trial", "generator")


FIELDS: Any = dict.fromkeys(
    ("at_s", "of", "zero_at_s", "name", "on", "stopped", "seed", "experiment", "probe", "gauge"), ODD
)
FIELDS |= {"sample": SAMPLE | ODD, "arm": st.sampled_from(["fault", "control", 3])}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.fixed_dictionaries({"kind": st.sampled_from(KINDS)}, optional=FIELDS), max_size=12), st.floats(0, 1e6)
)
def test_no_record_makes_it_raise(told: list[dict[str, Any]], now_s: float) -> None:
    out = io.StringIO()
    scope = begun(sample.experiment().load)
    with Live(out) as live:
        live({"kind": "experiment", "probe": "x", "experiment": plain(sample.experiment())})
        for record in told:
            live(record)
            scope.take(record)
    assert all(line.isprintable() for line in out.getvalue().split("\n"))
    assert all(line.plain.isprintable() for line in scope.lines(now_s, 60))


def test_a_log_tells_what_is_done_and_who_dies() -> None:
    lines = "\n".join(log(*records("beside")))
    for part in (
        "pause: stopped",
        "kill: killed",
        "the target's process ended: SIGKILL, by our hand",
        "the target answers again, 1.90 s after its end",
    ):
        assert lines.count(part) == 1
    assert "the target's process ended: SIGKILL\n" in "\n".join([*log(*records("tiered")), ""])


def test_a_death_stands_on_the_track_of_its_arm() -> None:
    track = drawn(30.0, name="beside")[3].split()[1]
    assert track.count(DIED) == 1
    assert track.index(DIED) == int(24.2 / 50 * len(track))
    assert DIED not in drawn(20.0, name="beside")[3].split()[1]


@pytest.mark.parametrize("told", [None, 3, {}, {"end": 1}, {"end": {"signal": 7}}, {"ready_s": "x"}])
@pytest.mark.parametrize("kind", ["deed", "death"])
def test_a_damaged_record_of_a_deed_ends_nothing(kind: str, told: object) -> None:
    assert isinstance(Scope({}).take({"kind": kind, "at_s": 1.0, kind: told}), str)
