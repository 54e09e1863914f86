"""What is read of the target's process tree while a load runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from contextlab.deeds import Reading, Victim
from contextlab.lab.observe import process
from contextlab.lab.observe.process import CpuSums, ProcessWatch, living_tree, tree_values
from contextlab.lab.undo.steps import started_of
from tests.lab.processes import until


def ourselves() -> Victim:
    """The process of the tests."""
    return Victim(pid=os.getpid(), started=started_of(os.getpid()) or 0)


def test_what_is_opened_and_started_shows() -> None:
    before = tree_values([psutil.Process()])
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    left, right = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        after = tree_values([psutil.Process()])
        assert after["threads"] == before["threads"] + 1
        assert after["descriptors"] == before["descriptors"] + 3
        assert after["sockets"] == before["sockets"] + 2
        assert tree_values(living_tree(os.getpid()))["processes"] >= 2
    finally:
        child.communicate()
        release.set()
        thread.join()
        left.close()
        right.close()


def test_readings_come_while_the_target_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EVERY_S", 0.05)
    root: Victim | None = ourselves()
    with ProcessWatch(lambda: root, time.monotonic(), client_pids=lambda: [os.getpid()]) as watch:
        found: list[Reading] = []

        def enough() -> bool:
            found.extend(watch.taken())
            return len(found) >= 3

        until(enough, "three readings")
        root = None
        time.sleep(0.1)
        watch.taken()
        time.sleep(0.2)
        assert watch.taken() == []
    assert {reading.source for reading in found} == {"process"}
    assert [reading.at_s for reading in found] == sorted(reading.at_s for reading in found)
    names = {"cpu_s", "client_cpu_s", "rss_bytes", "threads", "descriptors", "sockets", "processes"}
    assert all(set(reading.values) == names for reading in found)


def test_processor_time_never_falls_when_a_child_ends() -> None:
    sums = CpuSums()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until(lambda: sums.add(living_tree(child.pid)) > 0.05, "some processor time")
    finally:
        child.kill()
        child.wait()
    seen_s = sums.add(living_tree(child.pid))
    assert seen_s > 0.05
    assert tree_values(living_tree(child.pid)) == {}
