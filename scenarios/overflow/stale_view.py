"""A view that outlives its owner: the buffer has gone to another request, or the memory is gone.

    given back and lent again ─▶ another request's text is read (LEAKED)      unmapped ─▶ SIGSEGV
    the same with a generation counter, a released view, a mapping that knows its views ─▶ refused

These probes show the mechanism, they do not accuse the target. Each allows exactly the outcome that its mechanism
must show: seen, it passes; not seen, or another, it is UNKNOWN. A check that lets a stale view through fails.
"""

from collections.abc import Iterable, Mapping
from random import Random

from contextlab.analysis.prompts import codes
from contextlab.analysis.provoked import as_foretold
from contextlab.model import Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario

MEMORY_LIMIT_BYTES = 4 << 30
LEAKS, DIES, REFUSED = (frozenset({one}) for one in (Outcome.LEAKED, Outcome.CRASHED, Outcome.REJECTED))

PROBES: tuple[tuple[str, str, frozenset[Outcome], Mapping[str, str]], ...] = (
    ("reused-unchecked", "reused-buffer", LEAKS, {"check": "none"}),
    ("reused-generation", "reused-buffer", REFUSED, {"check": "generation", "refusal": "StaleViewError"}),
    ("reused-released", "reused-buffer", REFUSED, {"check": "release", "refusal": "ValueError"}),
    ("unmapped-unchecked", "unmapped-view", DIES, {"check": "none", "signal": "SIGSEGV"}),
    ("unmapped-known", "unmapped-view", REFUSED, {"check": "exports", "refusal": "BufferError"}),
)


def plan(known: Knowledge, rng: Random) -> Plan:
    """Reuse and unmapping, each without a check and with the checks there are."""
    secret = codes(rng)["HEAD"]
    for name, task, allowed, about in PROBES:
        yield Probe(
            name=name,
            task=task,
            allowed=allowed,
            neighbour=False,
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
            about={**about, "secret": secret},
        )


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """The other request's secret, a refusal, or nothing; a death is judged as any death is."""
    read, secret = str(seen.measured.get("read", "")), str(probe.about["secret"])
    if secret in read:
        why = f"the view of an earlier request reads the next one's text: {read!r}"
        evidence = {**seen.measured, "leaked": secret}
        yield Judgement(outcome=Outcome.LEAKED, why=why, layer=Layer.KV_CACHE, evidence=evidence)
    elif (judged := as_foretold(probe, seen)) is not None:
        yield judged


SCENARIO = Scenario(
    name="stale-view",
    summary="a view that outlives its owner: another request's text, SIGSEGV, or refused by an ownership check",
    needs=("memory-tasks",),
    plan=plan,
    judge=judge,
    order=220,
)
