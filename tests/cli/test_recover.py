"""`contextlab recover`: what it says, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from contextlab.cli.recover import recover
from contextlab.lab.undo import record, steps
from contextlab.lab.undo.record import Record, boot_id
from tests.cli.running import contextlab
from tests.lab.undo.victims import killed_tool, sleeper, state_of


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_it_mends_and_says_so(state: Path, tmp_path: Path) -> None:
    with sleeper() as victim:
        killed_tool(victim, state, watchdog_too=True)
        ran = contextlab("recover", cwd=tmp_path, env={"CONTEXTLAB_STATE": str(state)})
        assert ran.code == 0
        assert ran.out.startswith("killed on a sleeper (pid ")
        assert f"undone: process {victim[0]} is stopped" in ran.out
        assert state_of(victim[0]) != "T"
    again = contextlab("recover", cwd=tmp_path, env={"CONTEXTLAB_STATE": str(state)})
    assert (again.code, again.out) == (0, "nothing to undo\n")


def test_what_is_left_is_exit_6_in_words_and_as_a_document(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "open").mkdir(parents=True)
    path = state / "open" / "r.jsonl"
    path.touch()
    Record(path).append(
        {"kind": "open", "boot": boot_id(), "tool": [0, 0], "watchdog": [0, 0], "run": "r", "target": "t"},
        {"kind": "step", "number": 0, "until_s": 0.0, "step": steps.restore_file(str(tmp_path), "max")},
    )
    ran = contextlab("recover", "--json", cwd=tmp_path, env={"CONTEXTLAB_STATE": str(state)})
    assert ran.code == 6
    assert ran.document["exit"] == {"code": 6}
    (one,) = ran.document["records"]
    assert (one["run"], one["record"], one["undone"], one["running"]) == ("r", str(path), [], False)
    assert one["left"][0]["by_hand"] == f"echo max > {tmp_path}"
    assert path.exists(), "the record stays"
    monkeypatch.setenv("CONTEXTLAB_STATE", str(state))
    monkeypatch.setattr(record, "RETRY_S", 0.1)
    with pytest.raises(typer.Exit) as ended:
        recover(json=False)
    assert ended.value.exit_code == 6
    assert f"by hand: echo max > {tmp_path}" in capsys.readouterr().out


def test_no_run_begins_beside_an_open_record(state: Path, tmp_path: Path) -> None:
    with sleeper() as victim:
        killed_tool(victim, state, watchdog_too=True)
        ran = contextlab(
            "chaos", "fake:says-well", "--fault", "pause@1s+1s", cwd=tmp_path, env={"CONTEXTLAB_STATE": str(state)}
        )
        assert ran.code == 4
        assert f"process {victim[0]} is stopped" in ran.err
        assert "next: contextlab recover" in ran.err
