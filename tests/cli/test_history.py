"""`contextlab history`: many runs in one folder, and what is none among them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from contextlab.cli import main
from contextlab.lab.journal import RECORD
from tests.reports import sample
from tests.reports.every import made
from tests.reports.history_sample import recorded, with_speed


def told(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `contextlab history WORDS`."""
    monkeypatch.setattr(sys, "argv", ["contextlab", "history", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    seen = capsys.readouterr()
    return int(ended.value.code or 0), seen.out, seen.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve nightly runs, out of order, the last four slower; and five things that are no run to compare."""
    speeds = [40.1, 39.8, 40.4, 39.9, 40.2, 40.0, 39.7, 40.3, 30.1, 29.8, 30.2, 29.9]
    for day in sorted(range(1, 13), key=lambda number: number * 7 % 13):
        recorded(tmp_path, with_speed(speeds[day - 1]), day)
    recorded(tmp_path / "deeper", made("chaos-loss"), 20)
    recorded(tmp_path / "killed", made("chaos-killed"), 21)
    recorded(tmp_path / "replayed", sample.held(), 22, command="replay")
    recorded(tmp_path / "foreign", sample.held(), 23, schema="somebody-else/1")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / RECORD).write_bytes(b'{"kind":"header","schema":"contextl')
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / RECORD).write_bytes(b'{"kind":"header","schema":"contextlab.run/1","argv":7}\n{"at_s":1}\n')
    (tmp_path / "notes.txt").write_text("not a run", encoding="utf-8")
    return tmp_path


def test_runs_are_sorted_by_time_and_a_change_does_not_fail(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told((str(folder), "--json"), monkeypatch, capsys)
    assert (code, err) == (0, "")
    document = json.loads(out)
    [overflow] = [group for group in document["groups"] if group["command"] == "overflow"]
    assert [run["run"][:8] for run in overflow["runs"]] == [f"202611{day:02}" for day in range(1, 13)]
    [decode] = [series for series in overflow["series"] if series["metric"] == "decode"]
    assert [change["run"] for change in decode["changes"]] == ["20261109-overflow"]
    assert {group["command"] for group in document["groups"]} == {"overflow", "chaos"}


def test_what_is_no_run_is_named_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = told((str(folder),), monkeypatch, capsys)
    left = dict(line.removeprefix("left out: ").split(": ", 1) for line in out.splitlines() if "left out: " in line)
    assert left["killed/20261121-chaos"] == "it did not come to its end"
    assert left["replayed/20261122-replay"] == "a replay of one probe"
    assert "somebody-else/1" in left["foreign/20261123-overflow"]
    assert "not a run record" in left["torn"]
    assert "damaged" in left["odd"]
    assert len(left) == 5


def test_the_page_goes_to_standard_output(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = told((str(folder), "--as", "html"), monkeypatch, capsys)
    assert code == 0
    assert out.startswith("<!doctype html>")
    assert out.rstrip().endswith("</html>")
    assert out.count("<figure") >= 5


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("nowhere",), 2, "nowhere"),
        ((".", "--as", "papyrus"), 2, "papyrus"),
        ((".",), 5, "none is there"),
        (("--json", "."), 5, "none is there"),
    ],
)
def test_what_cannot_be_shown_is_told(
    words: tuple[str, ...],
    code: int,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, out, err = told(words, monkeypatch, capsys)
    assert ended == code
    assert named in err
    if "--json" in words:
        assert json.loads(out)["exit"]["code"] == code
    else:
        assert out == ""
