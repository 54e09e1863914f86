"""What a report says of a chaos experiment beside its table, a sentence each: load, bounds, proof, client, …; pure.

Every writer says the same; a mark stands where a sentence is a judgement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from contextlab.analysis import bounds
from contextlab.analysis.checks import Check, State
from contextlab.analysis.grounds import CLOSED
from contextlab.analysis.integrity import Integrity
from contextlab.analysis.load_metrics import Measured
from contextlab.analysis.phases import RECOVERY_WINDOWS, server_peaks
from contextlab.analysis.quantiles import Versus
from contextlab.analysis.replies import TIMES
from contextlab.analysis.steadiness import BUSY_SHARE, LOOP_LAG_S, lateness_limit_s
from contextlab.experiment import Arm, FaultEvidence, GaugeSample, GeneratorHealth, Pace, Phase
from contextlab.model import Verdict
from contextlab.reports.chaos.figures import Shown
from contextlab.reports.chaos.words import (
    EMULATED,
    NONE,
    fault_words,
    is_emulated,
    load_words,
    number,
    percent,
    seconds,
    short,
    times,
    unit_of,
)
from contextlab.reports.parts.facts import Fact
from contextlab.reports.parts.wording import MARKS, clean, num, pairs, quote

_STATES = {State.HELD: Verdict.PASS, State.BROKEN: Verdict.FAIL, State.UNDECIDED: Verdict.UNKNOWN}
_PROVEN = {True: Verdict.PASS, False: Verdict.UNKNOWN, None: None}
_LANDED = {True: "landed", False: "not proven to have landed", None: "nothing was asked of it"}


def setup(one: Shown) -> list[Fact]:
    """What was sent, over which path, and what was done to it."""
    made = one.trial.experiment
    facts = [Fact(label="load", text=load_words(made.load, one.seed))]
    if made.extra is not None:
        counts = "" if made.extra.counts else "; its own requests are not counted"
        facts.append(
            Fact(label="extra", text=f"{load_words(made.extra.load)}, from {short(made.extra.start_s)} s on{counts}")
        )
    if one.trial.path:
        label = f" ({EMULATED}: no packet is touched)" if is_emulated(one.trial.path) else ""
        facts.append(Fact(label="path", text=quote(one.trial.path) + label))
    return [*facts, *(Fact(label="fault", text=quote(fault)) for fault in one.faults)]


def results(one: Shown) -> list[Fact]:
    """What follows from the trial, and what it rests on."""
    return [
        *_bounds(one),
        *_stopped(one),
        *_recovery(one),
        *_proof(one),
        *_client(one),
        *_same_twice(one),
        *_integrity(one),
        *_errors(one),
        *_backlog(one),
        *_tokens(one),
        *_measured(one),
    ]


# ── the hypothesis ───────────────────────────────────────────────────────────────────────────────


def state_words(check: Check) -> str:
    """`during 954 ms ✗`: the phase, what was seen in it, and a sign where that does not hold."""
    verdict = _STATES[check.state]
    sign = f" {MARKS[verdict]}" if verdict is not Verdict.PASS else ""
    needs = f" ({check.needs} would tell)" if check.needs and check.state is State.UNDECIDED else ""
    return f"{check.phase} {observed_words(check)}{sign}{needs}"


def observed_words(check: Check) -> str:
    """What was seen, in the unit of the bound."""
    value, metric = check.observed, check.bound.metric
    if value is None or math.isnan(value):
        return NONE
    if check.bound.against is not None:
        return f"{times(value)}×"
    if metric in TIMES:
        return seconds(value)
    if metric in bounds.SHARES:
        return percent(value)
    return f"{number(value)}/s" if metric in bounds.RATES else short(value)


def _bounds(one: Shown) -> Iterator[Fact]:
    """Each bound with the phases where it was checked; the mark is that of the worst."""
    by_bound: dict[str, list[Check]] = {}
    for check in (*one.study.gate, *one.study.checks):
        by_bound.setdefault(check.bound.text, []).append(check)
    for text, checks in by_bound.items():
        worst = max(_STATES[check.state] for check in checks)
        yield Fact(label="bound", text=clean(f"{text}: {', '.join(map(state_words, checks))}"), verdict=worst)


def _stopped(one: Shown) -> Iterator[Fact]:
    for arm in (one.trial.control, one.trial.fault):
        if arm is not None and arm.stopped:
            yield Fact(label="stopped", text=f"the {clean(arm.name)} arm was stopped: {quote(arm.stopped)}")
        if arm is not None and arm.server is not None and arm.server.ended:
            how = arm.server.signal or f"exit code {arm.server.exit_code}"
            text = f"the server ended in the {clean(arm.name)} arm: {clean(how)}"
            yield Fact(label="server", text=text, verdict=Verdict.FAIL)


def _recovery(one: Shown) -> Iterator[Fact]:
    back = one.study.recovery
    if back is None:
        return
    if not back.enough:
        yield Fact(label="recovery", text="too little was seen after the last fault to tell")
        return
    rule = f"{RECOVERY_WINDOWS} windows of {short(back.window_s)} s in a row that hold"
    if back.after_s is None:
        looked_s = len(back.held) * back.window_s
        text, verdict = f"not within {short(looked_s)} s after the last fault ({rule})", Verdict.FAIL
    else:
        when = (
            "at once, when the last fault ended"
            if back.after_s == 0
            else f"{short(back.after_s)} s after the last fault"
        )
        within_s = one.trial.experiment.recovery_within_s
        late = within_s is not None and back.after_s > within_s
        text, verdict = f"{when} ({rule})", Verdict.FAIL if late else Verdict.PASS
    yield Fact(label="recovery", text=text, verdict=verdict)


# ── what it rests on ─────────────────────────────────────────────────────────────────────────────


def _proof(one: Shown) -> Iterator[Fact]:
    arm = one.trial.fault
    if arm is None:
        return
    for place, fault in enumerate(one.trial.experiment.faults):
        if place < len(arm.evidence):
            yield proof(fault_words(fault), arm.evidence[place])
        else:
            yield Fact(label="proof", text=f"{fault_words(fault)}: no proof is on record", verdict=Verdict.UNKNOWN)


def proof(fault: str, found: FaultEvidence) -> Fact:
    """`loss 15% on the packet link: 212 of 1404 packets dropped, 198 segments retransmitted — landed`."""
    engine = EMULATED if is_emulated(found.engine) else f"on the {clean(found.engine)}"
    text = f"{fault}, {engine}: {quote(found.landed.why)} — {_LANDED[found.landed.proven]}"
    return Fact(label="proof", text=text, verdict=_PROVEN[found.landed.proven])


def kept_up(worker: GeneratorHealth, limit_s: float) -> bool:
    """Whether a client was fast enough for what it measured, by the rules of `contextlab.analysis.steadiness`."""
    return worker.lateness_s[2] <= limit_s and busy_share(worker) <= BUSY_SHARE and worker.loop_lag_s[2] <= LOOP_LAG_S


def busy_share(worker: GeneratorHealth) -> float:
    """The part of one core that it took."""
    return worker.cpu_s / worker.wall_s if worker.wall_s > 0 else 0.0


def _client(one: Shown) -> Iterator[Fact]:
    """The worst of its processes, of both arms where they kept up; what a closed loop means for latencies."""
    limit_s = lateness_limit_s(one.study)
    arms = [arm for arm in (one.trial.control, one.trial.fault) if arm is not None and arm.generators]
    if all(kept_up(worker, limit_s) for arm in arms for worker in arm.generators):
        if workers := [worker for arm in arms for worker in arm.generators]:
            text = f"the client kept up: {_client_words(workers)}"
            yield Fact(label="client", text=text, verdict=Verdict.PASS)
    else:
        for arm in arms:
            kept = all(kept_up(worker, limit_s) for worker in arm.generators)
            how = "kept up" if kept else "did NOT keep up"
            text = f"the client {how} in the {clean(arm.name)} arm: {_client_words(arm.generators)}"
            yield Fact(label="client", text=text, verdict=Verdict.PASS if kept else Verdict.UNKNOWN)
    if one.trial.experiment.load.arrivals.pace is Pace.CLOSED:
        yield Fact(label="client", text=CLOSED)


def _client_words(workers: Sequence[GeneratorHealth]) -> str:
    facts = [
        f"late by {seconds(max(worker.lateness_s[2] for worker in workers))} at p99",
        f"CPU {percent(round(max(map(busy_share, workers)), 3))} of a core",
        f"loop lag {seconds(max(worker.loop_lag_s[2] for worker in workers))} at p99",
    ]
    processes = len({worker.worker for worker in workers})
    return ", ".join([*facts, *([f"the worst of {processes} processes"] if processes > 1 else [])])


def _same_twice(one: Shown) -> Iterator[Fact]:
    """A/A: what differs between the control and the time before the faults is no fault's doing."""
    if Phase.CONTROL not in one.phases or Phase.BEFORE not in one.phases:
        return
    found = {
        name: apart
        for name, q in (("p50", 0.5), ("p90", 0.9))
        if (apart := one.study.difference("ttft", q, Phase.BEFORE, Phase.CONTROL)) is not None and apart.enough
    }
    said = [f"TTFT {name} {_difference(apart)}" for name, apart in found.items() if math.isfinite(apart.value)]
    text = ", ".join(said) or "too few requests to compare"
    yield Fact(label="A/A", text=f"before the faults against the control: {text}")


