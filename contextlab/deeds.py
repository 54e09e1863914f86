"""The nouns of faults that act beside the wire: on the target's processes, as a client, on a cache in front of it.

    Fault.inflict(Hands) ─▶ deeds on the target's process tree, or on the cache tier     each is on the undo record
    Fault.behave(Call)   ─▶ what one misbehaving client does with its connection          before it is done

A fault of these kinds is a frozen dataclass as any other (`experiment.Fault`); it reads no clock and touches nothing by
itself. What it may do comes in: `Hands` for the machine, `Call` for a connection. Standard library and `model` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, runtime_checkable

from contextlab.model import ProcessEnd

Value = int | float | str | bool | None


# ── what was seen and done beside the wire ───────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one source counted at one moment, `at_s` seconds since the arm began; pure numbers by name.

    Sources: "process" (the target's tree: cpu_s, rss_bytes, threads, descriptors, sockets, processes, and
    client_cpu_s), "machine" (everybody's: host_cpu_s, host_available_bytes, host_stalled_s), "gpu" (all GPUs together:
    gpu_memory_bytes, gpu_busy_ratio, gpu_power_w), "health" (green 1, 0 or −1 where it did not answer; completed 1 or
    0; their seconds), "tier" (the cache tier's counters), "release" (once before an arm and after its load: the names
    of "process", and root_started, which tells the process from a later one; where gauges were asked busy_slots,
    waiting_requests, kv_usage_ratio, generated_tokens, and gauges_every_s, how often at most they are).
    """

    source: str
    at_s: float
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something that was done to the target, `at_s` seconds since the arm began: "stopped", "killed", "restarted"."""

    at_s: float
    fault: str
    what: str
    about: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The target's process ended in an arm. `ours`: a fault killed it, so that is no finding by itself.

    `took_s`: how long it took to end of our signal. `ready_s`: how long after its end it answered again, where it was
    started again; None: it was not, or it did not (yet: it is told once more when it does).
    """

    at_s: float
    end: ProcessEnd
    ours: bool
    took_s: float = 0.0
    ready_s: float | None = None


# ── what a fault may do to a machine ─────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A process, told from a later one of the same number by its start (field 22 of /proc/PID/stat, clock ticks)."""

    pid: int
    started: int
    name: str = ""


class Group(Protocol):
    """A control group that holds the target's tree while a fault lasts; `version` 1 or 2. Undo: all back, and gone."""

    version: int

    def set(self, name: str, text: str) -> None:
        """Write one of its files, such as cpu.max; what stood there comes back. Raises UnableError where it cannot."""
        ...

    def get(self, name: str) -> str:
        """Read one of its files; "" where there is none of that name."""
        ...


