"""The passes of one chaos experiment: each request alone, then the load without faults, then the load with them.

reference (closed loop of one) ─▶ control arm ─ gate ─▶ fault arm        all over the same route, whose faults are
                                                                         armed for the last one only
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from contextlab.analysis import loads
from contextlab.analysis.arrivals import schedule
from contextlab.analysis.asked import with_asked
from contextlab.analysis.steadiness import gate, live_stop
from contextlab.analysis.trials import CONTROL, FAULT, Place, counted, with_sent
from contextlab.deeds import Victim
from contextlab.experiment import (
    Arm,
    Arrivals,
    Due,
    Ending,
    Experiment,
    Load,
    Pace,
    Placed,
    Plane,
    Sample,
    Trial,
)
from contextlab.lab.chaos.acting import Acting
from contextlab.lab.chaos.collecting import Seen, extra_schedule, filled, moments, references
from contextlab.lab.chaos.decisions import decisions
from contextlab.lab.chaos.profile import Profiler
from contextlab.lab.chaos.watching import Watching
from contextlab.lab.host.injector import Machine
from contextlab.lab.journal import plain
from contextlab.lab.link.direct import Direct
from contextlab.lab.link.route import Route
from contextlab.lab.load.aim import aimed
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.load.order import LoadOrder
from contextlab.lab.observe import release
from contextlab.lab.server import OwnedServer
from contextlab.lab.tier.tier import RunningTier
from contextlab.model import (
    Knowledge,
    ProcessEnd,
    TargetSpec,
)

REFERENCE = "reference"
REFERENCE_TIMES = 2
"""How often each request is sent alone, before anything else, to learn the text that it gets undisturbed."""
HEAD_START_S = 0.3
"""Between the last process that is ready and an arm's zero."""
STOP_CHECK_EVERY_S = 1.0
POLL_S = 0.1
DEATH_WAIT_S = 1.0
DEFAULT_TIMEOUT_S = 10.0


@dataclass(slots=True)
class SharedControl:
    """The control arm that the experiments of a scenario share as long as load and path (`key`) stay the same."""

    key: str = ""
    experiment: str = ""
    arm: Arm | None = None