def _difference(apart: Versus) -> str:
    """`−1.79 ms (−4.22 to +1.60)`."""
    ends = (apart.low, apart.high)
    unit, name = unit_of(max((abs(end) for end in (*ends, apart.value) if math.isfinite(end)), default=0.0))
    return f"{_signed(apart.value / unit)} {name} ({' to '.join(_signed(end / unit) for end in ends)})"


def _signed(amount: float) -> str:
    return f"{'+' if amount >= 0 else '−'}{number(abs(amount))}"


# ── what became of the requests ──────────────────────────────────────────────────────────────────


def _phases(one: Shown) -> Iterator[tuple[Phase, Measured]]:
    return ((phase, one.study.measured[phase]) for phase in one.phases)


def _integrity(one: Shown) -> Iterator[Fact]:
    """The streams that are not intact by name, and who would notice."""
    for phase, there in _phases(one):
        odd = Counter({name: count for name, count in there.names.items() if name is not Integrity.INTACT})
        if odd:
            names = ", ".join(f"{count} {name.name}" for name, count in odd.most_common())
            noticed = ", ".join(f"{who.value} {count}" for who, count in there.noticed.most_common())
            text = f"{phase}: {there.names[Integrity.INTACT]} of {num(there.n, 'request')} intact; {names}"
            yield Fact(label="integrity", text=text + (f"; noticed by: {noticed}" if noticed else ""))
    if uncompared := sum(there.num_uncompared for _, there in _phases(one)):
        yield Fact(label="integrity", text=f"{num(uncompared, 'text')} could not be compared: too many variants")


