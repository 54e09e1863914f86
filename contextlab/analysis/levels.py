"""What one evaluation of a sweep measured: the steady part of one load, its values and its checks; pure.

    closed loop   |– ramp: until one wave has ended –|– steady: to the last end –|– cut
    open loop     |– ramp: until the first answer –|– steady: what is due here –|– drain: is waited for

A wave is as many requests as are served at once; when one has ended the target goes at its pace, and rates count. Times
count of all requests but those with which each client began: every later one found all other clients there.

A closed loop is measured from an end to an end, so that it holds whole services and no part of one. What is under way
when it is cut was not slow and not lost: its tokens count, its times are not known. (What is under way much longer than
any other took counts as failed.) It goes on until it has `enough`, so no length has to be known beforehand.

Requests that fail in the steady part stay in every quantile, behind all that came, and their tokens count for nothing:
a setting that rejects or aborts is not fast.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from contextlab.analysis.load_metrics import Measured
from contextlab.analysis.phases import Span
from contextlab.analysis.replies import TIMES, answered, cause
from contextlab.experiment import GeneratorHealth, Phase, Sample

QUANTILES = (0.5, 0.9, 0.99)
MIN_ANSWERS = 4
"""Of fewer ends than this nothing is told, above all no rate."""
LITTLE_GAP = 0.1
"""Little's law (L = λ W) is off by more than that where what is counted is no steady state."""
MOST_FAILED = 0.1
"""A setting of which more requests fail does not serve this load."""
HOPELESS = 16
"""Of so many requests (at least two of each client) that have all failed, more will not tell more."""
OVERDUE = 3.0
"""Under way so many times as long as the longest that ended: it hangs."""
BUSY_CLIENT, SLOW_LOOP_S, LATE_S = 0.9, 0.05, 0.02
"""A client that took more of a core, or whose loop or sends were later at p99, was part of what it measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The steady part of one load. `values` by name (`p99 ttft`, `tokens_per_s`, …; seconds, shares, per second).

    `little_gap`: |L − λW| / L; None where nothing was under way. `cached_share`: prompt tokens that the target says it
    took from a cache. `why_not`: why the evaluation cannot be used, which a repeat would not mend; "" where it can.
    """

    span: Span
    values: dict[str, float]
    num_requests: int
    num_failed: int
    failures: dict[str, int]
    little_gap: float | None
    cached_share: float | None
    why_not: str = ""


def enough(samples: Sequence[Sample], wave: int, steady_s: float) -> bool:
    """Whether a closed loop of which `wave` requests are served at once has shown what it can: so many ends (and at
    least `MIN_ANSWERS`) of requests with which no client began, and a steady part of at least `steady_s`.

    `samples` are of requests that have ended. Nothing but failures is enough as well.
    """
    if len(samples) >= max(HOPELESS, 2 * wave) and not any(map(answered, samples)):
        return True
    ramp_s = _ramp_s(samples, wave)
    if ramp_s is None or max(one.ended_s or 0.0 for one in samples) - ramp_s < steady_s:
        return False
    return len(_later(samples)) >= max(MIN_ANSWERS, wave)


def _ramp_s(samples: Sequence[Sample], wave: int) -> float | None:
    """When so many requests had ended; None: they have not."""
    ends = sorted(one.ended_s for one in samples if one.ended_s is not None)
    return ends[wave - 1] if len(ends) >= wave else None


def _later(gone: Sequence[Sample]) -> list[Sample]:
    """The requests of a closed loop that were due when another one had ended."""
    first_s = min((one.ended_s for one in gone if one.ended_s is not None), default=0.0)
    return [one for one in gone if one.due_s >= first_s]


