"""What this user may do to processes and to the network: which faults can be injected here, and which probes isolated.

The packet link is tried for real, in a namespace that is thrown away; of control groups only the rights are looked at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from contextlab.analysis.checkup import Check, Grade
from contextlab.lab.chaos.profile import program as profiler
from contextlab.lab.host import groups
from contextlab.lab.link import engines
from contextlab.lab.tier.redis_server import require as redis_server
from contextlab.model import UnableError

CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
"""Bits of a capability set, capabilities(7)."""
_STATUS = Path("/proc/self/status")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def checks() -> Iterator[Check]:
    """One for each kind of right."""
    if sys.platform != "linux":
        yield _made("faults", Grade.SKIP, "faults on packets and on hosts need Linux")
        return
    yield _group("cpu", "cpu:quota", "the fault cpu falls back on hogs and duty cycles")
    yield _group("memory", "memory, and limits for servers of ours", "an address-space limit stands in")
    yield from _packets()
    yield _mounts()
    yield _profiles()
    yield _redis()


def _group(controller: str, what: str, instead: str) -> Check:
    place = groups.place_of(os.getpid(), controller)
    name = f"{controller} group"
    if place is None:
        return _made(name, Grade.WARN, f"no control group of {controller} is to be seen: {instead}", groups.AS_ROOT)
    parent = place.folder if place.version == 1 or place.is_top else place.folder.parent
    if not os.access(parent, os.W_OK):
        return _made(name, Grade.WARN, f"{parent} is not ours to write to: {instead}", groups.AS_ROOT)
    return _made(name, Grade.OK, f"version {place.version}, for {what}")


def _packets() -> Iterator[Check]:
    why = engines.why_no_packet_link()
    if not why:
        yield _made("packets", Grade.OK, "packet link: loss, delay, reordering and more, on real packets")
        return
    fix = f"it needs {engines.NEEDS[engines.PACKET_LINK]}; --allow-emulation lets a relay stand in, and says so"
    yield _made("packets", Grade.WARN, f"no packet link: {_first(why)}", fix)


def _mounts() -> Check:
    if has_capability(CAP_SYS_ADMIN):
        return _made("disks", Grade.OK, "mounts are allowed: a disk can be full, or read-only")
    return _made("disks", Grade.WARN, "no right to mount: faults of disks cannot be injected", "run as root")


def _profiles() -> Check:
    if profiler() is None:
        return _made("profiles", Grade.SKIP, "py-spy is not installed", "pip install py-spy")
    scope = _text(_PTRACE_SCOPE)
    if has_capability(CAP_SYS_PTRACE) or scope in ("", "0"):
        return _made("profiles", Grade.OK, "py-spy may look into other processes")
    fix = "run as root, or sysctl kernel.yama.ptrace_scope=0"
    return _made("profiles", Grade.WARN, f"py-spy may not look into other processes (ptrace_scope {scope})", fix)


def _redis() -> Check:
    try:
        return _made("redis", Grade.OK, f"{redis_server()}, for a cache tier")
    except UnableError as error:
        return _made("redis", Grade.SKIP, f"no cache tier: {_first(error.message)}", error.next_step)


def has_capability(bit: int, status: Path = _STATUS) -> bool:
    """Whether a capability is in this process's effective set."""
    for line in _text(status).splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value.strip(), 16) >> bit & 1)
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _first(text: str) -> str:
    return text.strip().split("\n")[0]


def _made(name: str, grade: Grade, detail: str, fix: str = "") -> Check:
    return Check(section="rights", name=name, grade=grade, detail=detail, fix=fix)
