"""The one impure loop: plan → run → judge → write, for every scenario asked for.

start the target's server (if it is ours) ─▶ open it once, in a child ─▶ for each scenario:
    plan ─▶ probe ─▶ child ─▶ observation ─▶ common judgements, then the scenario's ─▶ findings ─▶ record
              ▲                    │
              └── seen, sent back ─┘        a server of ours that died, or stands still, is started again
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import psutil

from contextlab import registry
from contextlab.analysis.exchanges import fold
from contextlab.analysis.judging import FINAL, aftermath_evidence, common
from contextlab.analysis.prompts import aftermath
from contextlab.analysis.remedies import remedy
from contextlab.lab.child import Order
from contextlab.lab.isolate import Birth, ChildRun, Line, Nursery, run_child, spawned
from contextlab.lab.journal import Journal, plain, revive
from contextlab.lab.server import OwnedServer
from contextlab.model import (
    REFUSES,
    SCHEMA,
    Api,
    ContextlabError,
    Event,
    Exchange,
    Failure,
    Finding,
    Gauges,
    Health,
    Judgement,
    Knowledge,
    Layer,
    Limit,
    Observation,
    Outcome,
    Plan,
    Policy,
    Probe,
    ProcessEnd,
    Record,
    Request,
    Scenario,
    Skip,
    TargetSpec,
    UnableError,
    UsageError,
    Verdict,
)

OPENING_PATIENCE_S, OPENING_EXCHANGES, CONNECTING_S = 60.0, 7, 90.0
"""Time for each exchange of the opening, how many there are at most, and time to find out what the target is."""
PATIENCE_FLOOR_S, PATIENCE_RATIO = 10.0, 6.0
"""A reply may take this long, and this many times longer than the target's own speed foretells, before it hangs."""
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