def closed_level(samples: Sequence[Sample], wave: int, cut_s: float) -> Level:
    """The steady part of a closed loop of which `wave` requests are served at once, cut at `cut_s`: what ended later
    was under way then."""
    gone = [one for one in samples if one.ended_s is not None and one.ended_s <= cut_s]
    ramp_s = _ramp_s(gone, wave)
    if ramp_s is None:
        return _nothing(f"in {cut_s:.1f} s only {len(gone)} of a first {wave} requests had ended", cut_s, gone)
    longest_s = max((one.ended_s - one.due_s for one in gone if one.ended_s is not None), default=0.0)
    under_way = [one for one in samples if one.ended_s is None or one.ended_s > cut_s]
    hung = [one for one in under_way if cut_s - one.due_s > OVERDUE * longest_s]
    span = Span(ramp_s, max(one.ended_s or 0.0 for one in gone))
    streams = [one for one in gone if answered(one)] + [one for one in under_way if one not in hung]
    return _level(span, _later(gone), hung, samples, streams)


def open_level(samples: Sequence[Sample], duration_s: float) -> Level:
    """The steady part of an open loop of `duration_s`: what is due from its first answer on."""
    ended = [one.ended_s for one in samples if one.ended_s is not None and answered(one)]
    span = Span(min(min(ended, default=duration_s), duration_s), duration_s)
    counted = [one for one in samples if span.holds(one.due_s)]
    return _level(span, counted, (), samples, [one for one in samples if answered(one)])


def _level(
    span: Span,
    ended: Sequence[Sample],
    hung: Sequence[Sample],
    everyone: Sequence[Sample],
    streams: Sequence[Sample],
) -> Level:
    counted = [*ended, *hung]
    failed = Counter(why for one in ended if (why := cause(one))) + Counter({"no end": len(hung)})
    few = len(counted) < MIN_ANSWERS or span.length_s <= 0
    num = f"{len(counted)} request{'s' * (len(counted) != 1)}"
    measured = Measured(phase=Phase.CONTROL, span=span, samples=counted, everyone=everyone)
    return Level(
        span=span,
        values={} if few else _values(measured, streams),
        num_requests=len(counted),
        num_failed=failed.total(),
        failures=dict(failed.most_common()),
        little_gap=_little_gap(everyone, counted, span),
        cached_share=_cached_share(counted),
        why_not=f"insufficient: {num} in a steady part of {span.length_s:.1f} s" if few else "",
    )


def _nothing(words: str, cut_s: float, gone: Sequence[Sample]) -> Level:
    failed = Counter(why for one in gone if (why := cause(one)))
    return Level(
        span=Span(cut_s, cut_s),
        values={},
        num_requests=len(gone),
        num_failed=failed.total(),
        failures=dict(failed.most_common()),
        little_gap=None,
        cached_share=None,
        why_not=f"insufficient: {words}",
    )


def _values(measured: Measured, streams: Sequence[Sample]) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric in TIMES:
        times = measured.times(metric)
        for q in QUANTILES:
            found[f"p{q * 100:g} {metric}"] = times.at(q)
        found[f"mean {metric}"] = times.mean()[0]
    found |= {"errors": measured.errors.value or 0.0, "throughput": measured.throughput_per_s or 0.0}
    found["tokens_per_s"] = _tokens(streams, measured) / measured.span.length_s
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _tokens(streams: Sequence[Sample], measured: Measured) -> float:
    """Output tokens of these streams whose events came inside the span; an event holds what its stream's usage says,
    else what an event holds on average."""
    tokens, usual = 0.0, measured.tokens_per_event or 1.0
    for sample in streams:
        told = sample.usage.completion_tokens if sample.usage else None
        each = usual if told is None or not sample.content_s else told / len(sample.content_s)
        tokens += each * sum(measured.span.holds(at_s) for at_s in sample.content_s)
    return tokens


def _little_gap(everyone: Sequence[Sample], counted: Sequence[Sample], span: Span) -> float | None:
    """|L − λW| / L over the span: time-average of what is under way, ended per second, mean time of those counted."""
    times_s = [one.ended_s - one.due_s for one in counted if one.ended_s is not None]
    under_way_s = sum(
        max(0.0, min(one.ended_s or span.end_s, span.end_s) - max(one.due_s, span.start_s)) for one in everyone
    )
    if not times_s or under_way_s <= 0:
        return None
    num_gone = sum(one.ended_s is not None and span.holds(one.ended_s) for one in everyone)
    return abs(under_way_s - num_gone * fmean(times_s)) / under_way_s


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
