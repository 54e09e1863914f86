"""Whom no fault may act on, and who listens at an address."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from contextlab.deeds import Victim
from contextlab.lab.undo.ledger import WATCHDOG
from contextlab.lab.undo.steps import started_of
from contextlab.model import UsageError

PF_KTHREAD = 0x00200000
"""The flag of kernel threads in field 9 of /proc/PID/stat (include/linux/sched.h)."""


def refuse(victim_pid: int, ours: bool, i_own_this: bool) -> None:
    """Raise UsageError where a process must not be harmed: the system's first, a kernel thread, ourselves, an ancestor
    of ours, our watchdog; and one that we did not start (`ours`), unless the user says that it is theirs."""
    why = _untouchable(victim_pid)
    if why:
        raise UsageError(f"process {victim_pid} is {why}: no fault acts on it", "name the server's own process or URL")
    if not ours and not i_own_this:
        raise UsageError(
            f"process {victim_pid} ({_name_of(victim_pid)}) was not started by this run, and the fault would harm it",
            "add --i-own-this if it is yours to test",
        )


def _untouchable(pid: int) -> str:
    if pid <= 1:
        return "the system's first process"
    if pid == os.getpid():
        return "contextlab itself"
    if pid in _ancestors():
        return f"an ancestor of contextlab ({_name_of(pid)})"
    if _flags_of(pid) & PF_KTHREAD:
        return "a thread of the kernel"
    if WATCHDOG.encode() in _command_of(pid).split(b"\0"):
        return "a watchdog of contextlab"
    return ""


def listener(host: str, port: int) -> Victim | None:
    """The process that listens at an address of this machine; of several that share it the one that started first.

    None where nobody does, or it is not ours to see.
    """
    addresses = {str(found[4][0]) for found in _resolved(host, port)}
    pids = {
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.pid
        and connection.laddr.port == port
        and (connection.laddr.ip in addresses or connection.laddr.ip in ("0.0.0.0", "::"))  # noqa: S104 - compared
    }
    found = sorted((started, pid) for pid in pids if (started := started_of(pid)) is not None)
    if not found:
        return None
    started, pid = found[0]
    return Victim(pid=pid, started=started, name=_name_of(pid))


def _resolved(host: str, port: int) -> list[tuple[object, object, int, str, tuple[object, ...]]]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError:
        return []


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    while pid > 0:
        yield pid
        pid = int(_stat_of(pid)[1]) if _stat_of(pid) else 0


def _flags_of(pid: int) -> int:
    fields = _stat_of(pid)
    return int(fields[6]) if fields else 0


def _stat_of(pid: int) -> list[str]:
    """/proc/PID/stat from the state on; none where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "gone"
