"""Chaos runs made by hand, as records that the lab would write, one run for each kind of trial that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from contextlab.analysis.arrivals import schedule
from contextlab.deeds import Death, Deed, Reading, Tier
from contextlab.experiment import (
    Arm,
    Arrivals,
    Bound,
    Ending,
    Experiment,
    FaultEvidence,
    GaugeSample,
    GeneratorHealth,
    Landed,
    Load,
    Mixed,
    Pace,
    Phase,
    Placed,
    Sample,
)
from contextlab.lab.journal import plain
from contextlab.model import (
    Api,
    Failure,
    Finding,
    Gauges,
    Layer,
    Message,
    Outcome,
    ProcessEnd,
    Record,
    Request,
    Run,
    Verdict,
)
from tests.reports import sample

SEED = 7
PATH = "runs/2026-11-29T160203-chaos-smollm2"
HEADER: dict[str, Any] = {
    **sample.HEADER,
    "command": "chaos",
    "argv": ["chaos", "smollm2", "--fault", "loss:rate=15%@10s+30s", "--seed", "7"],
    "policy": {},
}
WORDS = (" Paris", " is", " the", " capital", " of", " France", ",", " as", " every", " map", " says", ".")
MIX = tuple(
    Mixed(request=Request(name=name, messages=(Message(role="prompt", parts=(name,)),), api=Api.COMPLETIONS))
    for name in ("prompt-1", "prompt-2")
)
REFERENCES = ((WORDS,), (WORDS,))
LINK = "client → packet link 10.71.3.2:8080 → target"
LOSS = Placed(name="loss", start_s=10.0, length_s=30.0, options={"rate": 0.15})
HYPOTHESIS = (
    Bound(text="p90 ttft < 800ms", metric="ttft", op="<", value=0.8, quantile=0.9),
    Bound(text="errors < 1%", metric="errors", op="<", value=0.01),
    Bound(text="integrity = 100%", metric="integrity", op="=", value=1.0),
    Bound(
        text="p50 ttft < 3x before during",
        metric="ttft",
        op="<",
        value=3.0,
        quantile=0.5,
        against=Phase.BEFORE,
        phases=frozenset({Phase.DURING}),
    ),
)
Change = Callable[[Sample], Sample]
"""What becomes of a sample that was undisturbed."""


def experiment(name: str = "loss-15%", *faults: Placed, duration_s: float = 50.0, **more: Any) -> Experiment:
    """An experiment of eight requests a second with these faults."""
    load = Load(arrivals=Arrivals(rate_per_s=8.0), duration_s=duration_s, mix=MIX, timeout_s=10.0)
    return Experiment(name=name, **{"load": load, "faults": faults, "hypothesis": HYPOTHESIS, **more})


def samples(seed: int, load: Load, *changes: Change) -> tuple[Sample, ...]:
    """Undisturbed streams of twelve events each, then what the changes make of them."""
    rng = Random(seed)
    found: list[Sample] = []
    plan = replace(load, arrivals=Arrivals(rate_per_s=load.arrivals.rate_per_s))
    for at_s in (due.at_s for due in schedule(plan, SEED)):
        sent_s = at_s + rng.uniform(0.0001, 0.0009)
        first_s = sent_s + rng.uniform(0.035, 0.050)
        steps = [rng.uniform(0.018, 0.023) for _ in WORDS]
        content_s = tuple(round(first_s + sum(steps[:place]), 6) for place in range(len(WORDS)))
        whole = Sample(
            index=len(found),
            mixed=len(found) % len(load.mix),
            due_s=round(at_s, 6),
            ending=Ending.WHOLE,
            sent_s=round(sent_s, 6),
            connected_s=round(sent_s + 0.0003, 6),
            first_byte_s=content_s[0],
            content_s=content_s,
            pieces=WORDS,
            ended_s=round(content_s[-1] + 0.002, 6),
            status=200,
            finish_reason="length",
            reply_ids=(f"cmpl-{len(found)}",),
            num_frames=len(WORDS) + 2,
            num_done=1,
            num_bytes=2400,
            num_reads=14,
            retransmits=0,
        )
        for change in changes:
            whole = change(whole)
        found.append(whole)
    return tuple(found)


def slowed(placed: Placed, seed: int, share: float, low_s: float, high_s: float) -> Change:
    """Some of the requests of a fault's window stall after their first byte was due, as lost packets make them."""
    rng = Random(seed)

    def change(one: Sample) -> Sample:
        hit, by_s = rng.random() < share, rng.uniform(low_s, high_s)
        if not (placed.start_s <= one.due_s < placed.end_s and hit):
            return one
        late = tuple(round(at_s + by_s, 6) for at_s in one.content_s)
        ended_s = None if one.ended_s is None else round(one.ended_s + by_s, 6)
        return replace(one, first_byte_s=late[0], content_s=late, ended_s=ended_s, retransmits=2)

    return change


