"""Whether what clients had taken of a target was free again in time: slots, memory, files, threads, sockets; pure.

    readings before the arm ─▶ baseline ┐
    readings after it, oldest first     ┼─▶ Held for each quantity: back after so long, or never ─▶ NOT_RELEASED | OK
    the same of the control arm ─▶ noise┘

    gauges of the arm itself, after its misbehaving clients had gone ─▶ slots that are busy for nobody ─▶ NOT_RELEASED

A pool that fills, a cache that warms up: what the control arm kept too is no leak. Slots and waiting requests have no
such excuse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contextlab.analysis.quantities import shown_seconds
from contextlab.deeds import Reading
from contextlab.experiment import Arm, Ending, Experiment, Sample, Trial
from contextlab.model import Evidence, Judgement, Layer, Outcome

SOURCE = "release"
CROWD = "crowd"
"""What evidence calls the engine of faults that act as clients."""
MEMORY = "rss_bytes"
MEMORY_SLACK_BYTES, MEMORY_SLACK_SHARE = 16 << 20, 0.10
"""Memory may grow by the larger of the two, above what it grew in the control arm: allocators keep what they had, and
more of it after a crowd than after a load. A leak that is smaller over one arm is not seen."""
WORDS: Mapping[str, tuple[str, float, bool]] = {
    "busy_slots": ("slots busy", 0.0, False),
    "waiting_requests": ("requests waiting", 0.0, False),
    "kv_usage_ratio": ("share of the KV cache in use", 0.01, True),
    "sockets": ("sockets open", 0.0, True),
    "descriptors": ("file descriptors open", 2.0, True),
    "threads": ("threads", 2.0, True),
    "processes": ("processes", 0.0, True),
    MEMORY: ("bytes of memory", 0.0, True),
}
"""By name: its words, how many more of it may stay, and whether it may stay where it stayed in the control arm."""
NEAR_S = 0.5
"""A gauge is read within so long of the time that stands beside it."""
FREEING_S = 0.15
"""A slot of a request that came to its end may be busy for so long afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One quantity over an arm. `allowed`: up to there it counts as free. `after_s`: how long after the arm it was
    first seen there; None: never. `last`, `last_s`: the last value, and how long after the arm it was read."""

    name: str
    baseline: float
    allowed: float
    last: float
    last_s: float
    after_s: float | None

    @property
    def words(self) -> str:
        """`3 slots busy (0 before, up to 0 allowed)`."""
        what = WORDS[self.name][0]
        if self.name == MEMORY:
            before, now, most = (f"{value / 2**20:.1f} MiB" for value in (self.baseline, self.last, self.allowed))
            return f"{now} of memory ({before} before, up to {most} is noise)"
        more = f", up to {self.allowed:g} is noise" if self.allowed > self.baseline else ""
        return f"{self.last:g} {what} ({self.baseline:g} before{more})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Slots that were busy for nobody: the most of them at one reading, and from when to when they were seen, in
    seconds after the last misbehaving client had left."""

    most: int
    first_s: float
    last_s: float


def allowed(name: str, baseline: float, noise: float = 0.0) -> float:
    """Up to which value a quantity counts as free again; `noise`: by how much it grew in the control arm."""
    _, slack, excused = WORDS[name]
    if name == MEMORY:
        slack = max(MEMORY_SLACK_BYTES, MEMORY_SLACK_SHARE * baseline)
    return baseline + slack + (max(0.0, noise) if excused else 0.0)


def held(arm: Arm, control: Arm | None = None) -> tuple[Held, ...]:
    """Every quantity that was read before an arm and after it; empty where nothing was, or where the process that
    was read afterwards is another one."""
    before, after = _readings(arm)
    if before is None or not after:
        return ()
    if len({reading.values["root_started"] for reading in (before, *after) if "root_started" in reading.values}) > 1:
        return ()
    noise = {} if control is None or control is arm else _growth(control)
    began_s = after[0].at_s
    found = []
    for name in WORDS:
        seen = [(reading.at_s - began_s, reading.values[name]) for reading in after if name in reading.values]
        if name not in before.values or not seen:
            continue
        baseline = before.values[name]
        most = allowed(name, baseline, noise.get(name, 0.0))
        found.append(
            Held(
                name=name,
                baseline=baseline,
                allowed=most,
                last=seen[-1][1],
                last_s=round(seen[-1][0], 3),
                after_s=next((round(at_s, 3) for at_s, value in seen if value <= most), None),
            )
        )
    return tuple(found)


def orphans(experiment: Experiment, arm: Arm) -> Orphans | None:
    """Slots busy for nobody while the load went on, later than `release_within_s` after the last misbehaving client.

    A reading counts against the most requests of ours that were under way together near its time, and against the
    look at the health, if there is one.
    """
    crowds = {one.name for one in arm.evidence if one.engine == CROWD}
    ends = [fault.end_s for fault in experiment.faults if fault.name in crowds]
    within_s = experiment.release_within_s
    if not ends or within_s is None:
        return None
    left_s = max(ends)
    spans = [_span(sample, within_s) for sample in (*arm.samples, *arm.uncounted)]
    seen: list[tuple[float, int]] = []
    for gauge in arm.gauges:
        if gauge.gauges.busy_slots is None or gauge.at_s < left_s + within_s:
            continue
        ours = _most_together(spans, gauge.at_s - NEAR_S, gauge.at_s + NEAR_S)
        if (extra := gauge.gauges.busy_slots - ours - experiment.health) > 0:
            seen.append((gauge.at_s - left_s, extra))
    if not seen:
        return None
    return Orphans(most=max(n for _, n in seen), first_s=round(seen[0][0], 3), last_s=round(seen[-1][0], 3))


