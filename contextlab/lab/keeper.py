"""Keeps one process and everything that it starts; stops them all when the tool is gone.

    tool ──life pipe──▶ keeper ──fork──▶ the kept process ──▶ its children …
      ▲                    │
      └────status pipe─────┘   one JSON line when it started, one when it ended

The tool may be killed with SIGKILL at any moment: the life pipe then closes, and the keeper, which runs in
a session of its own, ends the whole tree. Orphans come back to the keeper (it is their subreaper), so nothing
escapes by forking twice. The kept process dies with the keeper too (PR_SET_PDEATHSIG).

Run as a script with `python -I -S keeper.py CONFIG -- COMMAND…`; the standard library only, so that it starts
in a few milliseconds. It knows nothing of contextlab.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CGROUP_PREFIX = "contextlab-"
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
"""What the keeper itself does not end of; the kept process gets them all back."""


def prctl(option: int, value: int) -> None:
    """Call prctl(2) where there is one; elsewhere the life pipe alone must do."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


# ── the memory limit: a cgroup where one can be made, else an address-space limit ─────────────────


class MemoryCgroup:
    """A memory cgroup of our own (v2, or v1), for one process tree. Raises OSError where none can be made."""

    def __init__(self, limit_bytes: int) -> None:
        v1 = "/sys/fs/cgroup/memory"
        self.is_v1 = os.path.exists(f"{v1}/memory.limit_in_bytes") or os.path.exists(f"{v1}/tasks")
        root = v1 if self.is_v1 else "/sys/fs/cgroup"
        if not self.is_v1 and "memory" not in self._read(f"{root}/cgroup.subtree_control").split():
            raise OSError("the memory controller is not enabled here")
        self._sweep(root)
        self.path = f"{root}/{CGROUP_PREFIX}{os.getpid()}"
        os.mkdir(self.path)
        try:
            self._write("memory.limit_in_bytes" if self.is_v1 else "memory.max", str(limit_bytes))
            with contextlib.suppress(OSError):  # no swap accounting: the limit on memory alone still holds
                self._write(
                    "memory.memsw.limit_in_bytes" if self.is_v1 else "memory.swap.max", str(limit_bytes * self.is_v1)
                )
        except OSError:
            self.remove()
            raise

    @staticmethod
    def _read(path: str) -> str:
        with open(path, encoding="ascii") as file:
            return file.read()

    def _write(self, name: str, text: str) -> None:
        with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    @staticmethod
    def _sweep(root: str) -> None:
        """Remove groups that a killed keeper of ours left behind; only empty ones can go."""
        for name in os.listdir(root):
            pid = name.removeprefix(CGROUP_PREFIX)
            if name.startswith(CGROUP_PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    os.rmdir(f"{root}/{name}")

    def join(self) -> None:
        """Put the calling process, and all that it will start, into the group."""
        self._write("cgroup.procs", "0")

    def num_kills(self) -> int:
        """How often the kernel killed a process here for want of memory."""
        words = self._read(f"{self.path}/{'memory.oom_control' if self.is_v1 else 'memory.events'}").split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def peak_bytes(self) -> int | None:
        """The most memory that the group ever used; None on kernels that do not keep it."""
        try:
            return int(self._read(f"{self.path}/{'memory.max_usage_in_bytes' if self.is_v1 else 'memory.peak'}"))
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """Remove the group; the kernel may need a moment after the last process has gone."""
        for _ in range(50):
            try:
                os.rmdir(self.path)
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)
            else:
                return


# ── the process tree ─────────────────────────────────────────────────────────────────────────────


