"""Simulated systems whose frontier is known, for the tests of statistical claims and for `benchmarks/search.py`.

Every system gives goodput (tokens/s, up) and P90 TTFT (seconds, down), some also memory (bytes, down). What is measured
is the truth times noise of mean 1; `cv` is its standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

from contextlab.analysis.frontier import Direction, Objective, Point
from contextlab.model import Settings

Vector = tuple[float, ...]

GOODPUT = Objective(name="goodput", direction=Direction.UP, unit="tokens/s")
TTFT = Objective(name="p90 ttft", direction=Direction.DOWN, unit="s")
MEMORY = Objective(name="memory", direction=Direction.DOWN, unit="bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Settings and what is true of each. `spread[i]` multiplies the noise of the i-th (1: as much as everywhere).

    `length_s` is what one evaluation takes, `restart_s` what another server setting adds.
    """

    name: str
    configs: tuple[Settings, ...]
    truth: tuple[Vector, ...]
    objectives: tuple[Objective, ...] = (GOODPUT, TTFT)
    spread: tuple[float, ...] = ()
    restarts: frozenset[str] = frozenset()
    length_s: float = 8.0
    restart_s: float = 4.0
    baseline: int = 0
    noise: Callable[[Random, float], float] = field(default=lambda rng, cv: rng.lognormvariate(-cv * cv / 2, cv))

    def measure(self, index: int, rng: Random, cv: Sequence[float]) -> Vector:
        """One repeat of the i-th setting; `cv` by objective."""
        wide = self.spread[index] if self.spread else 1.0
        return tuple(
            value * self.noise(rng, one * wide) if one else value
            for value, one in zip(self.truth[index], cv, strict=True)
        )

    def points(self, rng: Random, cv: Sequence[float], repeats: int) -> list[Point]:
        """Every setting, measured that many times."""
        return [
            Point(settings=settings, repeats=tuple(self.measure(i, rng, cv) for _ in range(repeats)))
            for i, settings in enumerate(self.configs)
        ]

    def oriented(self) -> list[Vector]:
        """The truth with more of everything better; logarithms."""
        return [
            tuple(
                math.log(value) * (1 if objective.direction is Direction.UP else -1)
                for value, objective in zip(vector, self.objectives, strict=True)
            )
            for vector in self.truth
        ]

    def on_frontier(self) -> set[int]:
        """Settings that no other one dominates at all (as good in every objective, better in one)."""
        return self._not_dominated([0.0] * len(self.objectives))

    def near_frontier(self) -> set[int]:
        """Settings that no other one dominates by more than a tie (as good in every objective, better by > ε in
        one)."""
        return self._not_dominated([math.log1p(objective.epsilon) for objective in self.objectives])

    def _not_dominated(self, ties: Sequence[float]) -> set[int]:
        vectors = self.oriented()

        def dominates(a: Vector, b: Vector) -> bool:
            pairs = list(zip(a, b, ties, strict=True))
            return all(x >= y - 1e-12 for x, y, _ in pairs) and any(x > y + tie + 1e-12 for x, y, tie in pairs)

        return {i for i, vector in enumerate(vectors) if not any(dominates(other, vector) for other in vectors)}


def normal(rng: Random, cv: float) -> float:
    """Normal noise, cut where it would not be positive."""
    return max(0.05, rng.gauss(1.0, cv))


def skewed(rng: Random, cv: float) -> float:
    """Mostly a little less, at times a hiccup: 0.7 cv of exponential noise on top of 0.7 cv of normal noise."""
    return max(0.05, 1 + 0.714 * cv * (rng.gauss(0.0, 1.0) + rng.expovariate(1.0) - 1))


def listed(name: str, truth: Iterable[Vector], **more: object) -> System:
    """A system whose settings are numbers without a meaning."""
    vectors = tuple(truth)
    return System(name=name, configs=tuple({"x": i} for i in range(len(vectors))), truth=vectors, **more)  # type: ignore[arg-type]


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────


