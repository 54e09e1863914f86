"""Runs that died with their watchdog are replayed, those that live left alone; none begins beside an open record."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from contextlab.lab.undo import record, steps
from contextlab.lab.undo.record import Record, boot_id, open_records, records_folder
from contextlab.lab.undo.recovery import recover, refuse_open
from contextlab.model import UnableError
from tests.lab.processes import until
from tests.lab.undo.victims import killed_tool, running_tool, sleeper, state_of


def a_record(name: str, *, boot: str, tool: tuple[int, int] = (0, 0), watchdog: tuple[int, int] = (0, 0)) -> Record:
    """A record of a run that somebody else wrote."""
    folder = records_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").touch()
    one = Record(folder / f"{name}.jsonl")
    one.append({"kind": "open", "boot": boot, "tool": tool, "watchdog": watchdog, "run": name, "target": "t"})
    return one


def test_recover_mends_what_tool_and_watchdog_left_and_then_finds_nothing(state: Path) -> None:
    with sleeper() as victim:
        killed_tool(victim, state, watchdog_too=True)
        until(lambda: state_of(victim[0]) == "T", "the process to stop")
        with pytest.raises(UnableError, match=f"process {victim[0]} is stopped") as caught:
            refuse_open()
        assert caught.value.next_step == "contextlab recover"
        (one,) = recover()
        assert state_of(victim[0]) != "T"
        assert (one.run, one.target) == ("killed", "a sleeper")
        assert one.undone == (f"process {victim[0]} is stopped",)
        assert one.left == ()
        assert list(recover()) == []
        refuse_open()


def test_what_a_running_tool_does_is_left_alone(state: Path) -> None:
    with sleeper() as victim, running_tool(victim, state) as tool:
        refuse_open()  # its target is another; the lock sees to it
        (one,) = recover()
        assert one.runs
        assert one.tool_pid == tool.pid
        until(lambda: state_of(victim[0]) == "T", "the process to stop")


def test_after_another_start_of_the_machine_only_files_are_left(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "filler"
    file.touch()
    with sleeper() as victim:
        os.kill(victim[0], signal.SIGSTOP)
        until(lambda: state_of(victim[0]) == "T", "the process to stop")
        one = a_record("before", boot="another", tool=(os.getpid(), steps.started_of(os.getpid()) or 0))
        one.append({"kind": "step", "number": 0, "until_s": 0.0, "step": steps.remove(str(file))})
        one.append({"kind": "step", "number": 1, "until_s": 0.0, "step": steps.resume(*victim)})
        with pytest.raises(UnableError):
            refuse_open()
        assert len(list(recover())) == 1
        assert not file.exists()
        assert state_of(victim[0]) == "T", "a number that means another process now"
        assert open_records() == []


def test_what_stays_undone_is_told_and_stays_on_record(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RETRY_S", 0.1)
    one = a_record("failing", boot=boot_id())
    one.append({"kind": "step", "number": 0, "until_s": 0.0, "step": steps.restore_file(str(tmp_path), "max")})
    (told,) = recover()
    assert told.undone == ()
    assert told.left[0].startswith(f"{tmp_path} should hold 'max': ")
    assert told.by_hand == (f"echo max > {tmp_path}",)
    assert [one.path for one in open_records()] == [told.path]


def test_a_record_that_never_began_is_swept_and_one_that_begins_is_not(state: Path) -> None:
    folder = records_folder()
    folder.mkdir(parents=True)
    (folder / "begins.jsonl").touch()
    (folder / "never.jsonl").write_text('{"kind":"op')
    os.utime(folder / "never.jsonl", (0, 0))
    refuse_open()
    assert [one.runs for one in recover()] == [True]
    assert [one.path.name for one in open_records()] == ["begins.jsonl"]


def test_a_watchdog_that_is_still_at_it_is_waited_for(state: Path, tmp_path: Path) -> None:
    me = (os.getpid(), steps.started_of(os.getpid()) or 0)
    one = a_record("being-undone", boot=boot_id(), watchdog=me)
    one.append({"kind": "step", "number": 0, "until_s": 0.0, "step": steps.remove(str(tmp_path / "x"))})
    began_s = time.monotonic()
    later = threading.Timer(0.3, one.path.unlink)
    later.start()
    refuse_open()
    later.join()
    assert time.monotonic() - began_s >= 0.25
