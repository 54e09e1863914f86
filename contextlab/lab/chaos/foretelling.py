"""`chaos --dry-run`: what would be done, over which path, and what it needs; nothing is started, opened or sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from contextlab import registry
from contextlab.analysis import loads, quantities
from contextlab.experiment import ChaosScenario, Experiment, Plane
from contextlab.lab.chaos.path import refuse_tls
from contextlab.lab.chaos.run import ChaosOptions
from contextlab.lab.chaos.victims import is_started_here, unkillable
from contextlab.lab.link.engines import choose_engine
from contextlab.lab.provenance import without_secrets
from contextlab.model import Knowledge, Limits, Skip, TargetSpec, UnableError

NEEDS = {
    "direct": "nothing",
    "relay": "nothing but a free port on 127.0.0.1",
    "packet link": "root, or user namespaces; and /dev/net/tun",
    "netem": "root, or user namespaces; tc, and sch_netem in the kernel",
    "emulated": "nothing but a free port on 127.0.0.1; EMULATED: no packet is really lost",
}
BESIDE = {
    Plane.HOST: "a process of ours (or --i-own-this), and rights over it; control groups where it says so",
    Plane.CLIENT: "nothing but free ports",
    Plane.TIER: "redis-server, and the extra: pip install 'contextlab[tier]'",
}
"""What faults of these planes need."""
UNDO = (
    "nothing stays behind: proxy, device and namespace end with their process, also on SIGKILL; what was changed on a "
    "host is on record before, and a watchdog takes it back"
)
POWERS = frozenset(
    {"completions", "chat", "counts-tokens", "window", "gauges", "serves-many", "process", "workers", "health", "log"}
)


def foretold(
    spec: TargetSpec, scenarios: Sequence[ChaosScenario], chaos: ChaosOptions, *, seed: int, as_json: bool = False
) -> str:
    """Every experiment with its load, faults, path, bounds and needs, as text for a person or one JSON document.

    The target is not opened, so a rate that nobody gave is only said to follow its speed.
    """
    known = Knowledge(flavour="not opened", model="", limits=Limits(context_tokens=512), powers=POWERS)
    rows = [
        _row(scenario.name, step, spec, chaos, seed)
        for scenario in scenarios
        for step in scenario.plan(known, chaos.asked, Random(f"{seed}:{scenario.name}"))
        if not isinstance(step, Skip)
    ]
    command = registry.server_command(spec)
    document: dict[str, Any] = {
        "schema": "contextlab.chaos-plan/1",
        "command": "chaos",
        "target": without_secrets(spec.name),
        "server": " ".join(command.argv) if command else None,
        "seed": seed,
        "experiments": rows,
        "undo": UNDO,
    }
    if as_json:
        return json.dumps(document, indent=2) + "\n"
    lines = [f"would test {document['target']}; nothing was started", ""]
    if command:
        lines.append(f"server      started, owned and stopped by contextlab: {document['server']}")
    lines.append(f"seed        {seed}")
    for row in rows:
        lines += ["", f"{row['scenario']}/{row['experiment']}"]
        lines += [f"  {name:<10}{line}" for name, words in _words(row) for line in words]
    return "\n".join([*lines, "", f"undo        {UNDO}", ""])


def _row(scenario: str, experiment: Experiment, spec: TargetSpec, chaos: ChaosOptions, seed: int) -> dict[str, Any]:
    faults = [registry.make_fault(placed) for placed in experiment.faults]
    engine, why_not, next_step = "direct", "", ""
    wire = [placed for placed, fault in zip(experiment.faults, faults, strict=True) if fault.PLANE.on_wire]
    beside = [words for plane, words in BESIDE.items() if any(fault.PLANE is plane for fault in faults)]
    if wire:
        try:
            engine = choose_engine(wire, allow_emulation=chaos.allow_emulation)
        except UnableError as error:
            engine, why_not, next_step = "packet link", error.message, error.next_step
    has_tier = experiment.tier is not None or any(fault.PLANE is Plane.TIER for fault in faults)
    if not is_started_here(spec):
        try:
            refuse_tls(spec, wire, has_tier=has_tier)
        except UnableError as error:
            why_not, next_step = error.message, error.next_step
        why_not = unkillable(experiment.faults) or why_not
    by_speed = chaos.asked.rate_per_s is None and not experiment.load.arrivals.concurrency
    return {
        "scenario": scenario,
        "experiment": experiment.name,
        "load": loads.words_of(experiment.load) + (" (the rate will follow the target's speed)" if by_speed else ""),
        "arms": ["control", "fault"] if experiment.control else ["fault"],
        "seconds": round(experiment.load.duration_s * (2 if experiment.control else 1), 3),
        "faults": [
            {"fault": registry.shown_fault(placed), "acts_on": str(fault.PLANE), "does": fault.SUMMARY}
            for placed, fault in zip(experiment.faults, faults, strict=True)
        ],
        "path": engine,
        "possible_here": not why_not,
        "why_not": why_not,
        "next_step": next_step,
        "needs": "; ".join([NEEDS[engine], *beside] if wire else beside or [NEEDS[engine]]),
        "hypothesis": [bound.text for bound in experiment.hypothesis],
        "stop": [bound.text for bound in experiment.stop],
        "seed": seed,
    }


def _words(row: dict[str, Any]) -> list[tuple[str, list[str]]]:
    arms = "then the same with the faults" if len(row["arms"]) == 2 else "no control arm"
    words = [
        ("load", [row["load"]]),
        ("arms", [f"{', '.join(row['arms'])} ({arms}), about {quantities.shown_seconds(row['seconds'])}"]),
        ("faults", [f"{one['fault']} on the {one['acts_on']}: {one['does']}" for one in row["faults"]] or ["none"]),
        ("path", [row["path"] + ("" if row["possible_here"] else f": NOT POSSIBLE HERE: {row['why_not']}")]),
        ("needs", [row["needs"]]),
        ("steady", ["; ".join(row["hypothesis"]) or "nothing is asked"]),
    ]
    if row["stop"]:
        words.append(("stop if", ["; ".join(row["stop"])]))
    if row["next_step"]:
        words.append(("next", [row["next_step"]]))
    return words
