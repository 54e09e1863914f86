"""A process of ours holds memory, so that less is left for the target; the kernel kills it before anybody else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.analysis.quantities import num_of
from contextlab.deeds import Group, Hands, MachineHands
from contextlab.experiment import Landed, Plane, option
from contextlab.faults.resources import HOGS, NO_GROUP, amount_of, in_mib, nothing_asked
from contextlab.model import UnableError

LOOK_EVERY_S = 0.25
UNLIMITED_BYTES = 1 << 60
"""A limit above this is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balloon:
    """Hold `size` of the memory that is free to the host, or to the target's control group."""

    NAME: ClassVar[str] = "balloon"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "a process of ours holds memory that the target may want"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"balloon"})

    size: str = option("50%", "a part of what is free when the fault begins, or a size; 0: nothing", kind="text")
    of: str = option(
        "group", "whose memory: that of the target's group, or the host's", kind="text", choices=("group", "host")
    )

    def __post_init__(self) -> None:
        """Refuse what is no amount."""
        amount_of("size", self.size, 0.0)

    @property
    def is_null(self) -> bool:
        """Nothing of anything."""
        return amount_of("size", self.size, UNLIMITED_BYTES) == 0

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Fill the balloon. `asked_bytes`, `held_bytes` (the most), `burst`: the kernel has killed it."""
        machine = cast("MachineHands", hands)
        if self.of == "group":
            group = hands.group("memory")
            if group is None:
                raise UnableError("no control group of memory can be made for the target", f"{NO_GROUP}; or of=host")
            asked_bytes = amount_of("size", self.size, _free_bytes(group))
            machine.helper_within("memory", [*HOGS, "balloon", str(asked_bytes)])
        else:
            asked_bytes = amount_of("size", self.size, machine.look()["available_bytes"])
            hands.helper([*HOGS, "balloon", str(asked_bytes)])
        hands.tally |= {"asked_bytes": asked_bytes, "held_bytes": 0.0, "burst": 0.0}
        hands.note("balloon", of=self.of, size_bytes=asked_bytes)
        while not hands.tally["burst"]:
            yield LOOK_EVERY_S
            seen = machine.look()
            hands.tally["burst"] = float(seen["helpers"] == 0)
            hands.tally["held_bytes"] = max(hands.tally["held_bytes"], seen["helper_rss_bytes"])

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """It held what was asked for, and the target's memory became scarce by that."""
        if self.is_null:
            return nothing_asked(f"size={self.size}")
        if "held_bytes" not in tally:
            return Landed(proven=False, why="no balloon was filled")
        words = f"held {in_mib(tally['held_bytes'])} of {in_mib(tally['asked_bytes'])}"
        num_killed, num_hits = kernel.get("oom_kills", 0.0), kernel.get("memory_limit_hits", 0.0)
        stalled_s, num_read = kernel.get("memory_stall_s", 0.0), kernel.get("major_faults", 0.0)
        if tally["burst"]:
            return Landed(proven=True, why=f"{words}, until the kernel killed it for want of memory")
        if num_killed > 0 or num_hits > 0:
            return Landed(
                proven=True, why=f"{words}: the limit was hit {num_of(num_hits, 'times')}, {num_killed:.0f} killed"
            )
        if self.of == "host" and stalled_s > 0 and num_read > 0:
            pages = num_of(num_read, "pages of the target read from disk again")
            why = f"{words}: {pages}, tasks waited {stalled_s:.1f} s"
            return Landed(proven=True, why=why)
        return Landed(proven=False, why=f"{words}: enough was left, nobody had to wait for memory")


def _free_bytes(group: Group) -> int:
    """What the group's limit leaves; raises UnableError where it has none, since a part of that is no size."""
    names = (
        ("memory.max", "memory.current") if group.version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    limit, used = (group.get(name) for name in names)
    if not limit.isdigit() or int(limit) > UNLIMITED_BYTES:
        raise UnableError("the target's control group has no limit of memory", "use of=host, or memory:limit=SIZE")
    return max(0, int(limit) - int(used))


FAULT = Balloon
