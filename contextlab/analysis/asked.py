"""Whether anybody asked something of the target while a host fault acted: else nothing of it is proven; pure.

What the kernel counts shows that a server stood still or was slowed down. On an idle one that is no test of anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contextlab.experiment import FaultEvidence, Landed, Placed, Plane, Sample


def with_asked(
    evidence: Sequence[FaultEvidence], faults: Sequence[Placed], samples: Sequence[Sample]
) -> tuple[FaultEvidence, ...]:
    """The evidence of the placed faults, in their order, where a host fault that met no request is not proven."""
    return tuple(
        replace(one, landed=Landed(proven=False, why=f"no request was under way while it acted; {one.landed.why}"))
        if one.engine == Plane.HOST and one.landed.proven and not num_under_way(placed, samples)
        else one
        for one, placed in zip(evidence, faults, strict=True)
    )


def num_under_way(placed: Placed, samples: Sequence[Sample]) -> int:
    """How many requests were sent, and not over, at some time while a fault acted."""
    return sum(
        sample.sent_s is not None
        and sample.sent_s < placed.end_s
        and (sample.ended_s is None or sample.ended_s > placed.start_s)
        for sample in samples
    )
