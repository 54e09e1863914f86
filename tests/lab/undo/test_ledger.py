"""What is on record is undone by the tool, or by the watchdog when the tool dies or sleeps; what stays is told."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from contextlab.lab.undo import record, steps
from contextlab.lab.undo.ledger import Ledger, UndoFailedError
from contextlab.lab.undo.record import open_records
from contextlab.model import UnableError
from tests.lab.processes import until
from tests.lab.undo.victims import killed_tool, running_tool, sleeper, state_of


def stop(pid: int) -> None:
    """Stop a process and see it stopped."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", "the process to stop")


def test_a_step_is_on_record_before_it_is_done_and_undone_in_turn(state: Path) -> None:
    with sleeper() as (pid, started), Ledger(run="a run/1", target="t") as ledger:
        assert ledger.path is None, "nothing is kept for a run that does nothing"
        number = ledger.add(steps.resume(pid, started), lease_s=60)
        (one,) = open_records()
        assert one.path == ledger.path
        assert one.contents.steps == {number: steps.resume(pid, started)}
        assert one.contents.tool_lives
        assert one.contents.watchdog == (ledger.watchdog_pid, steps.started_of(ledger.watchdog_pid or 0))
        stop(pid)
        ledger.undo([number])
        assert state_of(pid) != "T"
        assert one.look().open_steps == {}
        ledger.undo([number])
        assert stat.S_IMODE(state.stat().st_mode) == stat.S_IMODE(one.path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(one.path.stat().st_mode) == 0o600


def test_closing_undoes_what_is_open_the_latest_first_and_leaves_nothing(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "limit"
    file.write_text("0")
    ledger = Ledger(run="r", target="t")
    for number in range(3):
        ledger.add(steps.restore_file(str(file), str(number)), lease_s=60)
        file.write_text(str(number + 1))
    watchdog = psutil.Process(ledger.watchdog_pid)
    ledger.close()
    assert file.read_text() == "0"
    assert open_records() == []
    assert not watchdog.is_running()
    ledger.close()


def test_the_watchdog_undoes_when_the_tool_is_killed(state: Path) -> None:
    with sleeper() as victim:
        killed_tool(victim, state)
        until(lambda: state_of(victim[0]) != "T", "the watchdog to resume the process", timeout_s=2.0)
        until(lambda: open_records() == [], "the record to go", timeout_s=2.0)


def test_a_child_that_holds_the_pipe_does_not_hide_the_tools_end(state: Path) -> None:
    with sleeper() as victim:
        killed_tool(victim, state, forks=True)
        until(lambda: state_of(victim[0]) != "T", "the watchdog to look by itself", timeout_s=3.0)


def test_a_lease_ends_also_where_the_tool_has_stopped_moving(state: Path) -> None:
    with sleeper() as victim, running_tool(victim, state) as tool:
        os.kill(tool.pid, signal.SIGSTOP)
        (one,) = open_records()
        step = steps.resume(*victim)
        one.append({"kind": "step", "number": 1, "until_s": record.now_s() + 0.2, "step": step})
        until(lambda: state_of(victim[0]) != "T", "the end of the lease", timeout_s=5.0)
        until(lambda: one.look().undone_by.get(1) == {"watchdog"}, "its mark", timeout_s=2.0)
        stop(victim[0])  # the tool comes to it late, when its lease is over
        tool.kill()
        until(lambda: state_of(victim[0]) != "T", "the watchdog to undo it once more", timeout_s=2.0)


def test_a_lease_ends_by_the_ledgers_own_word(state: Path) -> None:
    with sleeper() as (pid, started), Ledger(run="r", target="t") as ledger:
        ledger.add(steps.resume(pid, started), lease_s=0.3)
        stop(pid)
        began_s = time.monotonic()
        until(lambda: state_of(pid) != "T", "the end of the lease", timeout_s=3.0)
        assert time.monotonic() - began_s > 0.2


def test_a_dead_watchdog_is_replaced_before_the_next_step(state: Path) -> None:
    with sleeper() as (pid, started), Ledger(run="r", target="t") as ledger:
        first = ledger.add(steps.resume(pid, started), lease_s=60)
        dead = ledger.watchdog_pid or 0
        os.kill(dead, signal.SIGKILL)
        until(lambda: state_of(dead) == "Z", "the watchdog's end")
        ledger.add(steps.resume(pid, started), lease_s=60)
        (one,) = open_records()
        assert ledger.watchdog_pid != dead
        assert one.contents.watchdog[0] == ledger.watchdog_pid
        assert one.contents.watchdog_lives
        assert first in one.contents.open_steps, "the new one answers for the old steps too"


def test_the_watchdog_stands_apart(state: Path) -> None:
    with sleeper() as (pid, started), Ledger(run="r", target="t") as ledger:
        ledger.add(steps.resume(pid, started), lease_s=60)
        watchdog = ledger.watchdog_pid or 0
        assert os.getsid(watchdog) == os.getpgid(watchdog) == watchdog != os.getsid(0)
        until(lambda: Path(f"/proc/{watchdog}/cwd").resolve() == Path("/"), "it to have begun")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(watchdog, number)
        stop(pid)
        ledger.undo([ledger.add(steps.resume(pid, started), lease_s=60)])
        assert ledger.watchdog_pid == watchdog


def test_what_cannot_be_undone_is_loud_and_stays_on_record(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RETRY_S", 0.1)
    folder = tmp_path / "a folder"
    folder.mkdir()
    file = tmp_path / "file"
    file.touch()
    ledger = Ledger(run="r", target="t")
    numbers = [
        ledger.add(steps.restore_file(str(folder), "max"), lease_s=60),
        ledger.add(steps.remove(str(file)), lease_s=60),
    ]
    with pytest.raises(UndoFailedError) as caught:
        ledger.undo(numbers)
    assert caught.value.exit_code == 6
    assert f"{folder} should hold 'max'" in caught.value.message
    assert caught.value.next_step == f"contextlab recover, or by hand: echo max > '{folder}'"
    assert not file.exists(), "one that fails does not keep the others from being undone"
    with pytest.raises(UndoFailedError):
        ledger.close()
    (one,) = open_records()
    assert list(one.contents.open_steps) == [numbers[0]]
    lines = [json.loads(line) for line in one.path.read_text().split("\n") if line]
    assert {line["by"] for line in lines if line["kind"] == "left"} == {"tool", "watchdog"}


def test_an_undo_is_tried_again_for_a_while(state: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "in the way").touch()
    with Ledger(run="r", target="t") as ledger:
        number = ledger.add(steps.remove(str(folder)), lease_s=60)
        later = threading.Timer(0.2, (folder / "in the way").unlink)
        later.start()
        ledger.undo([number])
        later.join()
    assert not folder.exists()


def test_many_threads_share_a_ledger(state: Path, tmp_path: Path) -> None:
    with Ledger(run="r", target="t") as ledger:
        errors: list[BaseException] = []

        def act(name: str) -> None:
            try:
                for number in range(10):
                    file = tmp_path / f"{name}{number}"
                    added = ledger.add(steps.remove(str(file)), lease_s=60)
                    file.touch()
                    if number % 2:
                        ledger.undo([added])
                        assert not file.exists()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=act, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        (one,) = open_records()
        assert len(one.contents.steps) == 40
        assert len(one.contents.open_steps) == 20
    assert not list(tmp_path.glob("[abcd]*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted, which needs root")
def test_nothing_may_be_done_where_the_disk_of_the_record_is_full(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "contextlab-test", str(small)], check=True)
    try:
        (small / "filler").write_bytes(b"x" * 4096)
        with Ledger(run="r", target="t", state=small) as ledger:
            with pytest.raises(UnableError, match="No space left"):
                ledger.add(steps.remove("/nowhere"), lease_s=1)
            assert ledger.watchdog_pid is None
            assert open_records(small) == []
            (small / "filler").unlink()
            ledger.add(steps.remove("/nowhere"), lease_s=1)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_nothing_may_be_done_where_no_record_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        Ledger(run="r", target="t", state=tmp_path / "file") as ledger,
        pytest.raises(UnableError, match="undo record") as caught,
    ):
        ledger.add(steps.remove("/nowhere"), lease_s=1)
    assert "CONTEXTLAB_STATE" in caught.value.next_step
