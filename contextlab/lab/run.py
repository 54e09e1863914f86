"""The one impure loop: plan → run → judge → write, for every scenario asked for.

start the target's server (if it is ours) ─▶ open it once, in a child ─▶ for each scenario:
    plan ─▶ probe ─▶ child ─▶ observation ─▶ common judgements, then the scenario's ─▶ findings ─▶ record
              ▲                    │
              └── seen, sent back ─┘        a server of ours that died, or stands still, is started again
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import ClassVar

from contextlab import registry
from contextlab.analysis.concluding import conclude, finding_of, judge
from contextlab.analysis.foresight import (
    lack,
    next_step,
    num_foreseen,
    patience,
    with_measured_window,
    with_window,
)
from contextlab.analysis.prompts import aftermath
from contextlab.lab.child import Order
from contextlab.lab.interrupt import Interrupted, stoppable
from contextlab.lab.isolate import Birth, ChildRun, Line, births, gather, run_child
from contextlab.lab.journal import Journal, plain, revive
from contextlab.lab.provenance import activity, machine, shown_target, versions, without_secrets
from contextlab.lab.server import OwnedServer, silence
from contextlab.model import (
    SCHEMA,
    Api,
    ContextlabError,
    Exchange,
    Failure,
    Finding,
    Gauges,
    Health,
    Knowledge,
    Layer,
    Observation,
    Outcome,
    Plan,
    Policy,
    Probe,
    ProcessEnd,
    Record,
    Scenario,
    ServerCommand,
    Skip,
    TargetSpec,
    UnableError,
    UsageError,
    Verdict,
)

OPENING_PATIENCE_S, OPENING_EXCHANGES, CONNECTING_S = 60.0, 7, 90.0
"""Time for each exchange of the opening, how many there are at most, and time to find out what the target is."""
DEATH_WAIT_S = 1.0
"""A connection may break a moment before its server is dead and reaped."""
CHILD_SLACK_S = 15.0
"""What a child may need besides its exchanges: start-up, rendering, gauges."""
INTERNAL_ERROR = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is made; nothing here changes what is probed.

    `patience_s` overrides the scaled time of each exchange. `max_repeats`: a scenario is left after that many
    probes that crashed, or hung. `max_prompt_tokens`: a larger window is refused instead of probed.
    """

    seed: int = 0
    policy: Policy = field(default_factory=Policy)
    patience_s: float | None = None
    memory_limit_bytes: int | None = None
    max_repeats: int = 2
    max_prompt_tokens: int = 65536
    argv: Sequence[str] = ()
    command: str = "overflow"


