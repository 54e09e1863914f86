"""What is installed, where a record can be kept, what killed runs have left."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from contextlab.analysis.checkup import Check, Grade
from contextlab.lab.checkup import environment
from contextlab.lab.undo import steps


def found(runs: Path) -> dict[str, Check]:
    return {one.name: one for one in environment.checks(runs)}


def test_everything_is_looked_at_and_nothing_is_made(tmp_path: Path) -> None:
    checks = found(tmp_path / "a" / "runs")
    assert {"python", "system", "smollm2", *environment.EXTRAS, "records", "files", "undone"} == set(checks)
    assert checks["records"].grade is Grade.OK
    assert os.listdir(tmp_path) == []


def test_an_extra_that_is_missing_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    checks = found(tmp_path)
    assert (checks["tier"].grade, checks["tier"].fix) == (Grade.SKIP, "pip install 'contextlab[tier]'")
    assert checks["smollm2"].grade is Grade.WARN
    assert checks["smollm2"].fix.startswith("pip install 'contextlab[llama]'")


def test_a_model_that_is_missing_is_one_command_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda name: True)
    monkeypatch.setattr(environment, "smollm2_file", lambda: None)
    assert found(tmp_path)["smollm2"].fix == "contextlab models add smollm2"


def test_a_place_that_takes_no_record_stops_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = found(tmp_path / "file" / "runs")["records"]
    assert check.grade is Grade.FAIL
    assert str(tmp_path / "file") in check.detail


def test_little_room_and_few_files_are_warnings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "LEAST_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 512))
    checks = found(tmp_path)
    assert checks["records"].grade is Grade.WARN
    assert checks["files"].grade is Grade.WARN
    assert "at most 512" in checks["files"].fix


def test_what_a_killed_run_left_stops_the_next_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "left_open", list)
    assert found(tmp_path)["undone"].grade is Grade.OK

    left = SimpleNamespace(run="r1", open_steps={1: steps.remove("/tmp/contextlab-x")})
    monkeypatch.setattr(environment, "left_open", lambda: [left])
    check = found(tmp_path)["undone"]
    assert (check.grade, check.fix) == (Grade.FAIL, "contextlab recover")
    assert "r1" in check.detail
    assert "/tmp/contextlab-x" in check.detail
