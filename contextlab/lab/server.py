"""A server that the tool starts, owns and watches: readiness, log, memory, restart, end.

start ─▶ wait for its address (READY line, or the URL that the user gave) ─▶ wait for its health ─▶ probe …
  ▲                                                                                                │
  └──────────── started again at the address that it had (CONTEXTLAB_PORT) ◀──────── it ended ─────┘
"""

from __future__ import annotations

import http.client
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import msgspec

from contextlab import registry
from contextlab.lab.journal import plain
from contextlab.lab.process import KeptProcess, default_memory_limit_bytes
from contextlab.model import ProcessEnd, ServerCommand, TargetSpec, UnableError, UsageError
from contextlab.targets.servers import PORT_VARIABLE

READY = re.compile(r"READY +(http\S+)[ \t]*\r?\n")
"""What a server of ours prints when it listens; whole only with its newline."""
POLL_S = 0.05
CONNECT_TIMEOUT_S = 2.0
PROGRESS_EVERY_S = 1.0


def serving_command(spec: TargetSpec) -> ServerCommand | None:
    """How a target is started as a server: its own, or ours in front of one that lives inside a process; None for a
    target that runs already."""
    if not registry.runs_in_child(spec):
        return registry.server_command(spec)
    words = msgspec.json.encode(plain(spec)).decode()
    return ServerCommand(argv=(sys.executable, "-m", "contextlab.lab.chaos.host", words), ready_timeout_s=300.0)


def served_at(spec: TargetSpec, url: str) -> TargetSpec:
    """The target at its server's address; one that lives inside a process is an HTTP server there."""
    if registry.runs_in_child(spec):
        return TargetSpec(name=spec.name, scheme="http", address=url, url=url)
    return replace(spec, url=url)


class ServerEnded(UnableError):
    """A server of ours ended before it was ready; `end` says how."""

    def __init__(self, end: ProcessEnd, message: str, next_step: str = "") -> None:
        super().__init__(message, next_step)
        self.end = end


class OwnedServer:
    """A running server of ours. `restart` starts the same command again; its log goes on in the same file.

    One thread may start it again while others look: `process` is the one that ended until the next one answers.
    """

    def __init__(
        self,
        command: ServerCommand,
        *,
        log: Path,
        memory_limit_bytes: int | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.command = command
        self.log = log
        self.num_starts = 0
        self.memory_limit_bytes = memory_limit_bytes or command.memory_limit_bytes or default_memory_limit_bytes()
        self._progress = progress
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._refuse_taken_port()
        self.process, self.url = self._started(port=0)

    def _started(self, *, port: int) -> tuple[KeptProcess, str]:
        """The process, once it answers, and where."""
        self.log.touch()
        self._log_start = self.log.stat().st_size
        process = KeptProcess(
            self.command.argv,
            log=self.log,
            env={PORT_VARIABLE: str(port), **self.command.env},
            memory_limit_bytes=self.memory_limit_bytes,
        )
        try:
            url = self._await_ready(process)
        except BaseException:
            process.close()
            raise
        self.num_starts += 1
        return process, url

    def restart(self) -> None:
        """Stop what is left and start again, at the same address unless the server will have another.

        Raises UnableError where it does not come up, or is closed meanwhile.
        """
        with self._turn:
            self.process.stop()
            self.process.close()
            self.process, self.url = self._started(port=urlsplit(self.url).port or 0)

    def close(self) -> ProcessEnd:
        """Stop the server and everything it started; a start that is under way ends too."""
        self._closing.set()
        with self._turn:
            end = self.process.poll() or self.process.stop()
            self.process.close()
            return end

    def __enter__(self) -> OwnedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_taken_port(self) -> None:
        if self.command.url is None:
            return
        parts = urlsplit(self.command.url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise UsageError(f"--at={self.command.url!r}: {error}", "for example --at http://127.0.0.1:8000") from None
        if silence(self.command.url):
            return
        raise UnableError(
            f"port {port} of {parts.hostname or '127.0.0.1'} is already taken: something else answers there",
            "stop it, choose another port, or probe it as it is: name its URL as the target",
        )

    def _await_ready(self, process: KeptProcess) -> str:
        begun = told = time.monotonic()
        waits_for = (
            "its address (a line READY http://…)" if self.command.url is None else f"an answer at {self.command.url}"
        )
        while (elapsed_s := time.monotonic() - begun) < self.command.ready_timeout_s:
            end = process.poll()
            if end is not None:
                raise ServerEnded(
                    end,
                    f"the server ended before it was ready: {end_words(end)}\n{self._tail(process)}",
                    f"its whole log is in {self.log}"
                    + ("; it needs more than its memory limit: --memory-limit SIZE" if end.out_of_memory else ""),
                )
            if self._closing.is_set():
                raise UnableError("the server was closed before it was ready")
            url = self.command.url or self._announced_url(process)
            if url is not None and _answers(url, self.command.ready_path):
                return url
            if time.monotonic() - told > PROGRESS_EVERY_S:
                told = time.monotonic()
                self._progress(f"waiting for {waits_for} ({elapsed_s:.0f} s)")
            time.sleep(POLL_S)
        raise UnableError(
            f"the server was not ready after {elapsed_s:.0f} s: waited for {waits_for}\n{self._tail(process)}",
            f"its whole log is in {self.log}; a slow one needs more time: --set ready_timeout_s=SECONDS",
        )

    def _announced_url(self, process: KeptProcess) -> str | None:
        """The address in the READY line. A server's own log may stand before it on the line, or half a line of it."""
        found = READY.search(process.log_text(self._log_start))
        return found[1] if found else None

    def _tail(self, process: KeptProcess) -> str:
        return "\n".join(f"  {line}" for line in process.log_lines(self._log_start)[-8:])


def silence(url: str) -> str:
    """Why nothing can be reached at a URL, in the system's words; "" where something listens there."""
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80))
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return str(error.strerror or error) or "no connection"
    return ""


def end_words(end: ProcessEnd) -> str:
    """`signal SIGSEGV`, `exit code 1, out of memory`."""
    words = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
    return f"{words}, out of memory" if end.out_of_memory else words


def _answers(url: str, path: str) -> bool:
    """Whether the server answers `path` with success, or, where it does not know the path, at all."""
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=2.0)
    except ValueError:  # an address that is there by half, or is none
        return False
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
