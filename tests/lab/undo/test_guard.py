"""Nobody's process is harmed who did not ask for it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest

from contextlab.lab.undo import guard, steps
from contextlab.lab.undo.ledger import Ledger
from contextlab.model import UsageError
from tests.lab.processes import until
from tests.lab.undo.victims import sleeper


def kernel_thread() -> int:
    """Process id of one; they are the children of kthreadd."""
    for process in psutil.process_iter(["ppid", "cmdline"]):
        if process.info["ppid"] == 2 and not process.info["cmdline"]:
            return int(process.pid)
    pytest.skip("no kernel thread is seen in this PID namespace")


@pytest.mark.parametrize("i_own_this", [False, True])
@pytest.mark.parametrize("ours", [False, True])
def test_some_are_refused_whatever_the_user_says(ours: bool, i_own_this: bool) -> None:
    for pid, why in (
        (1, "first process"),
        (0, "first process"),
        (os.getpid(), "contextlab itself"),
        (os.getppid(), "an ancestor"),
        (kernel_thread(), "thread of the kernel"),
    ):
        with pytest.raises(UsageError, match=why) as caught:
            guard.refuse(pid, ours=ours, i_own_this=i_own_this)
        assert caught.value.exit_code == 2


def test_a_watchdog_is_refused(state: Path) -> None:
    with Ledger(run="r", target="t") as ledger:
        ledger.add(steps.remove("/nowhere"), lease_s=60)
        watchdog = ledger.watchdog_pid or 0
        until(lambda: Path(f"/proc/{watchdog}/cwd").resolve() == Path("/"), "it to have begun")
        with pytest.raises(UsageError, match="a watchdog"):
            guard.refuse(watchdog, ours=True, i_own_this=True)


def test_a_foreign_process_needs_the_users_word() -> None:
    with sleeper() as (pid, _):
        with pytest.raises(UsageError, match="not started by this run") as caught:
            guard.refuse(pid, ours=False, i_own_this=False)
        assert "--i-own-this" in caught.value.next_step
        guard.refuse(pid, ours=False, i_own_this=True)
        guard.refuse(pid, ours=True, i_own_this=False)


@pytest.mark.parametrize(
    ("bound", "asked"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("", "127.0.0.1")]
)
def test_who_listens_is_found(bound: str, asked: str) -> None:
    with socket.socket() as one:
        one.bind((bound, 0))
        assert guard.listener(asked, one.getsockname()[1]) is None, "bound, and not listening yet"
        one.listen()
        found = guard.listener(asked, one.getsockname()[1])
        assert found is not None
        assert (found.pid, found.started) == (os.getpid(), steps.started_of(os.getpid()))
        assert found.name
        assert guard.listener("127.0.0.2", one.getsockname()[1]) == (found if bound == "" else None)