def every(number: int, placed: Placed, change: Change) -> Change:
    """Every so many-th request of a fault's window changed."""
    return lambda one: change(one) if placed.start_s <= one.due_s < placed.end_s and one.index % number == 0 else one


def cut(one: Sample) -> Sample:
    """It ends after five events, with a FIN that nothing but the missing end tells of."""
    return _ended_after(one, 5, ending=Ending.FIN)


def reset(one: Sample) -> Sample:
    """It is torn down after two events."""
    return _ended_after(one, 2, ending=Ending.RESET, failure=Failure(where="transport", message="connection reset"))


def refused(one: Sample) -> Sample:
    """Nobody listens."""
    failure = Failure(where="connect", message="connection refused")
    return _ended_after(one, 0, ending=Ending.REFUSED, failure=failure, status=None, num_frames=0, connected_s=None)


def doubled(one: Sample) -> Sample:
    """Its third event comes twice."""
    times, pieces = one.content_s, one.pieces
    return replace(one, content_s=(*times[:3], *times[2:]), pieces=(*pieces[:3], *pieces[2:]), num_frames=15)


def _ended_after(one: Sample, num_events: int, **more: Any) -> Sample:
    times = one.content_s[:num_events]
    ended_s = round(times[-1] + 0.001, 6) if times else round(one.due_s + 0.002, 6)
    gone: dict[str, Any] = {
        "content_s": times,
        "pieces": one.pieces[:num_events],
        "ended_s": ended_s,
        "first_byte_s": times[0] if times else None,
        "finish_reason": None,
        "num_frames": num_events,
        "num_done": 0,
        **more,
    }
    return replace(one, **gone)


def generator(lateness_s: float = 0.0008, **more: Any) -> GeneratorHealth:
    """A client that was so late at p99."""
    lateness = (lateness_s / 4, lateness_s / 2, lateness_s, lateness_s * 2)
    fields: dict[str, Any] = {"worker": 0, "num_requests": 400, "cpu_s": 3.2, "wall_s": 51.0, "loop_lag_s": lateness}
    return GeneratorHealth(**{**fields, "lateness_s": lateness, **more})


LANDED = FaultEvidence(
    name="loss",
    engine="packet link",
    tally={"packets": 1404.0, "dropped": 212.0},
    kernel={"retransmitted_segments": 198.0},
    landed=Landed(proven=True, why="212 of 1404 packets dropped, 198 segments retransmitted"),
)


def arm(name: str, what: Experiment, *changes: Change, seed: int = 7, **more: Any) -> Arm:
    """An arm of the experiment, whole."""
    seen = samples(seed, what.load, *changes)
    length_s = max((one.ended_s or one.due_s for one in seen), default=what.load.duration_s)
    gauges = tuple(
        GaugeSample(at_s=float(second), gauges=Gauges(busy_slots=second % 4, waiting_requests=second % 3))
        for second in range(0, int(what.load.duration_s), 5)
    )
    fields: dict[str, Any] = {"samples": seen, "generators": (generator(),), "gauges": gauges, "length_s": length_s}
    return Arm(name=name, **{**fields, **more})


