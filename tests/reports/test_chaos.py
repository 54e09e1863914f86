"""How a chaos run is shown: golden pages, and what must hold whatever was measured."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from contextlab.experiment import Arm, Extra, Load, Phase, Placed
from contextlab.lab.journal import RECORD, read_run
from contextlab.model import Evidence, Outcome, Run, Verdict
from contextlab.reports.chaos import beside as chaos_beside
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.chaos.evidence import own
from contextlab.reports.chaos.figures import Figure, Row, Unit
from contextlab.reports.chaos.table import cell, sentences, table
from contextlab.reports.chaos.words import (
    between,
    fault_words,
    is_emulated,
    load_words,
    number,
    percent,
    seconds,
    short,
    times,
    window_words,
)
from contextlab.reports.parts import headline, summary
from contextlab.reports.parts.wording import encodable
from tests.reports import chaos_sample as sample
from tests.reports.test_terminal import ANSI, compare, piped, shown

RUNS = (
    "loss",
    "null",
    "damaged",
    "undecided",
    "gate",
    "no_control",
    "killed",
    "empty",
    "bare",
    "several",
    "hostile",
    "beside",
    "tiered",
)


@cache
def made(name: str) -> Run:
    run = getattr(sample, name)()
    assert isinstance(run, Run)
    return run


@pytest.mark.parametrize("name", RUNS)
def test_piped_report_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare(f"chaos-{name}-piped", piped(made(name)), pytestconfig)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", RUNS)
def test_terminal_report_is_the_golden_one(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    text = shown(made(name), columns, NO_COLOR="1")
    compare(f"chaos-{name}-{columns}", text, pytestconfig)
    assert all(fits(line, columns) for line in text.split("next:")[0].splitlines())


def fits(line: str, columns: int) -> bool:
    return cell_len(line) <= columns and line == line.rstrip() and "…" not in line


@pytest.mark.parametrize("columns", [40, 61])
@pytest.mark.parametrize("name", ["undecided", "hostile"])
def test_every_line_fits_and_nothing_is_shortened(name: str, columns: int) -> None:
    text = ANSI.sub("", shown(made(name), columns))
    text, _ = text.split("next:")
    assert all(fits(line, columns) for line in text.splitlines())


@pytest.mark.parametrize("name", ["damaged", "undecided"])
def test_phases_are_columns_at_80_and_intervals_stand_beside_their_numbers_at_140(name: str) -> None:
    heads = ["control", "before", "during", "after", "ratio"]
    narrow, wide = (shown(made(name), columns, NO_COLOR="1").splitlines() for columns in (80, 140))
    assert any(line.split() == heads for line in narrow)
    assert any(line.split() == heads for line in wide)
    [first] = [line.split() for line in narrow if line.startswith("  TTFT p50")][:1]
    assert not any("–" in word for word in first)
    assert any(re.match(r"  TTFT p50 .* ms  [\d.]+–[\d.]+ ", line) for line in wide)


@pytest.mark.parametrize("name", ["damaged", "beside"])
def test_a_recorded_run_is_reported_as_it_was_when_it_ended(name: str, tmp_path: Path) -> None:
    run = made(name)
    (tmp_path / RECORD).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in run.records))
    read = read_run(tmp_path / RECORD)
    again = replace(read, path=run.path, knowledge=run.knowledge)
    assert piped(again) == piped(run)


# ── what is said ─────────────────────────────────────────────────────────────────────────────────


def lines_of(run: Run, label: str) -> list[str]:
    return [line.strip() for line in piped(run).splitlines() if line.startswith(f"  {label}: ")]


def test_proof_says_what_was_counted_and_on_which_engine() -> None:
    words = "212 of 1404 packets dropped, 198 segments retransmitted"
    assert lines_of(made("loss"), "proof") == [f"proof: ✓ loss 15%, on the packet link: {words} — landed"]
    assert lines_of(made("null"), "proof")[0].endswith("nothing was asked of it")
    assert lines_of(made("undecided"), "proof")[0].startswith("proof: ? ")
    assert lines_of(made("killed"), "proof") == ["proof: ? loss 15%: no proof is on record"]


def test_emulation_is_named_wherever_the_experiment_is() -> None:
    run = made("damaged")
    text = piped(run)
    for part in ("breaks under cut at event:5 with loss 20% (EMULATED)", "STREAM_DAMAGED  EMULATED"):
        assert part in text
    assert "EMULATED" in lines_of(run, "path")[0]
    assert [("EMULATED" in line) for line in lines_of(run, "proof")] == [False, True]
    assert "EMULATED" not in piped(made("loss"))


def test_client_that_lagged_is_not_said_to_have_kept_up() -> None:
    control, fault, closed = lines_of(made("undecided"), "client")
    assert control.startswith("client: ✓ the client kept up in the control arm")
    assert fault.startswith("client: ? the client did NOT keep up in the fault arm: late by 400 ms at p99")
    assert "the worst of 2 processes" in fault
    assert closed.startswith("client: closed: a stall also delays")
    assert len(lines_of(made("loss"), "client")) == 1


def test_integrity_is_told_by_name_and_by_who_notices() -> None:
    [line] = lines_of(made("damaged"), "integrity")[1:]
    names = r"\d+ CUT, \d+ RESET, \d+ REFUSED, \d+ DUPLICATED"
    assert re.search(rf"during: \d+ of \d+ requests intact; {names}; noticed by: ", line)
    assert re.search(r"nobody \d+$", line)


def test_same_load_twice_is_compared() -> None:
    assert "TTFT p50 −" in lines_of(made("null"), "A/A")[0]
    assert lines_of(made("undecided"), "A/A")[0].endswith("too few requests to compare")
    assert lines_of(made("no_control"), "A/A") == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gate", "the faults were not tried: there was no steady state without them"),
        ("killed", "not whole: the run was killed in the fault arm, 22 s after it began"),
        ("empty", "nothing was measured: the run ended before its first arm"),
        ("empty", "no request came back in the control arm, so the faults were not tried"),
    ],
)
def test_what_is_missing_is_explained(name: str, why: str) -> None:
    assert f"\n  empty: {why}\n" in piped(made(name))


def test_rates_of_a_run_that_was_cut_are_of_the_time_that_it_lasted() -> None:
    [one] = chaos_figures.shown(made("killed"))[0]
    during = one.study.measured[Phase.DURING]
    assert during.span.end_s < 22.1
    assert 7 < (during.throughput_per_s or 0) < 10


def test_an_arm_in_which_nobody_answered() -> None:
    what = sample.experiment("loss-15%", sample.LOSS)
    run = sample.run([*sample.records(what, Arm(name="control", length_s=3.0), Arm(name="fault", length_s=3.0))])
    assert "\n  empty: no request came back in the arm with the faults\n" in piped(run)
    assert "TTFT" not in piped(run)


def test_a_damaged_record_is_said_to_be_one() -> None:
    run = made("loss")
    bad = tuple({**each, "sample": {"index": "x"}} if each["kind"] == "sample" else each for each in run.records)
    for text in (piped(replace(run, records=bad)), shown(replace(run, records=bad), 80, NO_COLOR="1")):
        assert "the record of the experiments is damaged" in " ".join(text.split())


def test_extra_load_is_part_of_the_setup() -> None:
    what = sample.experiment("storm", duration_s=12.0)
    burst = Load(arrivals=replace(what.load.arrivals, rate_per_s=40.0), duration_s=3.0, mix=sample.MIX)
    what = replace(what, extra=Extra(load=burst, start_s=4.0, counts=False))
    run = sample.run([*sample.records(what, sample.arm("control", what), sample.arm("fault", what))])
    assert lines_of(run, "extra") == ["extra: Poisson 40/s for 3s, from 4 s on; its own requests are not counted"]
    assert "▒ more load" in shown(run, 120, NO_COLOR="1")


def test_evidence_that_the_table_shows_is_not_repeated() -> None:
    evidence: Evidence = {"during_ttft_p90_s": 0.9, "control_n": 8, "loss_dropped": 212, "signal": "SIGSEGV"}
    found = sample.finding("packet-loss", "loss-15%", Outcome.CRASHED, Verdict.FAIL, "it died", evidence=evidence)
    run = sample.run([record for record in made("loss").records if record["kind"] not in ("header", "finding")], found)
    assert "  evidence: signal SIGSEGV\n" in piped(run)
    assert own(run, evidence) == {"signal": "SIGSEGV"}
    assert own(replace(run, header={"command": "overflow"}), evidence) == evidence


def test_processors_that_were_busy_with_something_else_are_worth_a_word() -> None:
    def used(host_cpus: float | None) -> chaos_beside.Used:
        return chaos_beside.Used(cpus=0.5, client_cpus=0.1, max_rss_bytes=None, host_cpus=host_cpus)

    quiet = {Phase.CONTROL: used(1.5), Phase.DURING: used(2.0), Phase.AFTER: used(None)}
    assert chaos_beside.elsewhere(quiet) == 0.0
    assert chaos_beside.elsewhere({**quiet, Phase.BEFORE: used(1.9)}) == pytest.approx(1.3)
    assert chaos_beside.elsewhere({}) == 0.0


def test_what_is_done_beside_the_wire_is_said_in_sentences() -> None:
    run = made("beside")
    assert lines_of(run, "done") == [
        "done: pause: at 10 s stopped (by freezer, processes 2)",
        "done: kill: at 24.2 s killed (pid 4711, signal SIGKILL); at 26.1 s restarted (ready 1.90 s)",
    ]
    [death] = lines_of(run, "death")
    assert death.startswith("death: fault arm, at 24.2 s: by our hand, SIGKILL; ")
    assert death.endswith("2 RESET; it answered again after 1.9s")
    cpu = lines_of(run, "CPU")
    assert cpu[0].startswith("CPU: processors that the target kept busy: control 0.900, before 0.900, during 0.5")
    assert cpu[2] == "CPU: and everybody on the machine: control 1.20, before 1.20, during 1.20, after 1.20"
    assert lines_of(run, "GPU")[0].startswith("GPU: control 90% busy with at most 6144 MiB, before 90% busy")
    assert cpu[3] == "CPU: throttled in 12 of 60 periods, for 800 ms in all"
    assert lines_of(run, "memory")[1] == "memory: 3 allocations at the limit; 1 page read back from disk"
    free, kept = lines_of(run, "release")
    assert free == "release: ✓ free again: busy slots at once, sockets at once, rss at once"
    assert kept.startswith("release: ✗ descriptors not free within 2.50 s, 2.00 s are allowed: 47 file descriptors")
    control, fault = lines_of(run, "health")
    assert control.startswith("health: ✓ control: false green 0 s, false red 0 s; 50 looks at health")
    assert fault.startswith("health: ✗ fault: false green 7.5")


def test_many_deeds_are_counted_and_a_death_for_want_of_memory_is_named() -> None:
    run = made("tiered")
    [done] = lines_of(run, "done")
    assert "redis stopped 10 times, from 10 s to 28 s" in done
    [death] = lines_of(run, "death")
    assert "by no fault of ours, killed by the kernel for want of memory" in death
    control, fault, trouble = lines_of(run, "tier")
    assert control.startswith(
        "tier: control: 400 asked: 50% from memory, 30% from Redis, 5% joined another's, 15% from"
    )
    assert fault.endswith("2.80 requests to the target for each that was different")
    assert trouble == "tier: fault: Redis: 31 refused, 4 too late; the breaker opened 2 times, for 14.2 s in all"


def test_quality_of_service_is_a_table_where_it_fits_and_sentences_elsewhere() -> None:
    run = made("beside")
    first, second, *rest = lines_of(run, "QoS")
    assert first == "QoS: prompt-1, during: 44 of 88 served whole, 2 cut, 12 refused, 30 timed out; TTFT p50 49.4 ms"
    assert second.startswith("QoS: prompt-2, during: ")
    assert rest[0].startswith("QoS: lost first: prompt-1, timed out after 10.")
    assert rest[2] == "QoS: 7 of 24 refusals said when to come again (429 or 503 with Retry-After)"
    wide, narrow = (shown(run, columns, NO_COLOR="1") for columns in (140, 60))
    assert "served badly  phase   asked" in wide
    assert "44 of 88 served whole" not in wide
    assert "served badly" not in narrow
    assert "44 of 88 served whole" in " ".join(narrow.split())
    assert lines_of(made("null"), "QoS") == []


def test_a_death_stands_on_the_track() -> None:
    text = shown(made("beside"), 140, NO_COLOR="1")
    [track] = [line for line in text.splitlines() if line.startswith("    faults     ")]
    assert track.count("D") == 1
    assert "D died" in text


@pytest.mark.parametrize(
    ("name", "thing", "words"),
    [
        ("delay_s", 0.4, "delay 400 ms"),
        ("limit_bytes", 512 * 2**20, "limit 512 MiB"),
        ("by", "freezer", "by freezer"),
        ("processes", 3, "processes 3"),
        ("on", True, "on yes"),
        ("\x1b_s", "x", "\\x1b_s x"),
    ],
)
def test_what_a_deed_was_about(name: str, thing: Any, words: str) -> None:
    assert chaos_beside.about_words(name, thing) == words


# ── the sentence at the top ──────────────────────────────────────────────────────────────────────

SUBJECT = "smollm2 (llama-server)"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("loss", f"{SUBJECT} breaks under loss 15%: BOUND_BROKEN"),
        (
            "null",
            f"{SUBJECT} holds under loss 0%: p90 ttft < 800ms, errors < 1%, integrity = 100%, "
            "p50 ttft < 3x before during",
        ),
        (
            "undecided",
            f"whether {SUBJECT} holds under delay 200ms could not be told: "
            "the fault delay did not land: no packet passed the link",
        ),
        ("several", f"{SUBJECT} breaks under loss 15%, loss 20%: BOUND_BROKEN"),
        ("empty", f"2 of 2 experiments of {SUBJECT} could not be told"),
        ("killed", f"{SUBJECT}: the run was killed before it could finish"),
        ("bare", f"{SUBJECT}: nothing was measured"),
    ],
)
def test_headline(name: str, sentence: str) -> None:
    assert headline.sentence(made(name)) == sentence


def test_headline_without_a_fault_names_the_load() -> None:
    what = sample.experiment("pressure", duration_s=12.0)
    told = sample.records(what, sample.arm("control", what), sample.arm("fault", what), scenario="pressure")
    run = sample.run([*told], sample.finding("pressure", "pressure"))
    assert headline.sentence(run).startswith(f"{SUBJECT} holds under Poisson 8/s for 12s: ")
    much = replace(what, extra=Extra(load=what.load, start_s=4.0))
    told = sample.records(much, sample.arm("control", much), sample.arm("fault", much), scenario="pressure")
    run = sample.run([*told], sample.finding("pressure", "pressure"))
    assert headline.sentence(run).startswith(f"{SUBJECT} holds under pressure/pressure: ")


def test_next_is_the_same_run_again_unless_it_held() -> None:
    again = ["contextlab", *sample.HEADER["argv"]]
    assert summary.next_command(made("loss")) == again
    assert summary.next_command(made("undecided")) == again
    assert summary.next_command(made("null")) == ["contextlab", "report", sample.PATH, "--as", "json"]


def test_where_it_stopped() -> None:
    assert summary.unfinished(made("killed")) == "packet-loss/loss-15%"
    assert summary.unfinished(made("loss")) == ""


# ── cells and words ──────────────────────────────────────────────────────────────────────────────

INF = math.inf


@pytest.mark.parametrize(
    ("figure", "unit", "words"),
    [
        (Figure(value=0.0421, low=0.0401, high=0.044), Unit.SECONDS, ("42.1 ms", "40.1–44.0")),
        (Figure(value=1.25, low=0.9, high=INF), Unit.SECONDS, ("1.25 s", "0.900–∞")),
        (Figure(value=INF, low=1.5, high=INF), Unit.SECONDS, ("never", "> 1.50 s")),
        (Figure(value=INF, low=INF, high=INF), Unit.SECONDS, ("never", "")),
        (Figure(value=0.3, enough=False, needs=368), Unit.SECONDS, ("insufficient", "")),
        (Figure(value=None), Unit.SECONDS, ("–", "")),
        (None, Unit.COUNT, ("–", "")),
        (Figure(value=0.025, low=0.009, high=0.07), Unit.SHARE, ("2.5%", "0.9–7%")),
        (Figure(value=0.99996, low=0.99, high=1.0), Unit.SHARE, ("99.996%", "99–100%")),
        (Figure(value=7.93), Unit.PER_S, ("7.93/s", "")),
        (Figure(value=1404.0), Unit.COUNT, ("1404", "")),
        (Figure(value=1.4812, low=0.9, high=12.34), Unit.RATIO, ("1.48×", "0.90–12.3")),
        (Figure(value=INF, low=2.0, high=INF), Unit.RATIO, ("∞×", "")),
        (Figure(value=1.4, enough=False), Unit.RATIO, ("–", "")),
    ],
)
def test_cells(figure: Figure | None, unit: Unit, words: tuple[str, str]) -> None:
    assert cell(figure, unit) == words


def row(value: float, **figures: Any) -> Row:
    phases = {phase: Figure(value=value, low=value / 2, high=value * 2) for phase in Phase}
    return Row(
        name="TTFT p50", unit=Unit.SECONDS, figures=phases, ratio=Figure(value=1.0, low=0.5, high=2.0), **figures
    )


def test_table_takes_the_widest_form_that_fits() -> None:
    rows = [row(0.0421)]
    wide, narrow, stacked = (table(rows, tuple(Phase), width) for width in (136, 78, 50))
    assert [len(lines) for lines in (wide, narrow, stacked)] == [2, 3, 5]
    assert "42.1 ms  21.0–84.2" in wide[1].plain
    assert "(21.0–84.2)" in Text(" ").join(stacked).plain
    assert table([], tuple(Phase), 80) == table(rows, (), 80) == []


def test_what_is_insufficient_everywhere_is_said_once() -> None:
    nothing = Row(
        name="TTFT p99",
        unit=Unit.SECONDS,
        figures={phase: Figure(value=None if phase is Phase.AFTER else 1.0, enough=False) for phase in Phase},
    )
    assert sentences(nothing, (Phase.BEFORE, Phase.DURING)) == ["insufficient in every phase"]
    assert sentences(nothing, (Phase.BEFORE,)) == ["insufficient"]
    assert sentences(nothing, (Phase.BEFORE, Phase.AFTER)) == ["before insufficient", "after –"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (number(0.4123), "0.412"),
        (number(41.0), "41.0"),
        (number(1403.6), "1404"),
        (number(0), "0"),
        (number(-0.00042), "-0.00042"),
        (number(-INF), "−∞"),
        (short(10.0), "10"),
        (short(0.5), "0.5"),
        (short(100.0), "100"),
        (seconds(0.9996), "1.00 s"),
        (seconds(0.0421), "42.1 ms"),
        (times(None), "∞"),
        (percent(1.0), "100%"),
        (percent(0.99999999), "99.9999%"),
        (percent(0.000001), "<0.001%"),
        (percent(0.0), "0%"),
        (between(None, None), "0–∞"),
        (fault_words(Placed(name="cut", start_s=0, length_s=1)), "cut"),
        (fault_words(Placed(name="rate", start_s=0, length_s=1, options={"limit_bytes_per_s": 8000.0})), "rate 8KB/s"),
        (
            fault_words(Placed(name="slice", start_s=0, length_s=1, options={"size_bytes": 5, "pause_s": 0.02})),
            "slice 5B, pause 20ms",
        ),
        (
            fault_words(Placed(name="odd", start_s=0, length_s=1, options={"on": True, "burst": 3.0, "rate": 7.0})),
            "odd on yes, burst 3, rate 7",
        ),
        (window_words(sample.LOSS), "10–40 s"),
        (load_words(sample.experiment().load, 7), "Poisson 8/s for 50s, seed 7"),
    ],
)
def test_words(words: str, expected: str) -> None:
    assert words == expected


def test_percent_never_rounds_to_all() -> None:
    assert percent(0.999999999999) == "99.9999%"


def test_emulation_is_told_from_the_engine_or_the_path() -> None:
    assert is_emulated("emulated")
    assert is_emulated("client → emulated 127.0.0.1:1 → target")
    assert not is_emulated("client → relay 127.0.0.1:1 → target")


def test_signs_have_plain_forms_where_there_is_no_unicode() -> None:
    assert encodable("▁▄█ ─▒✗R ∞× −1 → –", "ascii") == "_~# -%xR infx -1 > -"
