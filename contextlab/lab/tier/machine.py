"""Hands for faults on the cache tier: Redis ended, late, told what to do; and put back when the fault is over.

Redis, relay and gateway are processes of the run itself: each dies with the tool (`lab/keeper.py`), however that ends,
and nothing else uses them. So nothing here needs the undo record; what a fault changed is taken back for the
experiment's sake, so that it has an afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, cast

from contextlab.deeds import Deed, Group, Value, Victim
from contextlab.experiment import Placed
from contextlab.lab.host.injector import Injector
from contextlab.lab.tier.redis_server import RedisServer
from contextlab.lab.tier.servant import Servant
from contextlab.model import UnableError

REDIS_COUNTS = ("evicted_keys", "expired_keys", "total_commands_processed")
"""What Redis counts of itself since it was started; in `counters` with "server_" before it."""


class TierMachine:
    """Where the hands come from; `counters` are the gateway's, the relay's and Redis's own."""

    def __init__(self, redis: RedisServer, relay: Servant, gateway: Servant) -> None:
        self.redis, self.relay, self.gateway = redis, relay, gateway

    def hands(self, placed: Placed, injector: Injector) -> TierHeld:
        """Hands for one fault."""
        return TierHeld(self, placed, injector)

    def counters(self) -> dict[str, float]:
        """What was counted until now; Redis's own counts are left out while it is down."""
        counts = {**self.gateway.ask("report"), **self.relay.ask("report")}
        if self.redis.pid is not None:
            info = cast("dict[str, object]", self.redis.command("INFO", "stats"))
            counts |= {f"server_{name}": float(cast("int", info.get(name, 0))) for name in REDIS_COUNTS}
        return {name: float(value) for name, value in counts.items()}


class TierHeld:
    """`deeds.TierHands`; what it did is undone by `undo`, latest first."""

    def __init__(self, machine: TierMachine, placed: Placed, injector: Injector) -> None:
        self.tally: dict[str, float] = {}
        self.rng = injector.rng(placed)
        self.length_s = placed.length_s
        self._machine, self._name, self._injector = machine, placed.name, injector
        self._undo: list[Callable[[], object]] = []

    # ── the tier ──

    def stop_redis(self) -> None:
        """End Redis; the relay refuses connections as a dead server does."""
        self._undo.append(self._brought_back)
        self._machine.relay.ask("darken")
        self._machine.redis.stop()
        self.note("redis stopped")

    def start_redis(self) -> None:
        """Start it again, empty, at the same address."""
        took_s = self._machine.redis.start()
        self._machine.relay.ask("light")
        self.note("redis started", took_s=round(took_s, 3))

    def delay_redis(self, delay_s: float) -> None:
        """Make every answer of Redis so much late from now on."""
        self._undo.append(lambda: self._machine.relay.ask("delay", delay_s=0.0))
        self._machine.relay.ask("delay", delay_s=delay_s)
        self.note("redis delayed", delay_s=delay_s)

    def redis(self, *words: str) -> object:
        """One command to Redis past the tier; a CONFIG SET is taken back when the fault is over."""
        command = self._machine.redis.command
        if tuple(word.upper() for word in words[:2]) == ("CONFIG", "SET"):
            before = cast("dict[str, str]", command("CONFIG", "GET", words[2]))
            self._undo.append(lambda: self._told("CONFIG", "SET", words[2], before[words[2]]))
        return command(*words)

    def _told(self, *words: str) -> None:
        """A command that matters only while Redis is up: one that was started again knows of nothing before."""
        if self._machine.redis.pid is not None:
            self._machine.redis.command(*words)

    def _brought_back(self) -> None:
        if self._machine.redis.pid is None:
            self.start_redis()

    def undo(self) -> None:
        """Put the tier back as it was, latest first; what Redis held is gone. May be called again."""
        while self._undo:
            self._undo[-1]()
            self._undo.pop()

    # ── what every fault may do ──

    def tree(self) -> tuple[Victim, ...]:
        """Nobody: the tier's processes are ended and started here, never by their numbers."""
        return ()

    def note(self, what: str, **about: Value) -> None:
        """Put a deed on record."""
        self._injector.tell(Deed(at_s=self._injector.now_s(), fault=self._name, what=what, about=about))

    def stop(self, *victims: Victim) -> None:
        """Not for the tier."""
        self._refuse("stops no process")

    def resume(self, *victims: Victim) -> None:
        """Not for the tier."""
        self._refuse("resumes no process")

    def kill(self, *victims: Victim, signal: str = "SIGKILL") -> None:
        """Not for the tier."""
        self._refuse("kills no process of the target")

    def restart(self) -> float:
        """Not for the tier."""
        self._refuse("does not restart the target")

    def group(self, controller: str) -> Group | None:
        """None can be had."""
        return None

    def pin(self, cpus: Sequence[int]) -> None:
        """Not for the tier."""
        self._refuse("pins no process")

    def helper(self, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> Victim:
        """Not for the tier."""
        self._refuse("starts no helper")

    def _refuse(self, words: str) -> NoReturn:
        raise UnableError(f"{self._name}: a fault of the cache tier {words}", "use a fault of the plane host")
