"""Whether the machine was quiet enough for a difference to be the arms': block by block, and as a whole; pure.

A number from a contended machine proves nothing in either direction, so contention never fails a candidate: a block
that was disturbed alone is left out, and where a third of them were, nothing is concluded from any.

What it cannot see: a disturbance as long as the run that neither other processes, nor steal, nor the control workload
show, such as a slower clock throughout. It meets both arms of a block alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from contextlab.analysis.gate.nouns import Block, Host, Measure

MOST_OTHERS_CORES = 0.25
MOST_PRESSURE = 0.10
MOST_STEAL = 0.02
CONTROL_OFF = 0.15
"""The control workload of an arm took longer, or less, than the run's median by more than this."""
CONTROL_APART = 0.05
"""It took longer beside one arm than beside the other, by more than this in the median of the blocks."""
MIN_APART = 3
"""Blocks that it takes to say so."""
MOST_LEFT_OUT = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """`left_out`: why, by the number of the block. `whole`: why no block can be believed; "" where the others can."""

    left_out: Mapping[int, str] = field(default_factory=dict)
    whole: str = ""


def contention(blocks: Sequence[Block]) -> Contention:
    """What disturbed these blocks; of none, nothing did."""
    usual_s = _usual(blocks)
    left_out = {block.number: why for block in blocks if (why := disturbed(block, usual_s))}
    if len(left_out) > MOST_LEFT_OUT * len(blocks):
        number, why = min(left_out.items())
        return Contention(left_out=left_out, whole=f"{len(left_out)} of {len(blocks)} blocks; block {number}: {why}")
    apart = list(_ratios(block for block in blocks if block.number not in left_out))
    if len(apart) >= MIN_APART and abs(median(apart)) > math.log1p(CONTROL_APART):
        change = math.expm1(median(apart))
        whole = f"the control workload took {change:+.0%} beside the candidate, which did not run then"
        return Contention(left_out=left_out, whole=whole)
    return Contention(left_out=left_out)


def hopeless(blocks: Sequence[Block], planned: int) -> bool:
    """Whether so many of these are disturbed already that the rest of the planned ones cannot mend it. The control
    workload has no say in it: its median is not known before the end."""
    return sum(bool(disturbed(block, None)) for block in blocks) > MOST_LEFT_OUT * planned


def disturbed(block: Block, usual_s: float | None) -> str:
    """Why one block cannot be believed; "" where it can. `usual_s`: the control workload's median time."""
    for name, arm in (("base", block.base), ("candidate", block.candidate)):
        if arm is None:
            continue
        for why in (_host(arm.host), _control(arm, usual_s)):
            if why:
                return f"beside the {name} {why}"
    return ""


def _host(host: Host) -> str:
    if host.others_cores is not None and host.others_cores > MOST_OTHERS_CORES:
        return f"others used {host.others_cores:.1f} cores"
    if host.cpu_pressure is not None and host.cpu_pressure > MOST_PRESSURE:
        return f"something waited for a CPU {host.cpu_pressure:.0%} of the time, with the arm at rest"
    if host.steal is not None and host.steal > MOST_STEAL:
        return f"the hypervisor took {host.steal:.0%} of the CPU time"
    if host.throttled:
        return f"the tool's own CPU quota ran out {host.throttled} times"
    return ""


def _control(arm: Measure, usual_s: float | None) -> str:
    if not _timed(arm) or usual_s is None or arm.control_s is None:
        return ""
    off = arm.control_s / usual_s - 1
    if abs(math.log1p(off)) <= math.log1p(CONTROL_OFF):
        return ""
    return f"the control workload was off its median of {usual_s:.3g} s by {off:+.0%}"


def _timed(arm: Measure | None) -> bool:
    return arm is not None and arm.control_s is not None and 0 < arm.control_s < math.inf


def _usual(blocks: Iterable[Block]) -> float | None:
    times = [
        arm.control_s
        for block in blocks
        for arm in (block.base, block.candidate)
        if arm is not None and arm.control_s is not None and _timed(arm)
    ]
    return median(times) if times else None


def _ratios(blocks: Iterable[Block]) -> Iterator[float]:
    """ln(control beside the candidate / control beside the base) of each block that has both."""
    for block in blocks:
        base, candidate = block.base, block.candidate
        if base is None or candidate is None or base.control_s is None or candidate.control_s is None:
            continue
        if _timed(base) and _timed(candidate):
            yield math.log(candidate.control_s / base.control_s)
