"""What one evaluation of a sweep measured: the steady part of one load, its values and its checks; pure.

    |– ramp: until as many answers have ended as there are clients –|––––––– steady –––––––|– drain –|
    0                                                               start                  duration

Only what is due, or comes, in the steady part counts. Requests that fail there stay in every quantile, behind all that
came, and their tokens count for nothing: a setting that rejects or aborts is not fast.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from contextlab.analysis.load_metrics import Measured
from contextlab.analysis.phases import Span
from contextlab.analysis.replies import TIMES, answered, cause
from contextlab.experiment import GeneratorHealth, Phase, Sample

QUANTILES = (0.5, 0.9, 0.99)
LITTLE_GAP = 0.1
"""Little's law (L = λ W) is off by more than that where what is counted is no steady state."""
MOST_FAILED = 0.1
"""A setting of which more requests fail does not serve this load."""
BUSY_CLIENT, SLOW_LOOP_S, LATE_S = 0.9, 0.05, 0.02
"""A client that took more of a core, or whose loop or sends were later at p99, was part of what it measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The steady part of one load. `values` by name (`p99 ttft`, `tokens_per_s`, …; seconds, shares, per second).

    `little_gap`: |L − λW| / L; None where nothing was under way. `cached_share`: prompt tokens that the target says it
    took from a cache. `why_not`: why the evaluation cannot be used; "" where it can.
    """

    span: Span
    values: dict[str, float]
    num_requests: int
    num_failed: int
    failures: dict[str, int]
    little_gap: float | None
    cached_share: float | None
    why_not: str = ""


def level(samples: Sequence[Sample], num_clients: int, duration_s: float) -> Level:
    """The steady part of a load of `num_clients` at a time (for an open loop: about so many), `duration_s` long."""
    ended = sorted(one.ended_s for one in samples if one.ended_s is not None and answered(one))
    start_s = ended[min(num_clients, len(ended)) - 1] if ended else 0.0
    span = Span(min(start_s, duration_s), duration_s)
    steady = [one for one in samples if span.holds(one.due_s)]
    failed = Counter(why for one in steady if (why := cause(one)))
    measured = Measured(phase=Phase.CONTROL, span=span, samples=steady, everyone=samples)
    return Level(
        span=span,
        values=_values(measured, samples, span),
        num_requests=len(steady),
        num_failed=failed.total(),
        failures=dict(failed.most_common()),
        little_gap=_little_gap(samples, span),
        cached_share=_cached_share(steady),
        why_not="" if steady and span.length_s > 0 else "no request fell into a steady part: measure longer",
    )


def _values(measured: Measured, samples: Sequence[Sample], span: Span) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric in TIMES:
        times = measured.times(metric)
        for q in QUANTILES:
            found[f"p{q * 100:g} {metric}"] = times.at(q)
        found[f"mean {metric}"] = times.mean()[0]
    found |= {"errors": measured.errors.value or 0.0, "throughput": measured.throughput_per_s or 0.0}
    found["tokens_per_s"] = good_tokens(samples, span) / span.length_s if span.length_s > 0 else 0.0
    return {name: value for name, value in found.items() if not math.isnan(value)}


def good_tokens(samples: Sequence[Sample], span: Span) -> float:
    """Output tokens of answered requests whose events came inside the span; an event holds what its usage says."""
    tokens = 0.0
    for sample in samples:
        if answered(sample) and sample.content_s:
            counted = sample.usage.completion_tokens if sample.usage else None
            each = 1.0 if counted is None else counted / len(sample.content_s)
            tokens += each * sum(span.holds(at_s) for at_s in sample.content_s)
    return tokens


def _little_gap(samples: Sequence[Sample], span: Span) -> float | None:
    """|L − λW| / L over the span: time-average of what is under way against ended per second times their time."""
    if span.length_s <= 0:
        return None
    under_way_s = sum(
        max(0.0, min(one.ended_s or span.end_s, span.end_s) - max(one.due_s, span.start_s)) for one in samples
    )
    gone = [one for one in samples if one.ended_s is not None and span.holds(one.ended_s)]
    if under_way_s <= 0:
        return None
    spent_s = sum((one.ended_s or 0.0) - one.due_s for one in gone)
    return abs(under_way_s - spent_s) / under_way_s


def _cached_share(samples: Sequence[Sample]) -> float | None:
    told = [
        (one.usage.cached_tokens, one.usage.prompt_tokens)
        for one in samples
        if one.usage is not None and one.usage.cached_tokens is not None and one.usage.prompt_tokens
    ]
    return sum(cached for cached, _ in told) / sum(prompt for _, prompt in told) if told else None


def client_doubt(generators: Sequence[GeneratorHealth], *, open_loop: bool) -> str:
    """Why the client was part of what it measured; "" where it was not."""
    for one in generators:
        share = one.cpu_s / one.wall_s if one.wall_s > 0 else 0.0
        if share > BUSY_CLIENT:
            return f"the client was the limit: it took {share:.0%} of a core"
        if one.loop_lag_s[2] > SLOW_LOOP_S:
            return f"the client was late: its loop lagged by {one.loop_lag_s[2] * 1000:.0f} ms (p99)"
        if open_loop and one.lateness_s[2] > LATE_S:
            return f"the client was late: it sent {one.lateness_s[2] * 1000:.0f} ms after time (p99)"
    return "" if generators else "the client has told nothing of itself"
