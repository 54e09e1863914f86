"""Each step undoes its deed on the real thing, may be repeated, and never touches another process of that number."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextlab.lab.undo import steps
from tests.lab.processes import until
from tests.lab.undo.victims import sleeper, state_of

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and control groups need root")


def test_a_stopped_process_goes_on() -> None:
    with sleeper() as (pid, started):
        step = steps.resume(pid, started)
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) == "T", "the process to stop")
        assert steps.undone(step) == ""
        assert state_of(pid) != "T"
        assert steps.undone(step) == ""


def test_another_process_of_the_same_number_is_left_as_it_is() -> None:
    with sleeper() as (pid, started):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) == "T", "the process to stop")
        assert steps.undone(steps.resume(pid, started + 1)) == ""
        assert steps.undone(steps.end_process(pid, started - 1)) == ""
        assert state_of(pid) == "T"


def test_a_helper_is_ended() -> None:
    with sleeper() as (pid, started):
        assert steps.is_alive(pid, started)
        assert steps.undone(steps.end_process(pid, started)) == ""
        assert not steps.is_alive(pid, started), "a zombie is not alive"


def test_a_process_that_is_gone_needs_nothing() -> None:
    with sleeper() as (pid, started):
        pass
    assert steps.started_of(pid) is None
    for step in (steps.resume(pid, started), steps.affinity(pid, started, [0]), steps.end_process(pid, started)):
        assert steps.undone(step) == ""


def test_a_thread_gets_its_processors_back() -> None:
    with sleeper() as (pid, started):
        had = os.sched_getaffinity(pid)
        step = steps.affinity(pid, started, sorted(had))
        os.sched_setaffinity(pid, {min(had)})
        assert steps.undone(step) == ""
        assert os.sched_getaffinity(pid) == had


def test_a_file_gets_its_text_back(tmp_path: Path) -> None:
    path = tmp_path / "limit"
    path.write_text("max 100000\n")
    step = steps.restore_file(str(path), "max 100000\n")
    path.write_text("20000 100000\n")
    assert steps.undone(step) == ""
    assert path.read_text() == "max 100000\n"
    path.unlink()
    assert steps.undone(step) == "", "what is gone limits nobody"


@pytest.mark.parametrize(("left", "why"), [("", ""), ("254:0 7\n", ""), ("254:0 9\n", "it says '254:0 9'")])
def test_the_limit_of_a_device_is_lifted_or_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, why: str
) -> None:
    path = tmp_path / "io.max"
    path.touch()
    written: list[str] = []

    def write(path: str, text: str) -> None:
        """As the kernel does it: a line without a limit is not shown."""
        written.append(text)
        Path(path).write_text("8:0 9\n" + left)

    monkeypatch.setattr(steps, "_write", write)
    step = steps.lift(str(path), "254:0", "254:0 7")
    assert steps.undone(step).endswith(why)
    assert written == ["254:0 7"]
    path.unlink()
    monkeypatch.undo()
    assert steps.undone(step) == ""


def test_what_cannot_be_undone_says_what_is_left_and_why(tmp_path: Path) -> None:
    step = steps.restore_file(str(tmp_path), "max")
    assert steps.undone(step).startswith(f"{tmp_path} should hold 'max': ")
    assert steps.command(step) == f"echo max > {tmp_path}"


def test_a_file_or_an_empty_folder_is_removed_and_no_more_than_that(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    folder.mkdir()
    (folder / "of the user").touch()
    assert steps.undone(steps.remove(str(file))) == ""
    assert not file.exists()
    assert "not empty" in steps.undone(steps.remove(str(folder)))
    (folder / "of the user").unlink()
    assert steps.undone(steps.remove(str(folder))) == ""
    assert not folder.exists()
    assert steps.undone(steps.remove(str(folder))) == ""


def test_permission_bits_come_back(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(0o640)
    step = steps.mode(str(file), file.stat().st_mode)
    file.chmod(0o400)
    assert steps.undone(step) == ""
    assert file.stat().st_mode & 0o777 == 0o640
    file.unlink()
    assert steps.undone(step) == ""


def mount(path: Path) -> None:
    """Mount an empty file system in memory at a path."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"contextlab-test", bytes(path), b"tmpfs", 0, b"size=64k") == 0, os.strerror(ctypes.get_errno())


