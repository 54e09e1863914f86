"""After everything else: is it still serving, is the memory back, are the slots free, are the answers unchanged?"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.judging import aftermath_evidence
from contextlab.model import FITS, Gauges, Judgement, Knowledge, Observation, Outcome, Plan, Probe, Scenario

MEMORY_GROWTH_RATIO = 0.25
MEMORY_GROWTH_BYTES = 64 << 20
"""Growth that is no leak: lazily touched buffers and allocator slack. Both bounds must be passed."""
MIB = 1 << 20


def plan(known: Knowledge, rng: Random) -> Plan:
    """Nothing but the neighbour and a normal request, and a look at the gauges."""
    yield Probe(name="calm", requests=(), allowed=FITS, watch=True)


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """Compare the gauges with those of the opening. That the answers are unchanged is a common judgement."""
    before, after = seen.knowledge.gauges or Gauges(), seen.gauges or Gauges()
    numbers = {
        "memory_before_mib": None if before.memory_bytes is None else before.memory_bytes // MIB,
        "memory_after_mib": None if after.memory_bytes is None else after.memory_bytes // MIB,
        "busy_slots": after.busy_slots,
        "waiting_requests": after.waiting_requests,
        **aftermath_evidence(seen),
    }
    known = {name: value for name, value in numbers.items() if value is not None}
    troubles = []
    if after.busy_slots:
        troubles.append(f"{after.busy_slots} slots are still busy")
    if after.waiting_requests:
        troubles.append(f"{after.waiting_requests} requests are still waiting")
    if before.memory_bytes is not None and after.memory_bytes is not None:
        growth = after.memory_bytes - before.memory_bytes
        if growth > max(MEMORY_GROWTH_BYTES, MEMORY_GROWTH_RATIO * before.memory_bytes):
            troubles.append(f"its memory has grown by {growth // MIB} MiB")
    if troubles:
        yield Judgement(outcome=Outcome.DEGRADED, why="; ".join(troubles), evidence=known)
        return
    looked = [
        word
        for word, value in (("slots free", after.busy_slots), ("memory back", after.memory_bytes))
        if value is not None
    ]
    words = ", ".join(["still serving", *looked])
    if seen.knowledge.neighbour_stable:
        words += ", answers unchanged"
    yield Judgement(outcome=Outcome.OK, why=words, evidence=known)


SCENARIO = Scenario(
    name="after-the-storm",
    summary="after all of that: still serving, memory back, slots free, answers unchanged",
    plan=plan,
    judge=judge,
    order=90,
)
