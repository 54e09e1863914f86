"""Blocks of two arms for the tests of the gate: what is not said is the same in both, and without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from contextlab.analysis.gate.nouns import Block, Measure, Metric

TTFT = Metric(name="ttft_p50_s")
SPEED = Metric(name="tokens_per_s", unit="tokens/s", better="more")
STEADY = (-0.012, 0.004, 0.0, 0.009, -0.006, 0.013, -0.003, 0.007, -0.01, 0.002)
"""Relative noise of ten launches."""


def measure(values: Mapping[str, float] | None = None, **rest: Any) -> Measure:
    """One arm; 100 requests were answered unless it is said otherwise."""
    return Measure(**{"metrics": values or {"ttft_p50_s": 0.1}, "num_requests": 100, **rest})


def blocks(
    ratio: float = 1.0,
    *,
    name: str = "ttft_p50_s",
    noise: Sequence[float] = STEADY,
    start: int = 1,
    confirming: bool = False,
    base: Mapping[str, Any] | None = None,
    candidate: Mapping[str, Any] | None = None,
) -> list[Block]:
    """As many blocks as there is noise; `base`, `candidate`: what all measures of that arm also say."""
    return [
        Block(
            number=start + place,
            base=measure({name: 0.1}, **(base or {})),
            candidate=measure({name: 0.1 * ratio * (1 + off)}, **(candidate or {})),
            confirming=confirming,
        )
        for place, off in enumerate(noise)
    ]


def changed(every: Sequence[Block], numbers: Sequence[int], arm: str = "candidate", **facts: Any) -> list[Block]:
    """The same blocks, with other facts of one arm in some of them."""
    found = []
    for block in every:
        measured = block.base if arm == "base" else block.candidate
        if block.number in numbers and measured is not None:
            other = replace(measured, **facts)
            block = replace(block, base=other) if arm == "base" else replace(block, candidate=other)
        found.append(block)
    return found