def concave(seed: int, count: int = 12) -> System:
    """As many settings on a concave frontier as below it, by 3 to 15 % in both objectives."""
    rng = Random(seed)
    best = [(100.0 * (1 + 3 * math.sqrt(x)), 0.1 * 12**x) for x in (i / (count - 1) for i in range(count))]
    worse = [(g * (1 - gap), t * (1 + gap)) for g, t in best for gap in [rng.uniform(0.03, 0.15)]]
    return listed("concave", best + worse)


def near_ties(seed: int, count: int = 10) -> System:
    """Each setting of the frontier has a twin worse by 0 to 1.5 % and one worse by 3 to 8 %, in one objective or
    both."""
    rng = Random(seed)
    best = [(80.0 + 300.0 * x / (0.3 + x), 0.05 * 20**x) for x in (i / (count - 1) for i in range(count))]
    twins = [(g * (1 - rng.uniform(0, 0.015)), t * (1 + rng.uniform(0, 0.015))) for g, t in best]
    worse = []
    for g, t in best:
        one, other = rng.choice([(1, 0), (0, 1), (1, 1)])
        worse.append((g * (1 - one * rng.uniform(0.03, 0.08)), t * (1 + other * rng.uniform(0.03, 0.08))))
    return listed("near ties", best + twins + worse, noise=normal)


def kneed(seed: int) -> System:
    """Goodput grows to a corner and then hardly; three settings of a server, one of them best, one close to it."""
    rng = Random(seed)
    factors = (1.0, 1 - rng.uniform(0.03, 0.06), 1 - rng.uniform(0.1, 0.3))
    configs, truth = [], []
    for server, factor in enumerate(factors):
        for level in range(10):
            load = 2.0 ** (level / 1.5)
            goodput = 40 * min(load, 8 + 0.05 * load) * factor
            configs.append({"server": server, "concurrency": load})
            truth.append((goodput, (0.06 + 0.03 * max(0.0, load - 8) + 0.004 * load) / factor))
    return System(name="knee", configs=tuple(configs), truth=tuple(truth), noise=skewed, restarts=frozenset({"server"}))


def queue(
    seed: int, *, slots: Sequence[int] = (1, 2, 4, 8), batch: Sequence[int] = (64, 256, 1024),
    concurrency: Sequence[int] = (1, 2, 4, 8, 16), idle: float = 0.003, memory: bool = False,
) -> System:  # fmt: skip
    """A server with slots, a prefill chunk and clients in a closed loop, its constants drawn by the seed.

    A decode step takes `step_s` and more for each active slot; a slot that is only there adds up to the share `idle`.
    Prefill in chunks costs an overhead a chunk, and large chunks hold up the others' tokens; clients beyond the slots
    wait for their turn.
    """
    rng = Random(f"queue-{seed}")
    step_s, per_active = rng.uniform(0.01, 0.03), rng.uniform(0.03, 0.4)
    per_slot, per_chunk_s = rng.uniform(0.0, idle), rng.uniform(0.004, 0.03)
    prompt, reply, prefill_per_s = rng.choice([256, 512, 1024]), rng.choice([32, 64, 128]), rng.uniform(800, 4000)
    stall = rng.uniform(0.0, 0.5)
    configs, truth, spread = [], [], []
    for s, b, c in product(slots, batch, concurrency):
        active = min(s, c)
        chunk_s = min(b, prompt) / prefill_per_s + per_chunk_s
        prefill_s = math.ceil(prompt / b) * chunk_s
        tokens_s = step_s * (1 + per_active * active + per_slot * s) + stall * chunk_s * (active - 1) / reply
        service_s = prefill_s * (1 + 0.3 * (active - 1)) + reply * tokens_s
        wait_s = max(0, c - s) / s * service_s
        configs.append({"slots": s, "batch": b, "concurrency": c})
        size = 3e8 + 2e7 * s + 4e4 * b * math.sqrt(s)
        truth.append((active * reply / service_s, prefill_s * (1 + 0.5 * (active - 1)) + wait_s, *([size] * memory)))
        spread.append(0.8 + 0.6 * min(1.0, max(0, c - s) / (2 * s)))
    return System(
        name="queue",
        configs=tuple(configs),
        truth=tuple(truth),
        objectives=(GOODPUT, TTFT, MEMORY) if memory else (GOODPUT, TTFT),
        spread=tuple(spread),
        restarts=frozenset({"slots", "batch"}),
    )


