"""What a phase of an arm measured: times from due and from sent, shares, rates, causes of failure; pure.

    response time (ttft, e2e, queue): from when it was due        what a user who does not wait for others lives through
    service time (service_ttft, service_e2e): from when it was sent
    itl, gap: between content events; gap also from when it was sent to the first

Failed requests stay in every number: in times they are endless (`replies`), in shares they are in the denominator.
Rates count what ended inside the phase's stretch of time; times and shares are of the requests that belong to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from contextlab.analysis.integrity import Integrity, Noticed, Reading
from contextlab.analysis.intervals import share_interval
from contextlab.analysis.phases import Backlog, Peak, Span
from contextlab.analysis.quantiles import Distribution
from contextlab.analysis.replies import TIMES, answered, cause
from contextlab.experiment import Bound, Phase, Sample

COUNTED = ("errors", "integrity", "backlog", "goodput", "throughput", "tokens_per_s")
"""The metrics that are one number each; `replies.TIMES` are those that are times."""
SLO_QUANTILE = 0.9
"""A bound on a lower quantile is no limit for a single answer."""


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, with Wilson's interval; `value` is None of none."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """The share, from 0 to 1."""
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """Between which ends it lies with 95 %, were these requests drawn from many like them."""
        return share_interval(self.count, self.total)


@dataclass(eq=False, kw_only=True)
class Measured:
    """The metrics of one phase, each computed when it is asked for.

    `samples`: the requests that belong to it. `everyone`: all of its arm, for what ended inside `span`.
    `readings`: the integrity of each by its index; missing ones are not judged. `expected`: content events by request
    of the mix (see `replies.itl_s`). `slo`: bounds on times that an answer must keep to be a good one.
    """

    phase: Phase
    span: Span
    samples: Sequence[Sample]
    everyone: Sequence[Sample]
    readings: Mapping[int, Reading] = field(default_factory=dict)
    expected: Mapping[int, int] = field(default_factory=dict)
    slo: Sequence[Bound] = ()
    backlog_over_time: Backlog | None = None

    def __post_init__(self) -> None:
        self._times: dict[str, Distribution] = {}

    @property
    def n(self) -> int:
        """How many requests belong to it."""
        return len(self.samples)

    def times(self, metric: str) -> Distribution:
        """The distribution of a metric of `replies.TIMES`, in seconds."""
        if metric not in self._times:
            values, expected = TIMES[metric], self.expected
            self._times[metric] = Distribution(values(one, expected.get(one.mixed, 0)) for one in self.samples)
        return self._times[metric]

    def counted(self, metric: str) -> float | None:
        """The value of a metric of `COUNTED`; None where there is nothing to count. A share is from 0 to 1."""
        match metric:
            case "errors":
                return self.errors.value
            case "integrity":
                return self.integrity.value
            case "backlog":
                return float(self.backlog.total)
            case "goodput":
                return self.goodput_per_s
            case "throughput":
                return self.throughput_per_s
            case "tokens_per_s":
                return self.tokens_per_s
        raise KeyError(metric)

    # ── shares ──

    @cached_property
    def errors(self) -> Share:
        """Requests that were not answered."""
        return Share(sum(not answered(sample) for sample in self.samples), len(self.samples))

    @cached_property
    def integrity(self) -> Share:
        """Streams that are not damaged, of those that began."""
        begun = [reading for reading in self.judged if reading.begun]
        return Share(sum(not reading.damaged for reading in begun), len(begun))

    @cached_property
    def damage(self) -> Counter[Integrity]:
        """The damaged streams by name, the most frequent first."""
        return Counter(reading.name for reading in self.judged if reading.damaged)

    @cached_property
    def names(self) -> Counter[Integrity]:
        """Every stream by the name of what became of it."""
        return Counter(reading.name for reading in self.judged)

    @cached_property
    def noticed(self) -> Counter[Noticed]:
        """Who tells a reader of the streams that are not intact."""
        return Counter(one.noticed for one in self.judged if one.noticed is not Noticed.NOTHING)

    @cached_property
    def num_uncompared(self) -> int:
        """Streams that began and whose text was not held against a reference."""
        return sum(reading.begun and not reading.compared for reading in self.judged)

    @cached_property
    def causes(self) -> Counter[str]:
        """Why requests failed, by cause; those that were answered with a damaged stream by its name."""
        found: Counter[str] = Counter()
        for sample in self.samples:
            if why := cause(sample):
                found[why] += 1
            elif (reading := self.readings.get(sample.index)) is not None and reading.damaged:
                found[reading.name.value] += 1
        return found

    @cached_property
    def judged(self) -> list[Reading]:
        """The readings of its requests."""
        return [self.readings[sample.index] for sample in self.samples if sample.index in self.readings]

    # ── rates ──

    @cached_property
    def _ended(self) -> list[Sample]:
        """Requests of the arm that were answered inside the span."""
        inside = (one for one in self.everyone if one.ended_s is not None and self.span.holds(one.ended_s))
        return [sample for sample in inside if answered(sample)]

    @cached_property
    def throughput_per_s(self) -> float | None:
        """Answers per second."""
        return self._per_s(len(self._ended))

    @cached_property
    def goodput_per_s(self) -> float | None:
        """Answers per second that are not damaged and kept every bound of `slo`."""
        return self._per_s(sum(self._is_good(sample) for sample in self._ended))

    def _is_good(self, sample: Sample) -> bool:
        reading = self.readings.get(sample.index)
        return not (reading is not None and reading.damaged) and keeps(sample, self.slo)

    @cached_property
    def tokens_per_event(self) -> float | None:
        """Tokens that one content event holds, by the target's own count; None where it does not count."""
        told = [
            (sample.usage.completion_tokens, len(sample.content_s))
            for sample in (self.samples or self.everyone)
            if sample.usage is not None and sample.usage.completion_tokens is not None and sample.content_s
        ]
        events = sum(num_events for _, num_events in told)
        return sum(tokens for tokens, _ in told) / events if events else None

    @cached_property
    def tokens_per_s(self) -> float | None:
        """Output tokens per second whose events came inside the span, those of failed requests too.

        An event counts as the tokens that its own stream's usage, else `tokens_per_event`, gives it; one token where
        neither is known (`tokens_per_event` is None then: not measured).
        """
        each, tokens = self.tokens_per_event or 1.0, 0.0
        for sample in self.everyone:
            if not sample.content_s or sample.content_s[-1] < self.span.start_s:
                continue
            num = sum(self.span.holds(at_s) for at_s in sample.content_s)
            total = sample.usage.completion_tokens if sample.usage else None
            tokens += num * (each if total is None else total / len(sample.content_s))
        return self._per_s(tokens)

    def _per_s(self, amount: float) -> float | None:
        return amount / self.span.length_s if self.span.length_s > 0 else None

    # ── backlog ──

    @cached_property
    def backlog(self) -> Peak:
        """The most requests that waited inside the span."""
        over_time = self.backlog_over_time or Backlog(self.everyone, self.span.end_s)
        return over_time.peak(self.span)

    @cached_property
    def retransmits(self) -> int:
        """Segments that our side sent again for these requests."""
        return sum(sample.retransmits or 0 for sample in self.samples)


