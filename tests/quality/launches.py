"""Simulated launches for the gate: two arms, block by block, with the noise that servers on shared machines show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from contextlab.analysis.gate.judging import judge, next_blocks
from contextlab.analysis.gate.nouns import METRICS, ArmName, Block, GateResult, Measure, Metric, Plan

FAMILY = tuple(metric for metric in METRICS if metric.gating and metric.min_requests == 1)
USUAL = {"ttft_p50_s": 0.12, "itl_p50_s": 0.018, "e2e_p90_s": 2.3, "tokens_per_s": 41.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations of logarithms. `pair`: of the ratio of two launches next to each other, by metric.

    `drift`: of a level that both arms share and that has an autocorrelation of 0.8 from launch to launch.
    `launch`: of what one launch does to all of its metrics. `spikes`: share of launches that take 1.5 to 3 times as
    long. `tails`: noise of metrics is Student's t with 3 degrees of freedom, scaled to the same deviation.
    """

    pair: float = 0.06
    drift: float = 0.0
    launch: float = 0.0
    spikes: float = 0.0
    tails: bool = False


ROUGH = Noise(pair=0.06, drift=0.06, launch=0.02, spikes=0.05, tails=True)
CLEAN = Noise()


class Place:
    """A machine that gives blocks of both arms, ABBA. `slower`: how many times as long the candidate is, by metric."""

    def __init__(self, seed: str, noise: Noise, slower: Mapping[str, float] | None = None) -> None:
        self._rng, self._noise, self._slower = Random(seed), noise, slower or {}
        self._level, self._number = 0.0, 0
        self._first: ArmName = self._rng.choice(("base", "candidate"))

    def blocks(self, num: int, *, confirming: bool = False) -> list[Block]:
        """The next blocks."""
        found = []
        for _ in range(num):
            self._number += 1
            first, second = self._launch(self._first == "candidate"), self._launch(self._first == "base")
            block = Block(number=self._number, first=self._first, confirming=confirming)
            base, candidate = (first, second) if self._first == "base" else (second, first)
            found.append(replace(block, base=base, candidate=candidate))
            self._first = "candidate" if self._first == "base" else "base"
        return found

    def _launch(self, candidate: bool) -> Measure:
        rng, noise = self._rng, self._noise
        self._level = 0.8 * self._level + noise.drift * math.sqrt(1 - 0.8**2) * rng.gauss(0, 1)
        shared = self._level + noise.launch * rng.gauss(0, 1)
        if rng.random() < noise.spikes:
            shared += math.log(rng.uniform(1.5, 3))
        found = {}
        for metric in FAMILY:
            longer = math.exp(shared + noise.pair / math.sqrt(2) * self._unit())
            longer *= self._slower.get(metric.name, 1.0) if candidate else 1.0
            found[metric.name] = USUAL[metric.name] * (longer if metric.better == "less" else 1 / longer)
        return Measure(metrics=found, num_requests=100, exact={"prompt_tokens": 512}, control_s=1.0)

    def _unit(self) -> float:
        rng = self._rng
        if not self._noise.tails:
            return rng.gauss(0, 1)
        return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 2) / 3) / math.sqrt(3)


def gated(place: Place, plan: Plan, metrics: Sequence[Metric] = FAMILY) -> tuple[GateResult, list[Block]]:
    """A whole run of the gate, as `gate run` makes it, and its blocks."""
    blocks: list[Block] = []
    while (more := next_blocks(blocks, metrics, plan)).num_blocks:
        blocks += place.blocks(more.num_blocks, confirming=more.confirming)
    return judge(blocks, metrics, plan), blocks
