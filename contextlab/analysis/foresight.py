"""What can be said before a probe runs: whether a scenario can, how many probes, how long a reply may take."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from random import Random
from typing import TypeVar

from contextlab.experiment import ChaosScenario
from contextlab.model import Knowledge, Layer, Limit, Probe, Scenario, UnableError

Step = TypeVar("Step")
Seen = TypeVar("Seen")

PATIENCE_FLOOR_S, PATIENCE_RATIO = 10.0, 6.0
"""A reply may take this long, and this many times longer than the target's own speed foretells, before it hangs."""

INSIDE = "needs a target that runs inside the probe's own process, such as hf:DIR or hf:random/llama"
LACKS = {
    "window": "the target declares no window: run find-limit as well, or give --set window=TOKENS",
    "chat": "the target has no chat endpoint, or no chat template",
    "completions": "the target has no completions endpoint",
    "serves-many": "the target answers one request at a time",
    "process": "its process is not ours: let contextlab start the server (run:'COMMAND' --at URL), or --i-own-this",
    "workers": "the server is one process, without workers of its own",
    "health": "the target has no health endpoint",
    "gauges": "the target counts neither its slots nor its queue",
    "tasks": INSIDE,
    "memory-tasks": INSIDE,
    "host-memory": "it measures the host's memory, and the model is on a device of its own: leave out --set device",
}
"""Why a scenario is skipped, by the power that it needs."""


def lack(scenario: Scenario | ChaosScenario, known: Knowledge) -> str:
    """Why a target cannot run a scenario; "" where it can."""
    missing = [need for need in scenario.needs if need not in known.powers]
    return LACKS.get(missing[0], f"the target lacks {', '.join(missing)}") if missing else ""


def next_step(plan: Generator[Step, Seen, None], seen: Seen) -> Step:
    """The plan's next step. It is told what was seen, unless it stands in a `yield from` a list, which cannot hear."""
    inner: object = plan
    while (below := getattr(inner, "gi_yieldfrom", None)) is not None:
        inner = below
    return plan.send(seen) if hasattr(inner, "send") else next(plan)


def num_foreseen(scenario: Scenario, known: Knowledge) -> int:
    """How many probes a plan has if it sees nothing: what the time left is reckoned by; one that looks may differ."""
    if any(need not in known.powers for need in scenario.needs):
        return 0
    try:
        return sum(isinstance(step, Probe) for step in scenario.plan(known, Random(0)))
    except Exception:  # it will fail again when it is run, and be judged for it there
        return 0


def patience(probe: Probe, known: Knowledge) -> float:
    """Seconds that one exchange of a probe may take: a floor, and some times what the target's speed foretells.

    Parallel requests may have to wait for each other, and all for the neighbour.
    """
    window = known.limits.context_tokens or 4096
    foretold_s = [
        (request.size_tokens or window) / (known.prefill_tokens_per_s or 100.0)
        + (request.reply_tokens or request.hang_up_after_tokens or window) / (known.decode_tokens_per_s or 10.0)
        for request in probe.requests
    ]
    longest_s = sum(foretold_s) if probe.parallel else max(foretold_s, default=1.0)
    return round(PATIENCE_FLOOR_S + PATIENCE_RATIO * longest_s, 1)


def with_window(known: Knowledge, max_prompt_tokens: int) -> Knowledge:
    """Add the power "window" where one is declared; refuse windows that cannot be probed."""
    window = known.limits.context_tokens
    if window is None:
        return known
    if window < 1:
        raise UnableError(
            f"window={window}: the target declares a window without room", "give the real one: --set window=TOKENS"
        )
    if 2 * window > max_prompt_tokens:
        raise UnableError(
            f"window={window}: a probe of twice that is over the limit of {max_prompt_tokens} prompt tokens",
            f"start the target with a smaller window, or allow it: --max-prompt-tokens {2 * window}",
        )
    return replace(known, powers=known.powers | {"window"})


def with_measured_window(known: Knowledge, tokens: int) -> Knowledge:
    """Add a window that was measured, where none is declared: later scenarios probe at it."""
    limit = Limit(layer=Layer.ENGINE, name="measured", tokens=tokens, source="find-limit")
    limits = replace(known.limits, context_tokens=tokens, declared=(*known.limits.declared, limit))
    return replace(known, limits=limits, powers=known.powers | {"window"})
