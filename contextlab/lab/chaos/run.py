"""The impure loop of `chaos`: one experiment after the other, each two passes of the same load over the same path.

    plan ─▶ experiment ─▶ route (link process) ─▶ reference texts ─▶ control arm ─ gate ─▶ arm with the faults ─▶ trial
                ▲                                                                                                │
                └── seen, sent back ──────────── findings ◀── the common judgements, then the scenario's ◀───────┘

The path is the same in both arms, so that what the link itself costs is in the control too. Whatever comes is appended
to the record as it comes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from contextlab import registry
from contextlab.analysis.concluding import chaos_finding
from contextlab.analysis.foresight import lack, next_step
from contextlab.analysis.steadiness import judge_trial
from contextlab.deeds import Tier, Victim
from contextlab.experiment import (
    Asked,
    ChaosPlan,
    ChaosScenario,
    Ending,
    Experiment,
    Plane,
    Sample,
    Trial,
)
from contextlab.lab.chaos.passes import Passes, SharedControl
from contextlab.lab.chaos.path import Way, opened
from contextlab.lab.chaos.variants import powers_of, served_with
from contextlab.lab.chaos.victims import is_started_here, unkillable
from contextlab.lab.host.deaths import Deaths
from contextlab.lab.host.injector import Machine
from contextlab.lab.host.machine import TargetMachine
from contextlab.lab.journal import plain
from contextlab.lab.load.aim import where
from contextlab.lab.run import Lab, Options
from contextlab.lab.server import OwnedServer, served_at, serving_command
from contextlab.lab.tier.tier import RunningTier
from contextlab.lab.undo import locks
from contextlab.lab.undo.ledger import Ledger
from contextlab.lab.undo.steps import started_of
from contextlab.model import (
    ContextlabError,
    Judgement,
    Knowledge,
    Layer,
    Outcome,
    Record,
    ServerCommand,
    Skip,
    TargetSpec,
    UnableError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """What `chaos` adds to the options of a run. `victim`: the target's process where it is not ours to start."""

    asked: Asked
    allow_emulation: bool = False
    num_workers: int = 1
    victim: Victim | None = None