def paged(seed: int) -> System:
    """A shared pool with a watermark and a block size, in 5 × 2 × 6 settings: too little room and running requests are
    thrown out and computed again, too much and fewer run; the more so under load (as in the table of vLLM's pull
    request 44594). Large blocks waste some of the pool.
    """
    rng = Random(f"paged-{seed}")
    peak, width = rng.uniform(0.03, 0.08), rng.uniform(0.8, 1.6)
    most, half, base_s = rng.uniform(800, 3000), rng.uniform(6, 20), rng.uniform(0.05, 0.3)
    waste, slow, blocks = rng.uniform(0.1, 0.4), rng.uniform(0.5, 2.0), rng.uniform(0.02, 0.15)
    configs, truth = [], []
    for watermark, block, load in product((0.0, 0.02, 0.05, 0.1, 0.15), (16, 64), (2, 4, 8, 16, 32, 64)):
        pressure = load / (load + half)
        short = max(0.0, math.log((peak + 0.01) / (watermark + 0.01))) / width
        over, lost = max(0.0, watermark - peak), blocks * pressure * (block > 16)
        goodput = most * pressure * (1 - min(0.7, waste * pressure * short)) * (1 - 1.5 * over * pressure) * (1 - lost)
        ttft_s = base_s * (1 + slow * load / half * (1 + 4 * over) * (1 + lost) / (1 + 0.3 * short * pressure))
        configs.append({"watermark": watermark, "block": block, "concurrency": load})
        truth.append((goodput, ttft_s))
    return System(name="paged", configs=tuple(configs), truth=tuple(truth), restarts=frozenset({"watermark", "block"}))


def batched(seed: int) -> System:
    """A model in the process: 6 batches × 4 prefill chunks × 2 kinds of cache, of which a restart costs nothing
    more."""
    rng = Random(f"batched-{seed}")
    fixed_s, each_s = rng.uniform(0.01, 0.04), rng.uniform(0.0005, 0.004)
    per_chunk_s, per_token_s = rng.uniform(0.005, 0.03), rng.uniform(0.0001, 0.0006)
    grow_s, static = rng.uniform(0.001, 0.006), rng.uniform(0.8, 1.25)
    prompt, reply = rng.choice([256, 512]), 64
    configs: list[Settings] = []
    truth = []
    for kind, batch, chunk in product(("dynamic", "static"), (1, 2, 4, 8, 16, 32), (32, 64, 128, 512)):
        chunks = math.ceil(prompt / chunk)
        memory_bound = 1 + 0.3 * max(0.0, math.log2(batch * min(chunk, prompt) / 2048))
        prefill_s = (chunks * per_chunk_s + prompt * batch * per_token_s) * memory_bound
        growth_s = grow_s * math.sqrt(batch) if kind == "dynamic" else 0.0
        decode_s = (fixed_s + each_s * batch * (static if kind == "static" else 1.0) + growth_s) * reply
        configs.append({"cache": kind, "batch": batch, "chunk": chunk})
        truth.append((batch * reply / (prefill_s + decode_s), prefill_s))
    return System(
        name="batched", configs=tuple(configs), truth=tuple(truth), restarts=frozenset({"cache"}), restart_s=0.5
    )


SIZES: tuple[dict[str, Any], ...] = (
    {"slots": (1, 2, 4), "batch": (128, 512), "concurrency": (1, 2, 4, 8)},
    {"slots": (1, 2, 4, 8), "batch": (128, 512), "concurrency": (1, 2, 4, 8, 16, 32)},
    {"slots": (1, 2, 4, 8), "batch": (64, 256, 1024), "concurrency": (1, 2, 4, 8, 16)},
)


def search_systems() -> list[System]:
    """Twenty systems of 24 to 60 settings, five of each kind, to search."""
    found = []
    for seed in range(5):
        found.append(queue(seed, **SIZES[seed % 3]))
        found.append(queue(seed + 10, idle=0.04, **SIZES[(seed + 1) % 3]))
        found += [paged(seed), batched(seed)]
    return found
