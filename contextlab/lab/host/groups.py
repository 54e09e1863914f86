"""Control groups, version 2 and version 1: where a process is, a group of our own for its tree, and what it counts.

    v1   home ── tree ──▶ home/contextlab-…      below home, so that what limits home limits the tree still
    v2   home ── tree ──▶ beside home            below it there are no controllers: home has processes of its own

A group that holds the tree and nobody else is used as it is (the memory group that the keeper made, a service of
systemd): pages that are charged already do not move with a process. Linux only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from contextlab.lab.undo import steps
from contextlab.lab.undo.steps import Step
from contextlab.model import UnableError

PREFIX = "contextlab-"
MOVES = 20
"""So often the tree is looked at again for who was born while it was moved."""
AS_ROOT = (
    "run as root, or in a control group that is delegated to this user (systemd-run --user --scope -p Delegate=yes)"
)
FILES = {
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "io": ("io.max", ""),
    "blkio": ("", "blkio.throttle.write_bps_device"),
}
"""By controller: a file that is there where the controller is (version 2, version 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A group of one controller: its folder, and the folder where the hierarchy is mounted."""

    version: int
    folder: Path
    mount: Path

    @property
    def is_top(self) -> bool:
        """Whether it is the first group of what we can see."""
        return self.folder == self.mount

    def pids(self) -> frozenset[int]:
        """The processes that are in it now."""
        with suppress(OSError):
            return frozenset(map(int, (self.folder / "cgroup.procs").read_text(encoding="ascii").split()))
        return frozenset()


class ControlGroup:
    """A group that holds the target's tree (`deeds.Group`). `record` puts a step on the undo record, synced.

    The first value that each file had is recorded before it is changed.
    """

    def __init__(self, place: Place, record: Callable[[Step], None]) -> None:
        self.place = place
        self.version = place.version
        self._record = record
        self._recorded: set[str] = set()

    def set(self, name: str, text: str) -> None:
        """Write one of its files. Raises UnableError with the kernel's reason."""
        file = self.place.folder / name
        if name not in self._recorded:
            before = self.get(name)
            if not before:
                raise UnableError(f"the control group {self.place.folder} has no {name}", "this kernel lacks it")
            self._record(steps.restore_file(str(file), before))
            self._recorded.add(name)
        try:
            file.write_text(text, encoding="ascii")
        except OSError as error:
            raise UnableError(f"{file}={text!r}: {error.strerror or error}", AS_ROOT) from error

    def get(self, name: str) -> str:
        """Read one of its files; "" where there is none."""
        try:
            return (self.place.folder / name).read_text(encoding="ascii").strip()
        except OSError:
            return ""


def place_of(pid: int, controller: str, *, proc: Path = Path("/proc")) -> Place | None:
    """The group in which a process is: in the controller's hierarchy of version 1 if it has one, else in version 2.

    None where no hierarchy is mounted, or where the process is out of what we can see of it. cgroups(7).
    """
    try:
        of_process = (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "self" / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    paths = {names: path for _, names, path in (line.split(":", 2) for line in of_process)}
    first = next((names for names in paths if controller in names.split(",")), "")
    if first not in paths:
        return None
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind != ("cgroup" if first else "cgroup2") or (first and controller not in options.split(",")):
            continue
        top, mount = before.split()[3:5]
        with suppress(ValueError):
            below = PurePosixPath(paths[first]).relative_to(top)
            return Place(version=1 if first else 2, folder=Path(mount) / below, mount=Path(mount))
    return None


def group_for(
    controller: str,
    tree: Callable[[], Sequence[int]],
    record: Callable[[Step], None],
    *,
    name: str,
) -> ControlGroup | None:
    """The tree's own group of a controller: the one that it has for itself, or a new one into which it is moved.

    `name`: of a new group, which begins with PREFIX. None where none can be made: no such controller, no right to, or
    the tree is spread over several groups, which one group could not give back. Raises UnableError where another fault
    holds the tree in a group of its own.
    """
    pids = tree()
    home = place_of(pids[0], controller) if pids else None
    if home is None or any(place_of(pid, controller) not in (home, None) for pid in pids):
        return None
    if home.folder.name.startswith(f"{PREFIX}{os.getpid()}-"):
        raise UnableError(
            f"another fault holds the target in the control group {home.folder.name}",
            "let them act one after the other",
        )
    if not home.is_top and _has(home, controller) and home.pids() <= frozenset(tree()):
        return ControlGroup(home, record)
    parent = home.folder if home.version == 1 or home.is_top else home.folder.parent
    if not os.access(parent, os.W_OK) or (home.version == 2 and not _passes_on(parent, controller)):
        return None
    new = Place(version=home.version, folder=parent / name, mount=home.mount)
    record(steps.leave_group(str(new.folder), str(home.folder)))
    try:
        new.folder.mkdir()
        _move(tree, new)
    except OSError:
        return None  # what was moved already is brought home when the fault ends
    return ControlGroup(new, record)


def _move(tree: Callable[[], Sequence[int]], new: Place) -> None:
    """Move every process, its threads with it, until nobody is left outside: who is born later is born inside."""
    for _ in range(MOVES):
        outside = [pid for pid in tree() if pid not in new.pids()]
        if not outside:
            return
        for pid in outside:
            with suppress(ProcessLookupError):
                (new.folder / "cgroup.procs").write_text(str(pid), encoding="ascii")


def _has(place: Place, controller: str) -> bool:
    return controller not in FILES or (place.folder / FILES[controller][0 if place.version == 2 else 1]).exists()


def _passes_on(parent: Path, controller: str) -> bool:
    """Version 2: whether groups below this one have the controller; every group can be frozen."""
    with suppress(OSError):
        enabled = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
        return controller == "freezer" or controller in enabled
    return False


# ── what a group counts ──────────────────────────────────────────────────────────────────────────


def counts(place: Place, controller: str) -> dict[str, float]:
    """What a group of "cpu" or "memory" has counted since it was made, by the names of `deeds.HostFault`.

    Seconds are seconds. Empty where the group is gone.
    """
    if controller == "cpu":
        stat = _numbers(place, "cpu.stat")
        found = {"num_periods": stat.get("nr_periods"), "num_throttled": stat.get("nr_throttled")}
        in_us, in_ns = stat.get("throttled_usec"), stat.get("throttled_time")
        found["throttled_s"] = in_us / 1e6 if in_us is not None else None if in_ns is None else in_ns / 1e9
    elif place.version == 2:
        events = _numbers(place, "memory.events")
        found = {"oom_kills": events.get("oom_kill")}
        found["memory_limit_hits"] = events["max"] + events.get("high", 0.0) if "max" in events else None
    else:
        failed = _numbers(place, "memory.failcnt", alone="failcnt")
        found = {
            "oom_kills": _numbers(place, "memory.oom_control").get("oom_kill"),
            "memory_limit_hits": failed.get("failcnt"),
        }
    if place.version == 2:
        found[f"{controller}_stall_s"] = stalled_s(place.folder / f"{controller}.pressure")
    return {name: value for name, value in found.items() if value is not None}


def stalled_s(file: Path) -> float | None:
    """Seconds in which some task stood still for want of a resource (PSI, "some", total in µs); None: not kept."""
    try:
        for line in file.read_text(encoding="ascii").splitlines():
            if line.startswith("some "):
                return int(line.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        pass
    return None


def _numbers(place: Place, name: str, *, alone: str = "") -> dict[str, float]:
    """A file of lines `name number`, or of one number, which is then called `alone`."""
    try:
        lines = (place.folder / name).read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    pairs = [(alone, *line.split()) if alone else tuple(line.split()) for line in lines]
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}
