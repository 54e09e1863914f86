"""A cache of two tiers that runs in front of a target: a gateway, a Redis server, and a relay between them.

    clients ══▶ gateway (local LRU, guards) ══▶ target
                   └══▶ relay (late, or dark) ══▶ redis-server

Each is a process of the run's own and ends with it, also when the tool is killed with SIGKILL.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from contextlab.analysis.coupled import TIER
from contextlab.deeds import Reading, Tier
from contextlab.lab.journal import plain
from contextlab.lab.tier.machine import TierMachine
from contextlab.lab.tier.redis_server import RedisServer
from contextlab.lab.tier.servant import Servant

if TYPE_CHECKING:
    from contextlab.lab.host.injector import Machine
    from contextlab.lab.undo.ledger import Ledger

EVERY_S = 0.25
"""At most so often is it asked what it counted."""


class RunningTier:
    """The tier in front of `upstream` (host and port, plain HTTP), from construction to `close`.

    `address` is where clients connect. Raises UnableError where redis-server or the extra is missing, or where a part
    of it does not come up. `begin` before an arm; readings count from there.
    """

    def __init__(self, tier: Tier, upstream: tuple[str, int], *, folder: Path) -> None:
        self._zero_s = time.monotonic()
        self._read_at_s = -EVERY_S
        self._parts: list[RedisServer | Servant] = []
        try:
            redis = RedisServer(folder)
            self._parts.append(redis)
            relay = Servant("delay", log=folder / "tier.log", upstream=redis.port)
            self._parts.append(relay)
            port = relay.opened()["port"]
            self._gateway = Servant(
                "gateway", log=folder / "tier.log", tier=plain(tier), upstream=list(upstream), redis=port
            )
            self._parts.append(self._gateway)
            self.address: tuple[str, int] = ("127.0.0.1", int(self._gateway.opened()["port"]))
        except BaseException:
            self.close()
            raise
        self._redis = redis
        self._machine = TierMachine(redis, relay, self._gateway)

    def begin(self, zero_s: float) -> None:
        """Empty both tiers and all counts: an arm begins at `zero_s` (`time.monotonic`)."""
        self._redis.command("FLUSHALL")
        self._gateway.ask("empty")
        self._zero_s, self._read_at_s = zero_s, -EVERY_S

    def machine(self, ledger: Ledger) -> Machine:
        """Hands for faults on the tier. The record stays empty: everything here ends with the tool by itself."""
        return self._machine

    def taken(self) -> list[Reading]:
        """What the tier has counted until now, unless it was asked a moment ago."""
        at_s = time.monotonic() - self._zero_s
        if at_s < 0 or at_s - self._read_at_s < EVERY_S:
            return []
        self._read_at_s = at_s
        counts = self._gateway.ask("report")
        values = {name: round(float(value), 6) for name, value in counts.items()}
        return [Reading(source=TIER, at_s=round(at_s, 6), values=values)]

    def close(self) -> None:
        """End the gateway, the relay and Redis. May be called again."""
        while self._parts:
            self._parts.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