@needs_root
def test_our_mount_goes_and_the_one_below_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "with a space"
    path.mkdir()
    mount(path)
    try:
        (path / "of the user").touch()
        step = steps.unmount(str(path))
        mount(path)
        assert steps.num_mounts(str(path)) == 2
        with (path / "open").open("w"):  # busy: it is detached all the same
            assert steps.undone(step) == ""
        assert [one.name for one in path.iterdir()] == ["of the user"]
        assert steps.undone(step) == ""
        assert steps.num_mounts(str(path)) == 1
    finally:
        subprocess.run(["umount", str(path)], check=True)


@contextmanager
def frozen_group(pid: int) -> Iterator[tuple[Path, Path]]:
    """A group with a frozen process in it, and the group that it was in."""
    old = Path("/sys/fs/cgroup/freezer")
    root = old if (old / "cgroup.procs").exists() else Path("/sys/fs/cgroup")
    group = root / f"contextlab-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (group / "inner").mkdir()
        (group / "inner" / "cgroup.procs").write_text(str(pid))
        if root == old:
            (group / "freezer.state").write_text("FROZEN")
        else:
            (group / "cgroup.freeze").write_text("1")
        yield group, root
    finally:
        steps.undone(steps.leave_group(str(group), str(root)))


@needs_root
def test_a_frozen_group_is_thawed_emptied_and_removed() -> None:
    with sleeper() as (pid, _), frozen_group(pid) as (group, home):
        step = steps.leave_group(str(group), str(home))
        assert steps.undone(step) == ""
        assert not group.exists()
        assert str(pid) in (home / "cgroup.procs").read_text().split()
        assert steps.undone(step) == ""
        assert steps.undone(steps.restore_file(str(group / "cpu.max"), "max 100000")) == ""


def test_only_files_outlive_a_boot(tmp_path: Path) -> None:
    lasting = [steps.remove(str(tmp_path)), steps.mode(str(tmp_path), 0o700), steps.restore_file("/etc/x", "y")]
    passing = [
        steps.resume(2, 3),
        steps.affinity(2, 3, [0]),
        steps.end_process(2, 3),
        steps.unmount(str(tmp_path)),
        steps.lift("/sys/fs/cgroup/x/io.max", "8:0", "8:0 rbps=max wbps=max"),
        steps.leave_group("/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/cpu"),
        steps.restore_file("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1"),
    ]
    assert all(steps.outlives_boot(step) for step in lasting)
    assert not any(steps.outlives_boot(step) for step in passing)


def test_every_step_says_what_is_left_and_how_to_undo_it_by_hand(tmp_path: Path) -> None:
    odd = str(tmp_path / "it's odd")
    told = {
        "resume": (steps.resume(7, 1), "kill -CONT 7"),
        "affinity": (steps.affinity(7, 1, [1, 0]), "taskset -pc 0,1 7"),
        "end": (steps.end_process(7, 1), "kill -KILL 7"),
        "remove": (steps.remove(odd), f"rm -d '{tmp_path}/it'\"'\"'s odd'"),
        "unmount": (steps.unmount("/tmp"), f"umount -l {os.path.realpath('/tmp')}"),
        "lift": (steps.lift("/g/io.max", "8:0", "8:0 wbps=max"), "echo '8:0 wbps=max' > /g/io.max"),
        "mode": (steps.mode("/a", 0o100640), "chmod 640 /a"),
        "leave": (
            steps.leave_group("/g", "/h"),
            "for p in $(cat /g/cgroup.procs); do echo $p > /h/cgroup.procs; done; rmdir /g",
        ),
    }
    for step, by_hand in told.values():
        assert steps.command(step) == by_hand
        assert str(step.get("pid", step.get("path"))) in steps.words(step)
