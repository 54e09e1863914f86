"""What a load worker is told, and what it tells: the nouns that cross the socket between it and the tool.

One JSON object a line, both ways. Down: LoadOrder without its zero, then `Go`, perhaps `Go(stop=True)`. Up: `Told`.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import get_type_hints

import msgspec

from contextlab.experiment import Due, GeneratorHealth, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One request of the mix as it goes onto the wire: the path, and the JSON body."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """One arm's load for the client, ready to be sent.

    `requests` are in the order of the mix. `headers` come on top of the client's own (Host, Content-Type, lengths);
    each request is marked `X-Request-Id: <arm>-<index>`. `schedule` is due from `zero_s` on, a time of
    `time.monotonic()`; None: `Fleet.start` says it. `concurrency` above 0 makes a closed loop of `duration_s`, which
    takes the schedule in turn and begins anew at its end. `timeout_s` bounds one request from when it was sent, and
    `connect_timeout_s` its connection. `drain_s`: how long after `duration_s` the last replies are waited for; None:
    until each one's own time is up. `proxy` is an http URL; with it, or with the scheme https, aiohttp is the client.
    `secrets` are words of the headers that no sample may hold.
    """

    host: str
    port: int
    requests: tuple[Prepared, ...]
    schedule: tuple[Due, ...]
    duration_s: float
    timeout_s: float
    scheme: str = "http"
    headers: tuple[tuple[str, str], ...] = ()
    concurrency: int = 0
    zero_s: float | None = None
    connect_timeout_s: float | None = None
    drain_s: float | None = None
    kept_connections: bool = False
    arm: str = "load"
    proxy: str = ""
    verify_tls: bool = True
    secrets: tuple[str, ...] = ()

    @property
    def fast(self) -> bool:
        """Whether our own socket path can carry it."""
        return self.scheme == "http" and not self.proxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What one worker gets: its number of how many, its share of the order, and where to run.

    `namespace_pid`: the process whose network namespace it enters first. `cpus`: the processors it may use.
    """

    worker: int
    num_workers: int
    order: LoadOrder
    namespace_pid: int | None = None
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """When to begin, or that it is enough."""

    zero_s: float = 0.0
    stop: bool = False


WireSample = msgspec.defstruct(
    "WireSample",
    [
        (field.name, get_type_hints(Sample)[field.name])
        if field.default is MISSING
        else (field.name, get_type_hints(Sample)[field.name], field.default)
        for field in fields(Sample)
    ],
    kw_only=True,
    gc=False,
)
"""A Sample on its way: the same fields, made in a fifth of the time."""


class Told(msgspec.Struct, omit_defaults=True):
    """One line of a worker. `error`: why it cannot work, and what to do (`next_step`)."""

    sample: Sample | None = None
    health: GeneratorHealth | None = None
    ready: bool = False
    error: str = ""
    next_step: str = ""
