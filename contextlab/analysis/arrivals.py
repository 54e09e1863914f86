"""When requests are due: a load and a seed in, the whole schedule out. Pure; no clock.

Every open pace is one stream of unit exponentials E₁, E₁+E₂, … (or whole numbers, where it is constant) sent through
the inverse of the pace's expected count Λ(t), so that Poisson arrivals are truly Poisson: gaps are never rescaled,
and the number of requests varies as it must. Which request of the mix is due comes from a stream of its own, so that
neither changes with the other.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, count, takewhile
from random import Random

from contextlab.experiment import Arrivals, Due, Load, Mixed, Pace
from contextlab.model import UsageError

MAX_DUES = 5_000_000
"""A plan with more requests would be a mistake, and fill the memory."""
CLOSED_CYCLE = 4096


def schedule(load: Load, seed: int) -> tuple[Due, ...]:
    """All due times of a load below its duration, oldest first; equal seeds give equal schedules.

    For a closed loop: the requests of one cycle, all due at 0. Its client takes them in turn, each when another ended,
    and begins anew after the last: request number n is the one in place n modulo their number.
    Raises UsageError for a rate, a mix or a trace that cannot be meant.
    """
    _check(load)
    chosen = _choices(load.mix, Random(f"{seed}:mix"))
    times = _times(load, Random(f"{seed}:arrivals"))
    return tuple(Due(index=index, at_s=at_s, mixed=next(chosen)) for index, at_s in enumerate(times))


def expected_requests(load: Load, until_s: float) -> float:
    """Λ(t): how many requests of an open load are due before `until_s`, on average."""
    arrivals, rate = load.arrivals, load.arrivals.rate_per_s
    match arrivals.pace:
        case Pace.BURST:
            in_burst_s = min(max(until_s - arrivals.burst_at_s, 0.0), arrivals.burst_s)
            return rate * (until_s + (arrivals.factor - 1) * in_burst_s)
        case Pace.RAMP:
            return rate * until_s + _growth(load) * until_s**2 / 2
        case Pace.REPLAY:
            return sum(0 <= at_s < until_s for at_s in arrivals.trace_s)
        case _:
            return rate * until_s


def _times(load: Load, rng: Random) -> Iterator[float]:
    arrivals, rate = load.arrivals, load.arrivals.rate_per_s
    times: Iterator[float]
    match arrivals.pace:
        case Pace.CONSTANT:
            times = (number / rate for number in count())
        case Pace.POISSON:
            times = (num / rate for num in _unit_poisson(rng))
        case Pace.BURST:
            times = (_burst_time(arrivals, num) for num in _unit_poisson(rng))
        case Pace.RAMP:
            times = (_ramp_time(rate, _growth(load), num) for num in _unit_poisson(rng))
        case Pace.REPLAY:
            times = iter(sorted(at_s for at_s in arrivals.trace_s if at_s >= 0))
        case Pace.CLOSED:
            return iter([0.0] * max(CLOSED_CYCLE, arrivals.concurrency))
    return takewhile(lambda at_s: at_s < load.duration_s, times)


def _unit_poisson(rng: Random) -> Iterator[float]:
    """A Poisson process of rate 1."""
    at = 0.0
    while True:
        at += rng.expovariate(1.0)
        yield at


def _burst_time(arrivals: Arrivals, num: float) -> float:
    """Λ⁻¹ of a rate with one step up and one down: when `num` requests are due, on average."""
    rate, factor = arrivals.rate_per_s, arrivals.factor
    before = rate * arrivals.burst_at_s
    inside = rate * factor * arrivals.burst_s
    if num <= before:
        return num / rate
    if num <= before + inside:
        return arrivals.burst_at_s + (num - before) / (rate * factor)
    return arrivals.burst_at_s + arrivals.burst_s + (num - before - inside) / rate


def _ramp_time(rate: float, growth: float, num: float) -> float:
    """Λ⁻¹ for Λ(t) = rate·t + growth·t²/2 (`growth`: per second, each second); infinite where Λ never comes so far."""
    under_root = rate * rate + 2 * growth * num
    return 2 * num / (rate + math.sqrt(under_root)) if under_root >= 0 else math.inf


def _growth(load: Load) -> float:
    return (load.arrivals.factor - 1) * load.arrivals.rate_per_s / load.duration_s


def _choices(mix: tuple[Mixed, ...], rng: Random) -> Iterator[int]:
    """Places in the mix, by weight."""
    steps = list(accumulate(one.weight for one in mix))
    last = max(place for place, one in enumerate(mix) if one.weight > 0)
    while True:
        yield min(bisect_right(steps, rng.random() * steps[-1]), last)


def _check(load: Load) -> None:
    arrivals = load.arrivals
    if not load.duration_s > 0 or not math.isfinite(load.duration_s):
        raise UsageError(f"duration={load.duration_s:g} s: must be above 0", "for example 30s")
    weights = [one.weight for one in load.mix]
    if not weights or min(weights) < 0 or not 0 < sum(weights) < math.inf:
        raise UsageError(f"mix={weights}: needs weights of at least 0, one of them above 0", "leave the weights out")
    if arrivals.pace is Pace.CLOSED:
        if arrivals.concurrency < 1:
            raise UsageError(f"concurrency={arrivals.concurrency}: must be at least 1", "for example closed:4")
        return
    if arrivals.pace is Pace.REPLAY:
        if not all(map(math.isfinite, arrivals.trace_s)):
            raise UsageError("trace: every time in it must be a number of seconds", "mend the trace")
    elif not 0 < arrivals.rate_per_s < math.inf:
        raise UsageError(f"rate={arrivals.rate_per_s:g} per s: must be above 0", "for example --rate 8")
    if arrivals.pace in {Pace.BURST, Pace.RAMP} and not 0 <= arrivals.factor < math.inf:
        raise UsageError(f"factor={arrivals.factor:g}: must be at least 0", "for example 10")
    if min(arrivals.burst_at_s, arrivals.burst_s) < 0:
        raise UsageError("burst: neither its start nor its length can be negative", "for example 10x for 5s at 10s")
    num = expected_requests(load, load.duration_s)
    if num > MAX_DUES:
        message = f"{num:.3g} requests in {load.duration_s:g} s: at most {MAX_DUES} can be planned"
        raise UsageError(message, "ask for a lower rate or a shorter duration")