class Lab:
    """One run, from the header of its record to the last line.

    `resumed_s`: the folder holds a run that was cut off at that time; this one goes on in the same record.
    `listener` sees every line of the record as it is written, and "progress" lines that are not recorded.
    """

    NOUN: ClassVar[str] = "probe"
    """What the run is made of, in words."""

    def __init__(
        self,
        spec: TargetSpec,
        folder: Path,
        options: Options,
        listener: Callable[[Record], None] = lambda record: None,
        *,
        resumed_s: float | None = None,
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.options = options
        self.listener = listener
        self.findings: list[Finding] = []
        self._resumed = resumed_s is not None
        self._began_s = time.monotonic() - (resumed_s or 0.0)
        self._journal = Journal(folder, self.now_s, listener, goes_on=self._resumed)
        self._server: OwnedServer | None = None
        self._birth: Callable[[Probe | None], Birth]
        self._gone = ""

    def run(self, scenarios: Sequence[Scenario]) -> int:
        """Run the scenarios and return the exit code.

        An error of the user's to mend is recorded, and raised; after the first finding it is a note and a reason of
        the end instead, for what was found must not hide behind it.
        """

        def every_scenario(known: Knowledge) -> None:
            for index, scenario in enumerate(scenarios):
                known = self._run_scenario(scenario, known, scenarios[index + 1 :])

        return self._session(every_scenario)

    def _session(self, work: Callable[[Knowledge], None]) -> int:
        """Header, target, the work, end: the frame of every run; returns the exit code."""
        with self._journal:
            self._header()
            try:
                with stoppable(), self._serving(), self._nursing():
                    work(self._open())
            except Interrupted as interrupt:
                return self._end({128 + interrupt.number: f"stopped by {signal.Signals(interrupt.number).name}"})
            except ContextlabError as error:
                if not self.findings:
                    self._end({error.exit_code: error.message})
                    raise
                then = f"; next: {error.next_step}" if error.next_step else ""
                self._journal.append("note", text=f"the run ended early: {error.message}{then}")
                return self._end({error.exit_code: error.message})
            except Exception as error:  # ours: the record must not look as if the tool had been killed
                self._end({INTERNAL_ERROR: f"internal error: {type(error).__name__}: {error}"})
                raise
            return self._end({})

    def replay(self, scenario: Scenario, probe: Probe) -> int:
        """Run one recorded probe again, against the target opened anew, and return the exit code."""
        return self.run([replace(scenario, plan=lambda known, rng: (one for one in (probe,)), needs=())])  # type: ignore[arg-type,return-value]

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began_s

    # ── the record's first and last line ──

    def _header(self) -> None:
        if self._resumed:
            self._journal.append("note", text="the run was resumed here", argv=list(self.options.argv))
            return
        self._journal.append(
            "header",
            schema=SCHEMA,
            run=self.folder.name,
            command=self.options.command,
            argv=list(self.options.argv),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seed=self.options.seed,
            versions=versions(),
            machine=machine(),
            target=shown_target(self.spec),
            policy=self.options.policy,
        )

    def _end(self, reasons: Mapping[int, str]) -> int:
        verdict, code, every = conclude(self.findings, reasons, self.NOUN)
        return self._last_line(verdict, code, every)

    def _last_line(self, verdict: Verdict, code: int, reasons: Sequence[tuple[int, str]]) -> int:
        self._journal.append(
            "end",
            verdict=verdict,
            exit={"code": code, "reason": reasons[0][1], "all": [list(one) for one in reasons]},
            machine=activity(),
        )
        return code

    # ── the target ──

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Our server, if the target has one, runs inside this; nothing of it is left afterwards."""
        command = self._server_command()
        if command is None:
            yield
            return
        with OwnedServer(
            command,
            log=self.folder / "server.log",
            memory_limit_bytes=self.options.memory_limit_bytes,
            progress=lambda text: self.listener({"kind": "progress", "text": text}),
        ) as self._server:
            self._note_server(self._server)
            yield

    def _server_command(self) -> ServerCommand | None:
        """How to start our server; None where there is none of ours."""
        return registry.server_command(self.spec)

    @contextmanager
    def _nursing(self) -> Iterator[None]:
        """Where the children of this run come from."""
        log, limit_bytes = self.folder / "client.log", self.options.memory_limit_bytes
        with births(self.spec, log, limit_bytes, warm_up_s=self._opening_s()) as self._birth:
            yield

    def _note_server(self, server: OwnedServer) -> None:
        self._journal.append(
            "server",
            pid=server.process.pid,
            url=without_secrets(server.url),
            log=server.log.name,
            memory_limit=server.process.memory_limit,
            memory_limit_bytes=server.memory_limit_bytes,
            start=server.num_starts,
        )
        self.spec = replace(self.spec, url=server.url)

    def _open(self) -> Knowledge:
        """Open the target once, in a child, and learn what a run must know. Raises where it cannot be opened."""
        patience_s, deadline_s = self.options.patience_s or OPENING_PATIENCE_S, self._opening_s()
        run = self._child(None, None, patience_s, deadline_s, "opening", "opening")
        if (cannot := run.last("cannot")) is not None:
            kind = UsageError if cannot["exit_code"] == UsageError.exit_code else UnableError
            raise kind(cannot["message"], cannot["next_step"])
        line = run.last("knowledge")
        if line is None:
            if run.end.timed_out:
                message = (
                    f"the target was not open after {deadline_s:.0f} s: {run.end.last_event or 'it never answered'}"
                )
                raise UnableError(message, "is it loading, or overloaded? give it more time: --timeout SECONDS")
            words = "\n".join(f"  {line}" for line in run.end.stderr_tail[-8:])
            server = self._server.process.poll() if self._server else None
            who, end = ("the server", server) if server else ("the process that opened it", run.end)
            raise UnableError(
                f"the target could not be opened: {who} ended {_how(end)}\n{words}", f"see the logs in {self.folder}"
            )
        known = revive(line["knowledge"], Knowledge)
        known = replace(known, gauges=self._with_memory(known.gauges), powers=known.powers | self._own_powers())
        known = with_window(known, self.options.max_prompt_tokens)
        self._journal.append("knowledge", knowledge=known)
        if not known.neighbour_stable and "serves-many" in known.powers:
            self._journal.append("note", text=f"answers beside an overflow are not compared: {known.neighbour_note}")
        return known

    def _opening_s(self) -> float:
        """How long the target may take to open, and to be loaded."""
        return OPENING_EXCHANGES * (self.options.patience_s or OPENING_PATIENCE_S) + CHILD_SLACK_S + CONNECTING_S

    def _own_powers(self) -> frozenset[str]:
        return frozenset({"process", "log"}) if self._server is not None else frozenset()

    def _with_memory(self, gauges: Gauges | None) -> Gauges | None:
        if self._server is None:
            return gauges
        return replace(gauges or Gauges(), memory_bytes=self._server.process.memory_bytes())

    # ── scenarios and probes ──

    def _run_scenario(self, scenario: Scenario, known: Knowledge, later: Sequence[Scenario]) -> Knowledge:
        reason = self._gone or lack(scenario, known)
        if reason:
            self._journal.append("skip", **plain(Skip(scenario=scenario.name, reason=reason)))
            return known
        self._journal.append(
            "scenario",
            scenario=scenario.name,
            name=scenario.name,
            summary=scenario.summary,
            num_probes=num_foreseen(scenario, known),
            num_later=sum(num_foreseen(one, known) for one in later),
        )
        plan: Plan | None = None
        repeats: Counter[Outcome] = Counter()
        seen: Observation | None = None
        measured: int | None = None
        while True:
            try:
                if plan is None:
                    plan = scenario.plan(known, Random(f"{self.options.seed}:{scenario.name}"))
                step = next_step(plan, seen)
            except StopIteration:
                break
            except Exception as error:  # as with a judge: what could not be planned is unknown, and the run goes on
                self._plan_failed(scenario.name, error)
                break
            seen = None
            tired = [outcome for outcome, times in repeats.items() if times >= self.options.max_repeats]
            if isinstance(step, Probe) and (tired or self._gone):
                reason = self._gone or f"{tired[0].name} {repeats[tired[0]]} times in this scenario already"
                step = Skip(scenario=scenario.name, probe=step.name, reason=reason)
            if isinstance(step, Skip):
                self._journal.append("skip", **plain(step))
                continue
            seen, findings = self._probe(scenario, step, known)
            bad = {finding.outcome for finding in findings if finding.verdict is not Verdict.PASS}
            repeats.update(bad & {Outcome.CRASHED, Outcome.HUNG})
            for finding in findings:
                number = finding.evidence.get("measured_tokens")
                measured = int(number) if isinstance(number, int) else measured
        if known.limits.context_tokens is None and measured is not None:
            return with_measured_window(known, measured + 1)
        return known

    def _probe(self, scenario: Scenario, probe: Probe, known: Knowledge) -> tuple[Observation, list[Finding]]:
        patience_s = self.options.patience_s or probe.timeout_s or patience(probe, known)
        probe = replace(probe, timeout_s=patience_s)
        self._journal.append("probe", scenario=scenario.name, probe=probe)
        log_start = self._server.process.log_size_bytes() if self._server else 0
        num_exchanges = (1 if probe.parallel else len(probe.requests)) + 2 + 2
        run = self._child(
            known, probe, patience_s, num_exchanges * patience_s + CHILD_SLACK_S, scenario.name, probe.name
        )
        seen = self._observe(probe, known, run, log_start)
        if seen.client_note and self._server is None and self.spec.scheme in ("http", "https"):
            error = silence(self.spec.address)
            if error:
                lost = Exchange(request=aftermath(Api.COMPLETIONS), failure=Failure(where="connect", message=error))
                seen = replace(seen, aftermath=lost)
        self._journal.append(
            "observed",
            scenario=scenario.name,
            probe=probe.name,
            client=seen.client,
            server=seen.server,
            health=seen.health,
            gauges=seen.gauges,
            measured=seen.measured,
            log_lines=seen.log_lines[-20:],
        )
        findings = [
            finding_of(scenario, probe, judgement, seen, self.options.policy)
            for judgement in judge(scenario, probe, seen)
        ]
        for finding in findings:
            self._found(finding)
        self._recover(seen, {finding.outcome for finding in findings})
        return seen, findings

    def _child(
        self,
        known: Knowledge | None,
        probe: Probe | None,
        patience_s: float,
        deadline_s: float,
        scenario: str,
        name: str,
    ) -> ChildRun:
        def on_line(line: Line) -> None:
            if line["kind"] == "event":
                extra = {"request": line["request"]} if "request" in line else {}
                self._journal.append(
                    "event", scenario=scenario, probe=name, exchange=line["exchange"], event=line["event"], **extra
                )

        order = Order(spec=self.spec, began_s=self._began_s, patience_s=patience_s, knowledge=known, probe=probe)
        server = self._server
        return run_child(
            order,
            self._birth(probe),
            deadline_s=deadline_s,
            on_line=on_line,
            server_ended=(lambda: server.process.poll() is not None) if server else (lambda: False),
        )

    def _observe(self, probe: Probe, known: Knowledge, run: ChildRun, log_start: int) -> Observation:
        """Put together what the child reported, how it ended, and what the server did meanwhile."""
        exchanges = gather(run.lines)
        server: ProcessEnd | None = None
        log_lines: tuple[str, ...] = ()
        if self._server is not None:
            lost = any(one.failure and one.failure.where in ("transport", "connect") for one in exchanges.values())
            server = self._server.process.wait(DEATH_WAIT_S if lost else 0.0) or ProcessEnd()
            log_lines = tuple(self._server.process.log_lines(log_start))
        line = run.last("seen")
        gauges = revive(line["gauges"], Gauges) if line and line.get("gauges") else None
        if probe.watch:
            gauges = self._with_memory(gauges)
        return Observation(
            exchanges=tuple(exchanges[request.name] for request in probe.requests if request.name in exchanges),
            knowledge=known,
            neighbour=exchanges.get("neighbour"),
            neighbour_again=tuple(exchanges[name] for name in exchanges if name.startswith("neighbour-again")),
            aftermath=exchanges.get("aftermath"),
            client=run.end,
            server=server,
            health=tuple(revive(line["health"], Health) for line in run.lines if line["kind"] == "health"),
            gauges=gauges,
            log_lines=log_lines,
            measured={
                name: value
                for line in run.lines
                if line["kind"] == "measured"
                for name, value in line["measured"].items()
            },
            client_note=str((run.last("cannot") or {}).get("message", "")),
        )

    def _plan_failed(self, scenario: str, error: Exception) -> None:
        self._found(
            Finding(
                scenario=scenario,
                probe="plan",
                outcome=Outcome.UNKNOWN,
                verdict=self.options.policy.verdict(Outcome.UNKNOWN, frozenset()),
                layer=Layer.ENGINE,
                why=f"the plan failed: {type(error).__name__}: {error}",
            )
        )

    def _found(self, finding: Finding) -> None:
        self._journal.append("finding", **plain(finding))
        self.findings.append(finding)

    def _recover(self, seen: Observation, outcomes: set[Outcome]) -> None:
        """Bring the target back for the next probe; where it is not ours and gone, the rest of the run is skipped."""
        stuck = Outcome.HUNG in outcomes and (seen.aftermath is None or seen.aftermath.failure is not None)
        if self._server is not None and (stuck or self._server.process.poll() is not None):
            self.listener({"kind": "progress", "text": "starting the server again"})
            self._server.restart()
            self._note_server(self._server)
        elif self._server is None and Outcome.CRASHED in outcomes and self.spec.scheme in ("http", "https"):
            self._gone = "the target no longer answers; it is not ours to start again"


def _how(end: ProcessEnd) -> str:
    return f"by {end.signal}" if end.signal else f"with exit code {end.exit_code}"
