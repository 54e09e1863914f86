"""The tool's handle on one process of the cache tier: kept, told what to do, asked what it counted."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from contextlab.lab.process import KeptProcess
from contextlab.model import UnableError

ANSWER_S = 20.0
"""How long an order may take; it is a matter of milliseconds, and of a second at the start."""
TAIL_LINES = 5


class Servant:
    """The process of one module of this package, from construction to `close`; it ends with the tool.

    `order` is the first one, whose answer `opened` waits for, so that several can start side by side. Threads may ask
    at the same time. Raises UnableError where it has died or does not answer.
    """

    def __init__(self, module: str, *, log: Path, **order: object) -> None:
        self._name = module
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self._control.settimeout(ANSWER_S)
        fd = theirs.detach()
        self._process = KeptProcess(
            [sys.executable, "-m", f"{__package__}.{module}", str(fd)], log=log, pass_fds=(fd,), grace_s=1.0
        )
        self._lines = self._control.makefile("rb")
        self._tell(order)

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    def opened(self) -> dict[str, Any]:
        """What it answered to its first order; once."""
        with self._lock:
            return self._heard()

    def ask(self, order: str, **fields: object) -> dict[str, Any]:
        """Give an order and return its answer."""
        with self._lock:
            self._tell({"order": order, **fields})
            return self._heard()

    def close(self) -> None:
        """End it. May be called again."""
        self._lines.close()
        self._control.close()
        self._process.close()

    def _tell(self, order: dict[str, object]) -> None:
        try:
            self._control.sendall(msgspec.json.encode(order) + b"\n")
        except OSError:
            raise self._died() from None

    def _heard(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except OSError:
            line = b""
        if not line:
            raise self._died()
        return dict(msgspec.json.decode(line))

    def _died(self) -> UnableError:
        end = self._process.wait(2.0)
        how = "does not answer" if end is None else f"has died ({end.signal or f'exit code {end.exit_code}'})"
        said = "\n".join(self._process.log_lines(self._process.log_start_bytes)[-TAIL_LINES:])
        return UnableError(
            f"the cache tier's {self._name} {how}" + (f":\n{said}" if said else ""),
            f"see {self._process.log}, and run it again",
        )
