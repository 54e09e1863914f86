"""What can be undone: each step is a JSON object that says how, made before the deed that it reverses.

    constructor ─▶ {"do": "resume", "pid": …} ─▶ on the record ─▶ undone(step): "" once the state, read again, is right

Every step may be undone twice, and by a process that knows nothing but the step. Where what it speaks of is gone (a
process, or another one under its number; a control group; a file) there is nothing left to undo. The standard library
only: the watchdog starts without site-packages.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import stat
import time
from collections.abc import Callable, Sequence
from typing import Any

Step = dict[str, Any]

MNT_DETACH = 2
END_S = 0.5
"""How long a process that was sent SIGKILL may take to end, before that counts as not undone yet."""
KERNEL_FOLDERS = ("/proc/", "/sys/")
"""Files below these are gone with the boot that they belong to."""


# ── constructors ─────────────────────────────────────────────────────────────────────────────────


def resume(pid: int, started: int) -> Step:
    """SIGCONT to a process that is about to be stopped."""
    return {"do": "resume", "pid": pid, "started": started}


def restore_file(path: str, text: str) -> Step:
    """Write the text that stands in a file now, such as a limit of a control group."""
    return {"do": "restore_file", "path": path, "text": text}


def lift(path: str, device: str, text: str) -> Step:
    """Write the line `text` into a file that has one line for each device, which is that of `device` now, or its
    "without a limit": then the line goes."""
    return {"do": "lift", "path": path, "device": device, "text": text}


def leave_group(path: str, home: str) -> Step:
    """Thaw a control group of ours, move all its processes into the group `home`, and remove it."""
    return {"do": "leave_group", "path": path, "home": home}


def affinity(pid: int, started: int, cpus: Sequence[int]) -> Step:
    """Give a thread (`pid` is its TID) the processors back that it had."""
    return {"do": "affinity", "pid": pid, "started": started, "cpus": sorted(cpus)}


def end_process(pid: int, started: int) -> Step:
    """SIGKILL to a helper of ours."""
    return {"do": "end_process", "pid": pid, "started": started}


def remove(path: str) -> Step:
    """Remove a file, or an empty folder, that is about to be made. Never a folder with something in it."""
    return {"do": "remove", "path": path}


def unmount(path: str) -> Step:
    """Take away whatever will be mounted at a path from now on; what is mounted there already stays."""
    return {"do": "unmount", "path": os.path.realpath(path), "mounts": num_mounts(os.path.realpath(path))}


def mode(path: str, mode: int) -> Step:
    """Give a file the permission bits back that it has now."""
    return {"do": "mode", "path": path, "mode": stat.S_IMODE(mode)}


# ── undoing ──────────────────────────────────────────────────────────────────────────────────────


def undone(step: Step) -> str:
    """Undo a step and read the state again: "" where nothing is left of it, else what is, and why."""
    try:
        why = _UNDO[step["do"]](step)
    except (OSError, ValueError) as error:
        why = str(error)
    return f"{words(step)}: {why}" if why else ""


def words(step: Step) -> str:
    """What is left while a step is not undone."""
    match step["do"]:
        case "resume":
            return f"process {step['pid']} is stopped"
        case "restore_file":
            return f"{step['path']} should hold {step['text'].strip()!r}"
        case "lift":
            return f"{step['path']} should say {step['text']!r}"
        case "leave_group":
            return f"control group {step['path']} is there"
        case "affinity":
            return f"thread {step['pid']} should run on processors {_listed(step['cpus'])}"
        case "end_process":
            return f"process {step['pid']}, a helper of ours, runs"
        case "remove":
            return f"{step['path']} is there"
        case "unmount":
            return f"something of ours is mounted at {step['path']}"
        case _:
            return f"{step['path']} should have mode {step['mode']:o}"


def command(step: Step) -> str:
    """How a person undoes a step by hand, in a shell."""
    match step["do"]:
        case "resume":
            return f"kill -CONT {step['pid']}"
        case "restore_file" | "lift":
            return f"echo {shlex.quote(step['text'].strip())} > {shlex.quote(step['path'])}"
        case "leave_group":
            path = step["path"]
            return f"for p in $(cat {path}/cgroup.procs); do echo $p > {step['home']}/cgroup.procs; done; rmdir {path}"
        case "affinity":
            return f"taskset -pc {_listed(step['cpus'])} {step['pid']}"
        case "end_process":
            return f"kill -KILL {step['pid']}"
        case "remove":
            return f"rm -d {shlex.quote(step['path'])}"
        case "unmount":
            return f"umount -l {shlex.quote(step['path'])}"
        case _:
            return f"chmod {step['mode']:o} {shlex.quote(step['path'])}"


def outlives_boot(step: Step) -> bool:
    """Whether a step still has to be undone after the machine started anew: files stay, all else is gone."""
    path = step.get("path", "")
    return step["do"] in ("restore_file", "remove", "mode") and not path.startswith(KERNEL_FOLDERS)


def _resume(step: Step) -> str:
    if not is_alive(step["pid"], step["started"]):
        return ""
    with contextlib.suppress(ProcessLookupError):
        os.kill(step["pid"], signal.SIGCONT)
    return "SIGCONT did not wake it" if _state_of(step["pid"]) == "T" else ""


def _restore_file(step: Step) -> str:
    path, text = step["path"], step["text"]
    try:
        if _read(path).split() == text.split():
            return ""
        _write(path, text)
        found = _read(path)
    except OSError as error:
        if _is_gone(error):
            return ""
        raise
    return "" if found.split() == text.split() else f"it holds {found.strip()!r}"


def _lift(step: Step) -> str:
    path, text = step["path"], step["text"]
    try:
        _write(path, text)
        lines = [line.split() for line in _read(path).splitlines()]
    except OSError as error:
        if _is_gone(error):
            return ""
        raise
    found = next((" ".join(line) for line in lines if line[:1] == [step["device"]]), "")
    return "" if found in ("", text) else f"it says {found!r}"


def _leave_group(step: Step) -> str:
    path, home = step["path"], step["home"]
    for folder, _, _ in os.walk(path, topdown=False):
        for name, text in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if os.path.exists(f"{folder}/{name}"):
                _write(f"{folder}/{name}", text)
        for pid in _read(f"{folder}/cgroup.procs").split():
            if pid != "0":  # a process of another PID namespace; to write 0 would move ourselves
                with contextlib.suppress(ProcessLookupError):
                    _write(f"{home}/cgroup.procs", pid)
        os.rmdir(folder)
    return "it could not be removed" if os.path.exists(path) else ""


def _affinity(step: Step) -> str:
    pid, cpus = step["pid"], set(step["cpus"])
    if not is_alive(pid, step["started"]):
        return ""
    try:
        os.sched_setaffinity(pid, cpus)
        found = os.sched_getaffinity(pid)
    except ProcessLookupError:
        return ""
    return "" if found == cpus else f"it runs on {_listed(found)}"


def _end_process(step: Step) -> str:
    pid, started = step["pid"], step["started"]
    deadline_s = time.monotonic() + END_S
    while is_alive(pid, started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline_s:
            return "SIGKILL did not end it"
        time.sleep(0.005)
    return ""


def _remove(step: Step) -> str:
    path = step["path"]
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    return "it is there again" if os.path.lexists(path) else ""


def _unmount(step: Step) -> str:
    path, wanted = step["path"], step["mounts"]
    import ctypes  # here alone: the watchdog starts sooner without it

    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(num_mounts(path) - wanted):
        # Detached at once even where a process still has files open in it; to those it stays until they close them.
        if libc.umount2(os.fsencode(path), MNT_DETACH) != 0:
            number = ctypes.get_errno()
            return f"umount: {os.strerror(number)}"
    return "another mount came there meanwhile" if num_mounts(path) > wanted else ""


def _mode(step: Step) -> str:
    try:
        os.chmod(step["path"], step["mode"])
        found = stat.S_IMODE(os.stat(step["path"]).st_mode)
    except FileNotFoundError:
        return ""
    return "" if found == step["mode"] else f"it has {found:o}"


_UNDO: dict[str, Callable[[Step], str]] = {
    "resume": _resume,
    "restore_file": _restore_file,
    "lift": _lift,
    "leave_group": _leave_group,
    "affinity": _affinity,
    "end_process": _end_process,
    "remove": _remove,
    "unmount": _unmount,
    "mode": _mode,
}


# ── what the system says ─────────────────────────────────────────────────────────────────────────


def started_of(pid: int) -> int | None:
    """When a process or thread was started, in clock ticks since boot (field 22 of /proc/PID/stat); None: no such."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def is_alive(pid: int, started: int) -> bool:
    """Whether this very process runs: not another under its number, and no zombie, to which nothing can be done."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == started and fields[0] not in "ZX"


def num_mounts(path: str) -> int:
    """How many file systems are mounted at a path, one over the other."""
    return mount_points().count(path)


def mount_points() -> list[str]:
    """Where something is mounted: field 5 of /proc/self/mountinfo, in which four characters stand as octal numbers."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = [line.split(" ")[4] for line in file]
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        found = [path.replace(escape, character) for path in found]
    return found


def _state_of(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third, the state, on; none where there is no such process."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """Write all of a small file at once, as the kernel's files want it."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _is_gone(error: OSError) -> bool:
    """Whether an error says that the file is not there any more; ENODEV is a control group that has just gone."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ENODEV


def _listed(cpus: Sequence[int] | set[int]) -> str:
    return ",".join(map(str, sorted(cpus)))