def records(
    what: Experiment,
    *arms: Arm,
    scenario: str = "packet-loss",
    path: str = LINK,
    begin_s: float = 2.0,
    over: bool = True,
) -> Iterator[Record]:
    """The records of one trial in the order in which the lab writes them; `over` False leaves out its end."""
    here = {"scenario": scenario, "probe": what.name}
    at_s = begin_s
    yield {"kind": "experiment", "at_s": at_s, **here, "experiment": plain(what), "path": path}
    faults = [{"name": shown(one), "sha256": "9f2c" * 16} for one in what.faults]
    yield {"kind": "decisions", "at_s": at_s, **here, "seed": SEED, "schedule_sha256": "ab01" * 16, "faults": faults}
    alone = Arm(name="reference", length_s=0.3, samples=samples(1, replace(what.load, duration_s=0.3)))
    passes = (alone, *arms) if arms else ()
    for one in passes:
        whole = over or one is not passes[-1]
        zero_s = at_s + 0.4
        in_arm = {**here, "arm": one.name}
        yield {"kind": "arm", "at_s": at_s + 0.1, **in_arm, "zero_at_s": zero_s}
        seen: list[tuple[float, dict[str, Any]]] = [
            (each.ended_s or one.length_s, {"kind": "sample", "sample": plain(each)}) for each in one.samples
        ]
        seen += [(each.at_s, {"kind": "gauge", "gauge": plain(each)}) for each in one.gauges]
        seen += [(each.at_s, {"kind": "reading", "reading": plain(each)}) for each in one.readings]
        seen += [(each.at_s, {"kind": "deed", "deed": plain(each)}) for each in one.deeds]
        seen += [(each.at_s, {"kind": "death", "death": plain(each)}) for each in one.deaths]
        if one.name == "fault":
            switches = [(each, moment, moment == each.start_s) for each in what.faults for moment in _ends(each)]
            seen += [
                (when, {"kind": "fault", "name": shown(each), "on": on, "due_s": when}) for each, when, on in switches
            ]
        for when, record in sorted(seen, key=lambda pair: pair[0]):
            if whole or when <= one.length_s:
                yield {**record, "at_s": zero_s + when, **in_arm}
        at_s = zero_s + one.length_s + 0.5
        if whole:
            tail = [("generator", plain(each)) for each in one.generators]
            tail += [("evidence", plain(each)) for each in one.evidence]
            yield from ({"kind": kind, "at_s": at_s, **in_arm, kind: thing} for kind, thing in tail)
            end = {"length_s": one.length_s, "stopped": one.stopped, "server": plain(one.server)}
            yield {"kind": "arm_end", "at_s": at_s, **in_arm, **end}
    if over:
        yield {"kind": "trial", "at_s": at_s, **here, "references": plain(REFERENCES), "measured": {}}


def shown(placed: Placed) -> str:
    """A fault as the user wrote it."""
    words = [f"{name.removesuffix('_s')}={given}" for name, given in placed.options.items()]
    return f"{placed.name}:{','.join(words)}@{placed.start_s:g}s+{placed.length_s:g}s"


def _ends(placed: Placed) -> Sequence[float]:
    return placed.start_s, placed.end_s


def finding(
    scenario: str, name: str, outcome: Outcome = Outcome.OK, verdict: Verdict = Verdict.PASS, why: str = "", **more: Any
) -> Finding:
    """A finding about an experiment."""
    fields: dict[str, Any] = {"layer": Layer.GATEWAY, "why": why, **more}
    return Finding(scenario=scenario, probe=name, outcome=outcome, verdict=verdict, **fields)


def run(told: Sequence[Record], *findings: Finding, code: int | None = 0, reason: str = "") -> Run:
    """A run of these records, read as the journal would read it; `code` None for one that was killed."""
    verdict = max((each.verdict for each in findings), default=Verdict.UNKNOWN)
    found = [{"kind": "finding", "at_s": 120.0, **plain(each)} for each in findings]
    end: Record = {"kind": "end", "at_s": 121.0, "verdict": verdict.name, "exit": {"code": code, "reason": reason}}
    lines = (HEADER, *told, *found, *([] if code is None else [end]))
    told_again = tuple(msgspec.json.decode(msgspec.json.encode(plain(line))) for line in lines)
    return Run(
        path=PATH,
        header=HEADER,
        knowledge=replace(sample.KNOWLEDGE, decode_tokens_per_s=60.0),
        findings=tuple(msgspec.convert(each, Finding) for each in told_again if each["kind"] == "finding"),
        end=None if code is None else end,
        records=told_again,
    )


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


