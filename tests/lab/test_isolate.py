"""One process per probe: what a child reported before it died is on record, and how it died is known.

Every kind of end is tried with every kind of birth: a Python start of its own, a fork of the nursery, a fork of a
nursery that has loaded the target. What is the child's own doing is tried with the quickest one.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from contextlab.analysis.exchanges import answered
from contextlab.lab import isolate
from contextlab.lab.child import Order
from contextlab.lab.isolate import Birth, ChildRun, Line, Nursery, births, gather, run_child, spawned
from contextlab.lab.journal import revive
from contextlab.model import Knowledge, Message, Probe, Request, UnableError
from tests.lab import processes, toy_target
from tests.lab.processes import await_gone, commands, marked, until

pytestmark = pytest.mark.process

DEADLINE_S = 60.0
"""Far more than any child here needs; those that must be stopped are given less."""
LIMIT_BYTES = 640 << 20


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Make the toy known to children, and mark everything that this module starts."""
    one = processes.new_mark()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(processes.MARK, one[processes.MARK])
        folder = tmp_path_factory.mktemp("toy")
        patch.setenv("PYTHONPATH", toy_target.installed(folder))
        patch.syspath_prepend(folder)
        yield one
    left = marked(one)
    for process in left:
        process.kill()
    assert left == []


