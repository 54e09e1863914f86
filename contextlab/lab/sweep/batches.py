"""Evaluations of a target that lives inside a process: one batch through the model in a child of its own, timed there.

    settings ─▶ child: open the model, task batch-speed ─▶ one evidence a pass ─▶ Measurement

There is no server and no load: all sequences of a batch start together, so what is measured is the library's own speed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from contextlab.analysis.frontier import Status
from contextlab.analysis.sweeps import Measurement, Sweep, seed_of
from contextlab.lab.child import Order
from contextlab.lab.contention import MOST_OTHERS, busy, others, pressure
from contextlab.lab.isolate import ChildRun, run_child, spawned
from contextlab.model import Knowledge, Limits, Probe, Settings, TargetSpec

TASK = "batch-speed"
PASSES = 2
CACHE = frozenset({"cache", "max_cache_len"})
"""Settings of the target that the task takes too."""
DEADLINE_S = 600.0
VALUES = {
    "tokens_per_s": "output_tokens_per_s",
    "p50 ttft": "ttft_s",
    "p90 ttft": "ttft_s",
    "p99 ttft": "ttft_s",
    "mean ttft": "ttft_s",
    "p50 itl": "itl_p50_s",
    "p90 itl": "itl_p90_s",
    "p99 itl": "itl_p99_s",
    "mean itl": "tpot_s",
    "mean e2e": "e2e_s",
    "p50 e2e": "e2e_s",
    "memory_bytes": "peak_memory_bytes",
}
"""What a sweep calls a value, and what the task calls it. A batch has one time to first token, at every quantile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEvaluator:
    """Makes the evaluations of a sweep of an in-process target."""

    spec: TargetSpec
    sweep: Sweep
    restarts: frozenset[str]
    folder: Path
    began_s: float
    trust_host: bool = False
    memory_limit_bytes: int | None = None

    def evaluate(
        self, settings: Settings, block: int, *, baseline: bool = False, at_most_s: float = DEADLINE_S
    ) -> Measurement:
        """Measure one setting once: a warm-up and `PASSES` passes; each value is their median. `at_most_s` bounds
        nothing here: a batch has no part that could be left out."""
        began = time.monotonic()
        everything = {**self.sweep.fixed, **settings}
        own = {name: value for name, value in settings.items() if name in self.restarts}
        about: dict[str, int | float | str] = {
            name: value
            for name, value in everything.items()
            if value is not None and (name not in self.spec.settings or (name in CACHE and value))
        }
        about |= {"repeats": PASSES, "warmup": 1, "seed": seed_of(self.sweep.seed, block, settings)}
        order = Order(
            spec=replace(self.spec, settings={**self.spec.settings, **own}),
            began_s=self.began_s,
            patience_s=DEADLINE_S,
            knowledge=Knowledge(flavour="transformers", model="", limits=Limits()),
            probe=Probe(name=TASK, task=TASK, neighbour=False, about=about),
        )
        before = busy()
        run = run_child(
            order,
            spawned(self.folder / "client.log", self.memory_limit_bytes),
            deadline_s=DEADLINE_S,
            on_line=lambda line: None,
        )
        after = busy()
        used = others(before, after)
        told = self._told(run, used)
        facts = {**told.pop("facts"), "others_cores": round(used, 3), "cpu_pressure": pressure(before, after)}
        return Measurement(
            settings=settings,
            block=block,
            baseline=baseline,
            began_s=round(began - self.began_s, 3),
            cost_s=round(time.monotonic() - began, 3),
            facts=facts,
            **told,
        )

    def close(self) -> None:
        """Nothing stays open between two evaluations."""

    def _told(self, run: ChildRun, used: float) -> dict[str, Any]:
        """Status, why, values and facts of one child's run."""
        lines: list[Mapping[str, Any]] = [line["measured"] for line in run.lines if line["kind"] == "measured"]
        passes = [line for line in lines if "repeat" in line and "output_tokens_per_s" in line]
        error = next((line for line in lines if "error_type" in line), None)
        values = {name: _median([one.get(key) for one in passes]) for name, key in VALUES.items()}
        facts: dict[str, Any] = {key: value for line in lines[:1] for key, value in line.items()}
        facts |= {"kv_bytes": _median([one.get("kv_bytes") for one in passes]), "passes": len(passes)}
        found = {"values": values, "facts": facts, "num_requests": len(passes), "status": Status.OK, "why": ""}
        if run.end.signal or run.end.timed_out:
            how = "no end within its time" if run.end.timed_out else f"the process ended by {run.end.signal}"
            memory = ", out of memory" if run.end.out_of_memory else ""
            return {**found, "status": Status.CRASHED, "why": how + memory}
        if error is not None:
            why = f"{error['error_type']}: {error['error']} (in {error.get('failed_in', 'the batch')}){_past(facts)}"
            return {**found, "status": Status.INFEASIBLE, "why": why}
        if (cannot := run.last("cannot")) is not None:
            return {**found, "status": Status.INFEASIBLE, "why": str(cannot["message"])}
        if not passes:
            words = run.end.stderr_tail[-1] if run.end.stderr_tail else "nothing was measured"
            return {**found, "status": Status.INFEASIBLE, "why": words}
        if used > MOST_OTHERS and not self.trust_host:
            return {**found, "status": Status.INVALID, "why": f"the host was contended: others used {used:.2f} cores"}
        return found


def _past(facts: Mapping[str, Any]) -> str:
    """What an error is put down to where prompt and reply are longer than the model; "" where they are not."""
    positions, needed = facts.get("positions"), facts.get("prompt_tokens", 0) + facts.get("reply_tokens", 0)
    if not positions or needed <= positions:
        return ""
    lengths = f"{facts['prompt_tokens']} + {facts['reply_tokens']} tokens"
    return f": {lengths} are past its {positions} positions; --load prompt_tokens=N and reply_tokens=N are theirs"


def _median(values: Sequence[Any]) -> float | None:
    numbers = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return median(numbers) if numbers else None