def loss() -> Run:
    """Loss on the packet link that slows some streams down and breaks one bound."""
    what = experiment("loss-15%", LOSS)
    stalls = slowed(LOSS, 3, 0.3, 0.21, 1.4)
    told = records(what, arm("control", what), arm("fault", what, stalls, seed=8, evidence=(LANDED,)))
    why = "p90 ttft < 800ms does not hold during the faults: 0.92 s (0.81 s to 1.05 s)"
    bad = finding("packet-loss", what.name, Outcome.BOUND_BROKEN, Verdict.FAIL, why, evidence={"ttft_p90_s": 0.92})
    return run([*told], bad, code=1, reason="1 finding is not allowed")


def null() -> Run:
    """A loss of nothing: held, and the difference of the two arms is that of the same thing twice."""
    placed = replace(LOSS, options={"rate": 0.0})
    what = experiment("loss-0%", placed)
    nothing = Landed(proven=None, why="its options stand for no fault")
    evidence = replace(LANDED, tally={"packets": 1404.0, "dropped": 0.0}, kernel={}, landed=nothing)
    told = records(what, arm("control", what), arm("fault", what, seed=8, evidence=(evidence,)))
    return run([*told], finding("packet-loss", what.name, why="every bound held, before, during and after"))


def damaged() -> Run:
    """Streams cut, reset, doubled and refused by two faults that overlap, emulated loss among them."""
    cutting = Placed(name="cut", start_s=12.0, length_s=12.0, options={"at": "event:5", "share": 0.25})
    losing = Placed(name="loss", start_s=16.0, length_s=16.0, options={"rate": 0.2, "burst": 3.0})
    what = experiment("cut-and-loss", cutting, losing)
    evidence = (
        FaultEvidence(
            name="cut", engine="relay", tally={"applied": 24.0}, landed=Landed(proven=True, why="24 streams cut")
        ),
        FaultEvidence(
            name="loss",
            engine="emulated",
            tally={"stalls": 31.0, "stalled_s": 14.2},
            landed=Landed(proven=True, why="31 stalls of 14.2 s together"),
        ),
    )
    changes = (
        every(4, cutting, cut),
        every(9, losing, reset),
        every(11, losing, doubled),
        every(13, losing, refused),
    )
    arms = arm("control", what), arm("fault", what, *changes, seed=8, evidence=evidence)
    told = records(what, *arms, scenario="cut-streams", path="client → emulated 127.0.0.1:40123 → target")
    bad = finding(
        "cut-streams",
        what.name,
        Outcome.STREAM_DAMAGED,
        Verdict.FAIL,
        "44 of 262 streams were damaged during the faults: CUT 24, RESET 14, DUPLICATED 6",
    )
    return run([*told], bad, code=1, reason="1 finding is not allowed")


def undecided() -> Run:
    """A closed loop whose client was late, and a fault that no packet met; a short run besides."""
    placed = Placed(name="delay", start_s=4.0, length_s=4.0, options={"delay_s": 0.2, "direction": "down"})
    slow = Load(
        arrivals=Arrivals(pace=Pace.CLOSED, rate_per_s=2.0, concurrency=2), duration_s=12.0, mix=MIX, timeout_s=10.0
    )
    what = experiment("delay-200ms", placed, load=slow)
    evidence = FaultEvidence(
        name="delay", engine="packet link", landed=Landed(proven=False, why="no packet passed the link")
    )
    late = generator(0.4, cpu_s=11.8, wall_s=12.1, fast=False)
    arms = (
        arm("control", what),
        arm("fault", what, seed=8, evidence=(evidence,), generators=(late, replace(late, worker=1))),
    )
    told = records(what, *arms, scenario="jitter-under-load")
    unknown = finding(
        "jitter-under-load",
        what.name,
        Outcome.UNKNOWN,
        Verdict.UNKNOWN,
        "the fault delay did not land: no packet passed the link",
    )
    return run([*told], unknown, code=3, reason="an outcome could not be told")