@pytest.fixture(scope="module")
def nursery(mark: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with closing(Nursery(tmp_path_factory.mktemp("nursery") / "client.log", LIMIT_BYTES)) as one:
        yield one


@pytest.fixture(scope="module")
def warm(mark: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """A nursery that has loaded the toy."""
    log = tmp_path_factory.mktemp("warm") / "client.log"
    with closing(Nursery(log, LIMIT_BYTES, toy_target.spec("answers"))) as one:
        assert one.warm(DEADLINE_S)
        yield one


@pytest.fixture(params=["spawned", "forked", "warm"])
def birth(
    request: pytest.FixtureRequest, mark: dict[str, str], nursery: Nursery, warm: Nursery, tmp_path: Path
) -> Birth:
    if request.param != "spawned":
        return nursery.birth if request.param == "forked" else warm.birth
    return spawned(tmp_path / "client.log", LIMIT_BYTES)


def asks(**options: Any) -> Probe:
    return Probe(
        name="probe",
        requests=(Request(name=toy_target.ASKED, messages=(Message(role="prompt", parts=("Say it.",)),)),),
        neighbour=False,
        **options,
    )


def run(
    address: str,
    birth: Birth,
    *,
    probe: Probe | None = None,
    knowledge: Knowledge | None = None,
    deadline_s: float = DEADLINE_S,
    patience_s: float = DEADLINE_S,
    on_line: Callable[[Line], None] = lambda line: None,
    server_ended: Callable[[], bool] = lambda: False,
) -> ChildRun:
    """Run the probe against a toy."""
    order = Order(
        spec=toy_target.spec(address),
        began_s=time.monotonic(),
        patience_s=patience_s,
        knowledge=knowledge or toy_target.known(),
        probe=probe or asks(),
    )
    return run_child(order, birth, deadline_s=deadline_s, on_line=on_line, server_ended=server_ended)


def arrivals(run: ChildRun, exchange: str = toy_target.ASKED) -> int:
    """How many tokens of an exchange came through."""
    events = [line for line in run.lines if line["kind"] == "event" and line["exchange"] == exchange]
    return sum(line["event"]["kind"] == "token" for line in events)


# ── a child that does well ───────────────────────────────────────────────────────────────────────


def test_every_event_as_it_happens(birth: Birth, mark: dict[str, str]) -> None:
    seen: list[Line] = []
    ran = run("answers", birth, on_line=seen.append)
    assert ran.finished
    assert seen == ran.lines
    assert [line["at_s"] for line in seen] == sorted(line["at_s"] for line in seen)
    assert [line["kind"] for line in seen][-2:] == ["seen", "finished"]
    exchanges = gather(ran.lines)
    assert list(exchanges) == ["ask", "aftermath"]
    assert all(answered(exchange) for exchange in exchanges.values())
    assert exchanges["ask"].text == "".join(toy_target.REPLY)
    assert len(exchanges["ask"].token_s) == len(toy_target.REPLY)
    assert (ran.end.exit_code, ran.end.signal, ran.end.timed_out) == (0, None, False)
    assert (ran.end.peak_memory_bytes or 0) > 1 << 20
    assert ran.end.last_event.startswith("done of aftermath at ")
    assert "toy answers is open" in ran.end.stderr_tail


def test_opening_is_an_order_too(birth: Birth) -> None:
    order = Order(spec=toy_target.spec("answers"), began_s=time.monotonic(), patience_s=DEADLINE_S)
    ran = run_child(order, birth, deadline_s=DEADLINE_S, on_line=lambda line: None)
    assert ran.finished
    line = ran.last("knowledge")
    assert line is not None
    known = revive(line["knowledge"], Knowledge)
    assert known.tokens_per_word == 1.0, "measured with texts that fit this small window"
    assert known.neighbour_note == "the target answers one request at a time"
    assert ran.last("no such kind") is None


def test_what_the_user_can_mend_is_told(nursery: Nursery) -> None:
    ran = run("sings", nursery.birth)
    assert ran.finished
    assert ran.end.exit_code == 0
    cannot = ran.last("cannot")
    assert cannot is not None
    assert (cannot["exit_code"], cannot["message"]) == (2, "toy='sings': there is no such toy")


def test_half_of_a_surrogate_pair_is_no_crash(nursery: Nursery) -> None:
    """Servers that cut an emoji in two do send it, as JSON may; a record in UTF-8 cannot hold it as it is."""
    ran = run("surrogates", nursery.birth)
    assert ran.finished
    assert gather(ran.lines)["ask"].text == r"\ud83d" * len(toy_target.REPLY)


def test_measurements_of_a_task(nursery: Nursery) -> None:
    probe = replace(asks(task="weigh"), requests=())
    assert [
        line["measured"] for line in run("answers", nursery.birth, probe=probe).lines if line["kind"] == "measured"
    ] == [
        {"task": "weigh", "first": 1},
        {"second": 2},
    ]
    ran = run("dies", nursery.birth, probe=probe)
    assert ran.end.signal == "SIGSEGV"
    assert [line["measured"] for line in ran.lines if line["kind"] == "measured"] == [{"task": "weigh", "first": 1}]


# ── a child that dies ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [0, 5])
def test_a_child_that_dies_at_a_token_has_so_many_on_record(birth: Birth, number: int) -> None:
    ran = run(f"dies:{number}", birth)
    assert not ran.finished
    assert arrivals(ran) == number
    assert (ran.end.exit_code, ran.end.signal, ran.end.timed_out) == (None, "SIGSEGV", False)
    assert ran.end.last_event.startswith("token of ask at " if number else "opened of ask at ")
    assert ran.end.stderr_tail == ("toy dies is open", "these are my last words")
    exchange = gather(ran.lines)["ask"]
    assert not exchange.done
    assert exchange.failure is None


def test_a_child_that_leaves_by_itself(nursery: Nursery) -> None:
    ran = run("exits:2", nursery.birth)
    assert not ran.finished
    assert arrivals(ran) == 2
    assert (ran.end.exit_code, ran.end.signal) == (9, None)


def test_an_error_inside_the_target_is_a_traceback(birth: Birth) -> None:
    ran = run("raises:2", birth)
    assert not ran.finished
    assert arrivals(ran) == 2
    assert ran.end.exit_code == 1
    assert ran.end.stderr_tail[-1] == "ZeroDivisionError: toy"


def test_the_words_of_one_child_are_not_the_next_ones(birth: Birth) -> None:
    run("raises:2", birth)
    assert run("answers", birth).end.stderr_tail == ("toy answers is open",)


def test_the_limit_of_memory_holds(birth: Birth) -> None:
    """Killed by the kernel where a cgroup holds it, else refused by the allocator: never the machine's memory."""
    ran = run("eats:3", birth)
    assert not ran.finished
    assert arrivals(ran) == 3
    if ran.end.signal is None:
        assert ran.end.stderr_tail[-1] == "MemoryError"
    else:
        assert (ran.end.signal, ran.end.out_of_memory) == ("SIGKILL", True)
    assert (ran.end.peak_memory_bytes or 0) < 1.1 * LIMIT_BYTES


def test_a_child_that_hangs_is_killed_at_its_deadline(birth: Birth, mark: dict[str, str]) -> None:
    before = {process.pid for process in marked(mark)}
    began_s = time.monotonic()
    ran = run("hangs:2", birth, deadline_s=2.5)
    took_s = time.monotonic() - began_s
    assert 2.5 <= took_s < 20.0
    assert (ran.end.signal, ran.end.timed_out) == ("SIGKILL", True)
    assert arrivals(ran) == 2
    assert {process.pid for process in marked(mark)} <= before


def test_nothing_of_a_child_is_left(birth: Birth, mark: dict[str, str]) -> None:
    """What it had started, in a session of its own and with the pipe to us in its hand, ends with it."""
    ran = run("leaves:2", birth)
    assert (ran.end.exit_code, ran.end.timed_out) == (9, False)
    assert arrivals(ran) == 2
    until(lambda: not any("sleep" in word for word in commands(marked(mark))), "the end of what it had started")


def test_patience_ends_an_exchange_and_not_the_child(nursery: Nursery) -> None:
    ran = run("hangs:2", nursery.birth, patience_s=0.3)
    assert ran.finished
    exchanges = gather(ran.lines)
    failure = exchanges["ask"].failure
    assert failure is not None
    assert (failure.where, failure.message) == (
        "timeout",
        "waited 0.3 s for the reply to end: 2 tokens came, then none",
    )
    assert answered(exchanges["aftermath"])


def test_the_plan_may_hang_up(nursery: Nursery) -> None:
    probe = asks()
    ran = run(
        "hangs:4", nursery.birth, probe=replace(probe, requests=(replace(probe.requests[0], hang_up_after_tokens=3),))
    )
    exchange = gather(ran.lines)["ask"]
    assert exchange.hung_up
    assert not exchange.done
    assert arrivals(ran) == 3


def test_a_child_does_not_outlive_its_server_for_long(birth: Birth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "SERVER_DEAD_GRACE_S", 0.2)
    tokens: list[Line] = []
    ran = run("hangs:2", birth, on_line=tokens.append, server_ended=lambda: any("event" in line for line in tokens))
    assert (ran.end.signal, ran.end.timed_out) == ("SIGKILL", False)


# ── where children come from ─────────────────────────────────────────────────────────────────────


def told(birth: Birth, task: str = "tell") -> dict[str, Any]:
    """What a child tells of the process in which it lives."""
    [*_, line] = [
        line
        for line in run("tells", birth, probe=replace(asks(task=task), requests=())).lines
        if line["kind"] == "measured"
    ]
    return dict(line["measured"])


def test_a_target_is_loaded_once_and_forked(mark: dict[str, str], tmp_path: Path) -> None:
    with births(toy_target.spec("answers"), tmp_path / "log", warm_up_s=DEADLINE_S) as birth:
        opening, first, second = told(birth(None)), told(birth(asks(task="tell"))), told(birth(asks(task="tell")))
        assert opening == first == second
        assert opening["warm"]
        probe = asks(task="cleanly")
        assert not told(birth(probe), "cleanly")["warm"]
        assert told(birth(asks()))["warm"], "and the next one again"


@pytest.mark.parametrize("address", ["threads", "device", "dies", "hangs"])
def test_what_cannot_be_forked_is_started_each_time(address: str, mark: dict[str, str], tmp_path: Path) -> None:
    warm_up_s = 0.5 if address == "hangs" else DEADLINE_S
    with births(toy_target.spec(address), tmp_path / "log", warm_up_s=warm_up_s) as birth:
        assert not told(birth(None))["warm"]
        assert not told(birth(asks()))["warm"]


def test_an_error_while_it_is_loaded_is_for_the_child_to_tell(mark: dict[str, str], tmp_path: Path) -> None:
    with births(toy_target.spec("raises"), tmp_path / "log", warm_up_s=DEADLINE_S) as birth:
        ran = run("sings", birth(None))
    assert (ran.last("cannot") or {})["message"] == "toy='sings': there is no such toy"
    assert "Traceback" not in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_warm_nursery_that_dies_costs_no_probe(mark: dict[str, str], tmp_path: Path) -> None:
    with births(toy_target.spec("answers"), tmp_path / "log", warm_up_s=DEADLINE_S) as birth:
        seen = told(birth(None))
        os.kill(seen["parent"], signal.SIGKILL)
        assert not told(birth(asks()))["warm"]


def test_a_probe_with_a_limit_of_its_own(mark: dict[str, str], tmp_path: Path) -> None:
    """What was loaded before the fork counts as its own."""
    limit_bytes = 160 << 20
    with births(toy_target.spec("answers"), tmp_path / "log", warm_up_s=DEADLINE_S) as birth:
        probe = asks(memory_limit_bytes=limit_bytes)
        assert run("answers", birth(probe), probe=probe).finished
        ran = run("eats:3", birth(probe), probe=probe)
    assert not ran.finished
    if ran.end.signal is None:
        assert ran.end.stderr_tail[-1] == "MemoryError"
    else:
        assert (ran.end.signal, ran.end.out_of_memory) == ("SIGKILL", True)
        assert toy_target.BALLAST_BYTES < (ran.end.peak_memory_bytes or 0) <= limit_bytes


# ── the nursery ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own_nursery(mark: dict[str, str], tmp_path: Path) -> Iterator[Nursery]:
    """One that a test may kill."""
    with closing(Nursery(tmp_path / "client.log", LIMIT_BYTES)) as one:
        yield one


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_nursery_that_has_died(own_nursery: Nursery) -> None:
    assert run("answers", own_nursery.birth).finished
    own_nursery._process.kill()
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(UnableError, match="the process that starts probes has died") as caught:
            run("answers", own_nursery.birth)
        assert str(own_nursery.log) in caught.value.next_step
        del caught
    assert open_descriptors() == before


def test_a_nursery_that_dies_while_a_child_runs(own_nursery: Nursery, mark: dict[str, str]) -> None:
    others = {process.pid for process in marked(mark)} - tree(own_nursery)
    ran = run("hangs:2", own_nursery.birth, on_line=lambda line: died_at(line, own_nursery))
    assert (ran.end.signal, ran.end.timed_out) == ("SIGKILL", False)
    assert arrivals(ran) == 2
    until(lambda: {process.pid for process in marked(mark)} <= others, "the end of all that it started")


def died_at(line: Line, nursery: Nursery) -> None:
    if line["kind"] == "event" and line["event"].get("text") == toy_target.REPLY[1]:
        assert nursery._process.pid is not None
        os.kill(nursery._process.pid, signal.SIGKILL)


def tree(nursery: Nursery) -> set[int]:
    """The processes of a nursery: its keeper, itself, its children."""
    assert nursery._process.pid is not None
    itself = psutil.Process(nursery._process.pid)
    return {itself.ppid(), itself.pid, *(child.pid for child in itself.children(recursive=True))}


def test_closing_the_nursery_ends_its_child(mark: dict[str, str], tmp_path: Path) -> None:
    others = {process.pid for process in marked(mark)}
    nursery = Nursery(tmp_path / "client.log", LIMIT_BYTES)
    events, events_write = os.pipe()
    child = nursery.birth(events_write)
    assert child.wait(0.05) is None, "it waits for its order"
    nursery.close()
    child.close()
    os.close(events)
    until(lambda: {process.pid for process in marked(mark)} <= others, "the end of all that it started")


def test_a_nursery_ends_when_the_lab_closes_the_socket(mark: dict[str, str], tmp_path: Path) -> None:
    nursery = Nursery(tmp_path / "client.log", LIMIT_BYTES)
    nursery.control.close()
    end = nursery._process.wait(processes.PATIENCE_S)
    assert end is not None
    assert end.exit_code == 0
    nursery.close()


def test_a_limit_above_the_hard_one(own_nursery: Nursery) -> None:
    """The child dies before it can say a word; that is an end like any other, with its reason."""
    own_nursery.memory_limit_bytes = 1 << 62
    assert own_nursery._process.pid is not None
    psutil.Process(own_nursery._process.pid).rlimit(psutil.RLIMIT_AS, (4 << 30, 4 << 30))
    ran = run("answers", own_nursery.birth)
    if ran.finished:
        pytest.skip("whoever runs this may raise a hard limit")
    assert ran.end.exit_code == 1
    assert "not allowed to raise maximum limit" in ran.end.stderr_tail[-1]


@dataclass
class Answering:
    """In the place of a nursery: whose answers are all there before the child is even looked at."""

    control: socket.socket
    log: Path


def test_born_and_dead_in_one_look(tmp_path: Path) -> None:
    log = tmp_path / "client.log"
    log.write_text("of another\ncannot go on\n", encoding="utf-8")
    ours, theirs = socket.socketpair()
    order, order_write = os.pipe()
    with closing(ours), closing(theirs):
        theirs.sendall(json.dumps({"pid": 2**22}).encode() + b"\n" + json.dumps({"exit_code": 7}).encode() + b"\n")
        child = isolate._Forked(cast("Nursery", Answering(ours, log)), order_write, len("of another\n"))
        end = child.wait(1.0)
        child.close()
    os.close(order)
    assert end is not None
    assert (end.exit_code, end.signal, end.timed_out) == (7, None, False)
    assert end.stderr_tail == ("cannot go on",)


def test_everything_ends_with_a_killed_lab(mark: dict[str, str], tmp_path: Path) -> None:
    """The child of a nursery is three generations away from the tool."""
    own = processes.new_mark()
    code = (
        "import time; from pathlib import Path\n"
        "from contextlab.lab.isolate import Nursery; from tests.lab import test_isolate as it\n"
        f"nursery = Nursery(Path({str(tmp_path / 'log')!r}))\n"
        "it.run('hangs:2', nursery.birth, on_line=lambda line: print(line, flush=True))\n"
    )
    env = {**os.environ, **own}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        while "'token'" not in lab.stdout.readline():
            assert lab.poll() is None
        assert len(marked(own)) == 4, "the lab, the keeper, the nursery, the child"
        lab.kill()
        await_gone(own, 5.0)
