"""One evaluation of one setting: a server with it (if it is ours), a load, and what its steady part showed.

    settings ─▶ server of these settings ─▶ what it says of itself ─▶ load: ramp, steady, cut ─▶ Measurement

The server stays up as long as the next evaluation wants the same one. A closed loop goes on until it has shown enough
(`levels.enough`), however slow it is, and is cut then; only the end of the budget cuts it before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import msgspec

from contextlab import registry
from contextlab.analysis.arrivals import schedule
from contextlab.analysis.frontier import Status
from contextlab.analysis.levels import (
    LITTLE_GAP,
    MIN_ANSWERS,
    MOST_FAILED,
    Level,
    client_doubt,
    closed_level,
    enough,
    open_level,
)
from contextlab.analysis.prompts import filler, role_of, usual_api
from contextlab.analysis.sweeps import Measurement, Sweep, seed_of
from contextlab.experiment import Arrivals, Due, GeneratorHealth, Load, Mixed, Pace, Sample
from contextlab.lab.contention import MOST_OTHERS, Busy, busy, others, pressure
from contextlab.lab.load.aim import aimed
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.load.order import LoadOrder
from contextlab.lab.server import OwnedServer, ServerEnded
from contextlab.lab.sweep.plan import CONCURRENCY, DEFAULTS, MEMORY, PROMPT_TOKENS, RATE, REPLY_TOKENS, spec_for
from contextlab.model import (
    Knowledge,
    Limits,
    Message,
    Request,
    Settings,
    TargetSpec,
    UnableError,
)

OPEN_REQUESTS = 12
"""An open loop is so long that so many requests are due."""
DISTINCT = 256
"""Different prompts of one evaluation; none of them is ever sent in another one."""
POLL_S = 0.05
HEAD_START_S = 0.1
TIMEOUT_S = 60.0
DRAIN_S = 10.0
LONGEST_S = 180.0
"""No load is longer, whatever it has shown."""
STANDSTILL_S = 5.0
"""A client that has told nothing so long after its end stands still."""
DEATH_WAIT_S = 0.5
MEMORY_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How evaluations are made. `measure_s`: length of the steady part, at least. `same_prompts`: every prompt is the
    same each time, so that a prefix cache flatters every point after the first (to show how much). `trust_host`: the
    host's other work makes nothing invalid; it is only written down."""

    measure_s: float = 3.0
    same_prompts: bool = False
    trust_host: bool = False
    num_workers: int = 1
    memory_limit_bytes: int | None = None


@dataclass(slots=True)
class Served:
    """The server that runs now: for which settings, and what it says of itself."""

    spec: TargetSpec
    known: Knowledge
    server: OwnedServer | None = None
    key: str = ""
    num_used: int = 0
    start_s: float = 0.0


@dataclass(slots=True)
class Seen:
    """What a load has shown until it was cut (`cut_s`). `finished`: the client told everything and ended by itself.
    `after`: the machine's clocks of work then."""

    cut_s: float
    samples: list[Sample] = field(default_factory=list)
    generators: list[GeneratorHealth] = field(default_factory=list)
    peak_bytes: int = 0
    finished: bool = False
    after: Busy | None = None


