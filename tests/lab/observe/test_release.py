"""What a real process holds before and after clients left it: the fakes that free everything, and those that do not."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from contextlab import registry
from contextlab.analysis.release import held
from contextlab.deeds import Reading, Victim
from contextlab.experiment import Arm
from contextlab.lab.observe.release import GAUGES_EVERY_S, ReleaseWatch, footprint, warm_up
from contextlab.lab.server import OwnedServer
from contextlab.lab.undo.steps import started_of
from contextlab.model import Knowledge, TargetSpec

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

LEAVERS = 24
WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Target:
    """A running fake."""

    spec: TargetSpec
    known: Knowledge
    root: Victim
    url: str

    def watch(self, *, within_s: float = WITHIN_S, known: Knowledge | None = None) -> ReleaseWatch:
        """An observer of it whose arm began now."""
        return ReleaseWatch(self.spec, known or self.known, time.monotonic(), root=lambda: self.root, within_s=within_s)

    def leave(self, times: int = LEAVERS) -> None:
        """So many clients leave a stream after its first bytes."""
        body = json.dumps({"model": "fake", "prompt": "hello", "stream": True, "max_tokens": 50}).encode()
        for _ in range(times):
            with self.connection() as connection:
                connection.request("POST", "/v1/completions", body)
                connection.getresponse().read(20)

    def connection(self) -> contextlib.closing[http.client.HTTPConnection]:
        """A connection of a client."""
        return contextlib.closing(http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=10))


@contextmanager
def running(name: str, folder: Path) -> Iterator[Target]:
    """The fake of that name, with enough slots for all who leave."""
    spec = registry.parse_target(f"fake:{name}", ["slots=64", "token_delay_s=0.01"])
    command = registry.server_command(spec)
    assert command is not None
    with OwnedServer(command, log=folder / "server.log") as server:
        spec = replace(spec, url=server.url)
        pid = server.process.pid
        assert pid is not None
        root = Victim(pid=pid, started=started_of(pid) or 0)
        yield Target(spec, asyncio.run(_learnt(spec)), root, server.url)


async def _learnt(spec: TargetSpec) -> Knowledge:
    async with registry.open_target(spec) as target:
        return target.knowledge


def kept(readings: list[Reading]) -> dict[str, bool]:
    """For each quantity whether it was not free again."""
    found = held(Arm(name="fault", length_s=1.0, readings=tuple(readings)))
    return {one.name: one.after_s is None for one in found}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("caps", set()),
        ("keeps-slot", {"busy_slots"}),
        ("keeps-descriptor", {"descriptors"}),
        ("keeps-memory", {"rss_bytes"}),
    ],
)
def test_what_a_target_keeps_is_seen_and_nothing_else(name: str, what: set[str], tmp_path: Path) -> None:
    with running(name, tmp_path) as target, target.watch() as watch:
        target.leave()
        began_s = time.monotonic()
        watch.wait()
        took_s = time.monotonic() - began_s
        readings = watch.taken()
        assert watch.taken() == []
    verdicts = kept(readings)
    assert verdicts.keys() == {
        "busy_slots",
        "waiting_requests",
        "rss_bytes",
        "threads",
        "descriptors",
        "sockets",
        "processes",
    }
    assert {name for name, is_kept in verdicts.items() if is_kept} == what
    assert all(reading.source == "release" for reading in readings)
    if what:  # it waited until the time was up
        assert WITHIN_S - 0.5 < took_s < WITHIN_S + 1.5
    else:
        assert took_s < WITHIN_S


def test_the_gauges_are_asked_seldom_and_the_record_says_so(tmp_path: Path) -> None:
    with running("keeps-slot", tmp_path) as target, target.watch(within_s=3.2) as watch:
        target.leave(1)
        watch.wait()
        first, *after = watch.taken()
    assert first.values["gauges_every_s"] == GAUGES_EVERY_S > 1.0
    asked = [reading.at_s for reading in after if "gauges_every_s" in reading.values]
    assert len(asked) in (2, 3)  # a busy machine may miss the last one
    assert all(later - before >= GAUGES_EVERY_S - 0.01 for before, later in itertools.pairwise(asked))
    assert all(("busy_slots" in reading.values) is ("gauges_every_s" in reading.values) for reading in after)
    assert len(after) > 6  # the process itself does not feel a look


def test_without_gauges_the_process_is_looked_at(tmp_path: Path) -> None:
    with running("keeps-descriptor", tmp_path) as target:
        silent = replace(target.known, powers=target.known.powers - {"gauges"})
        with target.watch(known=silent, within_s=0.5) as watch:
            target.leave(5)
            watch.wait()
            verdicts = kept(watch.taken())
    assert "busy_slots" not in verdicts
    assert verdicts["descriptors"]


def test_a_target_that_is_not_ours_has_gauges_alone(tmp_path: Path) -> None:
    with running("keeps-slot", tmp_path) as target:
        watch = ReleaseWatch(target.spec, target.known, time.monotonic(), root=lambda: None, within_s=0.3)
        with watch:
            target.leave(1)
            watch.wait()
        assert kept(watch.taken()) == {"busy_slots": True, "waiting_requests": False}
        nothing = ReleaseWatch(
            target.spec, replace(target.known, powers=frozenset()), 0.0, root=lambda: None, within_s=9.0
        )
        with nothing:
            nothing.wait()  # at once: there is nothing to wait for
        assert nothing.taken() == []


def test_a_process_that_died_or_is_another_holds_nothing(tmp_path: Path) -> None:
    with running("caps", tmp_path) as target:
        warm_up(target.spec, target.known)
        assert footprint(target.root)["processes"] == 1
        assert footprint(replace(target.root, started=target.root.started + 1)) == {}
        gone = target.root
        with target.watch(within_s=0.5) as watch:
            pass
    assert footprint(gone) == {}
    watch.wait()
    assert len(watch.taken()) == 1  # the baseline, and then nobody answers
