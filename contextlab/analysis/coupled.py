"""What a cache of two tiers does to its target when Redis fails, foretold; and held against what was measured. Pure.

    popularity, rate, local entries ─▶ local hit rate ─┐
    Redis's latency ───────────────────────────────────┼─▶ misses at the target ─▶ its queue ─▶ longer misses ─┐
                                                       └──────────────◀── more of the same key at once ◀───────┘

Three things that do no harm alone do it together: Redis late or gone, a local tier that holds too little, and more
misses at once than the target answers side by side. `Thresholds` say where each begins.

The model. Requests of key i come at random with λᵢ per second (λᵢ = rate · weightᵢ / Σ weights). An LRU of C entries is
an LRU of one age τ for all keys (Che, Tung, Wang 2002): a key leaves when nobody asked for it for τ seconds. A miss
takes s seconds, and who asks meanwhile is a delayed hit (Atre et al. 2020) that joins, or, without guards, one more
miss. One cycle of a key lasts s + e^(λτ)/λ: a miss, e^(λτ) − 1 hits until a gap of τ, the next request. So of λᵢs +
e^(λᵢτ) requests one is a miss, λᵢs are delayed hits, the rest hits. τ is where the keys that are held add up to C:
Σ (e^(λᵢτ) − 1) / (λᵢs + e^(λᵢτ)) = C.

Misses at the target wait for each other: s = a + a ρ^(√(2c + 2) − 1) / (2c (1 − ρ)), with a seconds for one alone, c
answers side by side and ρ = misses per second · a / c (Sakasegawa 1977; a half, since answers of one length do not
vary). With guards that has always one solution, since more waiting means more joining; without, waiting makes misses,
and where ρ reaches 1 the queue grows as long as the fault lasts. Time to live is taken for longer than the arm.

It says what is to be expected of a load; `rehearsal` plays the requests through that are really due.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextlab.deeds import Reading, Tier
from contextlab.experiment import Arm

TIER = "tier"
"""The source of the readings of a tier."""
FAR, PRECISION = 1e9, 1e-5
GONE = math.inf
"""The latency of a Redis that refuses connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where each of the three begins to count; all three together degrade.

    `redis_latency_s`: None is the time limit of the tier's own client, beyond which an answer is none.
    `local_hit_rate`: below a half most requests depend on what is behind the local tier.
    `concurrent_misses`: None is as many as the target answers side by side; the next one waits (Little's law: misses
    per second times the seconds that each takes).
    """

    redis_latency_s: float | None = None
    local_hit_rate: float = 0.5
    concurrent_misses: float | None = None


USUAL = Thresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A load on a tier, and what befalls its Redis from `start_s` (since everything was empty) for `length_s`.

    `weights` are those of the mix. `answer_s`: the target's time for one answer alone; `abreast`: how many it
    answers side by side. `redis_latency_s`: what an ask of Redis takes meanwhile, `GONE` where it is refused.
    """

    weights: tuple[float, ...]
    rate_per_s: float
    tier: Tier
    answer_s: float
    abreast: float
    start_s: float
    length_s: float
    redis_latency_s: float

    @property
    def rates(self) -> tuple[float, ...]:
        """Requests per second of each key."""
        total = sum(self.weights)
        return tuple(self.rate_per_s * weight / total for weight in self.weights if weight > 0)

    @property
    def redis_serves(self) -> bool:
        """Whether Redis still answers in time."""
        return self.redis_latency_s <= self.tier.redis_timeout_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the model foretells of a window, and what was measured in it, by the same names.

    `local`, `redis`, `origin`, `joined`: shares of all requests. `amplification`: origin requests for each distinct key
    that was asked for. `breaker_open_s`: not closed, from the window's beginning until it closes after its end;
    `breaker_openings`: how often it opened. `num_requests`, `num_keys`: what the shares are of.
    """

    local: float
    redis: float
    joined: float
    origin: float
    amplification: float
    breaker_open_s: float
    breaker_openings: float
    num_requests: float
    num_keys: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """`figures`, and why: `miss_s` is what one miss takes, its queue included, `misses` how many there are at once,
    `utilisation` the part of the target that they ask for. `crossed`: the thresholds that are, in words."""

    figures: Figures
    miss_s: float
    misses: float
    utilisation: float
    crossed: tuple[str, ...]

    @property
    def degrades(self) -> bool:
        """Whether all three are crossed."""
        return len(self.crossed) == 3


# ── the model ────────────────────────────────────────────────────────────────────────────────────


def local_age_s(rates: Sequence[float], num_entries: int, miss_s: float = 0.0) -> float:
    """τ: how long a key that nobody asks for stays in the local tier; infinite where there is room for all."""
    if num_entries >= len(rates):
        return math.inf

    def held(age_s: float) -> float:
        return sum((1 - math.exp(-rate * age_s)) / (rate * miss_s * math.exp(-rate * age_s) + 1) for rate in rates)

    return _root(lambda age_s: held(age_s) - num_entries, 1 / max(rates))


def foretold(situation: Situation, thresholds: Thresholds = USUAL) -> Foretold:
    """What happens in the window."""
    one = situation
    miss_s, utilisation = (one.answer_s, 0.0) if one.redis_serves else _queued(one)
    shares = _shares_with_redis(one) if one.redis_serves else _shares_without(one, miss_s)
    local, redis, joined, origin = shares
    num_requests = one.rate_per_s * one.length_s
    num_keys = sum(-math.expm1(-rate * one.length_s) for rate in one.rates)
    origin_per_s = one.rate_per_s * origin
    open_s, openings = _breaker(one, miss_s, origin_per_s)
    misses = origin_per_s * miss_s
    figures = Figures(
        local=local,
        redis=redis,
        joined=joined,
        origin=origin,
        amplification=origin * num_requests / num_keys,
        breaker_open_s=open_s,
        breaker_openings=openings,
        num_requests=num_requests,
        num_keys=num_keys,
    )
    return Foretold(
        figures=figures,
        miss_s=miss_s,
        misses=misses,
        utilisation=utilisation or origin_per_s * one.answer_s / one.abreast,
        crossed=tuple(_crossed(one, thresholds, local, misses)),
    )


def _crossed(one: Situation, thresholds: Thresholds, local: float, misses: float) -> list[str]:
    latency_s = one.tier.redis_timeout_s if thresholds.redis_latency_s is None else thresholds.redis_latency_s
    most = one.abreast if thresholds.concurrent_misses is None else thresholds.concurrent_misses
    found = []
    if one.redis_latency_s > latency_s:
        gone = "is gone" if one.redis_latency_s == GONE else f"takes {one.redis_latency_s:.3g} s"
        found.append(f"Redis {gone} (at most {latency_s:g} s)")
    if local < thresholds.local_hit_rate:
        found.append(f"the local tier answers {local:.0%} (at least {thresholds.local_hit_rate:.0%})")
    if misses > most:
        found.append(f"{misses:.1f} misses at once (at most {most:.3g})")
    return found


def _shares_with_redis(one: Situation) -> tuple[float, float, float, float]:
    """(local, Redis, joined, origin): Redis holds whatever was asked for before; only first asks reach the origin."""
    age_s = local_age_s(one.rates, one.tier.local_entries)
    local = sum(rate * _held_share(rate, age_s, one) for rate in one.rates)
    total = sum(one.rates)
    first = sum(_first_asks(rate, one) for rate in one.rates) / one.length_s
    late = sum(_first_asks(rate, one) * rate * one.answer_s for rate in one.rates) / one.length_s
    late = max(0.0, min(late, total - local - first))
    joined, origin = (late, first) if one.tier.guards else (0.0, first + late)
    redis = max(0.0, total - local - first - late)
    return local / total, redis / total, joined / total, origin / total


def _held_share(rate: float, age_s: float, one: Situation) -> float:
    """The part of the window in which the local tier holds a key: where it was asked for in the last τ seconds, or at
    all, as long as fewer have passed."""
    end_s = one.start_s + one.length_s
    turn_s = min(max(age_s, one.start_s), end_s)
    missing = (math.exp(-rate * one.start_s) - math.exp(-rate * turn_s)) / rate
    if turn_s < end_s:
        missing += math.exp(-rate * age_s) * (end_s - turn_s)
    return 1 - missing / one.length_s


def _first_asks(rate: float, one: Situation) -> float:
    """How often a key is asked for the first time within the window, on average."""
    return math.exp(-rate * one.start_s) - math.exp(-rate * (one.start_s + one.length_s))


def _shares_without(one: Situation, miss_s: float) -> tuple[float, float, float, float]:
    """(local, Redis, joined, origin) where every local miss reaches the origin."""
    age_s = local_age_s(one.rates, one.tier.local_entries, miss_s)
    misses = late = 0.0
    for rate in one.rates:
        cycle = rate * miss_s + math.exp(min(rate * age_s, 700.0))  # requests in one cycle of this key
        misses += rate / cycle
        late += rate * rate * miss_s / cycle
    total = sum(one.rates)
    joined, origin = (late, misses) if one.tier.guards else (0.0, misses + late)
    return (total - misses - late) / total, 0.0, joined / total, origin / total


def _queued(one: Situation) -> tuple[float, float]:
    """(seconds that one miss takes with its queue, utilisation of the target) while Redis does not serve."""
    wait_s = 0.0 if one.redis_latency_s == GONE or one.tier.guards else one.tier.redis_timeout_s

    def load(miss_s: float) -> float:
        return one.rate_per_s * _shares_without(one, miss_s + wait_s)[3] * one.answer_s / one.abreast

    def answered(miss_s: float) -> float:
        """Seconds for an answer at the load that misses of this length make.

        The queue began empty: at most half the window, on average, and what an overload adds in it.
        """
        busy = load(miss_s)
        side_by_side = max(1.0, one.abreast)
        queue = (
            busy ** (math.sqrt(2 * side_by_side + 2) - 1) / (2 * side_by_side * (1 - busy)) if busy < 1 else math.inf
        )
        return min(one.answer_s * (1 + queue), one.answer_s + max(0.0, busy - 1) * one.length_s / 2 + one.length_s / 2)

    if one.tier.guards:
        miss_s = _root(lambda miss_s: miss_s - answered(miss_s), one.answer_s)
    else:
        before_s, miss_s = 0.0, one.answer_s
        while miss_s - before_s > PRECISION * miss_s:
            before_s, miss_s = miss_s, answered(miss_s)
    return miss_s + wait_s, load(miss_s)


def _breaker(one: Situation, miss_s: float, origin_per_s: float) -> tuple[float, float]:
    """(seconds not closed, how often it opens). Each origin answer asks Redis twice: to read, and to write.

    It opens after its number of failures, and is tried again at the first ask after its time is over; the last trial is
    half such a turn after the fault's end, on average.
    """
    if one.redis_serves or not one.tier.guards or origin_per_s <= 0:
        return 0.0, 0.0
    fail_s = 0.0 if one.redis_latency_s == GONE else one.tier.redis_timeout_s
    ask_s = 1 / (2 * origin_per_s)
    opens_s = one.tier.breaker_failures * ask_s + fail_s
    if opens_s >= one.length_s:
        return 0.0, 0.0
    turn_s = one.tier.breaker_reset_s + ask_s + fail_s
    left_s = one.length_s - opens_s
    return left_s + turn_s / 2, 1.0 + math.floor(left_s / turn_s)


def _root(rising: Callable[[float], float], guess: float) -> float:
    """Where a rising function crosses 0, above 0."""
    low, high = 0.0, guess
    while rising(high) < 0 and high < FAR:
        low, high = high, high * 2
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= 0 else (middle, high)
    return high


# ── what was measured ────────────────────────────────────────────────────────────────────────────


def measured(arm: Arm, start_s: float, length_s: float) -> Figures | None:
    """What the tier counted in a window, and the keys that the samples asked for in it; None without readings of it."""
    readings = [one for one in arm.readings if one.source == TIER]
    end_s = start_s + length_s
    if len(readings) < 2 or readings[-1].at_s < start_s:
        return None

    def grown(name: str, until_s: float = end_s) -> float:
        return value_at(readings, name, until_s) - value_at(readings, name, start_s)

    keys = {sample.mixed for sample in arm.samples if sample.sent_s is not None and start_s <= sample.sent_s < end_s}
    requests = grown("requests")
    if requests <= 0 or not keys:
        return None
    return Figures(
        local=grown("local_hits") / requests,
        redis=grown("redis_hits") / requests,
        joined=(grown("joined") + grown("negative_hits")) / requests,
        origin=grown("origin_requests") / requests,
        amplification=grown("origin_requests") / len(keys),
        breaker_open_s=grown("breaker_open_s", math.inf),
        breaker_openings=grown("breaker_openings", math.inf),
        num_requests=requests,
        num_keys=float(len(keys)),
    )


def value_at(readings: Sequence[Reading], name: str, at_s: float) -> float:
    """A count at a moment, on the line between the readings before and after it; before the first it was 0."""
    earlier_s, earlier = 0.0, 0.0
    for one in readings:
        value = one.values.get(name, 0.0)
        if one.at_s >= at_s:
            share = (at_s - earlier_s) / (one.at_s - earlier_s) if one.at_s > earlier_s else 1.0
            return earlier + (value - earlier) * max(0.0, share)
        earlier_s, earlier = one.at_s, value
    return earlier


# ── one against the other ────────────────────────────────────────────────────────────────────────


SHARE_ERROR = 0.12
"""A share of the requests may be so far off: when an answer is whole decides what the next request meets."""
AMPLIFICATION_ERROR = 0.25
"""The amplification may be off by this part of it, for the same reason."""
TURN = 1.25
"""One turn of the breaker in its reset times, the wait for the next ask included. It may open as much sooner or later
as its failures take to come, close a turn sooner or later, and open once more or less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure: what was foretold, what was measured, and how far apart they may be."""

    name: str
    foretold: float
    measured: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether they are that close."""
        return abs(self.foretold - self.measured) <= self.tolerance

    @property
    def words(self) -> str:
        """`local 0.52 (foretold 0.49 ± 0.12)`."""
        return f"{self.name} {self.measured:.3g} (foretold {self.foretold:.3g} ± {self.tolerance:.2g})"


def compared(model: Figures, seen: Figures, tier: Tier, length_s: float) -> tuple[Compared, ...]:
    """Hit rates, amplification and, with guards, the breaker's times, of the same requests in a window so long."""
    tolerances = dict.fromkeys(("local", "redis", "origin"), SHARE_ERROR)
    tolerances["amplification"] = AMPLIFICATION_ERROR * max(1.0, model.amplification)
    if tier.guards:
        ask_s = length_s / max(1.0, 2 * model.origin * model.num_requests)  # each miss reads, and writes
        tolerances["breaker_open_s"] = TURN * tier.breaker_reset_s + tier.breaker_failures * ask_s
        tolerances["breaker_openings"] = 1.0
    return tuple(
        Compared(name=name, foretold=getattr(model, name), measured=getattr(seen, name), tolerance=round(tolerance, 4))
        for name, tolerance in tolerances.items()
    )
