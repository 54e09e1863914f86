"""A record can be cut anywhere and still says what was done before; what a dead writer left does not spoil it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.lab.undo import steps
from contextlab.lab.undo.record import Record, boot_id, open_records, records_folder, state_folder

LINES: list[dict[str, Any]] = [
    {"kind": "open", "boot": boot_id(), "tool": [1, 2], "watchdog": [3, 4], "run": "a run", "target": "an ümlaut"},
    *({"kind": "step", "number": n, "until_s": 5.0 + n, "step": steps.resume(10 + n, 1)} for n in range(4)),
    {"kind": "undone", "number": 2, "by": "tool"},
    {"kind": "undone", "number": 1, "by": "watchdog"},
]


def written(path: Path) -> bytes:
    """A whole record's bytes."""
    path.touch()
    Record(path).append(*LINES)
    return path.read_bytes()


def test_a_whole_record_says_what_is_open(tmp_path: Path) -> None:
    written(tmp_path / "r.jsonl")
    contents = Record(tmp_path / "r.jsonl").look()
    assert (contents.run, contents.target, contents.tool, contents.watchdog) == ("a run", "an ümlaut", (1, 2), (3, 4))
    assert sorted(contents.open_steps) == [0, 1, 3], "what a watchdog undid may have been done late, all the same"
    assert contents.until_s[3] == 8.0


@given(cut=st.integers(min_value=0, max_value=600), looks=st.lists(st.integers(0, 600), max_size=3))
def test_a_cut_record_holds_all_whole_lines_and_takes_more(
    tmp_path_factory: pytest.TempPathFactory, cut: int, looks: list[int]
) -> None:
    path = tmp_path_factory.mktemp("cut") / "r.jsonl"
    data = written(path)[:cut]
    path.write_bytes(b"")
    record = Record(path)
    for end in sorted(looks):  # it is read while it grows
        path.write_bytes(data[:end])
        record.look()
    path.write_bytes(data)
    whole = data.count(b"}}\n")
    assert sorted(record.look().steps) == list(range(whole))
    record.append({"kind": "step", "number": 9, "until_s": 0.0, "step": steps.resume(9, 9)}, sync=True)
    assert sorted(record.look().steps) == [*range(data.count(b"}}")), 9], "a line that lacks its end alone is whole"


def test_a_record_that_is_gone_says_nothing_and_cannot_be_locked(tmp_path: Path) -> None:
    record = Record(tmp_path / "gone.jsonl")
    assert record.look().steps == {}
    with record.locked() as is_there:
        assert not is_there


def test_where_records_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONTEXTLAB_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert state_folder() == Path("/x/contextlab")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert state_folder() == Path("/h/.local/state/contextlab")
    monkeypatch.setenv("CONTEXTLAB_STATE", str(tmp_path))
    assert records_folder() == tmp_path / "open"
    assert open_records() == []