class Passes:
    """The passes of one experiment over one route: reference, control, fault.

    `write` appends to the record; `server` is the target's process where it is ours; `shared` holds the last control
    of the scenario: experiments with the same load and path share it. `root`: the target's main process as it is now;
    `machines`, told the load's process ids, give hands to the faults beside the wire; `tier`: the cache in front of the
    target, if there is one.
    """

    def __init__(
        self,
        experiment: Experiment,
        known: Knowledge,
        route: Route | Direct,
        *,
        place: Place,
        spec: TargetSpec,
        server: OwnedServer | None,
        folder: Path,
        seed: int,
        num_workers: int,
        began_s: float,
        write: Callable[..., None],
        shared: SharedControl,
        root: Callable[[], Victim | None],
        machines: Callable[[Callable[[], Sequence[int]]], Mapping[Plane, Machine]],
        tier: RunningTier | None,
    ) -> None:
        self.experiment, self.known, self.route = experiment, known, route
        self._place = {"scenario": place[0], "probe": place[1]}
        self._spec, self._server = spec, server
        self._folder, self._seed, self._num_workers, self._began_s = folder, seed, num_workers, began_s
        self._write, self._shared = write, shared
        self._root, self._machines, self._tier = root, machines, tier
        self._requests = [loads.rendered(mixed.request, known) for mixed in experiment.mix]
        self._schedule = schedule(experiment.load, seed)
        self._extra = extra_schedule(self._schedule, experiment, seed)

    def trial(self) -> Trial:
        """Run the passes and return what was seen; the record has it already."""
        experiment, seed = filled(self.experiment, self._requests), self._seed
        path = self._path_words()
        self._append("experiment", experiment=experiment, path=path)
        self._append(
            "decisions",
            seed=seed,
            schedule_sha256=hashlib.sha256(msgspec.json.encode(plain([*self._schedule, *self._extra]))).hexdigest(),
            num_requests=len(self._schedule) + len(self._extra),
            faults=decisions(experiment.faults, [*self._schedule, *self._extra], seed),
        )
        measured: dict[str, int | float | str] = {}
        alone = self._alone()
        control = self._control() if experiment.control else None
        undisturbed = [alone] if control is None else [alone, control]
        trial = Trial(
            experiment=experiment,
            knowledge=self.known,
            control=control,
            references=references(undisturbed, self._requests),
            path=path,
        )
        if gate(trial) is None:
            profiler = Profiler(self._profiled(), experiment.load.duration_s, self._folder)
            with profiler:
                fault = self._pass(FAULT, self._with_extra(), experiment.faults)
            measured |= profiler.measured()
            trial = replace(trial, fault=fault)
        trial = replace(trial, measured=measured)
        self._append("trial", references=trial.references, measured=trial.measured)
        return trial

    def _profiled(self) -> int | None:
        server = self._server
        return server.process.pid if server is not None and self.experiment.profile else None

    def _now_s(self) -> float:
        return round(time.monotonic() - self._began_s, 6)

    def _append(self, kind: str, **fields: object) -> None:
        self._write(kind, **self._place, **fields)

    def _path_words(self) -> str:
        host, port = self.route.address
        first = self.route.engine
        if self._tier is not None and first == Direct.engine:
            first = "cache tier"
        behind = "cache tier → " if self._tier is not None and first != "cache tier" else ""
        return f"client → {first} {host}:{port} → {behind}target"

    # ── the passes ──

    def _alone(self) -> Arm:
        """Each request alone, one after the other, for the texts that it gets."""
        mix = range(len(self.experiment.mix if self._counts_extra() else self.experiment.load.mix))
        dues = [
            Due(index=index, at_s=0.0, mixed=mixed)
            for index, mixed in enumerate(mixed for _ in range(REFERENCE_TIMES) for mixed in mix)
        ]
        load = replace(
            self.experiment.load,
            arrivals=Arrivals(pace=Pace.CLOSED, concurrency=1),
            duration_s=len(dues) * (self.experiment.load.timeout_s or DEFAULT_TIMEOUT_S),
        )
        return self._pass(REFERENCE, [(load, dues)], watched=False, enough=len(dues))

    def _with_extra(self) -> list[tuple[Load, Sequence[Due]]]:
        parts: list[tuple[Load, Sequence[Due]]] = [(self.experiment.load, self._schedule)]
        if self.experiment.extra is not None:
            load = self.experiment.extra.load
            parts.append((replace(load, duration_s=self.experiment.extra.start_s + load.duration_s), self._extra))
        return parts

    def _counts_extra(self) -> bool:
        return self.experiment.extra is not None and self.experiment.extra.counts

    def _control(self) -> Arm:
        """The pass without faults; experiments of one scenario that share load and path share it."""
        one = self.experiment
        key = msgspec.json.encode(
            plain([one.load, self.route.engine, one.tier, one.health, one.release_within_s, one.settings])
        ).decode()
        if self._shared.key == key and self._shared.arm is not None:
            self._append("arm", arm=CONTROL, zero_at_s=self._now_s(), of=self._shared.experiment)
            return self._shared.arm
        arm = self._pass(CONTROL, [(self.experiment.load, self._schedule)])
        self._shared.key, self._shared.experiment, self._shared.arm = key, self.experiment.name, arm
        return arm

    def _pass(
        self,
        name: str,
        parts: Sequence[tuple[Load, Sequence[Due]]],
        faults: Sequence[Placed] = (),
        *,
        watched: bool = True,
        enough: int | None = None,
    ) -> Arm:
        """One pass of a load, or of several at once, over the route; it ends early after `enough` samples."""
        seen = Seen(lambda kind, **fields: self._append(kind, arm=name, **fields), most=enough)
        dues = [due for _, part in parts for due in part]
        ahead = deque(moments(faults))
        stopped = ""
        fleets: list[Fleet] = []

        def client_pids() -> list[int]:
            return [pid for fleet in fleets for pid in fleet.pids] + acting.pids

        with contextlib.ExitStack() as stack:
            acting = stack.enter_context(
                Acting(
                    faults,
                    self.route,
                    self._machines(client_pids) if faults else {},
                    self._crowd_order(),
                    seed=self._seed,
                    log=self._folder / "client.log",
                )
            )
            fleets += [stack.enter_context(self._fleet(name, load, part)) for load, part in parts]
            if self.experiment.release_within_s is not None:
                release.warm_up(self._spec, self.known)
            zero_s = looked_s = time.monotonic() + HEAD_START_S
            if self._tier is not None:
                self._tier.begin(zero_s)
            acting.arm(zero_s)
            self._append("arm", arm=name, zero_at_s=round(zero_s - self._began_s, 6))
            watching = stack.enter_context(self._watching(zero_s, client_pids, on=watched))
            for fleet in fleets:
                fleet.start(zero_s)
            while any(not fleet.finished for fleet in fleets):
                for fleet in fleets:
                    seen.take(fleet.poll(POLL_S / len(fleets)))
                seen.take_gauges(watching.gauges())
                seen.take_beside([*acting.taken(), *watching.taken()])
                now_s = time.monotonic() - zero_s
                while ahead and ahead[0][0] <= now_s:
                    at_s, fault, on = ahead.popleft()
                    self._append("fault", arm=name, name=fault, on=on, due_s=at_s)
                if enough is not None and len(seen.samples) >= enough:
                    enough = None
                    for fleet in fleets:
                        fleet.stop()
                if watched and not stopped and time.monotonic() - looked_s > STOP_CHECK_EVERY_S:
                    looked_s = time.monotonic()
                    stopped = self._must_stop(seen.samples, dues, now_s, acting)
                    for fleet in fleets if stopped else ():
                        fleet.stop()
            for fleet in fleets:
                seen.take(fleet.poll(0.0))
            length_s = time.monotonic() - zero_s
            acting.end()
            watching.release()
            seen.take_gauges(watching.gauges())
            seen.take_beside([*acting.taken(), *watching.taken()])
            evidence = with_asked(acting.evidence(), faults, seen.samples)
            killed = acting.expects_death
        for one in evidence:
            self._append("evidence", arm=name, evidence=one)
        sent = self.route.as_sent(seen.samples)
        self._append("as_sent", arm=name, indices=sent)
        server = None if killed else self._server_end(seen.samples)
        self._append(
            "arm_end",
            arm=name,
            length_s=round(length_s, 6),
            stopped=stopped,
            server=server,
            counters=self.route.counters(),
            link_cpu_s=round(self.route.cpu_s(), 6),
        )
        acting.raise_failed_undo()
        counting, uncounted = counted(self.experiment, with_sent(seen.samples, sent))
        return Arm(
            name=name,
            length_s=length_s,
            samples=counting,
            uncounted=uncounted,
            generators=tuple(seen.generators),
            evidence=evidence,
            gauges=tuple(seen.gauges),
            readings=tuple(seen.readings),
            deeds=tuple(seen.deeds),
            deaths=tuple(seen.deaths),
            server=server,
            stopped=stopped,
        )

    def _watching(self, zero_s: float, client_pids: Callable[[], Sequence[int]], *, on: bool) -> Watching:
        """What looks at the target while this pass lasts."""
        return Watching(
            self._spec,
            self.known,
            zero_s,
            root=self._root,
            client_pids=client_pids,
            tier=self._tier,
            health=self.experiment.health,
            release_within_s=self.experiment.release_within_s,
            on=on,
        )

    def _crowd_order(self) -> LoadOrder:
        """What misbehaving clients send, and where: past the wire's faults, through the cache tier if there is one."""
        return aimed(
            self._spec,
            self.known,
            self._requests,
            None if self._tier is None else self._tier.address,
            schedule=(),
            duration_s=0.0,
            timeout_s=self.experiment.load.timeout_s or DEFAULT_TIMEOUT_S,
        )

    def _fleet(self, name: str, load: Load, dues: Sequence[Due]) -> Fleet:
        order = aimed(
            self._spec,
            self.known,
            self._requests,
            self.route.address,
            schedule=tuple(dues),
            concurrency=load.arrivals.concurrency if load.arrivals.pace is Pace.CLOSED else 0,
            duration_s=load.duration_s,
            timeout_s=load.timeout_s or DEFAULT_TIMEOUT_S,
            kept_connections=load.kept_connections,
            arm=name,
        )
        return Fleet(
            order,
            num_workers=self._num_workers,
            namespace_pid=self.route.namespace_pid,
            log=self._folder / "client.log",
        )

    def _must_stop(self, samples: Sequence[Sample], dues: Sequence[Due], now_s: float, acting: Acting) -> str:
        server = self._server
        if server is not None:
            process = server.process
            end = process.poll()
            ours = acting.expects_death or server.process is not process  # asked last: our hand may end it any moment
            if end is not None and not ours:
                return f"the server ended: {end.signal or f'exit code {end.exit_code}'}"
        if not self.experiment.stop:
            return ""
        return live_stop(self.experiment.stop, samples, dues, now_s) or ""

    def _server_end(self, samples: Sequence[Sample]) -> ProcessEnd | None:
        server = self._server
        if server is None:
            return None
        lost = any(sample.ending in (Ending.RESET, Ending.REFUSED, Ending.FIN) for sample in samples[-20:])
        return server.process.wait(DEATH_WAIT_S if lost else 0.0)
