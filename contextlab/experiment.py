"""The nouns of load and faults: what `chaos` plans, what it saw, and what it compares.

    Load (arrivals × mix of requests) ─┐
    Placed fault (what, when)         ─┼─▶ Experiment ─▶ lab ─▶ Trial(control Arm, fault Arm) ─▶ judges ─▶ Finding
    Bound (the steady state)          ─┘

Standard library and `model` only; nothing here acts. Times of a schedule and of samples are seconds since the arm
began (its *zero*), from the machine's one monotonic clock; rates are per second; shares are from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, ClassVar, Protocol

from contextlab.deeds import Death, Deed, Reading, Tier
from contextlab.model import (
    Failure,
    Gauges,
    Judgement,
    Knowledge,
    Outcome,
    ProcessEnd,
    Request,
    Setting,
    Settings,
    Skip,
    Usage,
)

# ── load ─────────────────────────────────────────────────────────────────────────────────────────


class Pace(StrEnum):
    """How due times are made. All are open loops but CLOSED, in which a request waits for another to end."""

    POISSON = "poisson"
    CONSTANT = "constant"
    BURST = "burst"
    RAMP = "ramp"
    REPLAY = "replay"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests are due.

    POISSON, CONSTANT: `rate_per_s`. BURST: `factor` × `rate_per_s` from `burst_at_s` for `burst_s`, else `rate_per_s`
    (Poisson). RAMP: from `rate_per_s` to `factor` × `rate_per_s`, linearly (Poisson). REPLAY: the times in `trace_s`.
    CLOSED: `concurrency` requests at any time, each due when its predecessor ended.
    """

    pace: Pace = Pace.POISSON
    rate_per_s: float = 8.0
    factor: float = 1.0
    burst_at_s: float = 0.0
    burst_s: float = 0.0
    concurrency: int = 0
    trace_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """One kind of request of a load and its share of it (weights need not sum to 1)."""

    request: Request
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent and when. `timeout_s` bounds one request, from when it was sent; None: the lab scales it.

    `kept_connections`: connections are used again, as a client with a pool does; else each request has its own.
    """

    arrivals: Arrivals
    duration_s: float
    mix: tuple[Mixed, ...]
    timeout_s: float | None = None
    kept_connections: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One line of a schedule: which request of the mix is due when. In a closed loop `at_s` is 0 for all."""

    index: int
    at_s: float
    mixed: int


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


class Plane(StrEnum):
    """What a fault acts on: packets or streams on the wire; the target's processes and machine; the target as one more
    client; the cache tier in front of it."""

    PACKET = "packet"
    STREAM = "stream"
    HOST = "host"
    CLIENT = "client"
    TIER = "tier"

    @property
    def on_wire(self) -> bool:
        """Whether the link process carries it."""
        return self in (Plane.PACKET, Plane.STREAM)


class Direction(StrEnum):
    """Which way bytes flow: UP from the client to the target, DOWN back."""

    UP = "up"
    DOWN = "down"


class Mark(StrEnum):
    """What the bytes of a piece are, where a fault asked to know (`Fault.by_event`)."""

    HEAD = "head"
    EVENT = "event"
    FIRST_TOKEN = "first token"
    DONE = "done"
    TAIL = "tail"
    BYTES = "bytes"


class Close(StrEnum):
    """How a direction of a connection ends: its sender is finished (FIN), or it is torn down (RST, linger 0)."""

    FIN = "fin"
    RESET = "reset"


@dataclass(slots=True)
class Piece:
    """Bytes on their way: one IP packet, or what one read of a socket gave, or one event of a stream.

    `at_s`: when it is due at the other side; a stage may only move it later. `event`: its number among the content
    events of its reply, from 0 (None where it is none). `close`: the sender ended here, after `data`.
    """

    at_s: float
    data: bytes = b""
    mark: Mark = Mark.BYTES
    event: int | None = None
    close: Close | None = None


