"""The nouns of the regression gate: what was measured, what was decided, and the plan that was fixed beforehand.

    Measure (one arm, one launch) ─▶ Block (both arms, side by side) ─▶ judge(blocks, metrics, plan) ─▶ GateResult

The replicate is a launch of the target, never a request: a thousand requests of one process are one replicate.
Numbers are as measured; every comparison is a ratio candidate / base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from contextlab.model import UsageError

Exact = str | int
"""What is compared for equality: an outcome's name, an HTTP status, a count of tokens, a limit."""
ArmName = Literal["base", "candidate"]
MIN_BLOCKS = 7
"""Of fewer pairs the trimmed test has too few degrees of freedom to decide anything."""
BLOCKS, MAX_BLOCKS = 10, 20
ONE_LOOK, TWO_LOOKS = 0.05, 0.03
"""The level of each look at the data: where a second look is planned, both are stricter (about .05 together)."""
CONFIRMING_LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the machine did besides, while one arm was measured; None where it cannot be told.

    `others_cores`: cores that processes other than the tool's and the target's used, on average over the measurement.
    `cpu_pressure`: share of the time in which something waited for a CPU (PSI, `some`), taken while the control
    workload ran and the arm was idle: under load, an arm presses itself.
    `steal`: share of CPU time that the hypervisor took, over the measurement.
    `throttled`: periods in which a cgroup around the tool as a whole was throttled; a quota that is part of an arm is
    what is tested, and does not count.
    """

    others_cores: float | None = None
    cpu_pressure: float | None = None
    steal: float | None = None
    throttled: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One arm in one block: a fresh process, warmed up, under the block's requests.

    `metrics` by name (`ttft_p50_s`, `tokens_per_s`, …): of answered requests only; what could not be measured is left
    out. `num_requests`: all that were due; `num_failed` of them were not answered, and `num_truncated` lost part of
    their prompt in silence.
    `exact` by name: what must be equal in both arms. `control_s`: time of the fixed control workload.
    `died`: how the target ended where it ended by itself, or why it could not be measured; "" where it held.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    num_requests: int = 0
    num_failed: int = 0
    num_truncated: int = 0
    exact: Mapping[str, Exact] = field(default_factory=dict)
    control_s: float | None = None
    host: Host = Host()
    died: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Both arms next to each other in time, with the same requests; `first` ran first. `number` counts from 1.

    None: that arm was not measured. `confirming`: a fresh measurement of what earlier blocks had flagged.
    """

    number: int
    first: ArmName = "base"
    base: Measure | None = None
    candidate: Measure | None = None
    confirming: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One thing that is compared as a ratio.

    `margin`: relative change for the worse that does not matter (0.05 is 5 %). `floor`: absolute change, in `unit`,
    that does not matter; the wider of the two holds. `gating`: False reports it and decides nothing by it.
    `min_requests`: answered requests that each arm of a block must have; with fewer the metric does not gate.
    """

    name: str
    unit: str = "s"
    better: Literal["less", "more"] = "less"
    margin: float = 0.05
    floor: float = 0.0
    gating: bool = True
    min_requests: int = 1

    def __post_init__(self) -> None:
        if self.better not in ("less", "more"):
            raise UsageError(f"metric {self.name}: better={self.better!r}: must be less or more", "choose one of both")
        if not 0 < self.margin < 10:
            message = f"metric {self.name}: margin={self.margin:g}: must be above 0 and below 10 (0.05 is 5 %)"
            raise UsageError(message, "5 % is usual for medians, 10 % for the 90th percentile")
        if not 0 <= self.floor < float("inf"):
            raise UsageError(f"metric {self.name}: floor={self.floor:g}: must be 0 or more", f"give it in {self.unit}")
        if self.min_requests < 1:
            message = f"metric {self.name}: min_requests={self.min_requests}: must be 1 or more"
            raise UsageError(message, "a 99th percentile takes 300 in a block")


METRICS = (
    Metric(name="ttft_p50_s", floor=0.002),
    Metric(name="itl_p50_s", floor=0.0002),
    Metric(name="e2e_p90_s", margin=0.10, floor=0.005),
    Metric(name="tokens_per_s", unit="tokens/s", better="more"),
    Metric(name="ttft_p99_s", margin=0.20, floor=0.010, min_requests=300),
    Metric(name="ttft_p90_s", margin=0.10, floor=0.005, gating=False),
    Metric(name="e2e_p50_s", floor=0.005, gating=False),
    Metric(name="e2e_p99_s", margin=0.20, floor=0.010, gating=False, min_requests=300),
)
"""What is compared where nobody says otherwise. Each metric that gates makes it harder for the others to be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured and how strictly it is judged; fixed before the first block.

    `blocks` are measured, up to `max_blocks` where something is undecided (the same number: one look only), and
    `blocks` again to confirm what was flagged, if `confirm`.
    `paired`: the arms of a block ran next to each other; False for stored records of two sessions.
    `unstable`: names of exact values that differ in this place even without a change (`Calibration.unstable`).
    """

    blocks: int = BLOCKS
    max_blocks: int = MAX_BLOCKS
    confirm: bool = True
    paired: bool = True
    unstable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not MIN_BLOCKS <= self.blocks <= self.max_blocks:
            message = f"blocks={self.blocks}: must be from {MIN_BLOCKS} to max_blocks={self.max_blocks}"
            usual = f"blocks={BLOCKS} and max_blocks={MAX_BLOCKS} are usual"
            raise UsageError(message, f"lower the first, or raise the second; {usual}")

    @property
    def alpha(self) -> float:
        """The level of each look."""
        return TWO_LOOKS if self.max_blocks > self.blocks else ONE_LOOK

    @property
    def confidence(self) -> float:
        """Of the intervals shown: each end is one test at `alpha`, so that interval and verdict agree."""
        return 1 - 2 * self.alpha


# ── what is decided ──────────────────────────────────────────────────────────────────────────────


class MetricVerdict(StrEnum):
    """What can be said of one metric."""

    REGRESSED = "regressed"
    """Worse by more than the margin, and again in fresh blocks where they were asked for."""
    UNCONFIRMED = "unconfirmed"
    """Worse by more than the margin, but not seen again (yet)."""
    INCONCLUSIVE = "inconclusive"
    OK = "ok"
    """Shown to be worse by less than the margin."""
    IMPROVED = "improved"
    """Better by more than the margin."""
    NOT_MEASURED = "not measured"


class GateVerdict(StrEnum):
    """What can be said of the run as a whole."""

    REGRESSED = "regressed"
    OVER_BUDGET = "over budget"
    DIED = "died"
    NOT_COMPARABLE = "not comparable"
    NOT_MEASURED = "not measured"
    CONTAMINATED = "contaminated"
    UNCONFIRMED = "unconfirmed"
    INCONCLUSIVE = "inconclusive"
    IMPROVED = "improved"
    OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """One metric, decided. `ratio` is candidate / base with its interval, whichever direction is better.

    `base`, `candidate`: medians over blocks. `margin`: relative, the absolute floor included. `p`: of "not worse by
    more than the margin"; `p_holm`: the same with all gating metrics in mind. `num_blocks`: what it rests on.
    `smallest_effect`: relative change for the worse that this run would have found with 80 % (0.08 is 8 % more of what
    should be less, or so much less of what should be more that the inverse ratio is 1.08). `blocks_to_decide`: how many
    blocks would decide with 80 %, were the effect what it seems; None where it is decided or no number would.
    `confirmed_ratio`: the ratio in the confirming blocks. `gating`: whether it counted.
    """

    metric: Metric
    verdict: MetricVerdict
    gating: bool
    why: str
    base: float | None = None
    candidate: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.9
    margin: float = 0.0
    p: float | None = None
    p_holm: float | None = None
    num_blocks: int = 0
    smallest_effect: float | None = None
    blocks_to_decide: int | None = None
    confirmed_ratio: float | None = None
    num_confirming: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDifference:
    """A value that is not the same in both arms: (value, in how many blocks) of each arm, the most frequent first.

    `gating`: it is shown to be a difference; else it stays open (`why`), which is no pass.
    """

    name: str
    base: tuple[tuple[Exact, int], ...]
    candidate: tuple[tuple[Exact, int], ...]
    gating: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateResult:
    """A share of requests that should be small, in both arms, pooled over blocks.

    `p`: Fisher's exact test, one-sided, of "not more in the candidate". `blocks_risen`: blocks in which the candidate's
    share was the larger. `risen`: more, shown; `doubtful`: more in so few launches that it may be theirs.
    """

    name: str
    base_count: int
    base_total: int
    candidate_count: int
    candidate_total: int
    p: float
    blocks_risen: int
    risen: bool
    doubtful: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A bound that the candidate must keep by itself, whatever the base does: `ttft_p99 < 2s`.

    `limit` in the metric's unit. `min_samples`: answered requests that a block must have for it to count.
    """

    text: str
    metric: str
    op: Literal["<", ">"]
    limit: float
    min_samples: int = 1