def _errors(one: Shown) -> Iterator[Fact]:
    for phase, there in _phases(one):
        if there.causes:
            yield Fact(label="errors", text=f"{phase}: {_counted(there.causes)}")


def _counted(causes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {clean(name)}" for name, count in Counter(causes).most_common())


def _backlog(one: Shown) -> Iterator[Fact]:
    """The most that waited, by layer: the client's queue, in flight, and what the target counts itself."""
    for phase, there in _phases(one):
        if phase not in (Phase.CONTROL, Phase.DURING):
            continue
        peak = there.backlog
        facts = [f"{peak.queued} in the client's queue", f"{peak.in_flight} in flight"]
        server = server_peaks(_gauges(one, phase), there.span)
        names = (("running", "{:.0f} running"), ("waiting", "{:.0f} waiting"))
        told = [words.format(server[name]) for name, words in names if name in server]
        if "kv_usage" in server:
            told.append(f"KV cache {percent(round(server['kv_usage'], 3))} full")
        words = f"; the server says {', '.join(told)}" if told else ""
        yield Fact(label="backlog", text=f"{phase}: at most {', '.join(facts)}{words}")


def _gauges(one: Shown, phase: Phase) -> Iterable[GaugeSample]:
    arm: Arm | None = one.trial.control if phase is Phase.CONTROL else one.trial.fault
    return arm.gauges if arm is not None else ()


def _tokens(one: Shown) -> Iterator[Fact]:
    speeds = {phase: there.tokens_per_s for phase, there in _phases(one)}
    each = [f"{phase} {number(speed)}/s" for phase, speed in speeds.items() if speed is not None]
    if not each:
        return
    per_event = next((found for _, there in _phases(one) if (found := there.tokens_per_event) is not None), None)
    assumed = "one token an event is assumed"
    measured = f"{number(per_event)} tokens an event (measured)" if per_event is not None else assumed
    yield Fact(label="tokens", text=f"{', '.join(each)}; {measured}")


def _measured(one: Shown) -> Iterator[Fact]:
    for name, thing in pairs(dict(one.trial.measured)):
        yield Fact(label="measured", text=f"{name} {thing}")


# ── where there is nothing to show ───────────────────────────────────────────────────────────────


def why_empty(one: Shown, was_killed: bool) -> str:
    """Why a part of the experiment is missing, in a sentence; "" where it is whole."""
    control, fault = one.trial.control, one.trial.fault
    cut = "the run was killed" if was_killed else "the run ended"
    if control is None and fault is None:
        return f"nothing was measured: {cut} before its first arm" if not one.whole else "nothing was measured"
    if not one.whole:
        arm = fault or control
        where = f"in the {arm.name} arm, {short(round(arm.length_s, 1))} s after it began" if arm else ""
        return f"not whole: {cut} {clean(where)}"
    if fault is None:
        empty = control is not None and not control.samples
        return (
            "no request came back in the control arm, so the faults were not tried"
            if empty
            else ("the faults were not tried: there was no steady state without them")
        )
    return "" if fault.samples else "no request came back in the arm with the faults"
