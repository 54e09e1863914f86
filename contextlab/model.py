"""The nouns of contextlab: what is planned, what was seen, and what was concluded.

    Limits ─▶ Scenario.plan ─▶ Probe(Request…) ─▶ lab ─▶ Observation(Exchange…) ─▶ judges ─▶ Finding

Frozen records, ordered enums and the protocols of a target; the standard library only. Nothing here
acts: rendering, running and judging live in `lab/`, `analysis/` and `scenarios/`.
Numbers carry their unit in the name: `_s` seconds, `_tokens`, `_bytes`. Times are seconds since the
run began, from one monotonic clock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from random import Random
from typing import Any, Protocol, Self, runtime_checkable

SCHEMA = "contextlab.run/1"
"""Version of the run record; a reader refuses another major number."""


class ContextlabError(Exception):
    """Root of everything the tool tells its user instead of showing a traceback.

    ContextlabError
    ├── UsageError        exit 2: what was asked for cannot be meant
    ├── UnableError       exit 4: the target, or the machine, cannot do it
    └── NothingMeasured   exit 5: there is nothing to report or to compare

    `message` names the value and the rule, `next_step` what to do.
    """

    exit_code = 70

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step


class UsageError(ContextlabError):
    """The user asked for something that cannot be meant (exit 2)."""

    exit_code = 2


class UnableError(ContextlabError):
    """The target or the environment cannot do what was asked (exit 4)."""

    exit_code = 4


class NothingMeasured(ContextlabError):
    """There is nothing to report, or nothing comparable (exit 5)."""

    exit_code = 5


class _ByName(Enum):
    """An enum that is ordered as written and also found by its member's name, as records hold it."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls.__members__.get(str(value))

    @property
    def rank(self) -> int:
        """Place in the order in which the members are written."""
        return list(type(self)).index(self)

    def __lt__(self, other: Self) -> bool:
        return self.rank < other.rank

    def __str__(self) -> str:
        return self.name


class Outcome(_ByName):
    """What happened to a probe, from harmless to worst; the value is the sentence that reports print."""

    OK = "answered, and the whole prompt was read"
    REJECTED = "refused clearly, before generating"
    CAPPED = "the reply ended at the window, and said so"
    REJECTED_BADLY = "refused with the wrong status, wrong numbers, or inside a success"
    EMPTY = "success with nothing in it"
    CUT = "the stream stopped without its end"
    STREAM_DAMAGED = "a stream lost, repeated or changed what the target said"
    DEGRADED = "answered, but worse than the same request elsewhere"
    TRUNCATED_HEAD = "the beginning of the prompt was dropped in silence"
    TRUNCATED_MIDDLE = "the middle of the prompt was dropped in silence"
    TRUNCATED_TAIL = "the end of the prompt was dropped in silence"
    BOUND_BROKEN = "a bound of the steady state did not hold"
    NOT_RECOVERED = "the steady state did not come back in time"
    NOT_RELEASED = "what clients had left behind was not freed in time"
    HEALTH_LIED = "the health endpoint said otherwise than the answers"
    SHIFTED = "the window slid: old tokens were dropped while replying"
    RUNAWAY = "the reply never stops"
    NEIGHBOUR_ABORTED = "another client's request was ended"
    NEIGHBOUR_CORRUPTED = "another client's answer changed"
    LEAKED = "another client's text came back"
    HUNG = "no progress until the time was up"
    CRASHED = "the process died"
    UNKNOWN = "could not be told"


class Verdict(_ByName):
    """What an outcome means for the run; a run's verdict is the worst of its findings'."""

    PASS = "held"
    UNKNOWN = "unknown"
    FAIL = "failed"


class Layer(StrEnum):
    """The layer a limit belongs to, or a failure comes from."""

    TOKENIZER = "tokenizer"
    POSITIONS = "positions"
    KV_CACHE = "KV cache"
    ATTENTION = "attention memory"
    ENGINE = "engine"
    GATEWAY = "gateway"


class Api(StrEnum):
    """The OpenAI-compatible endpoint a request uses."""

    CHAT = "chat"
    COMPLETIONS = "completions"


Evidence = Mapping[str, int | float | str | bool | None]
"""Named numbers and words that a conclusion rests on."""


