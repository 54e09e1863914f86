"""The disk under a folder of the target's, such as its cache directory, is full, read-only or slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from contextlab.deeds import DiskHands, Hands
from contextlab.experiment import Landed, Plane, option
from contextlab.model import UnableError, UsageError

LOOK_EVERY_S = 0.5
MORE_BYTES = 1 << 16
"""A write of so much more than there is room for must be refused."""
TRIED_S = 0.5
"""A slow disk is tried with as many bytes as it takes in so long."""
REFUSALS = {"full": "ENOSPC", "read-only": "EROFS"}
SLOWED_PART = 0.5
"""A write must take this part of the time that the limit asks for, on top of what it took without, to prove it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Cover `dir` so that its files are seen and nothing, or only `free` bytes, can be written; or slow its disk down.

    It holds for files that are opened from then on. What is written to a full one meanwhile is gone with the fault.
    slow: reads that miss the page cache, and writes that are synced or direct; others wait in the page cache. Whoever
    syncs on the same file system may have to wait for them, too.
    """

    NAME: ClassVar[str] = "disk"
    PLANE: ClassVar[Plane] = Plane.HOST
    SUMMARY: ClassVar[str] = "the disk under a folder of the target's is full, read-only or slow"
    EXCLUDES: ClassVar[frozenset[str]] = frozenset({"disk"})

    what: str = option("full", "what is wrong with it", kind="text", choices=("full", "slow", "read-only"))
    dir: str = option("", "the folder; it must be named", kind="text")
    free_bytes: int = option(0, "full: how much still fits, in whole pages", kind="size", low=0, unit="bytes")
    limit_bytes_per_s: float = option(
        1e6, "slow: the most that is read, and that is written", kind="rate", low=10_000.0, unit="bytes/s"
    )

    def __post_init__(self) -> None:
        """Refuse to guess a folder."""
        if not self.dir:
            raise UsageError("disk: dir='' must be a folder", "for example disk:what=full,dir=/var/cache/llm")

    @property
    def is_null(self) -> bool:
        """There is always something wrong with it."""
        return False

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Harm it, and try again and again what a write does. `tried`, `refused`; `before_s` and `waited_s`: how long a
        write of `tried_bytes` took before, and how long all of them took since, in sum."""
        disk = cast("DiskHands", hands)
        num_bytes = int(TRIED_S * self.limit_bytes_per_s) if self.what == "slow" else self.free_bytes + MORE_BYTES
        error, before_s = disk.try_write(self.dir, num_bytes)
        if error:
            raise UnableError(
                f"dir={self.dir!r}: nothing can be written there as it is: {error}", "name another folder"
            )
        if self.what == "slow":
            disk.slow_disk(self.dir, int(self.limit_bytes_per_s))
        else:
            disk.overmount(self.dir, free_bytes=self.free_bytes if self.what == "full" else None)
        hands.note(self.what, dir=self.dir)
        hands.tally |= {"tried_bytes": num_bytes, "before_s": before_s, "tried": 0.0, "refused": 0.0, "waited_s": 0.0}
        while True:
            error, took_s = disk.try_write(self.dir, num_bytes)
            hands.tally["tried"] += 1
            hands.tally["refused"] += error == REFUSALS.get(self.what)
            hands.tally["waited_s"] += took_s
            yield LOOK_EVERY_S

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Every write that was tried was refused, or each had to wait."""
        tried, refused = tally.get("tried", 0), tally.get("refused", 0)
        if not tried:
            return Landed(proven=False, why="no write was tried")
        if self.what != "slow":
            why = f"{refused:.0f} of {tried:.0f} writes to {self.dir} were refused with {REFUSALS[self.what]}"
            return Landed(proven=refused == tried, why=why)
        mean_s, before_s = tally["waited_s"] / tried, tally["before_s"]
        asked_s = tally["tried_bytes"] / self.limit_bytes_per_s
        why = f"a synced write of {tally['tried_bytes']:.0f} bytes took {mean_s:.2f} s, and {before_s:.2f} s before"
        return Landed(proven=mean_s - before_s >= SLOWED_PART * asked_s, why=why)


FAULT = Disk