class Interrupted(BaseException):
    """The user, or the system, asked the tool to stop; carries the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into Interrupted, so that everything in between is undone in order."""

    def stop(number: int, frame: object) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Lab:
    """One run, from the header of its record to the last line.

    `listener` sees every line of the record as it is written, and "progress" lines that are not recorded.
    """

    def __init__(
        self,
        spec: TargetSpec,
        folder: Path,
        options: Options,
        listener: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.options = options
        self.listener = listener
        self.findings: list[Finding] = []
        self._began_s = time.monotonic()
        self._journal = Journal(folder, self.now_s, listener)
        self._server: OwnedServer | None = None
        self._birth: Callable[[int | None], Birth]
        self._gone = ""

    def run(self, scenarios: Sequence[Scenario]) -> int:
        """Run the scenarios and return the exit code.

        An error of the user's to mend is recorded, and raised; after the first finding it is a note and a reason of
        the end instead, for what was found must not hide behind it.
        """
        with self._journal:
            self._header()
            try:
                with stoppable(), self._serving(), self._nursing():
                    known = self._open()
                    for index, scenario in enumerate(scenarios):
                        known = self._run_scenario(scenario, known, scenarios[index + 1 :])
            except Interrupted as interrupt:
                return self._end({128 + interrupt.number: f"stopped by {signal.Signals(interrupt.number).name}"})
            except ContextlabError as error:
                if not self.findings:
                    self._end({error.exit_code: error.message})
                    raise
                self._journal.append("note", text=f"the run ended early: {error.message}\n{error.next_step}".strip())
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
        self._journal.append(
            "header",
            schema=SCHEMA,
            run=self.folder.name,
            command=self.options.command,
            argv=list(self.options.argv),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seed=self.options.seed,
            versions=_versions(),
            machine=_machine(),
            target=_shown(self.spec),
            policy=self.options.policy,
        )

    def _end(self, reasons: Mapping[int, str]) -> int:
        verdict, code, every = conclude(self.findings, reasons)
        self._journal.append(
            "end", verdict=verdict, exit={"code": code, "reason": every[0][1], "all": [list(one) for one in every]}
        )
        return code

    # ── the target ──

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Our server, if the target has one, runs inside this; nothing of it is left afterwards."""
        command = registry.server_command(self.spec)
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

    @contextmanager
    def _nursing(self) -> Iterator[None]:
        """Where the children of this run come from: forked where they only talk to a server, else started afresh."""
        log = self.folder / "client.log"
        if registry.runs_in_child(self.spec):
            self._birth = lambda limit_bytes: spawned(log, limit_bytes or self.options.memory_limit_bytes)
            yield
            return
        with closing(Nursery(log)) as nursery:
            self._birth = lambda limit_bytes: nursery.birth
            yield

    def _note_server(self, server: OwnedServer) -> None:
        self._journal.append(
            "server",
            pid=server.process.pid,
            url=_without_secrets(server.url),
            log=server.log.name,
            memory_limit=server.process.memory_limit,
            memory_limit_bytes=server.memory_limit_bytes,
            start=server.num_starts,
        )
        self.spec = replace(self.spec, url=server.url)

    def _open(self) -> Knowledge:
        """Open the target once, in a child, and learn what a run must know. Raises where it cannot be opened."""
        patience_s = self.options.patience_s or OPENING_PATIENCE_S
        deadline_s = OPENING_EXCHANGES * patience_s + CHILD_SLACK_S + CONNECTING_S
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
        known = _with_window(known, self.options.max_prompt_tokens)
        self._journal.append("knowledge", knowledge=known)
        if not known.neighbour_stable and "serves-many" in known.powers:
            self._journal.append("note", text=f"answers beside an overflow are not compared: {known.neighbour_note}")
        return known

    def _own_powers(self) -> frozenset[str]:
        return frozenset({"process", "log"}) if self._server is not None else frozenset()

    def _with_memory(self, gauges: Gauges | None) -> Gauges | None:
        if self._server is None:
            return gauges
        return replace(gauges or Gauges(), memory_bytes=self._server.process.memory_bytes())

    # ── scenarios and probes ──

    def _run_scenario(self, scenario: Scenario, known: Knowledge, later: Sequence[Scenario]) -> Knowledge:
        missing = [need for need in scenario.needs if need not in known.powers]
        reason = self._gone or (LACKS.get(missing[0], f"the target lacks {', '.join(missing)}") if missing else "")
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
                step = _next_step(plan, seen)
            except StopIteration:
                break
            except Exception as error:  # as with a judge: what could not be planned is unknown, and the run goes on
                why = f"the plan failed: {type(error).__name__}: {error}"
                self._found(
                    Finding(
                        scenario=scenario.name,
                        probe="plan",
                        outcome=Outcome.UNKNOWN,
                        verdict=self.options.policy.verdict(Outcome.UNKNOWN, frozenset()),
                        layer=Layer.ENGINE,
                        why=why,
                    )
                )
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
            return _with_measured_window(known, measured + 1)
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
            seen = replace(seen, aftermath=_knock(self.spec.address))
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
            self._finding(scenario, probe, judgement, known, seen) for judgement in judge(scenario, probe, seen)
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
            self._birth(probe.memory_limit_bytes if probe else None),
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

    def _found(self, finding: Finding) -> None:
        self._journal.append("finding", **plain(finding))
        self.findings.append(finding)

    def _finding(
        self, scenario: Scenario, probe: Probe, judgement: Judgement, known: Knowledge, seen: Observation
    ) -> Finding:
        verdict = self.options.policy.verdict(judgement.outcome, probe.allowed)
        needs_remedy = verdict is not Verdict.PASS or judgement.outcome in REFUSES
        return Finding(
            scenario=scenario.name,
            probe=probe.name,
            outcome=judgement.outcome,
            verdict=verdict,
            layer=judgement.layer,
            why=judgement.why,
            evidence={**judgement.evidence, **aftermath_evidence(seen)},
            remedy=remedy(
                judgement.outcome,
                flavour=known.flavour,
                scenario=scenario.name,
                layer=judgement.layer,
                evidence=judgement.evidence,
            )
            if needs_remedy
            else "",
        )

    def _recover(self, seen: Observation, outcomes: set[Outcome]) -> None:
        """Bring the target back for the next probe; where it is not ours and gone, the rest of the run is skipped."""
        stuck = Outcome.HUNG in outcomes and (seen.aftermath is None or seen.aftermath.failure is not None)
        if self._server is not None and (stuck or self._server.process.poll() is not None):
            self.listener({"kind": "progress", "text": "starting the server again"})
            self._server.restart()
            self._note_server(self._server)
        elif self._server is None and Outcome.CRASHED in outcomes and self.spec.scheme in ("http", "https"):
            self._gone = "the target no longer answers; it is not ours to start again"


def _next_step(plan: Plan, seen: Observation | None) -> Probe | Skip:
    """The plan's next step. It is told what was seen, unless it stands in a `yield from` a list, which cannot hear."""
    inner: object = plan
    while (below := getattr(inner, "gi_yieldfrom", None)) is not None:
        inner = below
    return plan.send(seen) if hasattr(inner, "send") else next(plan)


INSIDE = "needs a target that runs inside the probe's own process, such as hf:DIR or hf:random/llama"
LACKS = {
    "window": "the target declares no window: run find-limit as well, or give --set window=TOKENS",
    "chat": "the target has no chat endpoint, or no chat template",
    "completions": "the target has no completions endpoint",
    "serves-many": "the target answers one request at a time",
    "tasks": INSIDE,
    "memory-tasks": INSIDE,
}
"""Why a scenario is skipped, by the power that it needs."""


def judge(scenario: Scenario, probe: Probe, seen: Observation) -> list[Judgement]:
    """The common judgements, then the scenario's own; a judge that raises has told nothing, which is UNKNOWN."""
    try:
        found = common(probe, seen)
    except Exception as error:  # whatever it is, it must not become a pass, nor end the run
        return [Judgement(outcome=Outcome.UNKNOWN, why=f"it could not be judged: {type(error).__name__}: {error}")]
    if seen.client_note:
        note = Judgement(outcome=Outcome.UNKNOWN, why=f"the probe could not be made: {seen.client_note}")
        return found or [note]
    if any(judgement.outcome in FINAL - probe.allowed for judgement in found):
        return found
    if probe.requests and not seen.exchanges and not seen.measured:
        words = seen.client.stderr_tail[-1] if seen.client.stderr_tail else "no request was sent"
        return [*found, Judgement(outcome=Outcome.UNKNOWN, why=f"nothing was seen: {words}")]
    try:
        found += scenario.judge(probe, seen)
    except Exception as error:  # whatever it is, it must not become a pass
        found.append(Judgement(outcome=Outcome.UNKNOWN, why=f"the judge failed: {type(error).__name__}: {error}"))
    if not found:
        found.append(Judgement(outcome=Outcome.UNKNOWN, why="the scenario did not judge this probe"))
    return found


def conclude(findings: Sequence[Finding], reasons: Mapping[int, str]) -> tuple[Verdict, int, list[tuple[int, str]]]:
    """The run's verdict, its exit code, and every (code, reason) in the order of their weight.

    A real finding never hides behind another code, except an interruption by the user, an undo that failed (6) or
    an error of our own (70): then the run is not what it should have been.
    """
    every = dict(reasons)
    failed = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    unknown = [finding for finding in findings if finding.verdict is Verdict.UNKNOWN]
    if failed:
        names = ", ".join(outcome.name for outcome in sorted({finding.outcome for finding in failed}))
        every[1] = f"{count(len(failed), 'finding')} not allowed: {names}"
    if unknown:
        every[3] = f"{count(len(unknown), 'probe')} whose outcome could not be told"
    if not findings and not reasons:
        every[5] = "nothing was measured"
    weight = [130, 143, 2, 6, 70, 1, 4, 5, 3]
    ordered = sorted(every.items(), key=lambda pair: weight.index(pair[0]) if pair[0] in weight else 0)
    if not ordered:
        ordered = [(0, "every outcome is allowed")]
    verdict = max((finding.verdict for finding in findings), default=Verdict.UNKNOWN)
    return verdict, ordered[0][0], ordered


def count(number: int, noun: str) -> str:
    """A number and its noun, in the plural where it is not one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def num_foreseen(scenario: Scenario, known: Knowledge) -> int:
    """How many probes a plan has if it sees nothing: what the time left is reckoned by; one that looks may differ."""
    if any(need not in known.powers for need in scenario.needs):
        return 0
    try:
        return sum(isinstance(step, Probe) for step in scenario.plan(known, Random(0)))
    except Exception:  # it will fail again when it is run, and be judged for it there
        return 0


def patience(probe: Probe, known: Knowledge) -> float:
    """Seconds that one exchange of a probe may take: a floor, and some times what the target's speed foretells.

    Parallel requests may have to wait for each other, and all for the neighbour.
    """
    window = known.limits.context_tokens or 4096
    foretold_s = [
        (request.size_tokens or window) / (known.prefill_tokens_per_s or 100.0)
        + (request.reply_tokens or request.hang_up_after_tokens or window) / (known.decode_tokens_per_s or 10.0)
        for request in probe.requests
    ]
    longest_s = sum(foretold_s) if probe.parallel else max(foretold_s, default=1.0)
    return round(PATIENCE_FLOOR_S + PATIENCE_RATIO * longest_s, 1)


def gather(lines: Sequence[Line]) -> dict[str, Exchange]:
    """The exchanges that a child reported, by name, in the order in which they began."""
    requests: dict[str, Request] = {}
    events: dict[str, list[tuple[float, Event]]] = {}
    for line in lines:
        if line["kind"] != "event":
            continue
        name = line["exchange"]
        if "request" in line:
            requests[name] = revive(line["request"], Request)
        events.setdefault(name, []).append((line["at_s"], revive(line["event"], Event)))
    return {name: fold(request, events[name]) for name, request in requests.items()}


def _with_window(known: Knowledge, max_prompt_tokens: int) -> Knowledge:
    """Add the power "window" where one is declared; refuse windows that cannot be probed."""
    window = known.limits.context_tokens
    if window is None:
        return known
    if window < 1:
        raise UnableError(
            f"window={window}: the target declares a window without room", "give the real one: --set window=TOKENS"
        )
    if 2 * window > max_prompt_tokens:
        raise UnableError(
            f"window={window}: a probe of twice that is over the limit of {max_prompt_tokens} prompt tokens",
            f"start the target with a smaller window, or allow it: --max-prompt-tokens {2 * window}",
        )
    return replace(known, powers=known.powers | {"window"})


def _with_measured_window(known: Knowledge, tokens: int) -> Knowledge:
    limit = Limit(layer=Layer.ENGINE, name="measured", tokens=tokens, source="find-limit")
    limits = replace(known.limits, context_tokens=tokens, declared=(*known.limits.declared, limit))
    return replace(known, limits=limits, powers=known.powers | {"window"})


def _how(end: ProcessEnd) -> str:
    return f"by {end.signal}" if end.signal else f"with exit code {end.exit_code}"


def _shown(spec: TargetSpec) -> TargetSpec:
    """The target as it may stand in a record: without a user and password in its URL."""
    return replace(
        spec,
        name=_without_secrets(spec.name),
        address=_without_secrets(spec.address),
        url=_without_secrets(spec.url) if spec.url else None,
    )


def _knock(url: str) -> Exchange | None:
    """Whether anything still listens at a target's URL: a failed exchange where nothing does, else None."""
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80))
    try:
        socket.create_connection(address, timeout=2.0).close()
    except OSError as error:
        failure = Failure(where="connect", message=f"{error.strerror or error}")
        return Exchange(request=aftermath(Api.COMPLETIONS), failure=failure)
    return None


def _without_secrets(text: str) -> str:
    from contextlab.targets.http import shown

    return shown(text) if "://" in text else text


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("contextlab", "xllamacpp", "torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, object]:
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": os.getloadavg()[0],
        "python": sys.executable.rpartition("/")[2],
    }