class BudgetVerdict(StrEnum):
    """What can be said of a budget."""

    BROKEN = "broken"
    OPEN = "open"
    NOT_MEASURED = "not measured"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetResult:
    """One budget, decided. `value` is the trimmed mean over the candidate's blocks, with its interval."""

    budget: Budget
    verdict: BudgetVerdict
    why: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    num_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A metric, or an exact value, that is known to be worse and may be, until a day (`expires`, ISO 8601)."""

    name: str
    reason: str
    expires: str


Facts = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Where and of what something was measured; two records are compared only where these agree (`fingerprint`).

    `machine`: cpu, cores, memory_bytes, kernel, virtualisation, …; `engine`: name, version, build, …; `model`: name,
    digest, quantisation, …; `flags`: the settings of the target; `scenario`: name, digests of the requests, load, ….
    Nothing that changes by itself (a clock, a load) belongs here.
    """

    machine: Facts = field(default_factory=dict)
    engine: Facts = field(default_factory=dict)
    model: Facts = field(default_factory=dict)
    flags: Facts = field(default_factory=dict)
    scenario: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """How two fingerprints differ, in sentences. `hard`: not comparable. `soft`: a comparison is advice only.
    `tested`: what was meant to differ."""

    hard: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The verdict. `reasons`: every (exit code, sentence) in the order of their weight; the first decides.

    `contaminated`: why the run as a whole cannot be believed; "" where it can. `left_out`: numbers of the blocks that
    were contaminated alone and do not count, with why. `advice`: why no difference in speed fails this comparison.
    `num_blocks`, `num_confirming`: blocks that count, of those measured. `waived`: what the user took out.
    """

    verdict: GateVerdict = GateVerdict.NOT_MEASURED
    exit_code: int = 5
    reasons: tuple[tuple[int, str], ...] = ()
    metrics: tuple[MetricResult, ...] = ()
    exact: tuple[ExactDifference, ...] = ()
    rates: tuple[RateResult, ...] = ()
    budgets: tuple[BudgetResult, ...] = ()
    waived: tuple[Waiver, ...] = ()
    contaminated: str = ""
    left_out: Mapping[int, str] = field(default_factory=dict)
    advice: str = ""
    num_blocks: int = 0
    num_confirming: int = 0
    likeness: Likeness = Likeness()


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """How many more blocks to run, and of which kind; 0: done. `why` in a sentence."""

    num_blocks: int
    confirming: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNoise:
    """The noise of one metric in this place, from pairs of the same target (A/A).

    `sigma`: standard deviation of ln(ratio) over `num_blocks`. `smallest_effect`: as in `MetricResult`, at the plan's
    largest number of blocks. `resolved`: that is at most twice the margin; else the metric shall not gate, and
    `margin_needed` or `blocks_needed` (None: more than 200) would let it. `biased`: the two arms, which are the same,
    were shown to differ.
    """

    name: str
    num_blocks: int
    sigma: float | None
    smallest_effect: float | None
    resolved: bool
    biased: bool
    margin_needed: float | None = None
    blocks_needed: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What pairs of the same target showed of this place. `unstable`: exact values that differed all the same.
    `contaminated`: why this says nothing of the place itself."""

    metrics: tuple[MetricNoise, ...]
    unstable: frozenset[str] = frozenset()
    contaminated: str = ""
    num_blocks: int = 0
