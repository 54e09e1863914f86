"""Forks the children of probes from one warm process: a child then costs milliseconds, not a Python start.

    lab ──socket──▶ nursery: everything imported, one thread, nothing open ──fork──▶ child (one probe)
            ◀── process id, then how it ended ──┘

Each probe still has a process of its own, with its own limit and its own end. A target that lives inside the child is
loaded here, once, where its module can do that (`warm_up`): the library, the model. Its children get copies of it by
the fork, and each a memory group of its own. A process with threads cannot be forked, nor one that opened a device:
then the nursery says so and ends, and each child loads the target for itself. The nursery is kept by a keeper, and
everything it forked goes with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import socket
import sys
import traceback
from pathlib import Path

import msgspec

from contextlab.lab.keeper import PR_SET_CHILD_SUBREAPER, MemoryCgroup, finish_tree, prctl, signal_name
from contextlab.model import TargetSpec

MESSAGE_BYTES = 4096
LEAST_ROOM_BYTES = 16 << 20
"""What a child may use at least, though the nursery itself has used up the limit."""


def serve(control: socket.socket, inside: TargetSpec | None = None) -> None:
    """Fork one child for each message until the lab closes the socket; one at a time.

    A message is {"memory_limit_bytes": N} with two descriptors: the child's standard input and its event pipe.
    `inside`: a target that lives inside the child. What became of loading it is then the first line: {"cold": WHY},
    "" if children can be forked.
    """
    from contextlab import registry
    from contextlab.lab import child
    from contextlab.lab.journal import plain, revive

    prctl(PR_SET_CHILD_SUBREAPER, 1)
    registry.targets()
    if inside is None:
        importlib.import_module("aiohttp")
    revive(
        plain(child.Order(spec=TargetSpec(name="", scheme="", address=""), began_s=0.0, patience_s=0.0)), child.Order
    )
    if inside is not None:
        why = _warmed(inside)
        _say(control, cold=why)
        if why:
            return
    gc.collect()
    gc.freeze()  # the children's collectors need not touch, and so copy, what is here
    while True:
        message, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not message:
            return
        order_fd, events_fd = fds
        limit_bytes = json.loads(message)["memory_limit_bytes"]
        held_bytes, group = 0, None
        if inside is not None and limit_bytes:
            held_bytes = _held_bytes()
            with contextlib.suppress(OSError):
                group = MemoryCgroup(max(limit_bytes - held_bytes, LEAST_ROOM_BYTES))
        pid = os.fork()
        if pid == 0:
            exit_code = 1
            try:
                _become_child(limit_bytes, group)
                control.close()
                os.dup2(order_fd, 0)
                child.main(events_fd)
                exit_code = 0
            except BaseException:  # a forked child must never return into the nursery's own loop
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(exit_code)
        os.close(order_fd)
        os.close(events_fd)
        _say(control, pid=pid)
        _, status, usage = os.wait4(pid, 0)
        _end_rest(pid)
        peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        if group is not None and (own_bytes := group.peak_bytes()) is not None:
            peak_bytes = own_bytes + held_bytes
        _say(
            control,
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None,
            peak_memory_bytes=peak_bytes,
            num_memory_kills=group.num_kills() if group is not None else None,
        )
        if group is not None:
            group.remove()


def _warmed(inside: TargetSpec) -> str:
    """Load the target; why it cannot be forked, "" if it can. An error of the target's is for the children to tell."""
    from contextlab import registry

    with contextlib.suppress(Exception):
        if not registry.warm_up(inside):
            return "each of its processes must start clean"
    try:
        num_threads = len(os.listdir("/proc/self/task"))
    except OSError:
        return "whether it runs threads cannot be seen here"
    return "" if num_threads == 1 else f"it runs {num_threads} threads"


def _held_bytes() -> int:
    """Memory of the nursery's own that its children share: it counts as theirs."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def _become_child(memory_limit_bytes: int, group: MemoryCgroup | None) -> None:
    """The limits of a probe, from its first line on."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if group is not None:
        group.join()
    elif memory_limit_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))


def _end_rest(pid: int) -> None:
    """Kill what a child that has ended left running; its orphans have come to the nursery."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        finish_tree(pid)


def _say(control: socket.socket, **fields: object) -> None:
    control.sendall(json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    serve(
        socket.socket(fileno=int(sys.argv[1])),
        msgspec.json.decode(sys.argv[2], type=TargetSpec) if len(sys.argv) > 2 else None,
    )