def gate() -> Run:
    """The control showed no steady state, so that no fault was tried."""
    what = experiment("loss-15%", LOSS)
    whole = replace(LOSS, start_s=0.0, length_s=60.0)
    told = records(what, arm("control", what, every(3, whole, refused)))
    why = "no steady state before the faults: errors < 1% does not hold in the control"
    unknown = finding("packet-loss", what.name, Outcome.UNKNOWN, Verdict.UNKNOWN, why)
    return run([*told], unknown, code=3, reason="an outcome could not be told")


def no_control() -> Run:
    """A plan that asked for no control, and a safety condition that ended the run."""
    what = experiment("loss-15%", LOSS, control=False)
    stopped = arm("fault", what, slowed(LOSS, 3, 1.0, 2.0, 9.0), evidence=(LANDED,), stopped="errors > 50%")
    stopped = replace(stopped, samples=tuple(one for one in stopped.samples if one.due_s < 31.0), length_s=31.0)
    bad = finding("packet-loss", what.name, Outcome.NOT_RECOVERED, Verdict.FAIL, "it did not come back within 10 s")
    return run([*records(what, stopped)], bad, code=1, reason="1 finding is not allowed")


def killed() -> Run:
    """Killed with SIGKILL while the fault arm ran."""
    what = experiment("loss-15%", LOSS)
    part = arm("fault", what, seed=8)
    part = replace(part, samples=tuple(one for one in part.samples if (one.ended_s or 0.0) < 22.0), length_s=22.0)
    return run([*records(what, arm("control", what), part, over=False)], code=None)


def empty() -> Run:
    """Two experiments of which nothing was seen: one that had begun, one with an arm in which nobody asked."""
    what, other = experiment("loss-5%", LOSS), experiment("loss-10%", LOSS)
    told = [*records(other, Arm(name="control", length_s=0.0), begin_s=1.0), *records(what, over=False, begin_s=3.0)]
    return run(told, code=4, reason="the target died before the load began")


PAUSE = Placed(name="pause", start_s=10.0, length_s=8.0)
KILL = Placed(name="kill", start_s=24.0, length_s=6.0, options={"signal": "KILL"})
STOLEN = ProcessEnd(signal="SIGKILL", out_of_memory=True, peak_memory_bytes=512 * 2**20)


def process_readings(length_s: float, cpus: Callable[[float], float], rss_bytes: float = 3.1e8) -> list[Reading]:
    """The target's processes twice a second: so many processors are busy at a time."""
    found, cpu_s = [], 10.0
    for place in range(int(length_s * 2)):
        at_s = place / 2
        cpu_s += cpus(at_s) / 2
        values = {"cpu_s": round(cpu_s, 6), "client_cpu_s": round(1 + at_s * 0.04, 6), "rss_bytes": rss_bytes}
        found.append(Reading(source="process", at_s=at_s, values={**values, "threads": 4.0}))
    return found


def machine_readings(length_s: float, *, gpus: bool = False) -> list[Reading]:
    """The machine twice a second: 1.2 processors are busy, and a GPU at nine tenths where there is one."""
    found = []
    for place in range(int(length_s * 2)):
        at_s = place / 2
        found.append(Reading(source="machine", at_s=at_s, values={"host_cpu_s": round(500 + 1.2 * at_s, 6)}))
        if gpus:
            values = {"gpu_memory_bytes": 6.0 * 2**30, "gpu_busy_ratio": 0.9, "gpu_power_w": 300.0}
            found.append(Reading(source="gpu", at_s=at_s, values=values))
    return found


def health_readings(length_s: float, hangs: tuple[float, float] = (0.0, 0.0)) -> list[Reading]:
    """Looks at health, always green, and at one token, which does not come in some stretch of time."""
    found = []
    for at_s in range(int(length_s)):
        found.append(Reading(source="health", at_s=float(at_s), values={"green": 1.0, "health_s": 0.002}))
        hung = hangs[0] <= at_s + 0.5 < hangs[1]
        values = {
            "completed": 0.0 if hung else 1.0,
            "completion_s": 1.0 if hung else 0.04,
            "status": 200.0 * (not hung),
        }
        found.append(Reading(source="health", at_s=at_s + 0.5, values=values))
    return found


