"""The parent's handle on the way from the clients to the target: the link process, its faults and their proof.

    tool ── Route ──socket: one JSON object a line──▶ link process (entry.py): relay, packet link, faults
             .address  ◀── clients connect here

An order is answered by exactly one line. The link process ends when the socket does.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import psutil

from contextlab.experiment import FaultEvidence, Placed, Sample
from contextlab.lab.journal import plain, revive
from contextlab.lab.link.engines import EMULATED, NETEM, PACKET_LINK, RELAY
from contextlab.lab.process import KeptProcess
from contextlab.model import UnableError, UsageError

ENGINES = (RELAY, PACKET_LINK, NETEM, EMULATED)
ANSWER_S = 20.0
"""How long the link process may take to answer an order; it is a matter of milliseconds."""
TAIL_LINES = 5
ASKED_AT_ONCE = 5000


class Route:
    """A way to `upstream` through a process of its own, open from construction to `close`.

    `engine`: what carries packet faults: "relay" (none: stream faults only), "packet link", "netem" or "emulated".
    `address` is where clients connect, inside the network namespace of `namespace_pid` where that is not None; `port`:
    the one to have it at where there is no such namespace, 0 for a free one.
    Raises UnableError where the engine or the port cannot be had, or when the link process has died.
    """

    def __init__(self, upstream: tuple[str, int], *, engine: str, log: Path, seed: int, port: int = 0) -> None:
        if engine not in ENGINES:
            raise UsageError(f"engine={engine!r}: there is no such engine", f"choose from: {', '.join(ENGINES)}")
        self.engine = engine
        self._control, theirs = socket.socketpair()
        fd = theirs.detach()
        self._rest = b""
        self._process = KeptProcess(
            [sys.executable, "-m", "contextlab.lab.link.entry", str(fd)], log=log, pass_fds=(fd,), grace_s=1.0
        )
        try:
            opened = self._ask("open", upstream=list(upstream), engine=engine, seed=seed, port=port)
        except BaseException:
            self.close()
            raise
        self.address: tuple[str, int] = (str(opened["host"]), int(opened["port"]))
        self.namespace_pid: int | None = opened["namespace_pid"]

    @property
    def pid(self) -> int | None:
        """Process id of the link process."""
        return self._process.pid

    def arm(self, faults: Sequence[Placed], zero_s: float, *, keep: bool = True) -> None:
        """Place faults: each acts from `zero_s` + its start to its end (`time.monotonic`), on connections made from now
        on. What was armed before is over, and its evidence gone; none: the control arm. `keep`: what the target sends
        from now on, for `as_sent`."""
        self._ask("arm", faults=[plain(fault) for fault in faults], zero_s=zero_s, keep=keep)

    def report(self) -> tuple[dict[str, float], list[FaultEvidence]]:
        """`counters` and `evidence`, of the same moment."""
        said = self._ask("report")
        counters = {str(name): float(value) for name, value in said["counters"].items()}
        return counters, [revive(line, FaultEvidence) for line in said["evidence"]]

    def evidence(self) -> list[FaultEvidence]:
        """What each armed fault has done until now, in their order."""
        return self.report()[1]

    def as_sent(self, samples: Sequence[Sample]) -> frozenset[int]:
        """The indices of the samples of this arm whose bytes are those that the target sent, or the first of them."""
        asked = [(one.index, one.num_bytes, one.crc32) for one in samples if one.crc32 is not None and one.num_bytes]
        found: list[int] = []
        for start in range(0, len(asked), ASKED_AT_ONCE):
            found += self._ask("as_sent", asked=asked[start : start + ASKED_AT_ONCE])["as_sent"]
        return frozenset(found)

    def counters(self) -> dict[str, float]:
        """What passed since the route was opened: connections, refusals, reads and bytes each way, packets."""
        return self.report()[0]

    def cpu_s(self) -> float:
        """CPU time of the link process and what it started, until now."""
        try:
            root = psutil.Process(self._process.pid)
            return sum(_cpu_s(process) for process in [root, *root.children(recursive=True)])
        except psutil.Error:
            raise self._died() from None

    def close(self) -> None:
        """End it; what was connected through it is cut. May be called again."""
        self._control.close()
        self._process.close()

    def __enter__(self) -> Route:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, order: str, **fields: object) -> dict[str, Any]:
        try:
            self._control.sendall(msgspec.json.encode({"order": order, **fields}) + b"\n")
            answer = msgspec.json.decode(self._line())
        except OSError:
            raise self._died() from None
        if "error" in answer:
            kind = UsageError if answer["error"] == "usage" else UnableError
            raise kind(answer["message"], answer["next_step"])
        return dict(answer)

    def _line(self) -> bytes:
        """The next line. Raises BrokenPipeError where there is none any more, UnableError where it takes too long."""
        deadline = time.monotonic() + ANSWER_S
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise UnableError(f"the link process has not answered for {ANSWER_S:g} s", f"see {self._process.log}")
            chunk = self._control.recv(1 << 16)
            if not chunk:
                raise BrokenPipeError("the link process closed its socket")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _died(self) -> UnableError:
        end = self._process.wait(2.0)
        how = "has closed its socket" if end is None else f"has died ({end.signal or f'exit code {end.exit_code}'})"
        said = "\n".join(self._process.log_lines(self._process.log_start_bytes)[-TAIL_LINES:])
        return UnableError(
            f"the link process {how}" + (f":\n{said}" if said else ""), f"see {self._process.log}, and run it again"
        )


def _cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