class Stage(Protocol):
    """One fault at work in one direction: on the packet link, or on one request's connection.

    Pure but for its own state: it reads no clock and draws only from the RNG that it was given, a fixed number of
    draws for each packet, so that equal seeds give equal decisions whatever the packets hold.
    `tally` counts what it did, by name; names that end in `_s` or `_bytes` are sums of seconds or bytes.
    """

    tally: dict[str, float]

    def feed(self, piece: Piece) -> Iterable[Piece]:
        """What becomes of a piece: none, one or several, none of them earlier than it was."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """Whether a fault reached what it was aimed at: True proven, False not proven, None: nothing was asked of it."""

    proven: bool | None
    why: str


class Fault(Protocol):
    """A fault: a frozen dataclass whose fields are its options (made with `option`), one file in `faults/`.

    `EXCLUDES`: names of faults that contradict it where both act at once; its own name where two of it do.
    `is_null`: as its options stand it does nothing. One that ends processes of the target, and so needs a server of
    ours, has `ENDS_PROCESSES = True` besides. What it does is said by its plane: `WireFault` on the wire,
    `deeds.HostFault` on the target's host or its cache tier, `deeds.ClientFault` as a client.
    """

    NAME: ClassVar[str]
    PLANE: ClassVar[Plane]
    SUMMARY: ClassVar[str]
    EXCLUDES: ClassVar[frozenset[str]]

    @property
    def is_null(self) -> bool: ...

    def landed(self, tally: Mapping[str, float], kernel: Mapping[str, float]) -> Landed:
        """Whether what it counted, and what the kernel counted meanwhile, prove that it landed.

        `kernel`: differences of `retransmitted_segments`, `num_throttled`, … over the fault's window; empty where
        nothing was read.
        """
        ...


class WireFault(Fault, Protocol):
    """A fault on packets or streams. `by_event`: the relay must cut replies into events for it (STREAM only)."""

    @property
    def by_event(self) -> bool: ...

    def touches(self, direction: Direction) -> bool:
        """Whether it acts on bytes that flow this way."""
        ...

    def hits(self, rng: Random) -> bool:
        """STREAM: whether it acts on the request that this RNG belongs to (`share`). PACKET: always."""
        ...

    def stage(self, rng: Random, direction: Direction) -> Stage:
        """Begin to act."""
        ...


def option(
    default: Any,
    words: str,
    *,
    kind: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    unit: str = "",
) -> Any:
    """A field of a fault that the user can set; `kind` as in `Setting` ("share", "duration", "rate", "size" too).

    The user writes the field's name without its unit: `delay_s` is `delay=200ms`.
    """
    setting = Setting(name="", kind=kind, default=default, help=words, low=low, high=high, choices=choices, unit=unit)
    return field(default=default, metadata={"setting": setting})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A fault on the timeline of an arm: `loss:rate=15%@10s+30s`. `options` hold the values by field name."""

    name: str
    start_s: float
    length_s: float
    options: Mapping[str, int | float | str | bool | None] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """When it stops to act."""
        return self.start_s + self.length_s


# ── the steady state ─────────────────────────────────────────────────────────────────────────────