def judge_release(trial: Trial) -> list[Judgement]:
    """NOT_RELEASED for what was not free again in time, UNKNOWN where nothing could be read, else OK with the times.

    Empty where the experiment does not ask, or where the arm with the faults was not run, or died.
    """
    arm, within_s = trial.fault, trial.experiment.release_within_s
    if arm is None or within_s is None or (arm.server is not None and arm.server.ended):
        return []
    found = held(arm, trial.control)
    stray = orphans(trial.experiment, arm)
    numbers = evidence(found, stray)
    judgements = []
    if stray is not None:
        why = (
            f"{stray.most} slots were busy for nobody, up to {shown_seconds(stray.last_s)} after the last of the "
            f"clients had left (allowed: {shown_seconds(within_s)})"
        )
        judgements.append(Judgement(outcome=Outcome.NOT_RELEASED, why=why, layer=Layer.ENGINE, evidence=numbers))
    if kept := [one for one in found if one.after_s is None or one.after_s > within_s]:
        late_s = max(one.last_s for one in kept)
        why = f"not free {shown_seconds(round(late_s, 1))} after the load: {'; '.join(one.words for one in kept)}"
        judgements.append(Judgement(outcome=Outcome.NOT_RELEASED, why=why, layer=Layer.ENGINE, evidence=numbers))
    if judgements:
        return judgements
    if silent := _silent(arm):
        why = f"whether it frees what clients took could not be read: nothing told of {silent} after the load"
        return [Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=numbers)]
    if not found:
        why = "whether it frees what clients took could not be read: no process of ours, and no gauges"
        if any(death.ours for death in arm.deaths):
            why = "whether it frees what clients took could not be read: its process is another one than before"
        return [Judgement(outcome=Outcome.UNKNOWN, why=why)]
    slowest = max(found, key=lambda one: one.after_s or 0.0)
    what = _listed(one.name for one in found)
    why = f"all was free again {shown_seconds(slowest.after_s or 0.0)} after the load: {what}"
    return [Judgement(outcome=Outcome.OK, why=why, layer=Layer.ENGINE, evidence=numbers)]


def evidence(found: Iterable[Held], stray: Orphans | None) -> Evidence:
    """The numbers of a judgement: of each quantity before, at the end, and when it was back."""
    numbers: dict[str, int | float | str | bool | None] = {}
    for one in found:
        numbers[f"{one.name}_before"] = one.baseline
        numbers[f"{one.name}_after"] = one.last
        numbers[f"{one.name}_free_after_s"] = "never" if one.after_s is None else one.after_s
    if stray is not None:
        numbers |= {"orphans": stray.most, "orphans_first_s": stray.first_s, "orphans_last_s": stray.last_s}
    return numbers


def _readings(arm: Arm) -> tuple[Reading | None, Sequence[Reading]]:
    """The one before the arm, and those after it."""
    found = [reading for reading in arm.readings if reading.source == SOURCE]
    return (found[0], found[1:]) if found else (None, ())


def _silent(arm: Arm) -> str:
    """What was read before an arm and never after it; "" where the process is another one, which is another matter."""
    before, after = _readings(arm)
    if before is None:
        return ""
    started = before.values.get("root_started")
    if any(one.values.get("root_started", started) != started for one in after):
        return ""
    told = {name for reading in after for name in reading.values}
    return _listed([name for name in WORDS if name in before.values and name not in told])


def _growth(arm: Arm) -> Mapping[str, float]:
    """By how much each quantity was larger at the last reading after an arm than before it."""
    before, after = _readings(arm)
    if before is None:
        return {}
    last = {name: value for reading in after for name, value in reading.values.items()}
    return {name: value - before.values[name] for name, value in last.items() if name in before.values}


def _span(sample: Sample, within_s: float) -> tuple[float, float]:
    """From when to when the target may have been at a request of ours, also one that we gave up on."""
    if sample.sent_s is None:
        return math.inf, math.inf
    if sample.ended_s is None:
        return sample.sent_s, math.inf
    gave_up = sample.ending in (Ending.TIMEOUT, Ending.RESET, Ending.FIN)
    return sample.sent_s, sample.ended_s + (within_s if gave_up else FREEING_S)


def _most_together(spans: Sequence[tuple[float, float]], start_s: float, end_s: float) -> int:
    """The most of the spans that hold one moment of that time; it is at its start, or where one of them begins."""
    moments = [start_s, *(begin_s for begin_s, _ in spans if start_s < begin_s <= end_s)]
    return max(sum(begin_s <= at_s <= until_s for begin_s, until_s in spans) for at_s in moments)


def _listed(quantities: Iterable[str]) -> str:
    names = {
        "busy_slots": "slots",
        "waiting_requests": "queue",
        "kv_usage_ratio": "KV cache",
        MEMORY: "memory",
    }
    return ", ".join(names.get(name, name) for name in quantities)
