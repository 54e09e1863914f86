"""The impure loop of `chaos`: one experiment after the other, each two passes of the same load over the same path.

    plan ─▶ experiment ─▶ route (link process) ─▶ reference texts ─▶ control arm ─ gate ─▶ arm with the faults ─▶ trial
                ▲                                                                                                │
                └── seen, sent back ──────────── findings ◀── the common judgements, then the scenario's ◀───────┘

The path is the same in both arms, so that what the link itself costs is in the control too. Whatever comes is appended
to the record as it comes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from contextlab import registry
from contextlab.analysis.concluding import chaos_finding
from contextlab.analysis.foresight import lack, next_step
from contextlab.analysis.steadiness import judge_trial
from contextlab.experiment import (
    Asked,
    ChaosPlan,
    ChaosScenario,
    Ending,
    Experiment,
    Fault,
    Plane,
    Sample,
    Trial,
)
from contextlab.lab.chaos.passes import Passes, SharedControl
from contextlab.lab.journal import plain
from contextlab.lab.link.direct import Direct
from contextlab.lab.link.engines import choose_engine
from contextlab.lab.link.route import Route
from contextlab.lab.load.aim import speaks_tls, where
from contextlab.lab.run import Lab, Options
from contextlab.lab.server import OwnedServer
from contextlab.model import (
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
    """What `chaos` adds to the options of a run."""

    asked: Asked
    allow_emulation: bool = False
    num_workers: int = 1


class ChaosLab(Lab):
    """A run of chaos experiments."""

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

    def run_chaos(self, scenarios: Sequence[ChaosScenario]) -> int:
        """Run the scenarios and return the exit code; errors as in `Lab.run`."""

        def every_scenario(known: Knowledge) -> None:
            for scenario in scenarios:
                self._run_chaos(scenario, known)

        return self._session(every_scenario)

    # ── the target: one that lives in a process is put behind a server of ours ──

    def _server_command(self) -> ServerCommand | None:
        return hosting_command(self.spec) if registry.runs_in_child(self.spec) else super()._server_command()

    def _note_server(self, server: OwnedServer) -> None:
        super()._note_server(server)
        if registry.runs_in_child(self.spec):  # from here on it is a server like any other
            self.spec = TargetSpec(name=self.spec.name, scheme="http", address=server.url, url=server.url)

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
            seen = None
            if isinstance(step, Experiment) and self._gone:
                step = Skip(scenario=scenario.name, probe=step.name, reason=self._gone)
            if isinstance(step, Experiment):
                seen = self._experiment(scenario, step, known)
            else:
                self._journal.append("skip", **plain(step))

    def _experiment(self, scenario: ChaosScenario, experiment: Experiment, known: Knowledge) -> Trial | None:
        faults = [registry.make_fault(placed) for placed in experiment.faults]
        engine = "relay"
        if any(fault.PLANE is Plane.PACKET for fault in faults):
            try:
                engine = choose_engine(experiment.faults, allow_emulation=self.chaos.allow_emulation)
            except UnableError as error:
                if self.chaos.asked.faults:
                    raise
                skip = Skip(scenario=scenario.name, probe=experiment.name, reason=error.message)
                self._journal.append("skip", **plain(skip))
                return None
        with self._route(engine, faults) as route:
            trial = Passes(
                experiment,
                known,
                route,
                place=(scenario.name, experiment.name),
                spec=self.spec,
                server=self._server,
                folder=self.folder,
                seed=self.options.seed,
                num_workers=self.chaos.num_workers,
                began_s=self._began_s,
                write=self._journal.append,
                shared=self._shared,
            ).trial()
        for judgement in self._judgements(scenario, experiment, trial):
            self._found(chaos_finding(scenario.name, experiment, judgement, known, self.options.policy))
        self._bring_back(trial)
        return trial

    def _route(self, engine: str, faults: Sequence[Fault]) -> Route | Direct:
        """The way to the target: through the link process, or straight where there is nothing to do on the way."""
        if not faults:
            return Direct(where(self.spec))
        if speaks_tls(self.spec):
            message = f"{self.spec.name}: faults on the wire need plain http, this target speaks TLS"
            raise UnableError(message, "test the server behind its TLS, on its own port")
        return Route(where(self.spec), engine=engine, log=self.folder / "link.log", seed=self.options.seed)

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


def hosting_command(spec: TargetSpec) -> ServerCommand:
    """How a target that lives inside a process is started behind a server of ours."""
    words = msgspec.json.encode(plain(spec)).decode()
    return ServerCommand(argv=(sys.executable, "-m", "contextlab.lab.chaos.host", words), ready_timeout_s=300.0)
