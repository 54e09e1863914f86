"""Disks that are full, read-only or slow, for one folder, without a byte of the real one being at risk.

    full        an overlay over the folder: its files below, and above them a file system in memory without room
    read-only   the folder mounted over itself, read-only
    slow        the target's control group may read and write that disk only so fast (io.max, or blkio of version 1)

A path that is covered shows another file system to whoever opens it from then on; files that are open already, and
a working folder inside, stay with the real one. Linux only, as root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from contextlab.lab.host.groups import AS_ROOT, Place
from contextlab.lab.undo import record, steps
from contextlab.lab.undo.steps import Step
from contextlab.model import ProcessEnd, UnableError, UsageError

Recording = Callable[[Step], None]
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
"""mount(2)."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/lib", "/boot", "/run", "/var/lib")
WRITE_WITHIN_S = 10.0
"""A write that takes longer is ended, and counts as one that waited for so long."""
WRITE = """
import os, sys
path, left = sys.argv[1], int(sys.argv[2])
chunk = os.urandom(min(left, 1 << 16))
fd = -1
try:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    while left > 0:
        left -= os.write(fd, chunk[:left])
    os.fsync(fd)
    os.close(fd)
    os.unlink(path)
except OSError as error:
    if fd >= 0:
        os.unlink(path)
    os._exit(error.errno)
"""


# ── full, read-only ──────────────────────────────────────────────────────────────────────────────


def coverable(folder: str, target: int) -> str:
    """The real path of a folder that may be covered for the process `target`.

    Raises UsageError where others need it, UnableError where it cannot be covered for the target alone.
    """
    path = os.path.realpath(folder)
    if not os.path.isdir(path):
        raise UnableError(f"dir={folder!r}: there is no such folder", "name the target's cache directory")
    needed = [*SYSTEM, tempfile.gettempdir(), str(Path.home()), sys.prefix, str(record.state_folder()), str(Path.cwd())]
    inside = [one for one in map(os.path.realpath, needed) if os.path.commonpath([one, path]) == path]
    if inside:
        raise UsageError(f"dir={folder!r}: {inside[0]} lies there, which others need", "name a folder of its own")
    below = [one for one in steps.mount_points() if one.startswith(f"{path}/")]
    if below:
        raise UnableError(f"dir={folder!r}: another file system is mounted below it, at {below[0]}", "name that one")
    if os.readlink(f"/proc/{target}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
        message = f"dir={folder!r}: process {target} has mounts of its own (a container)"
        raise UnableError(message, "run contextlab where the server runs")
    return path


def make_read_only(path: str, on_record: Recording) -> None:
    """Mount a folder over itself, read-only."""
    on_record(steps.unmount(path))
    _mount(path, path, flags=MS_BIND)
    _mount("none", path, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def make_full(path: str, free_bytes: int, on_record: Recording) -> None:
    """Cover a folder with itself and a layer above it that has room for so many bytes, in whole pages."""
    scratch = f"{tempfile.gettempdir()}/contextlab-disk-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    on_record(steps.remove(scratch))
    os.mkdir(scratch, 0o700)
    on_record(steps.unmount(scratch))
    # A size of 0 would mean without a limit: one page more, and a file that fills it.
    size_bytes = -(-free_bytes // PAGE_BYTES) * PAGE_BYTES + PAGE_BYTES
    _mount("contextlab", scratch, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size_bytes},mode=0700")
    upper, work = f"{scratch}/upper", f"{scratch}/work"
    for folder in (upper, work):
        os.mkdir(folder)
    Path(f"{scratch}/filler").write_bytes(b"x" * PAGE_BYTES)
    owner = os.stat(path)
    os.chown(upper, owner.st_uid, owner.st_gid)
    os.chmod(upper, owner.st_mode & 0o7777)
    on_record(steps.unmount(path))
    lower = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # by its number: a path may hold what means something else among mount options
        options = f"lowerdir=/proc/self/fd/{lower},upperdir={upper},workdir={work}"
        _mount("contextlab", path, "overlay", 0, options)
    finally:
        os.close(lower)


def _mount(source: str, path: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [os.fsencode(word) if word else None for word in (source, path, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None) != 0:
        number = ctypes.get_errno()
        message = f"{path} cannot be covered ({kind or 'mounted over itself'}): {os.strerror(number)}"
        raise UnableError(message, "run as root" if number == errno.EPERM else "what=read-only needs no overlay")


# ── slow ─────────────────────────────────────────────────────────────────────────────────────────


def device_of(folder: str) -> str:
    """The disk on which a folder lies, `major:minor`; that of a partition is its whole disk's.

    Raises UnableError where it lies on none that could be limited.
    """
    try:
        number = os.stat(folder).st_dev
    except OSError as error:
        raise UnableError(f"dir={folder!r}: {error.strerror}", "name the target's cache directory") from None
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not block.exists():
        message = f"dir={folder!r} lies on no disk that the kernel could slow down (in memory, an overlay, the network)"
        raise UnableError(message, "what=full and what=read-only work there")
    whole = block.resolve().parent if (block / "partition").exists() else block
    return (whole / "dev").read_text(encoding="ascii").strip()


def controller() -> str:
    """The controller that limits disks here: "blkio" of version 1 where that is mounted, else "io"."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    return "blkio" if any("blkio" in line.split(":")[1].split(",") for line in lines) else "io"


def limit(place: Place, device: str, bytes_per_s: int, on_record: Recording) -> None:
    """Let a group read and write a device no faster. Raises UnableError with the kernel's reason."""
    if place.version == 2:
        lines = {"io.max": (f"rbps={bytes_per_s} wbps={bytes_per_s}", "rbps=max wbps=max riops=max wiops=max")}
    else:
        names = (f"blkio.throttle.{what}_bps_device" for what in ("read", "write"))
        lines = {name: (str(bytes_per_s), "0") for name in names}
    for name, (slow, free) in lines.items():
        file = place.folder / name
        try:
            now = [line for line in file.read_text(encoding="ascii").splitlines() if line.split(" ")[0] == device]
            on_record(steps.lift(str(file), device, now[0] if now else f"{device} {free}"))
            file.write_text(f"{device} {slow}", encoding="ascii")
        except OSError as error:
            raise UnableError(f"{file}: {device} cannot be limited: {error.strerror or error}", AS_ROOT) from None


# ── what a write there does ──────────────────────────────────────────────────────────────────────


def new_file(folder: str) -> str:
    """The path of a file that is not there yet."""
    return f"{os.path.realpath(folder)}/.contextlab-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def writing(path: str, num_bytes: int) -> list[str]:
    """The command that writes a new file, syncs it, removes it, and exits with the number of its error."""
    return [sys.executable, "-I", "-S", "-c", WRITE, path, str(num_bytes)]


def error_of(end: ProcessEnd | None) -> str:
    """The name of the error by which that command ended; "" for none, ETIMEDOUT where it had to be ended."""
    if end is None:
        return "ETIMEDOUT"
    return "" if not end.exit_code else errno.errorcode.get(end.exit_code, str(end.exit_code))