def keeps(sample: Sample, slo: Iterable[Bound]) -> bool:
    """Whether one answer keeps the bounds on times; of its gaps, the mean counts (as time per output token does)."""
    for bound in slo:
        values = TIMES[bound.metric](sample, 0)
        value = sum(values) / len(values) if values else 0.0
        if not (value < bound.value or (bound.op == "<=" and value == bound.value)):
            return False
    return True


def slo_of(bounds: Iterable[Bound]) -> tuple[Bound, ...]:
    """The bounds that say how long one answer may take: of the upper ones on high quantiles (`SLO_QUANTILE` and above)
    of times, in seconds, the widest of each metric."""
    found: dict[str, Bound] = {}
    for bound in bounds:
        upper = bound.metric in TIMES and bound.against is None and bound.op in ("<", "<=")
        if upper and bound.quantile is not None and bound.quantile >= SLO_QUANTILE:
            found[bound.metric] = max(found.get(bound.metric, bound), bound, key=lambda one: one.value)
    return tuple(found.values())


def expected_events(references: Sequence[Sequence[Sequence[str]]], samples: Iterable[Sample]) -> dict[int, int]:
    """Content events of a whole answer by request of the mix: the most of the references', else of the answers."""
    found = {mixed: max(map(len, variants)) for mixed, variants in enumerate(references) if variants}
    seen: dict[int, int] = {}
    for sample in samples:
        if sample.mixed not in found and answered(sample):
            seen[sample.mixed] = max(seen.get(sample.mixed, 0), len(sample.content_s))
    return {**seen, **found}
