"""The look at a target's health, against real servers: what it says of a well one, a frozen one, a liar, and none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextlab.analysis import honesty
from contextlab.deeds import Reading
from contextlab.experiment import Arm
from contextlab.lab.observe.health import HealthWatch
from contextlab.lab.server import OwnedServer
from contextlab.model import Knowledge, Limits, TargetSpec
from contextlab.targets import fake

pytestmark = [pytest.mark.process, pytest.mark.calm]

KNOWN = Knowledge(flavour="other", model="fake", limits=Limits(), powers=frozenset({"completions", "chat", "health"}))


@contextmanager
def running(name: str, folder: Path) -> Iterator[tuple[OwnedServer, TargetSpec]]:
    """A fake, and how to reach it."""
    spec = TargetSpec(name=name, scheme="fake", address=name)
    with OwnedServer(fake.server(spec), log=folder / "server.log") as server:
        yield server, TargetSpec(name=name, scheme="http", address=server.url, url=server.url)


def watched(spec: TargetSpec, act: Callable[[], None]) -> list[Reading]:
    """What is seen while something is done."""
    with HealthWatch(spec, KNOWN, time.monotonic()) as watch:
        act()
    watch.end()  # once more ends nothing
    return watch.taken()


def arm(readings: list[Reading]) -> Arm:
    return Arm(name="fault", length_s=10.0, readings=tuple(readings))


def pid_of(server: OwnedServer) -> int:
    pid = server.process.pid
    assert pid is not None
    return pid


def test_a_well_server_is_green_and_completes_in_turn_at_most_twice_a_second(tmp_path: Path) -> None:
    with running("caps", tmp_path) as (_, spec):
        readings = watched(spec, lambda: time.sleep(3.2))
    health = [one for one in readings if "green" in one.values]
    tokens = [one for one in readings if "completed" in one.values]
    assert {one.values["green"] for one in health} == {one.values["completed"] for one in tokens} == {1.0}
    assert {one.values["status"] for one in tokens} == {200.0}
    asked_s = sorted(one.at_s for one in readings)
    assert len(asked_s) == 7
    assert all(-0.01 < at_s - 0.5 * place < 0.4 for place, at_s in enumerate(asked_s) if place)  # (0: it has to import)
    assert all(0 < one.values["health_s"] < 1 for one in health)
    seen = honesty.honesty(arm(readings), 1.0)
    assert seen is not None
    assert (seen.false_green.high_s, seen.false_red.high_s) == (0.0, 0.0)


def test_a_frozen_server_is_not_green_and_no_liar(tmp_path: Path) -> None:
    """Nobody answers the looks, and those that are open at the end are on record too."""
    with running("caps", tmp_path) as (server, spec):

        def freeze() -> None:
            time.sleep(1.7)
            os.kill(pid_of(server), signal.SIGSTOP)
            time.sleep(2.5)

        readings = watched(spec, freeze)
        os.kill(pid_of(server), signal.SIGCONT)
    still_open = {one.at_s: one.values for one in readings if one.values.get("open")}
    assert sorted(values.get("green", values.get("completed", 9)) for values in still_open.values()) == [-1.0, 0.0]
    assert all(values.get("health_s", 0) + values.get("completion_s", 0) > 1.5 for values in still_open.values())
    assert sum(one.at_s in still_open for one in readings) > 3  # each is told again while it is open
    seen = honesty.honesty(arm(readings), 1.0)
    assert seen is not None
    assert (seen.false_green.low_s, seen.false_red.low_s) == (0.0, 0.0)


def test_a_server_that_hangs_and_says_that_it_is_well_is_a_liar(tmp_path: Path) -> None:
    with running("says-well", tmp_path) as (server, spec):

        def pause() -> None:
            time.sleep(0.2)
            os.kill(pid_of(server), signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(pid_of(server), signal.SIGCONT)
            time.sleep(4.0)

        readings = watched(spec, pause)
    seen = honesty.honesty(arm(readings), 1.0)
    assert seen is not None
    assert 2.0 < seen.false_green.low_s <= seen.false_green.high_s < 6.0


def test_a_server_that_answers_and_says_that_it_is_unwell_is_a_liar(tmp_path: Path) -> None:
    with running("says-unwell", tmp_path) as (_, spec):
        readings = watched(spec, lambda: time.sleep(3.2))
    assert {one.values["green"] for one in readings if "green" in one.values} == {0.0}
    seen = honesty.honesty(arm(readings), 1.0)
    assert seen is not None
    assert seen.false_red.low_s > 1.5
    assert seen.false_green.high_s == 0.0


def test_a_dead_server_refuses_both_looks(tmp_path: Path) -> None:
    with running("caps", tmp_path) as (server, spec):
        server.process.stop()
        readings = watched(spec, lambda: time.sleep(1.2))
    assert [one.values.get("green", one.values.get("completed")) for one in readings] == [-1.0, 0.0, -1.0]
    assert not any(one.values.get("open") for one in readings)


def test_a_target_without_an_endpoint_is_not_looked_at() -> None:
    nowhere = TargetSpec(name="x", scheme="http", address="http://127.0.0.1:9", url="http://127.0.0.1:9")
    known = Knowledge(flavour="other", model="fake", limits=Limits(), powers=frozenset({"completions"}))
    with HealthWatch(nowhere, known, time.monotonic()) as watch:
        assert watch.taken() == []