class ChaosLab(Lab):
    """A run of chaos experiments."""

    NOUN = "experiment"

    def __init__(
        self,
        spec: TargetSpec,
        folder: Path,
        options: Options,
        listener: Callable[[Record], None] = lambda record: None,
        *,
        chaos: ChaosOptions,
    ) -> None:
        super().__init__(spec, folder, options, listener)
        self.chaos = chaos
        self._shared = SharedControl()
        self._ledger: Ledger | None = None
        self._deaths: Deaths | None = None

    def run_chaos(self, scenarios: Sequence[ChaosScenario]) -> int:
        """Run the scenarios and return the exit code; errors as in `Lab.run`.

        Raises UsageError where another run is at this target, UnableError where a dead run's undo is still open.
        """

        def every_scenario(known: Knowledge) -> None:
            with Ledger(run=self.folder.name, target=self.spec.name) as self._ledger:
                self._deaths = Deaths(self._server, self._restarted)
                for scenario in scenarios:
                    self._run_chaos(scenario, known)

        locks.refuse_open()
        with locks.hold(self._place()):
            return self._session(every_scenario)

    def _place(self) -> str:
        """What no second run may test at the same time: an address; a server that we start is ours alone."""
        if is_started_here(self.spec):
            return f"run {self.folder.name} of {os.getpid()}"
        host, port = where(self.spec)
        return f"{host}:{port}"

    # ── the target: one that lives in a process is put behind a server of ours ──

    def _server_command(self) -> ServerCommand | None:
        return serving_command(self.spec)

    def _note_server(self, server: OwnedServer) -> None:
        super()._note_server(server)
        self.spec = served_at(self.spec, server.url)  # from here on it is a server like any other

    def _own_powers(self) -> frozenset[str]:
        foreign = frozenset({"process"}) if self.chaos.victim is not None else frozenset()
        server = self._server
        workers = frozenset({"workers"}) if server is not None and server.process.num_children() else frozenset()
        return super()._own_powers() | foreign | workers | powers_of(self.spec)

    def _restarted(self) -> None:
        """A fault has started our server again."""
        if self._server is not None:
            self._note_server(self._server)

    def root(self) -> Victim | None:
        """The target's main process as it is now; None where it is none of this machine, or not ours to touch."""
        if self._server is None:
            return self.chaos.victim
        pid = self._server.process.pid
        started = None if pid is None else started_of(pid)
        return None if pid is None or started is None else Victim(pid=pid, started=started)

    # ── scenarios ──

    def _run_chaos(self, scenario: ChaosScenario, known: Knowledge) -> None:
        reason = self._gone or lack(scenario, known)
        if reason:
            self._journal.append("skip", **plain(Skip(scenario=scenario.name, reason=reason)))
            return
        self._journal.append("scenario", scenario=scenario.name, name=scenario.name, summary=scenario.summary)
        self._shared = SharedControl()
        seen: Trial | None = None
        plan: ChaosPlan | None = None
        while True:
            try:
                if plan is None:
                    plan = scenario.plan(known, self.chaos.asked, Random(f"{self.options.seed}:{scenario.name}"))
                step = next_step(plan, seen)
            except StopIteration:
                return
            except ContextlabError:  # it says to the user what to mend
                raise
            except Exception as error:  # as with a judge: what could not be planned is unknown, and the run goes on
                self._plan_failed(scenario.name, error)
                return
            seen = None
            if isinstance(step, Experiment) and (reason := self._gone or self._unkillable(step)):
                step = Skip(scenario=scenario.name, probe=step.name, reason=reason)
            if isinstance(step, Experiment):
                seen = self._experiment(scenario, step, known)
            else:
                self._journal.append("skip", **plain(step))

    def _unkillable(self, experiment: Experiment) -> str:
        return unkillable(experiment.faults) if self._server is None else ""

    def _experiment(self, scenario: ChaosScenario, experiment: Experiment, known: Knowledge) -> Trial | None:
        if experiment.tier is None and any(registry.plane_of(one) is Plane.TIER for one in experiment.faults):
            experiment = replace(experiment, tier=Tier())
        with ExitStack() as stack:
            stack.enter_context(served_with(self._server, self.spec, experiment.settings, self._note_server))
            try:
                way = stack.enter_context(self._way(experiment))
            except UnableError as error:
                if self.chaos.asked.faults:
                    raise
                skip = Skip(scenario=scenario.name, probe=experiment.name, reason=error.message)
                self._journal.append("skip", **plain(skip))
                return None
            trial = Passes(
                experiment,
                known,
                way.route,
                place=(scenario.name, experiment.name),
                spec=self.spec,
                server=self._server,
                folder=self.folder,
                seed=self.options.seed,
                num_workers=self.chaos.num_workers,
                began_s=self._began_s,
                write=self._journal.append,
                shared=self._shared,
                root=self.root,
                machines=lambda client_pids: self._machines(experiment, way.tier, client_pids),
                tier=way.tier,
            ).trial()
        for judgement in self._judgements(scenario, experiment, trial):
            self._found(chaos_finding(scenario.name, experiment, judgement, known, self.options.policy))
        self._bring_back(trial)
        return trial

    def _way(self, experiment: Experiment) -> AbstractContextManager[Way]:
        return opened(
            experiment,
            self.spec,
            folder=self.folder,
            seed=self.options.seed,
            allow_emulation=self.chaos.allow_emulation,
        )

    def _machines(
        self, experiment: Experiment, tier: RunningTier | None, client_pids: Callable[[], Sequence[int]]
    ) -> dict[Plane, Machine]:
        """Who gives hands to the experiment's faults beside the wire; `client_pids`: the processes of its load."""
        found: dict[Plane, Machine] = {}
        planes = {registry.plane_of(placed) for placed in experiment.faults}
        if self._ledger is None:
            return found
        if Plane.HOST in planes and self.root() is not None:
            server = self._server
            found[Plane.HOST] = TargetMachine(
                root=self.root,
                ledger=self._ledger,
                deaths=self._deaths,
                client_pids=client_pids,
                end=lambda: None if server is None else server.process.poll(),
            )
        if Plane.TIER in planes and tier is not None:
            found[Plane.TIER] = tier.machine(self._ledger)
        return found

    def _judgements(self, scenario: ChaosScenario, experiment: Experiment, trial: Trial) -> list[Judgement]:
        try:
            found = judge_trial(trial)
            if scenario.judge is not None:
                found = [*found, *scenario.judge(experiment, trial)]
        except Exception as error:  # whatever it is, it must not become a pass, nor end the run
            why = f"it could not be judged: {type(error).__name__}: {error}"
            return [Judgement(outcome=Outcome.UNKNOWN, why=why)]
        return found or [Judgement(outcome=Outcome.UNKNOWN, why="nothing was judged", layer=Layer.ENGINE)]

    def _bring_back(self, trial: Trial) -> None:
        """A server of ours that died is started again for the next experiment."""
        arms = [arm for arm in (trial.control, trial.fault) if arm is not None]
        if self._server is not None and self._server.process.poll() is not None:
            self.listener({"kind": "progress", "text": "starting the server again"})
            self._server.restart()
            self._note_server(self._server)
        elif self._server is None and arms and all(_unreached(sample) for sample in arms[-1].samples[-5:]):
            self._gone = "the target no longer answers; it is not ours to start again"


def _unreached(sample: Sample) -> bool:
    return sample.ending in (Ending.REFUSED, Ending.UNREACHED)