class Hands(Protocol):
    """What a host fault may do. Whatever outlasts a call is on the undo record, synced, before it is done; it is undone
    when the fault is over, when the tool dies, or when the lease ends, whichever comes first.

    `tally` is the fault's own: it counts there what it did (names that end in `_s` are sums of seconds).
    Every method raises UnableError, in words, where this machine or this user cannot do it.
    """

    tally: dict[str, float]
    rng: Random
    length_s: float
    """How long the fault acts."""

    def tree(self) -> tuple[Victim, ...]:
        """The target's processes now, the one that was started first."""
        ...

    def stop(self, *victims: Victim) -> None:
        """SIGSTOP; undo: SIGCONT. None named: the whole tree."""
        ...

    def resume(self, *victims: Victim) -> None:
        """SIGCONT to what was stopped."""
        ...

    def kill(self, *victims: Victim, signal: str = "SIGKILL") -> None:
        """End processes of the target. The death counts as ours; there is no undo but `restart`."""
        ...

    def restart(self) -> float:
        """Start the target's server again at the same address; how many seconds until it answered."""
        ...

    def group(self, controller: str) -> Group | None:
        """The tree in a group of this controller ("cpu", "memory", "freezer"): the one that limits it already, or one
        of our own into which it is moved. None where no group can be made here."""
        ...

    def pin(self, cpus: Sequence[int]) -> None:
        """Let every thread of the tree run on these processors only; undo: on those that it had."""
        ...

    def helper(self, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> Victim:
        """Start a process of ours that works against the target; it dies with the fault, and with the tool."""
        ...

    def note(self, what: str, **about: Value) -> None:
        """Put a deed on record."""
        ...


@runtime_checkable
class MachineHands(Hands, Protocol):
    """What a fault on processors or memory needs besides: to see what it does, and helpers in the target's group."""

    def processors(self) -> tuple[int, ...]:
        """Processors that the target may use, but for one that is left to the load's clients where there are more."""
        ...

    def look(self) -> Mapping[str, float]:
        """What the kernel has counted of the tree (the names of `HostFault`, and cpu_wait_s), and how it is now: at_s
        (a clock), rss_bytes, threads, busy_threads (since the last look), processors (that it may use), available_bytes
        (of the host's memory), helpers (that live) and helper_rss_bytes."""
        ...

    def helper_within(self, controller: str, argv: Sequence[str]) -> Victim:
        """`helper`, in the target's group of this controller."""
        ...


@runtime_checkable
class DiskHands(Hands, Protocol):
    """What a fault on a disk needs besides; folders are those that the target sees."""

    def overmount(self, folder: str, *, free_bytes: int | None) -> None:
        """Let a folder show its files and take no more: nothing at all (None: read-only), or so many bytes.

        What has a file open already keeps it. Undo: all as before; what was written there meanwhile is gone.
        """
        ...

    def slow_disk(self, folder: str, bytes_per_s: int) -> None:
        """Let the target read and write the disk of a folder no faster; what the page cache answers stays fast."""
        ...

    def try_write(self, folder: str, num_bytes: int) -> tuple[str, float]:
        """Write and sync a file there as the target would, and remove it: "" or the error's name (ENOSPC, …), and how
        many seconds that took, the start of the process that does it among them."""
        ...


@runtime_checkable
class TierHands(Hands, Protocol):
    """What a fault may do to the cache tier in front of the target, besides."""

    def stop_redis(self) -> None:
        """End the Redis server; connections to it are then refused."""
        ...

    def start_redis(self) -> None:
        """Start it again, empty, at the same address."""
        ...

    def delay_redis(self, delay_s: float) -> None:
        """From now on every answer of Redis is so much late; 0 takes that back."""
        ...

    def redis(self, *words: str) -> object:
        """One command to Redis past the tier, such as FLUSHALL or CONFIG SET maxmemory."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A cache of two tiers put in front of the target: a local LRU, then Redis, then the target itself.

    `guards`: Bloom filter, short-lived negative entries, one computation for many that ask the same, circuit breaker.
    Without them every miss asks Redis, waits for it, and goes on to the target. Times are seconds.
    """

    local_entries: int = 32
    ttl_s: float = 60.0
    redis_timeout_s: float = 0.25
    guards: bool = True
    negative_ttl_s: float = 1.0
    breaker_failures: int = 5
    breaker_reset_s: float = 3.0


# ── what a misbehaving client may do ─────────────────────────────────────────────────────────────


class Call(Protocol):
    """One misbehaving client, with one connection at a time. `tally` is shared by all clients of the fault; `number` is
    its place among them. What crosses its connections is counted there without the fault's doing (`lab/crowd/call`).

    Nothing raises for what the other side does: a connection that is over gives no more events.
    """

    tally: dict[str, float]
    rng: Random
    number: int

    async def connect(self, *, buffer_bytes: int = 0) -> bool:
        """Open a connection, leaving the one before; whether it opened. `buffer_bytes`: its receive buffer (SO_RCVBUF),
        0: the system's own."""
        ...

    async def send(
        self,
        num_bytes: int | None = None,
        *,
        stream: bool = True,
        reply_tokens: int | None = None,
        more_words: int = 0,
    ) -> int:
        """Send the next so many bytes of one request, None: all that is left; how many were sent, 0 at its end.

        The first call on a connection says what it asks for: a stream or not, how long a reply (None: as the load
        does), and how many words more than the load's prompt, never the same twice. A later connection repeats it.
        """
        ...

    async def event(self) -> str | None:
        """The text of the next content event; None at the end of the reply or of the connection."""
        ...

    async def read(self, num_bytes: int) -> int:
        """Take at most so many bytes off the socket; how many came, 0 at the end."""
        ...

    async def whole(self, within_s: float | None = None) -> bool:
        """Read to the end, for at most so long (None: however long); whether the answer came to its proper end."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Do nothing for so long, or until the fault is over; whether it still acts."""
        ...

    @property
    def num_events(self) -> int:
        """Content events of this connection's reply that have been read."""
        ...

    def unread(self) -> int:
        """Bytes that have come and that nobody has taken off the socket yet."""
        ...

    def half_close(self) -> None:
        """Send FIN, and go on reading."""
        ...

    def close(self) -> None:
        """Close in order (FIN); what has come by then is read first, since the kernel would answer it with RST."""
        ...

    def reset(self) -> None:
        """Tear it down (RST)."""
        ...


# ── the faults themselves, beside what `experiment.Fault` asks ───────────────────────────────────


class HostFault(Protocol):
    """Plane HOST or TIER. `landed(tally, kernel)` is asked with what `hands.tally` holds, and with the differences over
    the fault's window of what the kernel counts: cpu_s and client_cpu_s, wall_s, num_throttled, num_periods,
    throttled_s, cpu_stall_s and memory_stall_s (PSI), major_faults, memory_limit_hits, oom_kills; those it keeps."""

    def inflict(self, hands: Hands) -> Iterator[float]:
        """Act, then yield how many seconds to wait before acting again (`inf`: until it is over).

        When the fault's time is up the generator is closed, and all that `hands` did is undone.
        """
        ...


class ClientFault(Protocol):
    """Plane CLIENT: `clients` of them at any time, each beginning anew when it has ended, as long as the fault acts.

    `landed(tally, kernel)` is asked with what all of them counted; `kernel` is empty.
    """

    @property
    def clients(self) -> int: ...

    async def behave(self, call: Call) -> None:
        """One client from its connection to its end."""
        ...
