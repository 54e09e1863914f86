"""Forks the children of HTTP probes from one warm process: a child then costs milliseconds, not a Python start.

    lab ──socket──▶ nursery: everything imported, one thread, nothing open ──fork──▶ child (one probe)
            ◀── process id, then how it ended ──┘

Each probe still has a process of its own, with its own limit and its own end. Targets that run inside the child
are not forked from here: what they load (threads, devices) must start clean. The nursery itself is kept by a
keeper, and everything it forked goes with it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import socket
import sys
import traceback

from contextlab.lab.keeper import signal_name

MESSAGE_BYTES = 4096


def serve(control: socket.socket) -> None:
    """Fork one child for each message until the lab closes the socket; one at a time.

    A message is {"memory_limit_bytes": N} with two descriptors: the child's standard input and its event pipe.
    """
    from contextlab import registry
    from contextlab.lab import child

    registry.targets()
    importlib.import_module("aiohttp")
    while True:
        message, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not message:
            return
        order_fd, events_fd = fds
        pid = os.fork()
        if pid == 0:
            exit_code = 1
            try:
                _become_child(json.loads(message)["memory_limit_bytes"])
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
        _say(
            control,
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None,
            peak_memory_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        )


def _become_child(memory_limit_bytes: int) -> None:
    """The limits of a probe, from its first line on."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_limit_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))


def _say(control: socket.socket, **fields: object) -> None:
    control.sendall(json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
