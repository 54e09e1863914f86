"""One token past the end of a buffer, through a view that does not check: what happens is up to what lies there.

    guard page ─▶ SIGSEGV    allocator's own record ─▶ SIGABRT on free    another sequence's rows ─▶ silence

The accesses are real, each in a process of its own. The last kind is the worst: nothing dies, and a neighbour's
numbers have changed, which only canaries show. The same accesses with the capacity checked are refused before
anything is touched: that is why length ≤ capacity is asked before decoding, and not left to the machine.

These probes show the mechanism, they do not accuse the target. Each allows exactly the outcome that its mechanism
must show: seen, it passes; not seen, or another, it is UNKNOWN. A check that lets an access through fails.
"""

from collections.abc import Iterable, Mapping
from random import Random

from contextlab.analysis.provoked import as_foretold
from contextlab.model import Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario

MEMORY_LIMIT_BYTES = 4 << 30
DIES, REFUSED = frozenset({Outcome.CRASHED}), frozenset({Outcome.REJECTED})
DAMAGES = frozenset({Outcome.NEIGHBOUR_CORRUPTED})

PROBES: tuple[tuple[str, str, frozenset[Outcome], Mapping[str, int | str]], ...] = (
    ("guard-page-read", "guard-page", DIES, {"access": "read", "signal": "SIGSEGV"}),
    ("guard-page-checked", "guard-page", REFUSED, {"access": "read", "checked": 1, "refusal": "CapacityError"}),
    ("arena-neighbour", "arena-neighbour", DAMAGES, {}),
    ("arena-neighbour-checked", "arena-neighbour", REFUSED, {"checked": 1, "refusal": "CapacityError"}),
    ("heap-overrun", "heap-overrun", DIES, {"signal": "SIGABRT"}),
    ("guard-page-write", "guard-page", DIES, {"access": "write", "signal": "SIGSEGV"}),
    ("freed-storage", "freed-storage", DIES, {"signal": "SIGSEGV"}),
    ("truncated-weights", "truncated-weights", DIES, {"signal": "SIGBUS"}),
)


def plan(known: Knowledge, rng: Random) -> Plan:
    """Each access once; those with a check beside the same one without."""
    for name, task, allowed, about in PROBES:
        yield Probe(
            name=name,
            task=task,
            allowed=allowed,
            neighbour=False,
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
            about=about,
        )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """Damaged canaries, a refusal, or nothing; a death is judged as any death is."""
    damaged = int(seen.measured.get("damaged_bytes") or 0)
    if damaged:
        length, capacity = seen.measured.get("length"), seen.measured.get("capacity")
        why = (
            f"{length} tokens written into room for {capacity}: {damaged} bytes of the neighbour changed, "
            "no error, no signal; only its canaries tell"
        )
        yield Judgement(
            outcome=Outcome.NEIGHBOUR_CORRUPTED, why=why, layer=Layer.KV_CACHE, evidence=dict(seen.measured)
        )
    elif (judged := as_foretold(probe, seen)) is not None:
        yield judged


SCENARIO = Scenario(
    name="memory-fault",
    summary="real accesses past the end of a buffer: SIGSEGV, SIGABRT, SIGBUS, silent damage; and refused by a check",
    needs=("memory-tasks",),
    plan=plan,
    judge=judge,
    order=210,
)