def release_readings(after_s: float, **kept: float) -> list[Reading]:
    """Before an arm, and twice a second after it; `kept` is what was not given back."""
    free = {"busy_slots": 0.0, "descriptors": 31.0, "sockets": 1.0, "rss_bytes": 3.0e8, "generated_tokens": 100.0}
    more = {"generated_tokens": 2500.0, **kept}
    late = [Reading(source="release", at_s=after_s + place / 2, values={**free, **more}) for place in range(6)]
    return [Reading(source="release", at_s=-0.2, values=free), *late]


def tier_readings(length_s: float, **counts: float) -> list[Reading]:
    """What a cache tier had counted every five seconds, in the end as much as given."""
    return [
        Reading(
            source="tier",
            at_s=float(at_s),
            values={name: round(count * at_s / length_s, 3) for name, count in counts.items()},
        )
        for at_s in range(0, int(length_s) + 1, 5)
    ]


def beside() -> Run:
    """A pause during which health was green, and a kill; the leftovers of it were not freed."""
    what = experiment("pause-and-kill", PAUSE, KILL, health=True, release_within_s=2.0)

    def paused(one: Sample) -> Sample:
        failure = Failure(where="timeout", message="no answer")
        gone = _ended_after(one, 0, ending=Ending.TIMEOUT, failure=failure, status=None, num_frames=0)
        return replace(gone, ended_s=round(one.due_s + 10.0, 6))

    def busy(one: Sample) -> Sample:
        failure = Failure(where="http", message="busy", status=503, fields={"retry_after": "2"} if one.mixed else {})
        return _ended_after(one, 0, ending=Ending.WHOLE, failure=failure, status=503, num_frames=0)

    killed = Placed(name="kill", start_s=24.0, length_s=0.4)
    coming_back = Placed(name="kill", start_s=24.4, length_s=1.6)
    again = Placed(name="kill", start_s=26.0, length_s=4.0)
    changes = (
        every(1, PAUSE, paused),
        every(1, killed, reset),
        every(1, coming_back, refused),
        every(3, again, busy),
    )
    evidence = (
        FaultEvidence(
            name="pause",
            engine="host",
            tally={"stopped": 2.0},
            kernel={"wall_s": 8.0, "cpu_s": 0.01, "major_faults": 1.0},
            landed=Landed(proven=True, why="2 processes stood still for 8.00 s and took 0.010 s of CPU"),
        ),
        FaultEvidence(
            name="kill",
            engine="host",
            tally={"killed": 1.0, "restarted": 1.0, "down_s": 1.9},
            kernel={"num_throttled": 12.0, "num_periods": 60.0, "throttled_s": 0.8, "memory_limit_hits": 3.0},
            landed=Landed(proven=True, why="it ended of SIGKILL and answered again after 1.90 s"),
        ),
    )
    end = ProcessEnd(signal="SIGKILL", out_of_memory=False)
    dead = Death(at_s=24.2, end=end, ours=True)
    fault = arm(
        "fault",
        what,
        *changes,
        seed=8,
        evidence=evidence,
        readings=tuple(
            process_readings(50.0, lambda at_s: 0.0 if 10 <= at_s < 18 else 0.9, rss_bytes=3.4e8)
            + machine_readings(50.0, gpus=True)
            + health_readings(50.0, hangs=(10.0, 18.0))
            + release_readings(51.0, descriptors=47.0)
        ),
        deeds=(
            Deed(at_s=10.01, fault="pause", what="stopped", about={"by": "freezer", "processes": 2}),
            Deed(at_s=24.19, fault="kill", what="killed", about={"pid": 4711, "signal": "SIGKILL"}),
            Deed(at_s=26.1, fault="kill", what="restarted", about={"ready_s": 1.9}),
        ),
        deaths=(dead, replace(dead, ready_s=1.9)),
    )
    control = arm(
        "control",
        what,
        readings=tuple(
            process_readings(50.0, lambda _: 0.9)
            + machine_readings(50.0, gpus=True)
            + health_readings(50.0)
            + release_readings(51.0)
        ),
    )
    told = records(what, control, fault, scenario="health-honesty", path="client → direct 127.0.0.1:8080 → target")
    bad = finding(
        "health-honesty",
        what.name,
        Outcome.HEALTH_LIED,
        Verdict.FAIL,
        "health was green and nothing was completed for 7.46s to 9.46s, in the fault arm",
    )
    whole = run([*told], bad, code=1, reason="1 finding is not allowed")
    last = {**(whole.end or {}), "machine": {"load": 1.5, "pressure_cpu": 0.04}}
    return replace(whole, end=last, records=(*whole.records[:-1], last))


