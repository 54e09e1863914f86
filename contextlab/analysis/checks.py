"""Whether a bound holds in a phase: held, broken or undecided, with what was seen and why; pure.

Quantiles and means are inferred: BROKEN where the whole interval is on the wrong side (for a quantile that is the same
as: significantly more requests than its share are, by the exact binomial test), HELD where the whole interval is on
the right side, else UNDECIDED, with how many requests would tell. A comparison with another phase uses the interval of
the ratio. Shares, backlog, rates and the max are statements about this run: exact, whatever n; the interval of a share
stands beside it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from contextlab.analysis.bounds import RATES, SHARES, shown, subject_of
from contextlab.analysis.integrity import Variants, judge_all
from contextlab.analysis.intervals import CONFIDENCE
from contextlab.analysis.load_metrics import Measured
from contextlab.analysis.phases import Span
from contextlab.analysis.quantiles import BOTH_OF_TWO, Quantile, needed, quotient, ratio
from contextlab.analysis.replies import TIMES
from contextlab.experiment import Bound, Due, Phase, Sample

LIVE_WINDOW_S = 5.0
LIVE_REQUESTS = 5
"""A stop condition looks at the requests that ended in the last `LIVE_WINDOW_S`, if they are so many."""

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": lambda value, limit: math.isclose(value, limit, rel_tol=0.0, abs_tol=1e-12),
}


class State(StrEnum):
    """Whether a bound holds."""

    HELD = "held"
    BROKEN = "broken"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What became of one bound in one phase. `observed`, `low`, `high`: the value and its interval, in the metric's
    unit, or as a multiple where the bound compares (None where there is none). `n`: requests (of itl and gap, gaps).
    `needs`: how many of them would decide; None where that is not the matter."""

    bound: Bound
    phase: Phase
    state: State
    why: str
    observed: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    needs: int | None = None


def satisfies(bound: Bound, value: float) -> bool:
    """Whether a value (a multiple where the bound compares) is on the right side."""
    return _COMPARE[bound.op](value, bound.value)


def evaluate(bound: Bound, measured: Mapping[Phase, Measured], phase: Phase) -> Check:
    """Whether the bound holds in a phase, with what was measured of each phase."""
    there = measured.get(phase)
    if there is None or not there.n:
        return Check(bound=bound, phase=phase, state=State.UNDECIDED, why=f"no request belongs to {phase}")
    against = None
    if bound.against is not None:
        against = measured.get(bound.against)
        if against is None or not against.n:
            why = f"{bound.against} was not measured"
            return Check(bound=bound, phase=phase, state=State.UNDECIDED, why=why, n=there.n)
    if bound.metric not in TIMES or bound.quantile == 1.0:
        return _exact(bound, there, against)
    if bound.quantile is None:
        return _mean(bound, there, against)
    return _quantile(bound, bound.quantile, there, against)


def point(bound: Bound, there: Measured, against: Measured | None = None) -> float | None:
    """What was seen, without an interval: the value, or the multiple of what was seen elsewhere."""
    value = _point(bound, there)
    if bound.against is None or value is None:
        return value
    other = _point(bound, against) if against is not None else None
    ratio_seen = math.nan if other is None else quotient(value, other, 1.0 if value == 0 else math.nan)
    return None if math.isnan(ratio_seen) else ratio_seen


def _point(bound: Bound, there: Measured) -> float | None:
    if bound.metric not in TIMES:
        return there.counted(bound.metric)
    times = there.times(bound.metric)
    value = times.mean()[0] if bound.quantile is None else times.at(bound.quantile)
    return None if math.isnan(value) else value


def _exact(bound: Bound, there: Measured, against: Measured | None) -> Check:
    observed, phase = point(bound, there, against), there.phase
    if observed is None:
        why = f"{subject_of(bound)}: nothing to count in {phase}"
        return Check(bound=bound, phase=phase, state=State.UNDECIDED, why=why, n=there.n)
    low = high = None
    if bound.metric in SHARES and against is None:
        low, high = (there.errors if bound.metric == "errors" else there.integrity).interval
    state = State.HELD if satisfies(bound, observed) else State.BROKEN
    n = there.integrity.total if bound.metric == "integrity" else there.n
    why = f"{subject_of(bound)} {phase}: {_shown(bound, observed)}, n={n}"
    return Check(bound=bound, phase=phase, state=state, why=why, observed=observed, low=low, high=high, n=n)


def _mean(bound: Bound, there: Measured, against: Measured | None) -> Check:
    times = there.times(bound.metric)
    seen = times.mean()
    if against is not None:
        one, other = times.mean(BOTH_OF_TWO), against.times(bound.metric).mean(BOTH_OF_TWO)
        seen = (
            quotient(one[0], other[0], math.nan),
            quotient(max(0.0, one[1]), other[2], 0.0),
            quotient(one[2], max(0.0, other[1]), math.inf),
        )
    num_other = None if against is None else len(against.times(bound.metric))
    return _inferred(bound, there.phase, seen, len(times), num_other, needs=2 if len(times) < 2 else None)


