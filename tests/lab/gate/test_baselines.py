"""Baselines and calibrations as files, and the comparison of stored records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextlab import registry
from contextlab.analysis.gate.nouns import METRICS, Calibration, Fingerprint, Measure, MetricNoise
from contextlab.analysis.gate.settings import Settings
from contextlab.analysis.gate.stored import Baseline
from contextlab.lab.gate.baselines import accept, keep_noise, noise_of, side, slug
from contextlab.lab.gate.calibrated import by_calibration
from contextlab.lab.gate.comparing import compared
from contextlab.lab.gate.prints import fingerprint, machine, scenario
from contextlab.lab.journal import RECORD, Journal
from contextlab.model import SCHEMA, Knowledge, Limits, NothingMeasured, UsageError
from contextlab.reports.parts.summary import next_command

PRINT = Fingerprint(
    machine={"cpu": "one", "kernel": "6.1"},
    engine={"name": "fake", "version": "1"},
    model={"name": "fake"},
    flags={"slots": 2},
    scenario={"requests": "abc", "contextlab": "0.1.0"},
)
NOISE = (0.99, 1.0, 1.01, 1.005, 0.995, 1.0, 1.0)


def measures(times: float = 1.0, **facts: Any) -> list[Measure]:
    """Seven launches of 100 ms."""
    values = [{"ttft_p50_s": 0.1 * times * off} for off in NOISE]
    return [Measure(**{"metrics": one, "num_requests": 24, "exact": {"fits.outcome": "OK"}, **facts}) for one in values]


def recorded(folder: Path, *, times: float = 1.0, prints: Fingerprint = PRINT, **facts: Any) -> Path:
    """A gate on record whose candidate took so many times as long."""
    with Journal(folder, lambda: 0.0) as journal:
        journal.append("header", schema=SCHEMA, command="gate")
        journal.append("gate", gate={"base": "fake:caps", "candidate": "fake:caps --set slots=2"})
        for number, one in enumerate(measures(times, **facts), 1):
            journal.append("block", block={"number": number, "base": one, "candidate": one})
        journal.append("fingerprint", arm="candidate", fingerprint=prints)
    return folder


def test_what_is_accepted_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = recorded(tmp_path / "runs" / "a")
    path = accept(str(run), tmp_path / "runs", reason="the first", name=None, folder=tmp_path / "base")
    assert path == tmp_path / "base" / "fake-caps.json"
    found = side("fake-caps", tmp_path / "runs", tmp_path / "base")
    assert isinstance(found, Baseline)
    assert (found.reason, found.fingerprint, list(found.measures)) == ("the first", PRINT, measures())
    assert side(str(path), tmp_path / "runs", tmp_path / "base") == found


def test_a_baseline_is_small_and_has_a_launch_a_line(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a")
    path = accept(str(run), tmp_path, reason="the first", name="x", folder=tmp_path)
    text = path.read_text()
    assert sum('"ttft_p50_s"' in line for line in text.splitlines()) == 7
    assert json.loads(text)["schema"] == "contextlab.baseline/1"
    assert len(text) < 4000


@pytest.mark.parametrize("reason", ["", "  "])
def test_no_baseline_without_a_reason(tmp_path: Path, reason: str) -> None:
    with pytest.raises(UsageError, match="says why"):
        accept(str(recorded(tmp_path / "a")), tmp_path, reason=reason, name=None, folder=tmp_path)


def test_what_was_not_measured_is_no_baseline(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", died="it ended by SIGKILL")
    with pytest.raises(NothingMeasured, match="no block of its candidate"):
        accept(str(run), tmp_path, reason="x", name=None, folder=tmp_path)


def test_a_run_that_was_cut_early_is_no_baseline(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a")
    kept = [line for line in (run / RECORD).read_text().splitlines(keepends=True) if '"number":7' not in line]
    (run / RECORD).write_text("".join(kept))
    with pytest.raises(NothingMeasured, match="in 6 blocks, and a comparison takes 7") as caught:
        accept(str(run), tmp_path, reason="x", name=None, folder=tmp_path)
    assert "--resume" in caught.value.next_step


def test_a_side_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    accept(str(recorded(tmp_path / "a")), tmp_path, reason="x", name="one", folder=tmp_path)
    with pytest.raises(NothingMeasured, match="there are one"):
        side("other", tmp_path, tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": "contextlab.baseline/9"}', '{"schema": "contextlab.baseline/1"}']
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError):
        side("x", tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"metrics": {"ttft_p50_s": -0.1}}, "ttft_p50_s=-0.1"),
        ({"metrics": {"ttft_p50_s": float("inf")}}, "ttft_p50_s=inf"),
        ({"num_requests": -3}, "num_failed=0: must be from 0 to num_requests=-3"),
        ({"num_failed": 25}, "num_failed=25"),
        ({"num_truncated": -1}, "num_truncated=-1"),
    ],
)
def test_a_baseline_that_nobody_can_have_measured_is_damaged(tmp_path: Path, facts: Any, says: str) -> None:
    path = accept(str(recorded(tmp_path / "a")), tmp_path, reason="x", name="b", folder=tmp_path)
    table = json.loads(path.read_text())
    table["measures"][2] |= facts
    path.write_text(json.dumps(table))
    with pytest.raises(UsageError) as caught:
        side("b", tmp_path, tmp_path)
    assert f"measures[2]: {says}" in caught.value.message


@pytest.mark.parametrize(
    ("name", "instead"), [("my_base", "my-base"), ("../x", "x"), ("é", "target"), ("a.noise", "a"), ("", "target")]
)
def test_a_baseline_is_found_by_the_name_that_it_was_given(tmp_path: Path, name: str, instead: str) -> None:
    run = str(recorded(tmp_path / "a"))
    with pytest.raises(UsageError) as caught:
        accept(run, tmp_path, reason="x", name=name, folder=tmp_path)
    assert caught.value.next_step == f"for example --name {instead}"
    accept(run, tmp_path, reason="x", name=instead, folder=tmp_path)
    assert side(instead, tmp_path, tmp_path).name == instead


def test_a_name_is_a_file_name() -> None:
    assert slug("run:'a b' --at http://x/../y") == "run-a-b-at-http-x-..-y"
    assert slug("//") == "target"


# ── comparing ────────────────────────────────────────────────────────────────────────────────────


def compare(tmp_path: Path, settings: Settings | None = None, tested: tuple[str, ...] = (), **current: Any) -> Any:
    """(run, exit code) of a baseline against a record of which something is other."""
    base = accept(str(recorded(tmp_path / "a")), tmp_path, reason="x", name="b", folder=tmp_path)
    recorded(tmp_path / "now", **current)
    only = settings or Settings(metrics=METRICS[:1])
    words = ("gate", "b", "now", "--trust-host")
    return compared(str(base), str(tmp_path / "now"), tmp_path, tmp_path, only, tested, argv=words)


def test_alike_is_no_worse_and_slower_is(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    run, code = compare(tmp_path / "one")
    assert code == 0
    assert run.end["exit"]["code"] == 0
    assert any("accepted" in record.get("text", "") for record in run.records)
    assert compare(tmp_path / "two", times=1.5)[1] == 1


def test_another_machine_is_not_comparable(tmp_path: Path) -> None:
    run, code = compare(tmp_path, prints=replace(PRINT, machine={"cpu": "two", "kernel": "6.1"}))
    assert code == 5
    assert "machine.cpu: one in the baseline, two now" in run.end["exit"]["reason"]
    assert run.header["argv"] == ["gate", "b", "now", "--trust-host"]
    side_by_side = ["--base", "'fake:caps --set slots=2'", "--candidate", "'fake:caps --set slots=2'"]
    assert next_command(run) == ["contextlab", "gate", "run", *side_by_side]


def test_what_is_tested_may_differ(tmp_path: Path) -> None:
    other = replace(PRINT, engine={"name": "fake", "version": "2"})
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert compare(tmp_path / "one", prints=other)[1] == 5
    assert compare(tmp_path / "two", prints=other, tested=("engine.version",))[1] == 0


def test_a_soft_difference_advises_and_exact_values_still_count(tmp_path: Path) -> None:
    other = replace(PRINT, machine={"cpu": "one", "kernel": "6.9"})
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert compare(tmp_path / "one", prints=other, times=1.5)[1] == 3
    assert compare(tmp_path / "two", prints=other, exact={"fits.outcome": "REJECTED"})[1] == 1


# ── fingerprints and calibrations ────────────────────────────────────────────────────────────────


def test_a_fingerprint_holds_what_was_set_and_sent() -> None:
    spec = registry.parse_target("fake:caps", ["slots=3"])
    known = Knowledge(flavour="fake", model="m", limits=Limits(), version="7")
    load = Settings().load
    one = fingerprint(spec, known, load, 0)
    assert one.flags["slots"] == 3
    assert one.engine == {"name": "fake", "version": "7"}
    assert one.scenario["requests"] != fingerprint(spec, known, load, 1).scenario["requests"]
    assert one == fingerprint(spec, known, load, 0)


def test_a_calibration_takes_out_what_it_cannot_resolve(tmp_path: Path) -> None:
    spec = registry.parse_target("fake:caps")
    settings = Settings()
    here = Fingerprint(machine=machine(), scenario=scenario(settings.load, 0))
    noise = tuple(
        MetricNoise(
            name=one.name, num_blocks=10, sigma=0.1, smallest_effect=0.2, resolved=one.name != "itl_p50_s", biased=False
        )
        for one in METRICS
    )
    found = Calibration(metrics=noise, unstable=frozenset({"over.outcome"}), num_blocks=10)
    assert by_calibration(settings, spec, 0, tmp_path) == (settings, "", ())
    path = keep_noise(spec.name, here, found, tmp_path)
    assert noise_of(spec.name, tmp_path) is not None
    calmer, used, notes = by_calibration(settings, spec, 0, tmp_path)
    assert used == str(path)
    assert [one.name for one in calmer.metrics if not one.gating and replace(one, gating=True) in METRICS] == [
        "itl_p50_s"
    ]
    assert "over.outcome" in calmer.plan.unstable
    assert "itl_p50_s" in notes[0]
    other, used, notes = by_calibration(settings, spec, 1, tmp_path)  # other requests
    assert (other, used) == (settings, "")
    assert "is not used" in notes[0]