def descendants() -> list[int]:
    """Process ids below this process, deepest last; by /proc, so Linux only (elsewhere: the group must do)."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with (
                    contextlib.suppress(OSError),
                    open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file,
                ):
                    parent = int(file.read().rpartition(")")[2].split()[1])
                    children.setdefault(parent, []).append(int(name))
    found, todo = [], [os.getpid()]
    while todo:
        todo = [pid for parent in todo for pid in children.get(parent, ())]
        found += todo
    return found


def signal_tree(number: int, main_pid: int) -> None:
    """Send a signal to every process of the tree, once; to the main process's group where no tree can be seen.

    Once, because many servers take a second SIGTERM as an order to drop everything. SIGKILL goes to the group as
    well: whoever was forked since we looked.
    """
    tree = descendants()
    for pid in tree:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
    if not tree or number == signal.SIGKILL:
        with contextlib.suppress(OSError):
            os.killpg(main_pid, number)


def signal_name(number: int) -> str:
    """`SIGSEGV`, `SIGRTMIN+3`; most of the real-time signals have no name in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else f"SIG{number}"


def start(command: list[str], config: dict[str, int], group: MemoryCgroup | None, closed: tuple[int, ...]) -> int:
    """Fork and execute the command under its limits; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for fd in closed:
            os.close(fd)
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (*IGNORED, signal.SIGCHLD, signal.SIGXFSZ, signal.SIGQUIT):  # the last by a shell's `&`
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit_bytes = config.get("memory_limit_bytes", 0)
        if group is not None:
            group.join()
        elif limit_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
        os.execvp(command[0], command)  # noqa: S606 - no shell is the point
    except BaseException as error:  # a forked child must never return into the keeper's own code
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    os._exit(127)


def keep(config: dict[str, Any], command: list[str]) -> None:
    """Start the command, report it, wait for its end or the tool's, stop the tree, report the end."""
    life, status = config["life_fd"], config["status_fd"]
    for fd in (life, status):
        os.set_inheritable(fd, False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    group = None
    if config.get("memory_limit_bytes") and config.get("use_cgroup", 1):
        with contextlib.suppress(OSError):
            group = MemoryCgroup(config["memory_limit_bytes"])

    def report(**fields: object) -> None:
        with contextlib.suppress(OSError):  # the tool may be gone
            os.write(status, (json.dumps(fields) + "\n").encode())

    main = start(command, config, group, (life, status, waking, wake))
    # What was inherited for the kept process alone must not stay open here: the tool waits for its end-of-file.
    for fd in config.get("inherited_fds", []):
        os.close(fd)
    report(pid=main, limit="cgroup" if group else "rlimit" if config.get("memory_limit_bytes") else "none")

    deadline: float | None = None
    end: tuple[int, int] | None = None
    while end is None:
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([waking] + [life] * (life >= 0), [], [], wait_s)
        if waking in readable:
            os.read(waking, 4096)
        if life in readable:
            word = os.read(life, 1)
            if word == b"K":
                signal_tree(signal.SIGKILL, main)
            else:  # b"T": stop; nothing: the tool is gone
                signal_tree(signal.SIGTERM, main)
                deadline = time.monotonic() + (config.get("grace_ms", 5000) / 1000 if word else 1.0)
            if not word:
                life = -1
        if deadline is not None and time.monotonic() >= deadline:
            signal_tree(signal.SIGKILL, main)
            deadline = time.monotonic() + 0.2
        while end is None:
            try:
                pid, code, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == main:
                end = (code, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
    finish_tree(main)
    code, peak_bytes = end if end is not None else (0, 0)
    report(
        exit_code=os.WEXITSTATUS(code) if os.WIFEXITED(code) else None,
        signal=signal_name(os.WTERMSIG(code)) if os.WIFSIGNALED(code) else None,
        peak_memory_bytes=(group and group.peak_bytes()) or peak_bytes,
        num_memory_kills=group.num_kills() if group else None,
    )
    if group is not None:
        group.remove()


def finish_tree(main: int) -> None:
    """Kill what the main process left running and reap it all."""
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        signal_tree(signal.SIGKILL, main)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    os.setsid()
    keep(json.loads(sys.argv[1]), sys.argv[sys.argv.index("--") + 1 :])
