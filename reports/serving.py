"""What `serve` says: where the target is and how to ask it something, what has come through, and what faults did to it.

The first line begins with READY and the address, for whoever waits for it in a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextlab.analysis import quantities
from contextlab.experiment import FaultEvidence, Placed
from contextlab.reports.chaos.words import fault_words, is_emulated, window_words
from contextlab.reports.parts.wording import clean, clock, num


def ready(url: str, target: str, faults: Sequence[Placed], forever_s: float, log: str) -> list[str]:
    """The lines at the beginning."""
    said = [f"{fault_words(one)} ({'always' if one.length_s >= forever_s else window_words(one)})" for one in faults]
    body = '{"prompt": "The capital of France is", "max_tokens": 8, "stream": true}'
    return [
        f"READY {url}",
        f"target: {clean(target)}",
        *(f"fault: {words}" for words in said),
        f"log: {clean(log)}",
        f"try: curl -N {url}/v1/completions -H 'Content-Type: application/json' -d '{body}'",
        "stop: Ctrl-C",
    ]


def passed(counters: Mapping[str, float], evidence: Sequence[FaultEvidence]) -> str:
    """What has come through, in one line, by the counters of the link process."""
    parts = [num(int(counters["connections"]), "connection"), f"{counters['open_connections']:.0f} open"]
    if refused := counters["refused_connections"]:
        parts.append(f"{refused:.0f} refused by the target")
    parts += [f"{quantities.shown('size', counters['down_bytes'])} to clients", *map(_did, evidence)]
    return ", ".join(parts)


def stopped(elapsed_s: float, line: str) -> str:
    """The last line."""
    return f"STOPPED after {clock(elapsed_s)}: {line}"


def _did(one: FaultEvidence) -> str:
    """How many requests a fault met."""
    seen, hit = int(one.tally.get("requests_seen", 0)), int(one.tally.get("requests_hit", 0))
    name = f"{clean(one.name)} (emulated)" if is_emulated(one.engine) else clean(one.name)
    return f"{name} hit {hit} of {num(seen, 'request')}"