class Phase(StrEnum):
    """A part of an arm, in relation to its faults. A request belongs to DURING if it was under way in a fault."""

    CONTROL = "control"
    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One bound of the steady state: `p99 ttft < 800ms`, `errors < 1%`, `p90 ttft < 3x before during`.

    `quantile` is None for a metric that is one number. `value` is in the metric's unit (seconds, share, number), or
    a factor where `against` names the phase that it is compared with. `phases`: where it must hold.
    """

    text: str
    metric: str
    op: str
    value: float
    quantile: float | None = None
    against: Phase | None = None
    phases: frozenset[Phase] = frozenset({Phase.BEFORE, Phase.DURING, Phase.AFTER})


# ── the experiment ───────────────────────────────────────────────────────────────────────────────


HELD = frozenset({Outcome.OK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A second load on top of the first, in the arm with the faults alone: a burst, or requests that are too long.

    It lasts from `start_s` on for its own duration, which counts as a fault's window. `counts`: whether its requests
    count in errors and latencies; those that are meant to be refused do not. Their `Sample.mixed` begins after the
    main load's.
    """

    load: Load
    start_s: float
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One chaos experiment: a load, faults on a timeline, the steady state, and when to stop for safety.

    `warmup_s` at the beginning of each arm is sent and not judged. `recovery_within_s`: how soon after the last fault
    the steady state must be back; None only reports it. `control`: whether an arm without faults, through the same
    path, goes first. `profile`: sample the target's process while the faults act. `tier`: a cache that stands between
    the clients and the target in every arm. `health`: in the arms ask the target for its health and for one token, in
    turn. `release_within_s`: how soon after the last request of an arm what it took must be free again (slots, memory,
    descriptors, threads, sockets); None: that is not looked at. `settings`: other settings than its own with which a
    server of ours is started for this experiment.
    """

    name: str
    load: Load
    faults: tuple[Placed, ...] = ()
    extra: Extra | None = None
    hypothesis: tuple[Bound, ...] = ()
    stop: tuple[Bound, ...] = ()
    warmup_s: float = 2.0
    recovery_within_s: float | None = None
    control: bool = True
    allowed: frozenset[Outcome] = HELD
    profile: bool = False
    tier: Tier | None = None
    health: bool = False
    release_within_s: float | None = None
    settings: Settings = field(default_factory=dict)
    about: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """(start, end) of everything that disturbs the arm with the faults, in the order of their starts."""
        found = [(fault.start_s, fault.end_s) for fault in self.faults]
        if self.extra is not None:
            found.append((self.extra.start_s, self.extra.start_s + self.extra.load.duration_s))
        return tuple(sorted(found))

    @property
    def mix(self) -> tuple[Mixed, ...]:
        """Every kind of request, the extra load's after the main one's, as `Sample.mixed` numbers them."""
        return self.load.mix + (self.extra.load.mix if self.extra else ())


# ── what was seen ────────────────────────────────────────────────────────────────────────────────


class Ending(StrEnum):
    """How the transport of one exchange ended, as the client's socket saw it."""

    WHOLE = "whole"
    """The answer came to the end that HTTP gave it."""
    FIN = "fin"
    """The connection was closed before that."""
    RESET = "reset"
    REFUSED = "refused"
    UNREACHED = "unreached"
    """No connection in time, or no way there."""
    TIMEOUT = "timeout"
    """Nothing more came until we gave up, and nobody closed."""
    GARBLED = "garbled"
    """What came is not HTTP."""
    UNSENT = "unsent"
    """The arm was over before its turn came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request of a load as the client's socket saw it. Times are stamped before anything is parsed.

    `sent_s`: when the client began to act on it (for a connection of its own: when it began to connect).
    `content_s`, `pieces`: one time and one text for each content event. `num_frames`: server-sent events of any kind.
    `error_frames`: failures that came inside the stream. `num_done`: how many `[DONE]`. `after_end_bytes`: body bytes
    after `[DONE]` or an error. `open_after_end_s`: how long the reply then stayed open; None where it ended at once.
    `retransmits`: segments that this side sent again (TCP_INFO). `crc32`: of all bytes that came, HTTP's own included,
    on a connection of its own. `as_sent`: these are the bytes that the target sent, or the first of them (the relay
    keeps them): what is strange about them is the target's doing; None where that is not known.
    """

    index: int
    mixed: int
    due_s: float
    ending: Ending
    sent_s: float | None = None
    connected_s: float | None = None
    first_byte_s: float | None = None
    content_s: tuple[float, ...] = ()
    pieces: tuple[str, ...] = ()
    ended_s: float | None = None
    status: int | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    failure: Failure | None = None
    error_frames: tuple[Failure, ...] = ()
    reply_ids: tuple[str, ...] = ()
    num_frames: int = 0
    num_done: int = 0
    num_bad_json: int = 0
    num_bad_utf8: int = 0
    after_end_bytes: int = 0
    open_after_end_s: float | None = None
    num_bytes: int = 0
    num_reads: int = 0
    retransmits: int | None = None
    crc32: int | None = None
    as_sent: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorHealth:
    """What the client itself cost and how late it was; one for each worker process.

    `lateness_s`: (p50, p90, p99, max) of sent − due over its open-loop requests. `loop_lag_s`: the same of how late
    its event loop woke. `cpu_s` of `wall_s`. `fast`: the socket path of our own, else aiohttp.
    """

    worker: int
    num_requests: int
    cpu_s: float
    wall_s: float
    lateness_s: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    loop_lag_s: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    fast: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvidence:
    """What one placed fault did. `engine`: what carried it: "packet link", "netem", "relay" or "emulated" on the wire,
    "crowd" for misbehaving clients, else the plane's name."""

    name: str
    engine: str
    tally: Mapping[str, float] = field(default_factory=dict)
    kernel: Mapping[str, float] = field(default_factory=dict)
    landed: Landed = Landed(proven=False, why="nothing was counted")


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeSample:
    """One reading of the target's own gauges, seconds since the arm began."""

    at_s: float
    gauges: Gauges


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One pass of the load: the control, without faults, or the one with them.

    `samples` are those that count; `uncounted` are of an extra load that does not. `length_s`: until the last request
    ended. `stopped`: the safety condition that ended it early; "" if none did. `server`: how the target's process ended
    where no fault of ours did that; `deaths` are all its ends.
    """

    name: str
    length_s: float
    samples: tuple[Sample, ...] = ()
    uncounted: tuple[Sample, ...] = ()
    generators: tuple[GeneratorHealth, ...] = ()
    evidence: tuple[FaultEvidence, ...] = ()
    gauges: tuple[GaugeSample, ...] = ()
    readings: tuple[Reading, ...] = ()
    deeds: tuple[Deed, ...] = ()
    deaths: tuple[Death, ...] = ()
    server: ProcessEnd | None = None
    stopped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was seen of one experiment; no opinion. `control` is None where the plan asked for none, `fault` where the
    control already showed no steady state. `references`: for each request of the mix, the texts that the undisturbed
    target gave for it. `measured`: what else was measured (a profile, …)."""

    experiment: Experiment
    knowledge: Knowledge
    control: Arm | None = None
    fault: Arm | None = None
    references: tuple[tuple[tuple[str, ...], ...], ...] = ()
    path: str = ""
    measured: Mapping[str, int | float | str] = field(default_factory=dict)


ChaosPlan = Generator[Experiment | Skip, Trial | None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user gave for every experiment; a scenario keeps to it where it can. None: whatever suits the target.

    `mix` empty: a few short prompts. `faults` are for the experiment that the user wrote, not for scenarios.
    """

    rate_per_s: float | None = None
    duration_s: float = 30.0
    arrivals: Arrivals | None = None
    mix: tuple[Mixed, ...] = ()
    reply_tokens: int = 8
    timeout_s: float | None = None
    warmup_s: float | None = None
    hypothesis: tuple[Bound, ...] | None = None
    stop: tuple[Bound, ...] = ()
    recovery_within_s: float | None = None
    faults: tuple[Placed, ...] = ()
    control: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosScenario:
    """A named pair of a pure plan and a pure judge, as `Scenario`, for load and faults.

    `judge` adds to what is judged of every trial (proof, generator, bounds, recovery, integrity); it may be None.
    """

    name: str
    summary: str
    plan: Callable[[Knowledge, Asked, Random], ChaosPlan]
    judge: Callable[[Experiment, Trial], Iterable[Judgement]] | None = None
    needs: tuple[str, ...] = ()
    order: int = 100