@dataclass(slots=True)
class Evaluator:
    """Makes the evaluations of a sweep of one target. Close it at the end."""

    spec: TargetSpec
    sweep: Sweep
    restarts: frozenset[str]
    how: How
    folder: Path
    began_s: float
    progress: Callable[[str], None] = lambda text: None
    served: Served | None = None
    num_servers: int = field(default=0)

    def evaluate(
        self, settings: Settings, block: int, *, baseline: bool = False, at_most_s: float = LONGEST_S
    ) -> Measurement:
        """Measure one setting once, with a load of `at_most_s`. What goes wrong is in the measurement; raises
        UsageError only for settings that nobody can mean, before anything is started, and UnableError where a server
        that is not ours cannot be opened, for which no setting is to blame."""
        began = time.monotonic()
        everything = {**self.sweep.fixed, **settings}
        common = {"settings": settings, "block": block, "baseline": baseline, "began_s": round(began - self.began_s, 3)}
        try:
            measured = self._loaded(self._served(everything), everything, settings, block, at_most_s)
        except ServerEnded as error:
            status = Status.CRASHED if error.end.signal else Status.INFEASIBLE
            measured = {"status": status, "why": error.message}
        except UnableError as error:
            if registry.server_command(self.spec) is None:
                raise
            measured = {"status": Status.INFEASIBLE, "why": error.message}
        if measured.get("status") in (Status.CRASHED, Status.INFEASIBLE):
            self.close()
        return Measurement(**common, **measured, cost_s=round(time.monotonic() - began, 3))  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop the server that runs, if it is ours."""
        if self.served is not None and self.served.server is not None:
            self.served.server.close()
        self.served = None

    # ── the server ──

    def _served(self, everything: Mapping[str, object]) -> Served:
        spec = spec_for(self.spec, everything, self.restarts)  # type: ignore[arg-type]
        key = msgspec.json.encode([spec.address, sorted((k, str(v)) for k, v in spec.settings.items())]).decode()
        if self.served is not None and self.served.key == key:
            return self.served
        self.close()
        began = time.monotonic()
        command = registry.server_command(spec)
        server: OwnedServer | None = None
        if command is not None:
            self.num_servers += 1
            server = OwnedServer(
                command,
                log=self.folder / f"server-{self.num_servers}.log",
                memory_limit_bytes=self.how.memory_limit_bytes,
                progress=self.progress,
            )
            spec = replace(spec, url=server.url)
        self.served = Served(spec=spec, known=Knowledge(flavour="", model="", limits=Limits()), server=server, key=key)
        self.served.known = asyncio.run(_ask(spec))
        self.served.start_s = time.monotonic() - began if server is not None else 0.0
        return self.served

    # ── the load ──

    def _loaded(
        self,
        served: Served,
        everything: Mapping[str, object],
        settings: Settings,
        block: int,
        at_most_s: float,
    ) -> dict[str, object]:
        rate = None if everything.get(RATE) is None else float(str(everything[RATE]))
        slots = served.known.limits.num_slots
        num_clients = int(str(everything.get(CONCURRENCY) or slots or 1))
        wave = min(num_clients, slots or num_clients)
        longest_s = min(at_most_s, LONGEST_S)
        if rate is not None:  # an open loop's length follows from its rate
            longest_s = min(longest_s, max(self.how.measure_s, OPEN_REQUESTS / rate))
        order = self._order(served, everything, settings, block, num_clients, rate, longest_s)
        before = busy()
        try:
            seen = self._watched(served, order, wave)
        except UnableError as error:
            return {"status": Status.INVALID, "why": f"the client was lost: {error.message}"}
        served.num_used += 1
        open_loop = rate is not None
        found = open_level(seen.samples, longest_s) if open_loop else closed_level(seen.samples, wave, seen.cut_s)
        if seen.peak_bytes:
            found.values[MEMORY] = float(seen.peak_bytes)
        facts = self._facts(served, found, seen, before)
        status, why = self._status(served, found, seen, facts, open_loop=open_loop)
        return {
            "status": status,
            "why": why,
            "values": dict(found.values),
            "num_requests": found.num_requests,
            "num_failed": found.num_failed,
            "failures": found.failures,
            "facts": facts,
            "final": status is Status.INVALID and why == found.why_not,
        }

    def _watched(self, served: Served, order: LoadOrder, wave: int) -> Seen:
        """Send a load, and cut it when it has shown enough."""
        seen, look_s = Seen(cut_s=order.duration_s), 0.0
        with Fleet(order, num_workers=self.how.num_workers, log=self.folder / "client.log") as fleet:
            zero_s = fleet.start(time.monotonic() + HEAD_START_S)
            until_s = zero_s + order.duration_s + (order.drain_s or 0.0) + STANDSTILL_S
            stopped = False
            while not fleet.finished and (now_s := time.monotonic()) < until_s:
                for thing in fleet.poll(POLL_S):
                    (seen.samples if isinstance(thing, Sample) else seen.generators).append(thing)  # type: ignore[arg-type]
                if served.server is not None and now_s >= look_s:
                    look_s = now_s + MEMORY_EVERY_S
                    seen.peak_bytes = max(seen.peak_bytes, served.server.process.memory_bytes() or 0)
                if order.concurrency and not stopped and enough(seen.samples, wave, self.how.measure_s):
                    seen.cut_s = min(seen.cut_s, max(one.ended_s or 0.0 for one in seen.samples))
                    until_s, stopped = time.monotonic() + STANDSTILL_S, True
                    fleet.stop()
            seen.finished, seen.after = fleet.finished, busy()
        return seen

    def _order(
        self,
        served: Served,
        everything: Mapping[str, object],
        settings: Settings,
        block: int,
        num_clients: int,
        rate: float | None,
        duration_s: float,
    ) -> LoadOrder:
        requests = self._requests(served.known, everything, settings, block)
        dues = [Due(index=index, at_s=0.0, mixed=index) for index in range(len(requests))]
        if rate is not None:
            load = Load(
                arrivals=Arrivals(pace=Pace.POISSON, rate_per_s=rate),
                duration_s=duration_s,
                mix=tuple(Mixed(request=request) for request in requests),
            )
            drawn = schedule(load, seed_of(self.sweep.seed, block, settings))
            dues = [replace(due, mixed=due.index % len(requests)) for due in drawn]  # each in its turn: none twice
        return aimed(
            served.spec,
            served.known,
            requests,
            schedule=tuple(dues),
            concurrency=num_clients if rate is None else 0,
            duration_s=duration_s,
            timeout_s=TIMEOUT_S,
            drain_s=DRAIN_S if rate is not None else 0.0,
            arm="sweep",
        )

    def _requests(
        self, known: Knowledge, everything: Mapping[str, object], settings: Settings, block: int
    ) -> list[Request]:
        """Prompts that no cache has seen: a nonce at their head, words of their own; or, to flatter, all the same."""
        api = usual_api(known)
        num_words = int(str(everything.get(PROMPT_TOKENS) or DEFAULTS[PROMPT_TOKENS]))
        reply_tokens = int(str(everything.get(REPLY_TOKENS) or DEFAULTS[REPLY_TOKENS]))
        found = []
        for number in range(1 if self.how.same_prompts else DISTINCT):
            named = (
                "same" if self.how.same_prompts else f"{self.sweep.seed}:{sorted(settings.items())}:{block}:{number}"
            )
            rng = Random(f"prompt:{named}")
            nonce = "" if self.how.same_prompts else f"{rng.randrange(10**6)} {rng.randrange(10**6)}"
            text = f"{nonce}{filler(max(1, num_words - 4), rng)}"
            found.append(
                Request(
                    name=f"prompt-{number}",
                    messages=(Message(role=role_of(api), parts=(text,)),),
                    api=api,
                    reply_tokens=reply_tokens,
                    ignore_eos="ignores-eos" in known.powers,
                )
            )
        return found

    # ── what to make of it ──

    def _facts(
        self, served: Served, found: Level, seen: Seen, before: Busy
    ) -> dict[str, int | float | str | bool | None]:
        limits, generators, after = served.known.limits, seen.generators, seen.after or before
        fresh = served.num_used == 1 if served.server is not None else None
        stalled = pressure(before, after)
        return {
            "window_tokens": limits.context_tokens,
            "slots": limits.num_slots,
            "fresh_server": fresh,
            "start_s": round(served.start_s, 3) if fresh else None,
            "steady_s": round(found.span.length_s, 3),
            "ramp_s": round(found.span.start_s, 3),
            "sent": len(seen.samples),
            "little_gap": None if found.little_gap is None else round(found.little_gap, 4),
            "cached_share": None if found.cached_share is None else round(found.cached_share, 4),
            "client_cpu_share": round(
                max((one.cpu_s / one.wall_s for one in generators if one.wall_s), default=0.0), 4
            ),
            "client_lateness_p99_s": max((one.lateness_s[2] for one in generators), default=None),
            "client_loop_lag_p99_s": max((one.loop_lag_s[2] for one in generators), default=None),
            "others_cores": round(others(before, after), 3),
            "cpu_pressure": None if stalled is None else round(stalled, 3),
        }

    def _status(
        self, served: Served, found: Level, seen: Seen, facts: Mapping[str, object], *, open_loop: bool
    ) -> tuple[Status, str]:
        end = served.server.process.wait(DEATH_WAIT_S if found.num_failed else 0.0) if served.server else None
        if end is not None:
            return Status.CRASHED, f"the server ended by {end.signal or f'exit code {end.exit_code}'} under this load"
        if not seen.finished:
            return Status.INVALID, "the client was lost: it stood still until it was ended"
        failed = found.num_failed / found.num_requests if found.num_requests else 0.0
        if failed > (MOST_FAILED if found.num_requests >= MIN_ANSWERS else 0.5):
            named = ", ".join(f"{number}x {why}" for why, number in found.failures.items())
            gone = (one for one in seen.samples if one.ended_s is not None and one.ended_s <= seen.cut_s)
            words = next((one.failure.message for one in gone if one.failure is not None), "")
            every = f"{found.num_failed} of {found.num_requests}"
            return Status.INFEASIBLE, f"rejects or aborts {every} requests ({named}) {words}".strip()
        if doubt := client_doubt(seen.generators, open_loop=open_loop):
            return Status.INVALID, doubt
        used = facts["others_cores"]
        if isinstance(used, float) and used > MOST_OTHERS and not self.how.trust_host:
            return Status.INVALID, f"the host was contended: others used {used:.2f} cores meanwhile"
        if found.why_not:
            return Status.INVALID, found.why_not
        if found.little_gap is not None and found.little_gap > LITTLE_GAP and found.num_requests >= 10:
            return Status.OK, f"Little's law is off by {found.little_gap:.0%}: hardly a steady state"
        return Status.OK, ""


async def _ask(spec: TargetSpec) -> Knowledge:
    """What a server says of itself, without a request to its model."""
    async with registry.open_target(spec) as target:
        return target.knowledge
