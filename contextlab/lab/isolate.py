"""One process per probe: sends the order, receives events until the child ends, and says how it ended.

parent ──order──▶ child ──▶ target            The parent watches three things at once: the child's events,
   ◀──events──────┘                           the child's end, and the end of a server that the tool owns.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from contextlab import registry
from contextlab.analysis.exchanges import fold
from contextlab.lab.child import Order
from contextlab.lab.journal import plain, revive
from contextlab.lab.process import TAIL_LINES, KeptProcess, default_memory_limit_bytes, process_end, with_last_event
from contextlab.model import Event, Exchange, Probe, ProcessEnd, Request, TargetSpec, UnableError
from contextlab.targets.servers import NO_CERTIFICATES

POLL_S = 0.1
SERVER_DEAD_GRACE_S = 3.0
"""How long a child may go on after the server has died: it should notice by itself, and report what it saw."""
Line = dict[str, Any]


@dataclass(slots=True)
class ChildRun:
    """What a child reported, in order, and how it ended. `finished`: it came to the end of its order."""

    lines: list[Line] = field(default_factory=list)
    end: ProcessEnd = field(default_factory=ProcessEnd)

    @property
    def finished(self) -> bool:
        """Whether the child reached its own last line."""
        return bool(self.lines) and self.lines[-1]["kind"] == "finished"

    def last(self, kind: str) -> Line | None:
        """The last line of a kind."""
        return next((line for line in reversed(self.lines) if line["kind"] == kind), None)


class Cradle(Protocol):
    """A child in its process, wherever that came from."""

    @property
    def stdin(self) -> Any:
        """The pipe by which it gets its order."""
        ...

    def wait(self, timeout_s: float) -> ProcessEnd | None:
        """How it ended; None if it still runs when the time is up."""
        ...

    def kill(self, *, timed_out: bool = False) -> ProcessEnd:
        """End it by force."""
        ...

    def close(self) -> None:
        """Release what belongs to it."""
        ...


Birth = Callable[[int], Cradle]
"""Starts a child that writes its events to this descriptor, and closes the descriptor here."""


class Nursery:
    """The warm process from which children are forked; see `nursery.py`. Its log is theirs too.

    `inside`: a target that lives in the children; whether they can be forked is then known when it is `warm`.
    """

    def __init__(
        self,
        log: Path,
        memory_limit_bytes: int | None = None,
        inside: TargetSpec | None = None,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self.memory_limit_bytes = memory_limit_bytes or default_memory_limit_bytes()
        self.control, theirs = socket.socketpair()
        fd = theirs.detach()
        words = [str(fd)] if inside is None else [str(fd), msgspec.json.encode(inside).decode()]
        self._process = KeptProcess(
            [sys.executable, "-m", "contextlab.lab.nursery", *words],
            log=log,
            memory_limit_bytes=self.memory_limit_bytes if inside is not None else 0,
            pass_fds=(fd,),
            env=env,
        )

    def warm(self, timeout_s: float) -> bool:
        """Wait until the target is loaded; False where its children cannot be forked, or it took too long, or died."""
        readable, _, _ = select.select([self.control], [], [], timeout_s)
        with self.control.makefile("rb", buffering=0) as answers:
            line = answers.readline() if readable else b""
        return bool(line) and not json.loads(line)["cold"]

    def birth(self, events_fd: int, memory_limit_bytes: int | None = None) -> Cradle:
        """Fork a child. Raises UnableError where the nursery itself has died."""
        order, order_write = os.pipe()
        message = json.dumps({"memory_limit_bytes": memory_limit_bytes or self.memory_limit_bytes}).encode()
        log_start_bytes = self.log.stat().st_size
        try:
            socket.send_fds(self.control, [message], [order, events_fd])
            return _Forked(self, order_write, log_start_bytes)
        except OSError as error:
            os.close(order_write)
            raise UnableError(f"the process that starts probes has died: {error}", f"see {self.log}") from error
        finally:
            os.close(order)
            os.close(events_fd)

    def close(self) -> None:
        """End it, and whatever it has forked."""
        self.control.close()
        self._process.close()


class _Forked:
    """A child of the nursery. Raises BrokenPipeError where the nursery does not answer; `order_fd` is then still open.

    Its answers are read without a buffer: a child may be born and dead in one look, and `wait` selects on the socket.
    """

    def __init__(self, nursery: Nursery, order_fd: int, log_start_bytes: int) -> None:
        self._answers = nursery.control.makefile("rb", buffering=0)
        self._control = nursery.control
        self._log = nursery.log
        self._log_start_bytes = log_start_bytes
        self._timed_out = False
        self._end: ProcessEnd | None = None
        line = self._answers.readline()
        if not line:
            raise BrokenPipeError("it did not answer")
        self._pid: int = json.loads(line)["pid"]
        self.stdin = os.fdopen(order_fd, "wb")

    def wait(self, timeout_s: float) -> ProcessEnd | None:
        if self._end is None:
            readable, _, _ = select.select([self._control], [], [], timeout_s)
            line = self._answers.readline() if readable else b""
            if readable:
                with self._log.open("rb") as file:
                    file.seek(self._log_start_bytes)
                    tail = file.read().decode("utf-8", errors="replace").splitlines()[-TAIL_LINES:]
                self._end = process_end(json.loads(line or b'{"signal": "SIGKILL"}'), tail, timed_out=self._timed_out)
        return self._end

    def kill(self, *, timed_out: bool = False) -> ProcessEnd:
        self._timed_out = timed_out
        if self._end is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        return self.wait(10.0) or ProcessEnd(signal="SIGKILL", timed_out=timed_out)

    def close(self) -> None:
        if self._end is None:
            self.kill()
        with contextlib.suppress(OSError):
            self.stdin.close()
        self._answers.close()


def spawned(log: Path, memory_limit_bytes: int | None = None) -> Birth:
    """Births by a Python start of its own each: for targets inside the child that must start clean."""

    def birth(events_fd: int) -> Cradle:
        return KeptProcess(
            [sys.executable, "-m", "contextlab.lab.child", str(events_fd)],
            log=log,
            memory_limit_bytes=memory_limit_bytes or default_memory_limit_bytes(),
            stdin=subprocess.PIPE,
            pass_fds=(events_fd,),
        )

    return birth


@contextlib.contextmanager
def births(
    spec: TargetSpec, log: Path, memory_limit_bytes: int | None = None, *, warm_up_s: float = 0.0
) -> Iterator[Callable[[Probe | None], Birth]]:
    """Where the children of a run come from, by probe; the child that opens the target is born for None.

    Forked where they only talk to a server. A target inside the child is loaded once, in `warm_up_s` at most, and
    forked; where that cannot be, or the task wants to start clean, the child has a Python start of its own.
    """
    if not registry.runs_in_child(spec):
        env = NO_CERTIFICATES if (spec.url or spec.address).startswith("http:") else None
        with contextlib.closing(Nursery(log, env=env)) as nursery:
            yield lambda probe: nursery.birth
        return

    with contextlib.ExitStack() as stack:
        warm: Nursery | None = None
        if registry.warms_up(spec):
            warm = stack.enter_context(contextlib.closing(Nursery(log, memory_limit_bytes, spec)))
            if not warm.warm(warm_up_s):
                warm.close()
                warm = None

        def birth(probe: Probe | None) -> Birth:
            limit_bytes = (probe.memory_limit_bytes if probe else None) or memory_limit_bytes
            cold = spawned(log, limit_bytes)
            if warm is None or (probe is not None and registry.starts_clean(spec, probe.task)):
                return cold
            return partial(_forked_or_else, warm, limit_bytes, cold)

        yield birth


def _forked_or_else(nursery: Nursery, memory_limit_bytes: int | None, other: Birth, events_fd: int) -> Cradle:
    """A child of the nursery, or, where that has died meanwhile, one of the other birth."""
    spare_fd = os.dup(events_fd)
    try:
        child = nursery.birth(events_fd, memory_limit_bytes)
    except UnableError:
        return other(spare_fd)
    except BaseException:
        os.close(spare_fd)
        raise
    os.close(spare_fd)
    return child


def run_child(
    order: Order,
    birth: Birth,
    *,
    deadline_s: float,
    on_line: Callable[[Line], None],
    server_ended: Callable[[], bool] = lambda: False,
) -> ChildRun:
    """Run one order in a process of its own.

    `deadline_s` is the most time the child may take; after that it is killed and its end says `timed_out`.
    `on_line` sees each line as it comes. `server_ended` is asked every now and then.
    """
    events, events_write = os.pipe()
    run = ChildRun()
    began = time.monotonic()
    server_died: float | None = None
    with os.fdopen(events, "rb", buffering=0) as pipe, contextlib.closing(birth(events_write)) as child:
        _send(child, order)
        buffer = b""
        while True:
            readable, _, _ = select.select([pipe], [], [], POLL_S)
            if readable:
                chunk = pipe.read(1 << 16)
                if not chunk:
                    break  # the child, and whatever it started, is gone
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    decoded: Line = msgspec.json.decode(line)
                    run.lines.append(decoded)
                    on_line(decoded)
            now = time.monotonic()
            if server_died is None and server_ended():
                server_died = now
            if now - began > deadline_s:
                child.kill(timed_out=True)
            elif server_died is not None and now - server_died > SERVER_DEAD_GRACE_S:
                child.kill()
        end = child.wait(5.0) or child.kill(timed_out=True)
    run.end = with_last_event(end, _last_event(run.lines))
    return run


def _send(child: Cradle, order: Order) -> None:
    with contextlib.suppress(BrokenPipeError):  # it died before it could read; its end tells
        child.stdin.write(msgspec.json.encode(plain(order)) + b"\n")
        child.stdin.flush()


def _last_event(lines: list[Line]) -> str:
    """The last thing reported before the end, in words."""
    for line in reversed(lines):
        if line["kind"] == "event":
            return f"{line['event']['kind']} of {line['exchange']} at {line['at_s']:.3f} s"
        if line["kind"] in ("opened", "knowledge"):
            return str(line["kind"])
    return ""


def gather(lines: Sequence[Line]) -> dict[str, Exchange]:
    """The exchanges that a child reported, by name, in the order in which they began."""
    requests: dict[str, Request] = {}
    events: dict[str, list[tuple[float, Event]]] = {}
    for line in lines:
        if line["kind"] != "event":
            continue
        name = line["exchange"]
        if "request" in line:
            requests[name] = revive(line["request"], Request)
        events.setdefault(name, []).append((line["at_s"], revive(line["event"], Event)))
    return {name: fold(request, events[name]) for name, request in requests.items()}
