"""Sweeps made by hand, as records that the lab would write, one run for each kind of sweep that a report shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from contextlab.analysis.axes import Axis, Value, config_hash, grid
from contextlab.analysis.frontier import Direction, Interval, Status
from contextlab.analysis.racing import Drift, Undecided
from contextlab.analysis.sweeps import Goal, Measurement, Sweep
from contextlab.analysis.tradeoffs import Slo
from contextlab.lab.journal import plain
from contextlab.model import Record, Run, Verdict
from tests.reports import sample

PATH = "runs/2026-11-29T160203-pareto-smollm2"
HEADER: dict[str, Any] = {
    **sample.HEADER,
    "command": "pareto",
    "argv": [
        *("pareto", "smollm2", "--sweep", "slots=1,2,4", "--sweep", "concurrency=1,2,4,8"),
        *("--slo", "p99 ttft < 200ms", "--budget", "8min"),
    ],
    "policy": {},
}
AXES = (
    Axis(name="slots", values=(1, 2, 4), restarts=True),
    Axis(name="context", values=(2048,), restarts=True, unit="tokens"),
    Axis(name="concurrency", values=(1, 2, 4, 8)),
)
TOKENS = Goal(text="tokens_per_s", metric="tokens_per_s", quantile=None, direction=Direction.UP, unit="tokens/s")
TTFT = Goal(text="p99 ttft", metric="ttft", quantile=0.99, direction=Direction.DOWN, unit="s")
MEMORY = Goal(text="memory", metric="memory", quantile=None, direction=Direction.DOWN, unit="bytes")
SLO = Slo(objective="p99 ttft", op="<", limit=0.2)
HOW = "closed loop, prompts of 64 tokens and replies of 32, 8 s for each measurement after one wave of warm-up"
Config = dict[str, Value]
Change = Callable[[Measurement], Measurement]
"""What becomes of a measurement in which all went well."""


def sweep(**more: Any) -> Sweep:
    """Twelve settings, two goals, one SLO, eight minutes."""
    fields: dict[str, Any] = {
        "axes": AXES,
        "goals": (TOKENS, TTFT),
        "slos": (SLO,),
        "fixed": {"kv_unified": True, "batch": 2048, "threads": None},
        "baseline": {"slots": 1, "context": 2048, "concurrency": 1},
        "budget_s": 480.0,
        "seed": 7,
        "how": HOW,
        **more,
    }
    fields.setdefault("num_configs", len(grid(fields["axes"])))
    return Sweep(**fields)


def measured(config: Config, block: int, noise: float = 0.02, **more: Any) -> Measurement:
    """One measurement of a system that serves as many requests at once as it has slots; the rest waits."""
    rng = Random(f"{config_hash(config)} {block}")
    slots, concurrency = (int(config.get(name, 1)) for name in ("slots", "concurrency"))
    busy = min(slots, concurrency)
    spare = math.log2(slots / busy)
    tokens_per_s = 118.0 * busy**0.55 * (1 + 0.06 * (concurrency > slots)) * (1 - 0.015 * spare)
    ttft_s = 0.021 * busy**0.7 * (1 + 0.04 * spare) + 0.27 * max(0, concurrency - slots) / busy**0.55
    memory = 181e6 + 23.6e6 * slots * int(config.get("context", 2048)) / 2048
    sent = 24 * concurrency
    fields: dict[str, Any] = {
        "values": {
            "tokens_per_s": round(tokens_per_s * rng.gauss(1, noise), 4),
            "p99 ttft": round(ttft_s * rng.gauss(1, 2 * noise), 6),
            "memory": round(memory),
        },
        "num_requests": sent,
        "facts": {
            "window_tokens": 2048,
            "client_lateness_p99_s": round(rng.uniform(0.0004, 0.0021), 6),
            "client_cpu_share": round(rng.uniform(0.04, 0.11), 4),
            "host_load": round(rng.uniform(1.2, 2.4), 2),
            "littles_law": True,
            "ramp_s": 0.4,
            "drain_s": 0.6,
        },
        "cost_s": round(9.1 + rng.uniform(0, 0.4), 3),
        "began_s": 60.0 * block,
        **more,
    }
    return Measurement(settings=config, block=block, **fields)


def blocks(what: Sweep, num: int, *changes: Change, noise: float = 0.02) -> list[Measurement]:
    """So many blocks of all settings, then what the changes make of them."""
    found = []
    for block in range(num):
        for config in grid(what.axes):
            one = measured(config, block, noise, baseline=config == what.baseline)
            for change in changes:
                one = change(one)
            found.append(one)
    return found


def where(change: Change, **settings: Value) -> Change:
    """The change, only of measurements with these settings."""
    return lambda one: change(one) if all(one.settings[name] == each for name, each in settings.items()) else one


def out(status: Status, why: str) -> Change:
    """A measurement that gave nothing."""
    return lambda one: replace(one, status=status, why=why, values={}, num_requests=0)


def failing(one: Measurement) -> Measurement:
    """A few of its requests fail."""
    return replace(one, num_failed=3, failures={"timeout": 2, "http 500": 1})


def records(
    what: Sweep | None, told: Iterable[Measurement] = (), *, undecided: Sequence[Undecided] | None = None, **more: Any
) -> list[Record]:
    """The records of a sweep in the order in which the lab writes them; `undecided` None leaves out what comes last."""
    found: list[Record] = [] if what is None else [{"kind": "sweep", "at_s": 2.0, "sweep": plain(what)}]
    at_s = 2.0
    for one in told:
        at_s += one.cost_s
        found.append({"kind": "measurement", "at_s": round(at_s, 3), "measurement": plain(one)})
    if reference := more.get("reference"):
        found.append({"kind": "reference", "at_s": at_s, "reference": list(reference)})
    if undecided is not None:
        drift = plain(more.get("drift", ()))
        found.append({"kind": "undecided", "at_s": at_s, "undecided": plain(undecided), "drift": drift})
    return found


def run(told: Sequence[Record], *, code: int | None = 0, reason: str = "") -> Run:
    """A run of these records, read as the journal would read it; `code` None for one that was killed."""
    verdict = {0: Verdict.PASS, 1: Verdict.FAIL}.get(code if code is not None else 3, Verdict.UNKNOWN)
    end: Record = {"kind": "end", "at_s": 371.0, "verdict": verdict.name, "exit": {"code": code, "reason": reason}}
    lines = (HEADER, *told, *([] if code is None else [end]))
    return Run(
        path=PATH,
        header=HEADER,
        knowledge=sample.KNOWLEDGE,
        end=None if code is None else end,
        records=tuple(msgspec.json.decode(msgspec.json.encode(plain(line))) for line in lines),
    )


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────

REFUSED = "the server refused it: HTTP 500 at start: failed to create context with 4 sequences of 2048 tokens"
LATE = "the client was the limit: late by 61 ms at p99, more than 5 ms"
STEADY = (
    Drift(objective="tokens_per_s", change=Interval(value=-0.004, low=-0.031, high=0.022), num_repeats=4),
    Drift(objective="p99 ttft", change=Interval(value=0.011, low=-0.06, high=0.083), num_repeats=4),
)


def whole() -> Run:
    """Twelve settings, one refused, one crashed, one with a repeat that cannot be used; a few requests fail."""
    what = sweep()
    told = blocks(
        what,
        4,
        where(out(Status.INFEASIBLE, REFUSED), slots=4, concurrency=1),
        where(out(Status.CRASHED, "killed by SIGSEGV while it answered"), slots=1, concurrency=8),
        where(failing, slots=2, concurrency=8),
        lambda one: out(Status.INVALID, LATE)(one) if one.settings["concurrency"] == 4 and one.block == 2 else one,
    )
    why = "4 repeats; the budget left 0 evaluations"
    left = [
        Undecided(settings={"slots": slots, "context": 2048, "concurrency": slots // 2}, why=why) for slots in (4, 2)
    ]
    return run(records(what, told, undecided=left, drift=STEADY, reference=(100.0, 1.2)))


def decided() -> Run:
    """Nothing is left open."""
    what = sweep(axes=(AXES[0], Axis(name="concurrency", values=(1, 4))), fixed={"context": 512}, budget_s=0.0)
    told = blocks(what, 4, noise=0.003)
    told = [replace(one, facts={**one.facts, "window_tokens": 508, "littles_law": one.block > 0}) for one in told]
    return run(records(what, told, undecided=(), drift=STEADY))


def infeasible() -> Run:
    """No setting keeps the SLO, the baseline drifted, and a setting is called as no other."""
    what = sweep(slos=(replace(SLO, limit=0.002), Slo(objective="errors", op="<", limit=0.01)))
    told = blocks(what, 3)
    told = [replace(one, values={**one.values, "errors": 0.0}) for one in told]
    drift = (Drift(objective="tokens_per_s", change=Interval(value=-0.09, low=-0.14, high=-0.04), num_repeats=3),)
    return run(records(what, told, undecided=(), drift=drift))


def once() -> Run:
    """One repeat each: nothing is known of the noise."""
    what = sweep()
    why = "1 repeats; the budget left 0 evaluations"
    left = [Undecided(settings=config, why=why) for config in grid(AXES)]
    left += [Undecided(settings=None, why="4 of 16 settings were never measured")]
    return run(records(replace(what, num_configs=16), blocks(what, 1), undecided=left))


def three() -> Run:
    """Three goals, memory among them, over a range that only a logarithm shows."""
    what = sweep(goals=(TOKENS, TTFT, MEMORY))
    return run(records(what, blocks(what, 3), undecided=(), drift=STEADY))


def killed() -> Run:
    """Killed with SIGKILL in its second block."""
    what = sweep()
    return run(records(what, blocks(what, 2)[:17]), code=None)


def interrupted() -> Run:
    """Stopped with Ctrl-C in its second block."""
    what = sweep(axes=(AXES[0], Axis(name="concurrency", values=(1, 4))))
    return run(records(what, blocks(what, 2)[:8], undecided=()), code=130, reason="interrupted by the user")


def invalid() -> Run:
    """The client was starved throughout."""
    what = sweep()
    told = blocks(what, 1, out(Status.INVALID, LATE))
    return run(records(what, told, undecided=()), code=3, reason="no setting could be measured")


def empty() -> Run:
    """Ended before its first measurement."""
    return run(records(sweep(), undecided=()), code=3, reason="the host is contended: load 14 on 2 cores")


def bare() -> Run:
    """Ended before the sweep began."""
    return replace(run([], code=5, reason="the server did not start"), knowledge=None)


def hostile(text: str = sample.HOSTILE) -> Run:
    """A sweep in which everything that comes from outside is `text`."""
    said, text = text, plain(text)  # (a record has no half characters)
    axes = (Axis(name="cache_type", values=(text, "f16")), Axis(name="concurrency", values=(1, 2)))
    what = sweep(axes=axes, fixed={text: text}, baseline={"cache_type": "f16", "concurrency": 1}, how=text)
    told = [
        replace(one, facts={text: text, "window_tokens": 2048}, failures={text: 1}, num_failed=1)
        for one in blocks(what, 3, where(out(Status.CRASHED, text), cache_type=text))
    ]
    told[-1] = replace(told[-1], status=Status.INVALID, why=text)
    left = [Undecided(settings={"cache_type": text, "concurrency": 1}, why=text)]
    drift = (Drift(objective=text, change=Interval(value=0.0, low=-1.0, high=1.0), num_repeats=3),)
    made = run(records(what, told, undecided=left, drift=drift), code=3, reason=text)
    return replace(made, path=said)
