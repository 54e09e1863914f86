"""The numbers that a judgement of a chaos trial rests on, flat and by name, as findings carry them; pure.

Names begin with the phase: `during_ttft_p90_s`. A quantile that nothing reached is "> all", one of too few requests
"insufficient". `control_vs_before`: the same load twice over the same path without a fault (A/A): what differs there
is no fault's doing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from contextlab.analysis.checks import State
from contextlab.analysis.load_metrics import Measured
from contextlab.analysis.quantiles import Versus
from contextlab.analysis.study import Study
from contextlab.experiment import Pace, Phase, Trial
from contextlab.model import Evidence

DECIMALS = 6
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
CLOSED = "closed: a stall also delays the requests that would have met it, so waits look shorter than they are"
INSUFFICIENT, BEYOND = "insufficient", "> all"

Value = int | float | str | bool | None


def evidence(seen: Study) -> Evidence:
    """The numbers of a trial."""
    found: dict[str, Value] = {"load": "open loop" if _is_open(seen.trial) else CLOSED}
    for phase, there in seen.measured.items():
        found |= dict(_of_phase(phase, there))
    for phase in (Phase.DURING, Phase.AFTER):
        found |= _compared(seen, f"{phase}_vs_control", phase, Phase.CONTROL)
    found |= _compared(seen, "before_vs_control", Phase.BEFORE, Phase.CONTROL, interval=True)
    apart = seen.difference("ttft", 0.5, Phase.BEFORE, Phase.CONTROL)
    if apart is not None and math.isfinite(apart.value):
        found["before_minus_control_ttft_p50_s"] = round(apart.value, DECIMALS)
    found |= _of_faults(seen.trial)
    if seen.recovery is not None and seen.recovery.enough:
        found["recovery_window_s"] = seen.recovery.window_s
        found["recovery_s"] = "never" if seen.recovery.after_s is None else seen.recovery.after_s
    if uncompared := sum(there.num_uncompared for there in seen.measured.values()):
        found["texts_not_compared"] = uncompared
    if open_checks := [check.why for check in seen.gate if check.state is State.UNDECIDED]:
        found["gate_undecided"] = "; ".join(open_checks)
    return found


def shown(value: float, *, enough: bool = True) -> Value:
    """A number for evidence: rounded, or why there is none."""
    if math.isnan(value):
        return None
    if not enough:
        return INSUFFICIENT
    return BEYOND if math.isinf(value) else round(value, DECIMALS)


def key(name: object) -> str:
    """A name as part of the name of a number."""
    return "".join(char if char.isalnum() else "_" for char in str(name).lower()).strip("_")


def _is_open(trial: Trial) -> bool:
    return trial.experiment.load.arrivals.pace is not Pace.CLOSED


def _of_phase(phase: Phase, there: Measured) -> Iterator[tuple[str, Value]]:
    yield f"{phase}_n", there.n
    if not there.n:
        return
    for name, q in QUANTILES.items():
        found = there.times("ttft").quantile(q)
        yield f"{phase}_ttft_{name}_s", shown(found.value, enough=found.enough)
    whole = there.times("e2e").quantile(0.5)
    yield f"{phase}_e2e_p50_s", shown(whole.value, enough=whole.enough)
    yield f"{phase}_errors", shown(math.nan if there.errors.value is None else there.errors.value)
    yield f"{phase}_integrity", shown(math.nan if there.integrity.value is None else there.integrity.value)
    yield f"{phase}_backlog", there.backlog.total
    if there.throughput_per_s is not None:
        yield f"{phase}_throughput_per_s", shown(there.throughput_per_s)
    if there.retransmits:
        yield f"{phase}_client_retransmits", there.retransmits


def _compared(seen: Study, name: str, phase: Phase, other: Phase, *, interval: bool = False) -> dict[str, Value]:
    """The ratios of the medians and of the p90 of TTFT, where they can be said."""
    found: dict[str, Value] = {}
    for quantile, q in (("p50", 0.5), ("p90", 0.9)):
        versus = seen.versus("ttft", q, phase, other)
        if versus is None or math.isnan(versus.value) or not versus.enough:
            continue
        found[f"{name}_ttft_{quantile}"] = shown(versus.value)
        if interval:
            found |= _ends(f"{name}_ttft_{quantile}", versus)
    return found


def _ends(name: str, versus: Versus) -> dict[str, Value]:
    return {f"{name}_low": shown(versus.low), f"{name}_high": shown(versus.high)}


def _of_faults(trial: Trial) -> Mapping[str, Value]:
    """What the kernel and the faults themselves counted; of several faults of one name the sum."""
    found: dict[str, Value] = {}
    totals: dict[str, float] = {}
    resent: list[float] = []
    for one in trial.fault.evidence if trial.fault is not None else ():
        resent += [value for name, value in one.kernel.items() if name == "retransmitted_segments"]
        for name, value in one.tally.items():
            totals[f"{key(one.name)}_{key(name)}"] = totals.get(f"{key(one.name)}_{key(name)}", 0.0) + value
        if one.engine == "emulated":
            found["engine"] = "emulated"
    if resent:
        found["retransmitted_segments"] = max(resent)
    return {**found, **{name: shown(value) for name, value in totals.items()}}
