"""Whose process a host fault may touch: one that we started, or one that the user calls theirs."""

from __future__ import annotations

from collections.abc import Sequence

from contextlab import registry
from contextlab.deeds import Victim
from contextlab.experiment import Placed, Plane
from contextlab.lab.load.aim import where
from contextlab.lab.undo import guard
from contextlab.lab.undo.steps import started_of
from contextlab.model import TargetSpec, UsageError


def is_started_here(spec: TargetSpec) -> bool:
    """Whether the target's server is a process that we start ourselves."""
    return registry.runs_in_child(spec) or registry.server_command(spec) is not None


def foreign_victim(spec: TargetSpec, faults: Sequence[Placed], *, pid: int | None, i_own_this: bool) -> Victim | None:
    """The process behind a target that is not ours; None where it is ours, or where nothing will touch it.

    Raises UsageError with the reason: a process number for a target that we start; a fault on a process that nobody
    gave us, or on one that must never be touched; one that would end a process that is not ours.
    """
    touching = [registry.shown_fault(placed) for placed in faults if registry.plane_of(placed) is Plane.HOST]
    if is_started_here(spec):
        if pid is not None:
            raise UsageError(f"--pid={pid}: {spec.name} is started by contextlab itself", "leave --pid out")
        return None
    if why := unkillable(faults):
        raise UsageError(why, "let contextlab start the server: run:'COMMAND' --at URL")
    if pid is None and not touching and not i_own_this:
        return None
    host, port = where(spec)
    victim = guard.listener(host, port) if pid is None else _named(pid)
    if victim is None:
        if not touching:
            return None
        raise UsageError(
            f"fault {touching[0]!r}: no process of this machine is seen to listen at {host}:{port}",
            "name it: --pid N --i-own-this; or let contextlab start the server: run:'COMMAND' --at URL",
        )
    guard.refuse(victim.pid, ours=False, i_own_this=i_own_this)
    return victim


def unkillable(faults: Sequence[Placed]) -> str:
    """Why one of these faults cannot act on a server that is not ours: it would end it; "" where none does."""
    for placed in faults:
        if registry.ends_processes(placed):
            shown = registry.shown_fault(placed)
            return f"fault {shown!r}: no server is killed that contextlab did not start: nothing would start it again"
    return ""


def _named(pid: int) -> Victim:
    started = started_of(pid)
    if started is None:
        raise UsageError(f"--pid={pid}: there is no such process", "name the number of the server's main process")
    return Victim(pid=pid, started=started)
