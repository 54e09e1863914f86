"""Ends processes of the target by our hand, and starts its server again at the same address.

    kill ─▶ the injector expects a death ─▶ signal ─▶ its end, seen and timed ─▶ Death
    restart ─▶ the server answers again ─▶ the same Death, with how long that took ─▶ no death is expected

Only a server that we started is killed, for nothing would start another one again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from contextlab.deeds import Death, Victim
from contextlab.lab.host.injector import Injector
from contextlab.lab.server import OwnedServer
from contextlab.lab.undo.steps import is_alive
from contextlab.model import UnableError

END_WAIT_S = 10.0
"""So long a process may take to end of a signal that asks for it, such as SIGTERM."""
TOLD_WAIT_S = 5.0
"""So long its keeper may take to end the rest of the tree, and to say how it ended."""


class Deaths:
    """Kills and restarts of one server, which both need its owner. `on_restart` is called when it answers again."""

    def __init__(self, server: OwnedServer | None, on_restart: Callable[[], None]) -> None:
        self._server, self._on_restart = server, on_restart
        self._death: Death | None = None

    def kill(self, victims: Sequence[Victim], signal: str, injector: Injector) -> None:
        """Send a signal ("SIGKILL", "SIGTERM", …) and wait until all of them have ended.

        Where the server's main process is among them, `injector` is told of its death; until `restart` it expects it.
        Raises UnableError where the server is not ours, a process is gone already, or one does not end of it.
        """
        server = self._server
        if server is None:
            message = f"{signal} is sent to no server that contextlab did not start: nothing would start it again"
            raise UnableError(message, "let contextlab start it: run:'COMMAND' --at URL")
        process = server.process
        is_whole = any(victim.pid == process.pid for victim in victims)
        with contextlib.ExitStack() as stack:
            handles = [(victim, stack.enter_context(_held(victim))) for victim in victims]
            if is_whole:
                self._death = None
                injector.killing(+1)
            sent_s = injector.now_s()
            for victim, handle in handles:
                _send(victim, handle, signal)
            for victim, handle in handles:
                _await_end(victim, handle, signal)
        if not is_whole:
            return
        at_s = injector.now_s()
        end = process.wait(TOLD_WAIT_S)
        if end is None:
            raise UnableError(f"nobody told within {TOLD_WAIT_S:g} s how the server ended of {signal}")
        self._death = Death(at_s=at_s, end=end, ours=True, took_s=round(at_s - sent_s, 6))
        injector.tell(self._death)

    def restart(self, injector: Injector) -> float:
        """Start the server again at the address that it had; seconds from its death (else from now) to its answer.

        Raises UnableError where the server is not ours, does not come up, or comes back at another address.
        """
        server, death, began_s = self._server, self._death, injector.now_s()
        if server is None:
            message = "the server cannot be started again: contextlab did not start it"
            raise UnableError(message, "let contextlab start it: run:'COMMAND' --at URL")
        url = server.url
        server.restart()
        if server.url != url:
            message = f"the server came back at {server.url} and not at {url}: it does not take CONTEXTLAB_PORT"
            raise UnableError(message, "give it a port of its own, so that its clients find it again")
        ready_s = round(injector.now_s() - (began_s if death is None else death.at_s), 6)
        self._on_restart()
        if death is not None:
            self._death = None
            injector.tell(replace(death, ready_s=ready_s))
            injector.killing(-1)
        return ready_s


# ── one process, which cannot be taken for another one that got its number ───────────────────────


@contextlib.contextmanager
def _held(victim: Victim) -> Iterator[int]:
    """A handle of the process (pidfd), through which no other one can be reached. Raises UnableError if it is gone."""
    try:
        handle = os.pidfd_open(victim.pid)
    except OSError:
        raise _gone(victim) from None
    try:
        if not is_alive(victim.pid, victim.started):
            raise _gone(victim)
        yield handle
    finally:
        os.close(handle)


def _gone(victim: Victim) -> UnableError:
    return UnableError(f"process {victim.pid} of the target had ended before it could be killed")


def _send(victim: Victim, handle: int, name: str) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.Signals[name])
    except OSError as error:
        if is_alive(victim.pid, victim.started):
            raise UnableError(f"{name} to process {victim.pid} of the target: {error.strerror}") from None


def _await_end(victim: Victim, handle: int, name: str) -> None:
    """Wait until the process has ended: its handle can be read then."""
    deadline = time.monotonic() + END_WAIT_S
    while not select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if time.monotonic() >= deadline:
            raise UnableError(
                f"process {victim.pid} of the target did not end within {END_WAIT_S:g} s of {name}",
                "a signal that it cannot ignore: signal=KILL",
            )