def tiered() -> Run:
    """A cache tier whose Redis is refused, by a crash loop of deeds; a server that died for want of memory."""
    gone = Placed(name="redis-refused", start_s=10.0, length_s=20.0)
    what = experiment("redis-refused", gone, tier=Tier())
    counts = {"requests": 400.0, "local_hits": 200.0, "redis_hits": 120.0, "joined": 20.0, "origin_requests": 60.0}
    fewer = {**counts, "redis_hits": 40.0, "origin_requests": 140.0, "redis_refused": 31.0, "redis_timeouts": 4.0}
    deeds = tuple(
        Deed(at_s=10.0 + place, fault="redis-refused", what="redis stopped" if place % 2 == 0 else "redis started")
        for place in range(20)
    )
    evidence = FaultEvidence(
        name="redis-refused",
        engine="cache tier",
        tally={"refused": 31.0},
        landed=Landed(proven=True, why="31 questions to Redis were refused"),
    )
    fault = arm(
        "fault",
        what,
        seed=8,
        evidence=(evidence,),
        deeds=deeds,
        deaths=(Death(at_s=48.3, end=STOLEN, ours=False),),
        server=STOLEN,
        readings=tuple(tier_readings(50.0, **fewer, amplification=2.8, breaker_openings=2.0, breaker_open_s=14.2)),
    )
    control = arm("control", what, readings=tuple(tier_readings(50.0, **counts, amplification=1.2)))
    told = records(what, control, fault, scenario="cache-outage", path="client → cache tier 127.0.0.1:40123 → target")
    why = "the server ended by SIGKILL in the arm with the faults"
    bad = finding("cache-outage", what.name, Outcome.CRASHED, Verdict.FAIL, why)
    return run([*told], bad, code=1, reason="1 finding is not allowed")


def bare() -> Run:
    """A run that came to no experiment at all."""
    return run((), code=5, reason="nothing was measured")


def several() -> Run:
    """A sweep of four experiments, of which two held."""
    told: list[Record] = []
    found = []
    for place, share in enumerate((0.05, 0.1, 0.15, 0.2)):
        placed = replace(LOSS, start_s=6.0, length_s=8.0, options={"rate": share})
        what = experiment(f"loss-{share * 100:g}%", placed, duration_s=20.0)
        stalls = slowed(placed, 3, share * 2, 0.2, 1.5)
        arms = arm("control", what), arm("fault", what, stalls, seed=8 + place, evidence=(LANDED,))
        told += records(what, *arms, begin_s=2.0 + 100 * place)
        held = share < 0.12
        outcome, verdict = (Outcome.OK, Verdict.PASS) if held else (Outcome.BOUND_BROKEN, Verdict.FAIL)
        why = "every bound held, before, during and after" if held else "p90 ttft < 800ms does not hold"
        found.append(finding("packet-loss", what.name, outcome, verdict, why))
    return run(told, *found, code=1, reason="2 findings are not allowed")


def hostile(text: str = sample.HOSTILE) -> Run:
    """A run in which everything that comes from outside is `text`."""
    placed = replace(LOSS, name=text, options={text: text})
    what = experiment(text, placed, duration_s=12.0, hypothesis=(replace(HYPOTHESIS[0], text=text),))
    evidence = replace(LANDED, name=text, engine=text, landed=Landed(proven=True, why=text))
    failure = Failure(where=text, message=text, error_type=text)

    def change(one: Sample) -> Sample:
        odd = one.index % 3 == 0
        return replace(one, pieces=(text,) * len(one.pieces), failure=failure if odd else None, finish_reason=text)

    arms = arm("control", what), arm("fault", what, change, evidence=(evidence,), stopped=text)
    told = [*records(what, *arms, scenario=text, path=text)]
    bad = finding(text, text, Outcome.LEAKED, Verdict.FAIL, text, evidence={"said": text}, remedy=text)
    made = run(told, bad, code=1, reason=text)
    return replace(made, header={**HEADER, "target": {"name": text}})
