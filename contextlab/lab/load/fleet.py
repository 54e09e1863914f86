"""The load's client as the tool sees it: worker processes that share one order, their samples, their health.

Fleet(order) ── starts, and waits until each is ready ── start(zero) ── poll … until finished ── close
"""

from __future__ import annotations

import gc
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import msgspec

from contextlab.experiment import GeneratorHealth, Sample
from contextlab.lab.load.order import Assignment, Go, LoadOrder, Prepared, Told
from contextlab.lab.process import KeptProcess
from contextlab.model import UnableError

__all__ = ["Fleet", "LoadOrder", "Prepared"]

READY_TIMEOUT_S = 60.0
HEAD_START_S = 0.3
"""From the word to the first request, where nobody says when."""
READ_BYTES = 1 << 20
TAIL_LINES = 8


class Fleet:
    """The worker processes of one arm. Worker number w of W takes the requests whose index is w modulo W.

    With `order.zero_s` the load begins then, else `start` says it. `namespace_pid`: workers enter the network
    namespace of this process first. `cpus`: processors that they may use. Raises UnableError where a worker cannot
    work, or dies before it has told its health.
    """

    def __init__(
        self,
        order: LoadOrder,
        *,
        log: Path,
        num_workers: int = 1,
        namespace_pid: int | None = None,
        cpus: Sequence[int] = (),
    ) -> None:
        self.log = log
        self.zero_s: float | None = None
        self._decoder = msgspec.json.Decoder(Told)
        self._workers: list[_Worker] = []
        try:
            self._workers += [_Worker(log) for _ in range(num_workers)]
            for number, worker in enumerate(self._workers):
                share = order.schedule
                if not order.concurrency:
                    share = tuple(due for due in order.schedule if due.index % num_workers == number)
                worker.say(
                    Assignment(
                        worker=number,
                        num_workers=num_workers,
                        order=replace(order, schedule=share),
                        namespace_pid=namespace_pid,
                        cpus=tuple(cpus),
                    )
                )
            self._await_ready()
            if order.zero_s is not None:
                self.start(order.zero_s)
        except BaseException:
            self.close()
            raise

    def start(self, zero_s: float | None = None) -> float:
        """Let the load begin at a time of `time.monotonic()`, by default in a moment; returns that time."""
        self.zero_s = time.monotonic() + HEAD_START_S if zero_s is None else zero_s
        for worker in self._workers:
            worker.say(Go(zero_s=self.zero_s))
        return self.zero_s

    @property
    def finished(self) -> bool:
        """Whether every worker has told everything."""
        return all(worker.finished for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def poll(self, timeout_s: float) -> list[Sample | GeneratorHealth]:
        """What the workers have told since, oldest first for each; waits up to `timeout_s` for the first of it."""
        return [seen for told in self._told(timeout_s) for seen in (told.sample, told.health) if seen is not None]

    def stop(self) -> None:
        """End the load early. Go on polling: what was under way, and what was not sent, is told too."""
        for worker in self._workers:
            if not worker.finished:
                with suppress(UnableError):  # it has just ended by itself, or died: its last words, which are still to
                    worker.say(Go(stop=True))  # be read, say which

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not all(worker.ready for worker in self._workers):
            if time.monotonic() > deadline:
                raise UnableError(f"a load worker was not ready after {READY_TIMEOUT_S:g} s", f"see {self.log}")
            self._told(0.5)

    def _told(self, timeout_s: float) -> list[Told]:
        found: list[Told] = []
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                if not worker.finished:
                    selector.register(worker.sock, selectors.EVENT_READ, worker)
            readable = [key.data for key, _ in selector.select(timeout_s)]
        collects = gc.isenabled()
        gc.disable()  # thousands of samples come at once, and none of them is garbage
        try:
            for worker in readable:
                lines: list[Told] = self._decoder.decode_lines(worker.lines())
                for told in lines:
                    if told.error:
                        raise UnableError(told.error, told.next_step or f"see {self.log}")
                if lines:
                    worker.ready = True
                    worker.finished = lines[-1].health is not None
                found += lines
        finally:
            if collects:
                gc.enable()
        return found


class _Worker:
    """One worker process and the socket to it."""

    def __init__(self, log: Path) -> None:
        self.ready = self.finished = False
        self.sock, theirs = socket.socketpair()
        fd = theirs.detach()
        self._rest = b""
        self.process = KeptProcess(
            [sys.executable, "-m", "contextlab.lab.load.worker", str(fd)], log=log, pass_fds=(fd,)
        )

    def say(self, thing: Assignment | Go) -> None:
        """Send one line."""
        try:
            self.sock.sendall(msgspec.json.encode(thing) + b"\n")
        except OSError:
            if not self.finished:
                raise self._died() from None

    def lines(self) -> bytes:
        """The whole lines that have come."""
        try:
            data = self.sock.recv(READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            raise self._died()
        lines, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._rest += data
            return b""
        whole, self._rest = self._rest + lines, rest
        return whole

    def close(self) -> None:
        """End it."""
        self.sock.close()
        self.process.close()

    def _died(self) -> UnableError:
        end = self.process.wait(5.0)
        how = "it closed its socket" if end is None else end.signal or f"exit code {end.exit_code}"
        tail = "".join(f"\n  {line}" for line in self.process.log_lines(self.process.log_start_bytes)[-TAIL_LINES:])
        return UnableError(f"a load worker died ({how}){tail}", f"see {self.process.log}")