# ── limits ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One number that somebody declares: which layer, what it is called there, and who said so."""

    layer: Layer
    name: str
    tokens: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a target says of itself; None where it does not say.

    `context_tokens` is the window of one request, the prompt and its reply together.
    `pool_tokens` is the KV cache that all requests share.
    """

    context_tokens: int | None = None
    pool_tokens: int | None = None
    num_slots: int | None = None
    declared: tuple[Limit, ...] = ()


# ── requests and probes: the plan ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Elastic filler: `weight` is its share of the words that bring a request to its size."""

    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; `role` is a chat role, or "prompt" for the completions endpoint."""

    role: str
    parts: tuple[str | Stretch, ...]

    @property
    def text(self) -> str:
        """The message as it stands; elastic parts that are not yet filled count as nothing."""
        return "".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a plan.

    `size_tokens`: the size to which the elastic parts bring the whole prompt, chat template included,
    in the target's own tokens; None sends the messages as they are written.
    `reply_tokens`: max_tokens; None leaves it out of the request.
    `expects`: what a target that read the whole prompt answers with.
    `secret`: words that only this request holds; seen in another request's reply they are a leak.
    `hang_up_after_tokens`: the client leaves when that many tokens have come.
    """

    name: str
    messages: tuple[Message, ...]
    api: Api = Api.COMPLETIONS
    size_tokens: int | None = None
    reply_tokens: int | None = 8
    stream: bool = True
    ignore_eos: bool = False
    expects: str = ""
    secret: str = ""
    hang_up_after_tokens: int | None = None
    words_seed: int = 0


FITS = frozenset({Outcome.OK, Outcome.CAPPED})
"""Outcomes allowed where the request is inside every limit."""
REFUSES = frozenset({Outcome.OK, Outcome.CAPPED, Outcome.REJECTED})
"""Outcomes allowed where it is outside: a clear refusal, or a target that really has more room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One experiment: requests, how they are sent, the outcomes allowed, and the time it may take.

    `parallel` sends the requests together, else one after the other until one fails. `neighbour` keeps another
    client's stream running meanwhile. `watch` looks at its health meanwhile and at its gauges afterwards.
    `timeout_s` bounds each exchange; None lets the lab scale it to the target's speed. `memory_limit_bytes` bounds
    the child (for targets that run inside it), from its first line.
    `task` names something that the target itself does instead of, or after, the requests (`Performs`).
    `about` holds the numbers the probe varies and what earlier probes established, for the judge and for the task.
    """

    name: str
    requests: tuple[Request, ...] = ()
    allowed: frozenset[Outcome] = REFUSES
    parallel: bool = False
    neighbour: bool = True
    watch: bool = False
    timeout_s: float | None = None
    memory_limit_bytes: int | None = None
    task: str = ""
    about: Mapping[str, int | float | str] = field(default_factory=dict)


# ── events and exchanges: what crosses the wire ──────────────────────────────────────────────────


class Kind(StrEnum):
    """What an event of one exchange says."""

    SENT = "sent"
    OPENED = "opened"
    TOKEN = "token"
    FINISHED = "finished"
    USAGE = "usage"
    FAILED = "failed"
    HUNG_UP = "hung up"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing a target said or did while answering. A target never stamps a time: its reader does.

    Which fields are set depends on `kind`: SENT `prompt_tokens` and `exact` (set by the child, which
    counted them); OPENED `status`; TOKEN `text` (one event of the stream, which may hold several
    tokens); FINISHED `finish_reason`; USAGE `usage`; FAILED `failure`;
    HUNG_UP: the client left, as the request says; DONE says that the exchange
    came to its proper end (`[DONE]`, or a whole JSON body).
    """

    kind: Kind
    text: str = ""
    prompt_tokens: int | None = None
    exact: bool = False
    status: int | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    failure: Failure | None = None
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the target reports them.

    `evaluated_tokens`: prompt tokens it says it really processed (computed now or taken from its cache).
    `truncated`: its own word that something was dropped; None where it has no such word.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    evaluated_tokens: int | None = None
    truncated: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an exchange failed.

    `where`: "connect", "http" (a status that is no success), "stream" (an error inside a success),
    "transport" (the connection broke), "timeout", "protocol" (an answer that is not what was asked for).
    """

    where: str
    message: str
    status: int | None = None
    error_type: str = ""
    fields: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as it was seen. `prompt_tokens` is our count of what was sent, None if unknown;
    `exact` says whether that count is the target's own tokenizer's. `token_s` holds one time per content event."""

    request: Request
    prompt_tokens: int | None = None
    exact: bool = False
    due_s: float | None = None
    sent_s: float | None = None
    connected_s: float | None = None
    opened_s: float | None = None
    token_s: tuple[float, ...] = ()
    ended_s: float | None = None
    status: int | None = None
    text: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    failure: Failure | None = None
    done: bool = False
    hung_up: bool = False
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How a process ended, as the operating system tells it; all None while it still runs.

    `out_of_memory`: True only with evidence (a cgroup's kill counter, an allocator's own words), None if unproven.
    `last_event`: the last thing it reported before the end.
    """

    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    out_of_memory: bool | None = None
    peak_memory_bytes: int | None = None
    last_event: str = ""
    stderr_tail: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.exit_code is not None or self.signal is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What a target counts of itself; None where it does not say. Memory is that of the process tree.

    `generated_tokens`: since it was started, in sum; some servers leave out those of requests that were given up.
    """

    busy_slots: int | None = None
    waiting_requests: int | None = None
    preemptions: int | None = None
    kv_usage_ratio: float | None = None
    memory_bytes: int | None = None
    generated_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One look at the target's health endpoint; `healthy` None where it has none."""

    at_s: float
    healthy: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What opening a target established, once a run; it travels to every probe.

    `powers`: what this target can do: "counts-tokens", "chat", "completions", "ignores-eos", "health", "gauges",
    "process" (we own it), "log", "serves-many" (a neighbour can run beside a probe), "window" (it declares one).
    `tokens_per_word`: slope of the filler, measured. `neighbour_text`: the neighbour's undisturbed answer;
    `neighbour_stable`: whether it stayed the same alone twice and beside a harmless companion.
    `prefill_tokens_per_s`, `decode_tokens_per_s`: measured once, they scale every timeout.
    """

    flavour: str
    model: str
    limits: Limits
    powers: frozenset[str] = frozenset()
    tokens_per_word: float = 1.0
    neighbour_text: str = ""
    neighbour_stable: bool = False
    neighbour_note: str = ""
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    gauges: Gauges | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen of one probe; no opinion. `exchanges` are in the order of `Probe.requests`.

    `neighbour_again`: the neighbour repeated afterwards, alone and beside a companion, where its answer had changed.
    `measured`: what a task of the target returned, or as much as it had reported when it died.
    `client_note`: why the probe could not be made, in the child's words; "" where it was.
    """

    exchanges: tuple[Exchange, ...]
    knowledge: Knowledge
    neighbour: Exchange | None = None
    neighbour_again: tuple[Exchange, ...] = ()
    aftermath: Exchange | None = None
    client: ProcessEnd = ProcessEnd()
    server: ProcessEnd | None = None
    health: tuple[Health, ...] = ()
    gauges: Gauges | None = None
    log_lines: tuple[str, ...] = ()
    measured: Evidence = field(default_factory=dict)
    client_note: str = ""


