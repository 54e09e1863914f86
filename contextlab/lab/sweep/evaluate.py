"""One evaluation of one setting: a server with it (if it is ours), a load, and what its steady part showed.

    settings ─▶ server of these settings ─▶ what it says of itself ─▶ load: ramp, steady, drain ─▶ Measurement

The server stays up as long as the next evaluation wants the same one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import msgspec

from contextlab import registry
from contextlab.analysis.arrivals import schedule
from contextlab.analysis.frontier import Status
from contextlab.analysis.levels import LITTLE_GAP, MOST_FAILED, Level, client_doubt, level
from contextlab.analysis.prompts import filler, role_of, usual_api
from contextlab.analysis.sweeps import Measurement, Sweep, seed_of
from contextlab.experiment import Arrivals, Due, GeneratorHealth, Load, Mixed, Pace, Sample
from contextlab.lab.load.aim import aimed
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.load.order import LoadOrder
from contextlab.lab.server import OwnedServer, ServerEnded
from contextlab.lab.sweep.contention import MOST_OTHERS, Busy, busy, others, pressure
from contextlab.lab.sweep.plan import CONCURRENCY, LOAD_AXES, MEMORY, PROMPT_TOKENS, RATE, REPLY_TOKENS, spec_for
from contextlab.model import (
    Knowledge,
    Limits,
    Message,
    Request,
    Settings,
    TargetSpec,
    UnableError,
)

DISTINCT = 256
"""Different prompts of one evaluation; none of them is ever sent in another one."""
POLL_S = 0.1
HEAD_START_S = 0.3
TIMEOUT_S = 60.0
DRAIN_S = 10.0
DEATH_WAIT_S = 0.5
DEFAULTS = {axis.name: axis.default for axis in LOAD_AXES}


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How evaluations are made. `measure_s`: length of a load, ramp included. `same_prompts`: every prompt is the same
    each time, so that a prefix cache flatters every point after the first (to show how much). `trust_host`: the host's
    other work makes nothing invalid; it is only written down."""

    measure_s: float = 5.0
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

    def evaluate(self, settings: Settings, block: int, *, baseline: bool = False) -> Measurement:
        """Measure one setting once. What goes wrong is in the measurement; raises UsageError only for settings that
        nobody can mean, before anything is started."""
        began = time.monotonic()
        everything = {**self.sweep.fixed, **settings}
        common = {"settings": settings, "block": block, "baseline": baseline, "began_s": round(began - self.began_s, 3)}
        try:
            served = self._served(everything)
            measured = self._loaded(served, everything, settings, block)
        except ServerEnded as error:
            status = Status.CRASHED if error.end.signal else Status.INFEASIBLE
            measured = {"status": status, "why": error.message}
        except UnableError as error:
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
        return self.served

    # ── the load ──

    def _loaded(
        self, served: Served, everything: Mapping[str, object], settings: Settings, block: int
    ) -> dict[str, object]:
        rate = everything.get(RATE)
        slots = served.known.limits.num_slots or 1
        num_clients = int(str(everything.get(CONCURRENCY) or slots))
        order = self._order(
            served, everything, settings, block, num_clients, None if rate is None else float(str(rate))
        )
        samples: list[Sample] = []
        generators: list[GeneratorHealth] = []
        peak_bytes = 0
        with Fleet(order, num_workers=self.how.num_workers, log=self.folder / "client.log") as fleet:
            before = busy()
            fleet.start(time.monotonic() + HEAD_START_S)
            while not fleet.finished:
                for thing in fleet.poll(POLL_S):
                    (samples if isinstance(thing, Sample) else generators).append(thing)  # type: ignore[arg-type]
                if served.server is not None:
                    peak_bytes = max(peak_bytes, served.server.process.memory_bytes() or 0)
            after = busy()
        served.num_used += 1
        found = level(samples, num_clients if rate is None else 1, self.how.measure_s)
        if peak_bytes:
            found.values[MEMORY] = float(peak_bytes)
        facts = self._facts(served, found, generators, before, after, len(samples))
        status, why = self._status(served, found, samples, generators, facts, open_loop=rate is not None)
        return {
            "status": status,
            "why": why,
            "values": dict(found.values),
            "num_requests": found.num_requests,
            "num_failed": found.num_failed,
            "failures": found.failures,
            "facts": facts,
        }

    def _order(
        self,
        served: Served,
        everything: Mapping[str, object],
        settings: Settings,
        block: int,
        num_clients: int,
        rate: float | None,
    ) -> LoadOrder:
        requests = self._requests(served.known, everything, settings, block)
        dues = [Due(index=index, at_s=0.0, mixed=index) for index in range(len(requests))]
        if rate is not None:
            load = Load(
                arrivals=Arrivals(pace=Pace.POISSON, rate_per_s=rate),
                duration_s=self.how.measure_s,
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
            duration_s=self.how.measure_s,
            timeout_s=TIMEOUT_S,
            drain_s=DRAIN_S,
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
        self,
        served: Served,
        found: Level,
        generators: Sequence[GeneratorHealth],
        before: Busy,
        after: Busy,
        num_sent: int,
    ) -> dict[str, int | float | str | bool | None]:
        limits, stalled = served.known.limits, pressure(before, after)
        return {
            "window_tokens": limits.context_tokens,
            "slots": limits.num_slots,
            "fresh_server": served.num_used == 1,
            "steady_s": round(found.span.length_s, 3),
            "ramp_s": round(found.span.start_s, 3),
            "sent": num_sent,
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
        self,
        served: Served,
        found: Level,
        samples: Sequence[Sample],
        generators: Sequence[GeneratorHealth],
        facts: Mapping[str, object],
        *,
        open_loop: bool,
    ) -> tuple[Status, str]:
        end = served.server.process.wait(DEATH_WAIT_S if found.num_failed else 0.0) if served.server else None
        if end is not None:
            return Status.CRASHED, f"the server ended by {end.signal or f'exit code {end.exit_code}'} under this load"
        failed = found.num_failed / found.num_requests if found.num_requests else 0.0
        named = ", ".join(f"{number}x {why}" for why, number in found.failures.items())
        if samples and (failed > MOST_FAILED or not any(sample.content_s for sample in samples)):
            words = next((s.failure.message for s in samples if s.failure is not None), "")
            every = f"{found.num_failed} of {found.num_requests}" if found.num_requests else "all"
            return Status.INFEASIBLE, f"rejects or aborts {every} requests ({named}) {words}".strip()
        if found.why_not:
            return Status.INVALID, found.why_not
        if doubt := client_doubt(generators, open_loop=open_loop):
            return Status.INVALID, doubt
        used = facts["others_cores"]
        if isinstance(used, float) and used > MOST_OTHERS and not self.how.trust_host:
            return Status.INVALID, f"the host was contended: others used {used:.2f} cores meanwhile"
        if found.little_gap is not None and found.little_gap > LITTLE_GAP and found.num_requests >= 10:
            return Status.OK, f"Little's law is off by {found.little_gap:.0%}: hardly a steady state"
        return Status.OK, ""


async def _ask(spec: TargetSpec) -> Knowledge:
    """What a server says of itself, without a request to its model."""
    async with registry.open_target(spec) as target:
        return target.knowledge
