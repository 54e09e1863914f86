"""One run on one target at a time; the lock ends with its holder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contextlab.lab.undo import locks
from contextlab.model import UnableError, UsageError

HOLDING = """
import os, signal, sys
from contextlab.lab.undo import locks
with locks.hold(sys.argv[1]):
    print("held", flush=True)
    signal.pause()
"""


def test_a_second_run_on_a_target_is_refused_and_names_the_first(state: Path) -> None:
    with locks.hold("127.0.0.1:8000"):
        with pytest.raises(UsageError, match=f"process {os.getpid()}"), locks.hold("127.0.0.1:8000"):
            pass
        with locks.hold("127.0.0.1:8001"):
            pass
    with locks.hold("127.0.0.1:8000"):
        pass
    assert list((state / "locks").iterdir()) == []


def test_a_holder_that_is_killed_holds_no_more(state: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDING, "a target"], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {holder.pid}"), locks.hold("a target"):
            pass
        holder.kill()
    with locks.hold("a target"):
        pass


def test_without_a_folder_for_the_lock_nothing_begins(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnableError, match="cannot be kept"), locks.hold("t", state=tmp_path / "file"):
        pass