# ── conclusions ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One outcome of one probe and why; the lab adds the verdict and the remedy."""

    outcome: Outcome
    why: str
    layer: Layer = Layer.ENGINE
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A judgement in its place: which scenario and probe, what it means, and what to change, by name."""

    scenario: str
    probe: str
    outcome: Outcome
    verdict: Verdict
    layer: Layer
    why: str
    evidence: Evidence = field(default_factory=dict)
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Something that was not run, and why."""

    scenario: str
    reason: str
    probe: str = ""


Plan = Generator[Probe | Skip, Observation | None, None]
"""A plan yields probes, and skips with their reason; it may look at each probe's observation
(`seen = yield probe`) to choose the next. A plan that does not look is an ordinary generator. Either way it is
pure: its probes depend on what is known of the target, the seed and what was seen, never on a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A named pair of a pure plan and a pure judge. `needs` names the powers a target must have."""

    name: str
    summary: str
    plan: Callable[[Knowledge, Random], Plan]
    judge: Callable[[Probe, Observation], Iterable[Judgement]]
    needs: tuple[str, ...] = ()
    order: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which outcomes pass or fail whatever a probe says: `--allow`, `--fail-on`."""

    allow: frozenset[Outcome] = frozenset()
    fail_on: frozenset[Outcome] = frozenset()

    def verdict(self, outcome: Outcome, allowed: frozenset[Outcome]) -> Verdict:
        """The verdict of an outcome where a probe allows `allowed`; UNKNOWN passes only by name."""
        if outcome in self.fail_on:
            return Verdict.FAIL
        if outcome in self.allow:
            return Verdict.PASS
        if outcome is Outcome.UNKNOWN:
            return Verdict.UNKNOWN
        return Verdict.PASS if outcome in allowed else Verdict.FAIL


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing about a target that can be set (`--set name=value`), declared once, by the target.

    `kind` is "int", "bool", "float" or "text"; `choices` names the allowed texts; `unit` is for reports.
    """

    name: str
    kind: str
    default: int | bool | float | str | None
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""