def _quantile(bound: Bound, q: float, there: Measured, against: Measured | None) -> Check:
    times = there.times(bound.metric)
    if against is None:
        found = times.quantile(q)
        needs = None if found.enough else _scaled(found)
        return _inferred(
            bound, there.phase, (found.value, found.low, found.high), found.n, needs=needs, more=_more(bound, there, q)
        )
    other = against.times(bound.metric)
    compared = ratio(times, other, q)
    fewest = min((times.quantile(q, BOTH_OF_TWO), other.quantile(q, BOTH_OF_TWO)), key=lambda one: one.effective_n)
    needs = None if compared.enough else max(_scaled(fewest), needed(q, BOTH_OF_TWO))
    ends = compared.value, compared.low, compared.high
    return _inferred(bound, there.phase, ends, len(times), len(other), needs=needs)


def _scaled(found: Quantile) -> int:
    """How many values it takes where they depend on each other as these do."""
    return math.ceil(found.needs * max(1, found.n) / max(1, found.effective_n))


def _inferred(
    bound: Bound,
    phase: Phase,
    seen: tuple[float, float, float],
    n: int,
    num_other: int | None = None,
    *,
    needs: int | None = None,
    more: int | None = None,
) -> Check:
    """The check of a value with its interval. `num_other`: values of the phase that it is compared with. `needs`: how
    many values there must be for an interval, where there is none; `more`: for one that decides."""
    value, low, high = seen
    observed = None if math.isnan(value) else value
    upper = bound.op in ("<", "<=")
    wrong, right = (low, high) if upper else (high, low)
    if satisfies(bound, right):
        state, advice = State.HELD, ""
    elif not satisfies(bound, wrong):
        state, advice = State.BROKEN, ""
    elif needs is not None:
        state, advice = State.UNDECIDED, f": insufficient, it needs {needs}"
    else:
        about = f": about {more} would tell" if more else ""
        state, advice = State.UNDECIDED, f": too close to call{about}"
    one_end = needs is not None or math.isinf(low)
    ends = "" if one_end else f" ({_shown(bound, max(0.0, low))} to {_shown(bound, high)})"
    num = f"n={n}" if num_other is None else f"n={n} against {num_other}"
    why = f"{subject_of(bound)} {phase}: {_shown(bound, observed)}{ends}, {num}{advice}"
    return Check(
        bound=bound,
        phase=phase,
        state=state,
        why=why,
        observed=observed,
        low=max(0.0, low),
        high=high,
        n=n,
        needs=(needs or more) if state is State.UNDECIDED else None,
    )


def _more(bound: Bound, there: Measured, q: float) -> int | None:
    """About how many values tell the share that was seen on the wrong side from the share that may be there; the normal
    approximation. None where the two are the same, or nobody would wait for so many."""
    values = there.times(bound.metric).ordered
    upper = bound.op in ("<", "<=")
    wrong = sum(not satisfies(bound, value) for value in values) / len(values) if values else 0.0
    allowed = 1 - q if upper else q
    if wrong == allowed:
        return None
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    more = math.ceil(z * z * allowed * (1 - allowed) / (wrong - allowed) ** 2)
    return max(more, len(values) + 1) if more < 10**6 else None


def _shown(bound: Bound, value: float | None) -> str:
    return shown(bound, value, factor=bound.against is not None)


# ── while it runs, and after ─────────────────────────────────────────────────────────────────────


def holds_in(bounds: Iterable[Bound], window: Measured, measured: Mapping[Phase, Measured]) -> bool:
    """Whether every bound holds by what was seen in a short window, without intervals. Rates are left out: over so
    short a time they say more about arrivals than about the target."""
    for bound in bounds:
        if bound.metric in RATES:
            continue
        value = point(bound, window, measured.get(bound.against) if bound.against else None)
        if value is not None and not satisfies(bound, value):
            return False
    return True


def live_stop(
    bounds: Sequence[Bound],
    samples: Sequence[Sample],
    dues: Sequence[Due],
    now_s: float,
    references: Sequence[Variants] = (),
) -> str | None:
    """The first stop condition that is met now, in words; None while none is. Cheap enough for once a second.

    `samples` in the order in which they ended; it looks at those that ended in the last `LIVE_WINDOW_S`, and at the
    backlog from the schedule (of an open loop). Without `references`, of integrity only ends and framing are judged.
    """
    recent: list[Sample] = []
    for sample in reversed(samples):
        ended_s = sample.due_s if sample.ended_s is None else sample.ended_s
        if ended_s >= now_s - LIVE_WINDOW_S:
            recent.append(sample)
        elif ended_s < now_s - 2 * LIVE_WINDOW_S:  # workers report in turn, so a little out of order
            break
    span = Span(max(0.0, now_s - LIVE_WINDOW_S), now_s)
    there = Measured(phase=Phase.DURING, span=span, samples=recent, everyone=recent)
    if any(bound.metric == "integrity" for bound in bounds):
        there.readings = judge_all(recent, references)
    for bound in bounds:
        if bound.metric == "backlog":
            value = _backlog_now(samples, dues, now_s)
        elif len(recent) < LIVE_REQUESTS and bound.metric not in RATES:
            continue
        else:
            value = point(bound, there) if now_s >= LIVE_WINDOW_S or bound.metric not in RATES else None
        if value is not None and satisfies(bound, value):
            return f"{bound.text}: {subject_of(bound)} was {_shown(bound, value)} at {now_s:.1f} s"
    return None


def _backlog_now(samples: Sequence[Sample], dues: Sequence[Due], now_s: float) -> float | None:
    """Requests that are due and have not ended; None in a closed loop, where none is due before its turn."""
    if not any(due.at_s for due in dues):
        return None
    return float(max(0, sum(due.at_s <= now_s for due in dues) - len(samples)))
