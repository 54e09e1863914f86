"""The tool's handle on the process in which misbehaving clients live.

entered: started, and waited for until it is ready ── start(zero) ── finish ── evidence ── left: ended by force
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from contextlab.experiment import FaultEvidence, Placed
from contextlab.lab.crowd.order import CrowdGo, CrowdOrder, CrowdTold, Numbered
from contextlab.lab.load.order import LoadOrder
from contextlab.lab.process import KeptProcess
from contextlab.model import UnableError

READY_TIMEOUT_S, END_TIMEOUT_S = 60.0, 15.0
READ_BYTES = 1 << 16
TAIL_LINES = 8


class Crowd:
    """The client faults of one arm. `numbered` holds each fault with its place in the experiment; `order` says where
    its clients connect and what they send. `namespace_pid`: the process whose network namespace they enter first.

    Raises UnableError where its clients cannot speak to the target, or where the process dies.
    """

    def __init__(
        self,
        numbered: Sequence[tuple[int, Placed]],
        order: LoadOrder,
        *,
        seed: int,
        log: Path,
        namespace_pid: int | None = None,
    ) -> None:
        if not order.fast:
            message = f"{order.host}: misbehaving clients speak plain http, without a proxy; this target needs more"
            raise UnableError(message, "test the server behind its TLS, on its own port")
        self._log = log
        self._order = CrowdOrder(
            order=order,
            faults=tuple(Numbered(number=number, placed=placed) for number, placed in numbered),
            seed=seed,
            namespace_pid=namespace_pid,
        )
        self._process: KeptProcess | None = None
        self._sock: socket.socket | None = None
        self._rest = b""
        self._evidence: Mapping[int, FaultEvidence] | None = None

    @property
    def pids(self) -> list[int]:
        """The process in which they live, while it does."""
        return [] if self._process is None or self._process.pid is None else [self._process.pid]

    def start(self, zero_s: float) -> None:
        """Let every fault begin at its time after `zero_s` (`time.monotonic`)."""
        self._say(CrowdGo(zero_s=zero_s))

    def finish(self) -> None:
        """End what still acts, and wait for what each fault counted. May be called again."""
        if self._evidence is None and self._sock is not None:
            self._say(CrowdGo(stop=True))
            self._evidence = self._told(END_TIMEOUT_S).evidence or {}

    def evidence(self) -> Mapping[int, FaultEvidence]:
        """What each fault did, by its place; of those that are over."""
        return self._evidence or {}

    def close(self) -> None:
        """End the process, whatever its clients are doing."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> Self:
        self._sock, theirs = socket.socketpair()
        fd = theirs.detach()
        try:
            argv = [sys.executable, "-m", "contextlab.lab.crowd.worker", str(fd)]
            self._process = KeptProcess(argv, log=self._log, pass_fds=(fd,))
            self._say(self._order)
            self._told(READY_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _say(self, thing: CrowdOrder | CrowdGo) -> None:
        if self._sock is None:
            raise ValueError("the crowd has not been entered, or has been left")
        with contextlib.suppress(
            OSError
        ):  # it has told its evidence and gone, or it has died: its last words say which
            self._sock.sendall(msgspec.json.encode(thing) + b"\n")

    def _told(self, within_s: float) -> CrowdTold:
        """The next line."""
        until_s = time.monotonic() + within_s
        while b"\n" not in self._rest:
            data = self._received(until_s)
            if not data:
                raise self._died()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        told = msgspec.json.decode(line, type=CrowdTold)
        if told.error:
            raise UnableError(told.error, told.next_step or f"see {self._log}")
        return told

    def _received(self, until_s: float) -> bytes:
        if self._sock is None:
            return b""
        self._sock.settimeout(max(0.01, until_s - time.monotonic()))
        try:
            return self._sock.recv(READ_BYTES)
        except TimeoutError:
            message = "the process of the misbehaving clients says nothing"
            raise UnableError(message, f"see {self._log}; is this machine too busy?") from None
        except OSError:
            return b""

    def _died(self) -> UnableError:
        process = self._process
        if process is None:
            return UnableError("the process of the misbehaving clients is not there", f"see {self._log}")
        end = process.wait(5.0)
        how = "it closed its socket" if end is None else end.signal or f"exit code {end.exit_code}"
        tail = "".join(f"\n  {line}" for line in process.log_lines(process.log_start_bytes)[-TAIL_LINES:])
        return UnableError(f"the process of the misbehaving clients died ({how}){tail}", f"see {self._log}")
