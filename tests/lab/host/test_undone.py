"""What hands did to a process is undone when the tool is killed with SIGKILL, and the process goes on as before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.lab.host.benches import needs_groups, running
from tests.lab.processes import until

ACTOR = Path(__file__).with_name("actor.py")


@needs_groups
def test_everything_is_undone_after_the_tool_was_killed(mark: dict[str, str], tmp_path: Path) -> None:
    with running(mark, tmp_path, "child", "threads", "2") as bench:
        home, had = bench.groups("cpu"), os.sched_getaffinity(bench.root.pid)
        command = [sys.executable, str(ACTOR), str(bench.root.pid), str(tmp_path / "actor")]
        with ended(subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **mark})) as actor:
            assert actor.stdout is not None
            word, helper = actor.stdout.readline().split()
            assert word == b"DONE"
            group = bench.groups("cpu")
            assert group != home
            # One that has used up its quota takes the signal when it runs again.
            until(
                lambda: all(one.status() == psutil.STATUS_STOPPED for one in tree(bench.root.pid)), "all to stand still"
            )
        until(lambda: bench.groups("cpu") == home, "the way home")
        until(lambda: not psutil.pid_exists(int(helper)), "the helper's end")
        until(lambda: not list((tmp_path / "actor/open").glob("*")), "the end of the undo record")
        assert psutil.STATUS_STOPPED not in {process.status() for process in tree(bench.root.pid)}
        for process in tree(bench.root.pid):
            assert {frozenset(os.sched_getaffinity(thread.id)) for thread in process.threads()} == {frozenset(had)}
        assert not list(Path("/sys/fs/cgroup").glob(f"**/contextlab-{actor.pid}-*"))


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed with SIGKILL at the end, however that comes."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def tree(pid: int) -> list[psutil.Process]:
    """A process and its children."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]
