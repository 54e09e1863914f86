"""The target's memory becomes scarce: its control group's limit is lowered below what it uses.

    limit   what it maps from files is taken away, and read again from the disk; where nothing is left to take, the
            kernel kills it
    high    (version 2) it is slowed down while it uses more, and never killed for that

Pages do not move with a process: where the target was in a larger group before, what it held there already stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.analysis.quantities import num_of
from contextlab.deeds import Group, Hands, MachineHands
from contextlab.experiment import Landed, Plane, option
from contextlab.faults.resources import NO_GROUP, amount_of, in_mib
from contextlab.model import UnableError

LOOK_EVERY_S = 0.5
OWN_PART = 0.1
"""A group that is charged for less of what the target holds was made after it had taken it."""
ROOMS_BYTES = (0, 1 << 18, 1 << 20)
"""Version 1 refuses a limit that it cannot reach: then the least that it takes is what is used, or so much more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Limit the memory of the target's process tree to `limit`."""

    NAME: ClassVar[str] = "memory"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "the target may use less memory than it does"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"memory"})

    limit: str = option("80%", "a part of what it uses when the fault begins (80%, 110%), or a size", kind="text")
    mode: str = option(
        "limit", "a limit that kills, or a mark above which it is slowed down", kind="text", choices=("limit", "high")
    )

    def __post_init__(self) -> None:
        """Refuse what is no amount."""
        amount_of("limit", self.limit, 0.0)

    @property
    def is_null(self) -> bool:
        """A limit asks for something always: where it is far above use, nothing comes of it, and that is seen."""
        return False

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Lower the limit. `used_bytes` before it, `limit_bytes` as it came to be, `taken_bytes` at once."""
        machine = cast("MachineHands", hands)
        resident_bytes = machine.look()["rss_bytes"]
        group = hands.group("memory")
        if group is None:
            raise UnableError("no control group of memory can be made for the target", NO_GROUP)
        charged_bytes = _used_bytes(group)
        used_bytes = charged_bytes if charged_bytes > OWN_PART * resident_bytes else resident_bytes
        limit_bytes = self._lower(group, amount_of("limit", self.limit, used_bytes))
        hands.tally |= {
            "used_bytes": used_bytes,
            "limit_bytes": limit_bytes,
            "taken_bytes": max(0.0, charged_bytes - _used_bytes(group)),
            "elsewhere_bytes": max(0.0, used_bytes - charged_bytes),
        }
        hands.note("limited", mode=self.mode, limit_bytes=limit_bytes, used_bytes=used_bytes)
        while True:
            yield LOOK_EVERY_S
            hands.tally["used_bytes"] = max(hands.tally["used_bytes"], _used_bytes(group))

    def _lower(self, group: Group, limit_bytes: int) -> int:
        """Set the limit, unless it is lower already; what it is then."""
        if group.version == 1 and self.mode == "high":
            raise UnableError("control groups of version 1 have no memory.high", "use mode=limit")
        name = f"memory.{'max' if self.mode == 'limit' else 'high'}" if group.version == 2 else "memory.limit_in_bytes"
        stands = group.get(name)
        if stands.isdigit() and int(stands) <= limit_bytes:
            return int(stands)
        refusal: UnableError | None = None
        for room_bytes in (None, *ROOMS_BYTES):
            if room_bytes is not None:
                limit_bytes = max(limit_bytes, _used_bytes(group) + room_bytes)
            try:
                group.set(name, str(limit_bytes))
            except UnableError as error:
                refusal = refusal or error
            else:
                return limit_bytes
        raise refusal or UnableError("no limit was set")

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """The target ran into its limit: the group counts that, and who was killed for it."""
        if "limit_bytes" not in tally:
            return Landed(proven=False, why="no limit was set")
        words = f"a limit of {in_mib(tally['limit_bytes'])} to a use of {in_mib(tally['used_bytes'])}"
        num_killed, num_hits = kernel.get("oom_kills", 0.0), kernel.get("memory_limit_hits", 0.0)
        num_read = kernel.get("major_faults", 0.0)
        pages = num_of(num_read, "pages read from disk again")
        if num_killed > 0:
            return Landed(proven=True, why=f"{words}: the kernel killed {num_killed:.0f} for want of memory")
        if num_hits > 0:
            return Landed(proven=True, why=f"{words}: hit {num_of(num_hits, 'times')}, {pages}")
        if tally["taken_bytes"] > 0 and num_read > 0:
            taken = in_mib(tally["taken_bytes"])
            return Landed(proven=True, why=f"{words}: {taken} taken, {pages}")
        if tally["elsewhere_bytes"] > 0:
            words += f", of which {in_mib(tally['elsewhere_bytes'])} are charged to another group and stay"
        return Landed(proven=False, why=f"{words}: never hit")


def _used_bytes(group: Group) -> int:
    text = group.get("memory.current" if group.version == 2 else "memory.usage_in_bytes")
    return int(text) if text.isdigit() else 0


FAULT = Memory
