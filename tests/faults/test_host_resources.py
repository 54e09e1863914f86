"""The faults on processors and memory without a machine: what they ask of hands, and what counts as a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab import registry
from contextlab.deeds import Group, HostFault, MachineHands, Value, Victim
from contextlab.experiment import Fault, Placed, Plane
from contextlab.faults.cpu import DUTY_S
from contextlab.model import UnableError, UsageError

NAMES = ("affinity", "balloon", "cpu", "memory")
TARGET = Victim(pid=7, started=1)
MIB = 1 << 20


class FakeGroup:
    """A control group of plain values; `least`: version 1 takes no lower limit of memory."""

    def __init__(self, version: int, least_bytes: int = 0, **files: str) -> None:
        self.version, self.files, self.least_bytes = version, files, least_bytes

    def set(self, name: str, text: str) -> None:
        """Refuse what cannot be reached."""
        if "memory" in name and int(text) < self.least_bytes:
            raise UnableError("busy")
        self.files[name] = text

    def get(self, name: str) -> str:
        """The value."""
        return self.files.get(name, "")


class FakeHands:
    """A machine of which somebody else decides how much processor time the target uses (`speed`, while it runs)."""

    def __init__(self, group: Group | None = None, speed: float = 1.0, processors: tuple[int, ...] = (3, 2, 1)) -> None:
        self.tally: dict[str, float] = {}
        self.rng, self.length_s = Random(0), 10.0
        self.deeds: list[tuple[str, Mapping[str, Value]]] = []
        self.helpers: list[Sequence[str]] = []
        self.pinned: tuple[int, ...] = ()
        self.now_s = self.cpu_s = 0.0
        self.stopped = False
        self.busy_threads = 2.0
        self._group, self._speed, self._processors = group, speed, processors

    def passes(self, seconds: float) -> None:
        """Time goes by."""
        self.now_s += seconds
        self.cpu_s += 0.0 if self.stopped else self._speed * seconds

    def tree(self) -> tuple[Victim, ...]:
        return (TARGET,)

    def stop(self, *victims: Victim) -> None:
        self.stopped = True

    def resume(self, *victims: Victim) -> None:
        self.stopped = False

    def kill(self, *victims: Victim, signal: str = "SIGKILL") -> None:
        raise AssertionError("nobody is killed by these")

    def restart(self) -> float:
        raise AssertionError("nobody is restarted by these")

    def group(self, controller: str) -> Group | None:
        return self._group

    def pin(self, cpus: Sequence[int]) -> None:
        self.pinned = tuple(cpus)

    def helper(self, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> Victim:
        self.helpers.append([*argv[3:], *map(str, cpus)])
        return Victim(pid=100 + len(self.helpers), started=1)

    def helper_within(self, controller: str, argv: Sequence[str]) -> Victim:
        return self.helper([*argv, controller])

    def note(self, what: str, **about: Value) -> None:
        self.deeds.append((what, about))

    def processors(self) -> tuple[int, ...]:
        return self._processors

    def look(self) -> Mapping[str, float]:
        held_bytes = sum(int(helper[1]) for helper in self.helpers if helper[0] == "balloon")
        return {
            "at_s": self.now_s,
            "cpu_s": self.cpu_s,
            "threads": 14,
            "busy_threads": self.busy_threads,
            "processors": len(self._processors) + 1,
            "rss_bytes": 100 * MIB,
            "available_bytes": 1000 * MIB,
            "helpers": len(self.helpers),
            "helper_rss_bytes": held_bytes,
        }


def made(text: str) -> Any:
    """The fault that a text names."""
    return registry.make_fault(registry.parse_fault(text, start_s=0.0, length_s=1.0))


def acted(fault: Any, hands: FakeHands, seconds: float) -> FakeHands:
    """The hands after the fault acted for so long."""
    checked: MachineHands = hands
    for pause_s in cast("HostFault", fault).inflict(checked):
        hands.passes(pause_s)
        if hands.now_s >= seconds:
            break
    return hands


@pytest.mark.parametrize("name", NAMES)
def test_what_they_are(name: str) -> None:
    fault: Fault = made(name)
    assert (name, fault.PLANE) == (fault.NAME, Plane.HOST)
    assert name in fault.EXCLUDES
    assert not fault.is_null
    assert fault.landed({}, {}).proven is False


@pytest.mark.parametrize("text", ["cpu:quota=0", "affinity:cpus=0", "balloon:size=0", "balloon:size=0%"])
def test_nothing_asked_is_nothing_proven(text: str) -> None:
    fault = made(text)
    assert fault.is_null
    assert fault.landed({}, {}).proven is None
    assert "asks for nothing" in fault.landed({}, {}).why


@pytest.mark.parametrize(
    "text",
    ["cpu:quota=0.0001", "cpu:quota=-1", "cpu:by=luck", "memory:limit=much", "memory:limit=5MB%", "balloon:size=5x"],
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=text.partition(":")[2].partition("=")[0]):
        made(text)


def test_a_quota_is_written_as_people_write_it() -> None:
    placed = registry.parse_fault("cpu:quota=200m@1s+2s", start_s=0.0, length_s=1.0)
    assert placed == Placed(name="cpu", start_s=1.0, length_s=2.0, options={"quota": 0.2})
    assert registry.shown_fault(placed) == "cpu:quota=200m@1s+2s"


# ── processors ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "quota", "files"),
    [
        (2, "200m", {"cpu.max": "20000 100000"}),
        (2, "1500m", {"cpu.max": "150000 100000"}),
        (2, "2m", {"cpu.max": "2000 1000000"}),
        (1, "200m", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}),
    ],
)
def test_the_quota_of_a_group(version: int, quota: str, files: dict[str, str]) -> None:
    group = FakeGroup(version)
    hands = acted(made(f"cpu:quota={quota}"), FakeHands(group), 2.0)
    assert group.files == files
    assert hands.tally["busy_threads"] == 2
    assert [about["by"] for _, about in hands.deeds] == ["quota"]


def test_without_a_group_hogs_compete_on_the_processors_of_the_target() -> None:
    hands = acted(made("cpu:quota=200m"), FakeHands(speed=0.2), 2.0)
    assert hands.helpers == [["spin", "3"]] * 4
    assert hands.pinned == (3,)
    assert hands.deeds == [("throttled", {"by": "hogs", "quota_cpus": 0.2})]


def test_hogs_are_added_where_the_target_gets_too_much() -> None:
    assert acted(made("cpu:quota=200m,by=hogs"), FakeHands(speed=0.4), 2.0).tally["hogs"] > 4
    assert acted(made("cpu:quota=1500m,by=hogs"), FakeHands(speed=1.0), 2.0).helpers == [["spin", "3"], ["spin", "2"]]


@given(st.floats(0.02, 1.5), st.floats(0.01, 4.0))
def test_turns_give_no_more_than_the_quota(quota: float, speed: float) -> None:
    hands = acted(made(f"cpu:quota={quota},by=duty"), FakeHands(speed=speed), 4.0)
    assert hands.cpu_s / hands.now_s <= quota + 0.05 + (1 + speed) * DUTY_S / hands.now_s
    assert hands.cpu_s / hands.now_s >= min(0.99 * speed, 0.85 * quota)
    if speed < quota:
        assert hands.tally["stops"] == 0


def test_a_way_that_was_asked_for_is_not_replaced() -> None:
    with pytest.raises(UnableError, match="no control group"):
        acted(made("cpu:by=quota"), FakeHands(), 1.0)


KERNEL = {"cpu_s": 2.0, "wall_s": 10.0, "num_throttled": 90.0, "num_periods": 100.0}
QUOTA = {"by_quota": 1.0, "busy_threads": 2.0}


@pytest.mark.parametrize(
    ("tally", "kernel", "proven", "words"),
    [
        (QUOTA, KERNEL, True, "0.20 of 0.2 CPUs used by 2 busy threads: throttled in 90 of 100 periods"),
        (QUOTA, KERNEL | {"num_throttled": 0.0}, False, "too idle"),
        (QUOTA, KERNEL | {"cpu_s": 2.6}, False, "more than its quota"),
        (QUOTA, {}, False, "nobody counted"),
        ({"hogs": 4.0}, KERNEL | {"cpu_wait_s": 7.0}, True, "waited 7.0 s beside 4 hogs"),
        ({"hogs": 4.0}, KERNEL | {"cpu_s": 0.5, "cpu_wait_s": 0.5}, False, "too idle"),
        ({"stops": 9.0, "stopped_s": 8.0}, KERNEL, True, "stopped 9 times for 8.0 s"),
        ({"stops": 0.0, "stopped_s": 0.0}, KERNEL | {"cpu_s": 0.1}, False, "too idle"),
    ],
)
def test_what_proves_a_quota(tally: dict[str, float], kernel: dict[str, float], proven: bool, words: str) -> None:
    found = made("cpu").landed(tally, kernel)
    assert found.proven is proven
    assert words in found.why


def test_affinity_pins_and_counts_processors() -> None:
    hands = acted(made("affinity:cpus=2"), FakeHands(), 1.0)
    assert hands.pinned == (3, 2)
    assert (hands.tally["before"], hands.tally["after"]) == (4, 2)


@pytest.mark.parametrize(
    ("before", "cpu_s", "proven", "words"),
    [
        (4.0, 10.0, True, "1.00 CPUs used on 1 of 4 processors"),
        (1.0, 9.0, False, "no more before"),
        (4.0, 0.0, False, "idle"),
        (4.0, 15.0, False, "elsewhere"),
    ],
)
def test_what_proves_affinity(before: float, cpu_s: float, proven: bool, words: str) -> None:
    tally = {"before": before, "after": 1.0, "busy_threads": 1.0}
    found = made("affinity").landed(tally, {"cpu_s": cpu_s, "wall_s": 10.0})
    assert found.proven is proven
    assert words in found.why


# ── memory ───────────────────────────────────────────────────────────────────────────────────────


def of_memory(version: int, used_mib: int, limit: str = "", least_mib: int = 0) -> FakeGroup:
    """A group of memory that uses so much."""
    used, name = (
        ("memory.current", "memory.max") if version == 2 else ("memory.usage_in_bytes", "memory.limit_in_bytes")
    )
    files = {used: str(used_mib * MIB), name: limit or ("max" if version == 2 else str(1 << 62)), "memory.high": "max"}
    return FakeGroup(version, least_mib * MIB, **files)


@pytest.mark.parametrize(
    ("text", "group", "name", "limit_mib"),
    [
        ("memory:limit=80%", of_memory(2, 100), "memory.max", 80),
        ("memory:limit=110%", of_memory(2, 100), "memory.max", 110),
        ("memory:limit=80%,mode=high", of_memory(2, 100), "memory.high", 80),
        ("memory:limit=64MiB", of_memory(1, 100), "memory.limit_in_bytes", 64),
        ("memory:limit=50%", of_memory(1, 100, least_mib=90), "memory.limit_in_bytes", 100),
        ("memory:limit=50%", of_memory(2, 1), "memory.max", 50),  # of 100 MiB that are charged elsewhere
        ("memory:limit=64MiB", of_memory(2, 30, limit=str(32 * MIB)), "memory.max", 32),
    ],
)
def test_the_limit_that_is_set(text: str, group: FakeGroup, name: str, limit_mib: int) -> None:
    hands = acted(made(text), FakeHands(group), 1.0)
    assert int(group.files[name]) == hands.tally["limit_bytes"] == limit_mib * MIB


def test_what_no_machine_can_do_is_said() -> None:
    with pytest.raises(UnableError, match=r"no memory\.high"):
        acted(made("memory:mode=high"), FakeHands(of_memory(1, 100)), 1.0)
    with pytest.raises(UnableError, match="no control group of memory"):
        acted(made("memory"), FakeHands(), 1.0)
    with pytest.raises(UnableError, match="busy"):
        acted(made("memory"), FakeHands(of_memory(1, 100, least_mib=1000)), 1.0)
    with pytest.raises(UnableError, match="no control group of memory"):
        acted(made("balloon"), FakeHands(), 1.0)
    with pytest.raises(UnableError, match="no limit of memory"):
        acted(made("balloon"), FakeHands(of_memory(2, 100)), 1.0)


LIMITED = {"limit_bytes": 80.0 * MIB, "used_bytes": 100.0 * MIB, "taken_bytes": 0.0, "elsewhere_bytes": 0.0}


@pytest.mark.parametrize(
    ("tally", "kernel", "proven", "words"),
    [
        ({}, {"oom_kills": 1.0}, True, "killed 1 for want of memory"),
        ({}, {"memory_limit_hits": 5.0, "major_faults": 9.0}, True, "hit 5 times, 9 pages"),
        ({"taken_bytes": 20.0 * MIB}, {"major_faults": 9.0}, True, "20 MiB taken"),
        ({"taken_bytes": 20.0 * MIB}, {"major_faults": 0.0}, False, "never hit"),
        ({"elsewhere_bytes": 90.0 * MIB}, {"major_faults": 9.0}, False, "90 MiB are charged to another group"),
        ({}, {"memory_stall_s": 1.0, "major_faults": 9.0}, False, "limit of 80 MiB to a use of 100 MiB: never hit"),
    ],
)
def test_what_proves_a_limit(tally: dict[str, float], kernel: dict[str, float], proven: bool, words: str) -> None:
    found = made("memory").landed(LIMITED | tally, kernel)
    assert found.proven is proven
    assert words in found.why


def test_a_balloon_is_filled_in_the_group_or_on_the_host() -> None:
    within = acted(made("balloon:size=50%"), FakeHands(of_memory(1, 20, limit=str(100 * MIB))), 1.0)
    assert within.helpers == [["balloon", str(40 * MIB), "memory"]]
    outside = acted(made("balloon:size=50%,of=host"), FakeHands(), 1.0)
    assert outside.helpers == [["balloon", str(500 * MIB)]]
    assert outside.tally == {"asked_bytes": 500 * MIB, "held_bytes": 500 * MIB, "burst": 0}


HELD = {"asked_bytes": 100.0 * MIB, "held_bytes": 100.0 * MIB, "burst": 0.0}


@pytest.mark.parametrize(
    ("text", "tally", "kernel", "proven", "words"),
    [
        ("balloon", {"burst": 1.0}, {}, True, "until the kernel killed it"),
        ("balloon", {}, {"memory_limit_hits": 3.0}, True, "hit 3 times"),
        ("balloon", {}, {"memory_stall_s": 1.0, "major_faults": 9.0}, False, "enough was left"),
        ("balloon:of=host", {}, {"memory_stall_s": 1.0, "major_faults": 9.0}, True, "tasks waited 1.0 s"),
        ("balloon:of=host", {}, {"memory_stall_s": 1.0, "major_faults": 0.0}, False, "held 100 MiB of 100 MiB"),
    ],
)
def test_what_proves_a_balloon(
    text: str, tally: dict[str, float], kernel: dict[str, float], proven: bool, words: str
) -> None:
    found = made(text).landed(HELD | tally, kernel)
    assert found.proven is proven
    assert words in found.why