Settings = Mapping[str, int | bool | float | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """A target as the user named it: scheme, address and settings; enough to open it again.

    `url` is where a server that the tool started answers; None for everything else.
    """

    name: str
    scheme: str
    address: str
    settings: Settings = field(default_factory=dict)
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server that the tool starts and owns.

    `url`: where it will answer; None if it prints `READY http://…` on its standard output. Such a server takes the port
    in the environment variable CONTEXTLAB_PORT (0: a free one), so that it can come back at the address that it had.
    `memory_limit_bytes`: a limit of its own; None leaves the lab's default.
    """

    argv: tuple[str, ...]
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    ready_path: str = "/health"
    ready_timeout_s: float = 120.0
    memory_limit_bytes: int | None = None


@runtime_checkable
class Target(Protocol):
    """The system under test, open. Nothing but `knowledge` and `stream` is required of it."""

    @property
    def knowledge(self) -> Knowledge:
        """What the target says of itself: flavour, model, limits and powers."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Send a rendered request and yield what comes back. Failures are events, never exceptions."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A target that counts the tokens of a prompt, template included, with its own tokenizer."""

    async def count_tokens(self, api: Api, messages: Sequence[Message]) -> int:
        """Number of prompt tokens of these messages."""
        ...


@runtime_checkable
class HasHealth(Protocol):
    """A target with a health endpoint."""

    async def healthy(self) -> tuple[bool, str]:
        """Whether it says it is well, and its words."""
        ...


@runtime_checkable
class Performs(Protocol):
    """A target that carries out named tasks of its own, inside the child: measurements that are no requests."""

    def perform(self, task: str, about: Mapping[str, int | float | str]) -> AsyncGenerator[Evidence, None]:
        """Carry out a task; yield what is measured as it comes, so that what was known before a death is on record.

        An error that the library raises is a measurement ("error_type", "error"), never an exception.
        """
        ...


@runtime_checkable
class HasGauges(Protocol):
    """A target that counts its slots, its queue or its KV cache."""

    async def gauges(self) -> Gauges:
        """One reading."""
        ...


# ── the record ───────────────────────────────────────────────────────────────────────────────────

Record = Mapping[str, Any]
"""One line of a run record, decoded; `kind` and `at_s` are always there.

header       schema, run, command, argv, started_at, seed, versions, machine, target, policy
server       pid, url, log, memory_limit: a server of ours was started (`restart` counts them)
knowledge    what opening the target established (Knowledge)
scenario     name, summary, num_probes, num_later: the scenario begins; how many probes it and the later ones foresee
skip         scenario, probe, reason
probe        scenario, probe (Probe): the probe begins
event        scenario, probe, exchange, event (Event): one thing that crossed the wire
observed     scenario, probe, client, server, health, gauges, log_lines: how the probe ended
finding      Finding
note         text: something the user should know
experiment   scenario, probe, experiment (Experiment), path: a chaos experiment begins, over this path
decisions    scenario, probe, seed, schedule_sha256, faults: [{name, sha256, first}]: what the seed determines
arm          scenario, probe, arm, zero_at_s: an arm begins; its samples count from `zero_at_s`
fault        scenario, probe, arm, name, on: a fault begins or ends to act
sample       scenario, probe, arm, sample (Sample)
gauge        scenario, probe, arm, gauge (GaugeSample)
generator    scenario, probe, arm, generator (GeneratorHealth)
evidence     scenario, probe, arm, evidence (FaultEvidence)
as_sent      scenario, probe, arm, indices: the samples whose bytes are those that the target sent
reading      scenario, probe, arm, reading (deeds.Reading)
deed         scenario, probe, arm, deed (deeds.Deed)
death        scenario, probe, arm, death (deeds.Death)
arm_end      scenario, probe, arm, length_s, stopped, server
trial        scenario, probe, references, measured: both arms are over
sweep        sweep (analysis.sweeps.Sweep): a sweep of `pareto` begins, or goes on (`resumed`)
measurement  measurement (analysis.sweeps.Measurement): one evaluation of one setting
reference    reference: the point against which the hypervolume counts
undecided    undecided: [{settings, why}], drift: what the search leaves open
gate         gate (analysis.gate.stored.GateBegins): a gate begins, or goes on
fingerprint  arm, fingerprint (analysis.gate.nouns.Fingerprint), known (Knowledge): an arm was open for the first time
block        block (analysis.gate.nouns.Block), cost_s: both arms, measured side by side
calibration  calibration (analysis.gate.nouns.Calibration): what a target against itself showed of this place
gate_result  result (analysis.gate.nouns.GateResult): the verdict; the findings of it follow, and replace earlier ones
end          verdict, exit {code, reason, all}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run record, read whole; writers see nothing else.

    `path` is the run's folder. `end` is None where the run was killed before it could write one.
    `exchanges` are keyed by (scenario, probe), in the order in which they began.
    """

    path: str
    header: Record
    knowledge: Knowledge | None = None
    probes: Mapping[tuple[str, str], Probe] = field(default_factory=dict)
    exchanges: Mapping[tuple[str, str], tuple[Exchange, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    skips: tuple[Skip, ...] = ()
    end: Record | None = None
    records: tuple[Record, ...] = ()
