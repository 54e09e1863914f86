"""Places the requests of an arm in time: phases around the faults, bins, backlog by layer, recovery; pure.

    |– warm-up –|––––– BEFORE –––––|––––––– DURING –––––––|––––– AFTER –––––|– drain –|
    0                              first fault begins      last fault ends   duration   length

A request that was under way in a fault (from due until it ended, or until the arm did) is DURING, wherever it began;
so is one that is due between two faults. Others go by when they were due. What is due in the warm-up belongs nowhere.
An extra load disturbs as a fault does. Without either, a burst is the disturbance; else the load itself is, from the
warm-up on.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from contextlab.analysis.quantiles import value_at
from contextlab.analysis.replies import answered, ttft_s
from contextlab.experiment import Arm, Ending, Experiment, GaugeSample, Load, Pace, Phase, Sample

RECOVERY_WINDOWS = 3
"""So many windows in a row must hold before the steady state is called back."""
RECOVERY_REQUESTS = 5
"""A window is long enough for about so many requests to be due in it."""
WINDOW_STEP_S = 0.5
BIN_STEPS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of an arm, the end not counted in."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """How long it is."""
        return self.end_s - self.start_s

    def holds(self, at_s: float) -> bool:
        """Whether a time lies in it."""
        return self.start_s <= at_s < self.end_s


# ── phases ───────────────────────────────────────────────────────────────────────────────────────


def disturbances(experiment: Experiment) -> tuple[Span, ...]:
    """When the system is disturbed, by start: faults and extra loads, else the burst, else all after the warm-up."""
    if experiment.windows:
        return tuple(Span(start_s, end_s) for start_s, end_s in experiment.windows)
    arrivals = experiment.load.arrivals
    if arrivals.pace is Pace.BURST:
        return (Span(arrivals.burst_at_s, arrivals.burst_at_s + arrivals.burst_s),)
    return (Span(experiment.warmup_s, experiment.load.duration_s),)


def is_disturbed(experiment: Experiment) -> bool:
    """Whether a part of the arm stands out: faults, an extra load, a burst."""
    return bool(experiment.windows) or experiment.load.arrivals.pace is Pace.BURST


def spans(experiment: Experiment, until_s: float | None = None) -> dict[Phase, Span]:
    """The stretch of time of each phase; a phase without any is left out.

    `until_s`: when the arm was ended, where that was before its load was over.
    """
    end = experiment.load.duration_s if until_s is None else min(until_s, experiment.load.duration_s)
    windows, begin = disturbances(experiment), min(experiment.warmup_s, end)
    edges = windows[0].start_s, max(window.end_s for window in windows)
    first, last = (min(max(edge, begin), end) for edge in edges)
    found = {
        Phase.CONTROL: Span(begin, end),
        Phase.BEFORE: Span(begin, first),
        Phase.DURING: Span(first, last),
        Phase.AFTER: Span(last, end),
    }
    return {phase: span for phase, span in found.items() if span.length_s > 0}


def phase_of(sample: Sample, windows: Sequence[Span], warmup_s: float, arm_length_s: float) -> Phase | None:
    """The phase of a request of the arm with faults; None in the warm-up."""
    if sample.due_s < warmup_s:
        return None
    ended_s = arm_length_s if sample.ended_s is None else sample.ended_s
    first, last = windows[0].start_s, max(window.end_s for window in windows)
    if any(sample.due_s < window.end_s and ended_s > window.start_s for window in windows):
        return Phase.DURING
    if sample.due_s < first:
        return Phase.BEFORE
    return Phase.AFTER if sample.due_s >= last else Phase.DURING


def took_part(samples: Iterable[Sample], experiment: Experiment, arm_length_s: float) -> list[Sample]:
    """The requests that the arm asked something of: all but those whose turn never came because it was over.

    In an open loop a request that was due while the arm lasted and was not sent stays in: it waited in vain.
    """
    num_main = len(experiment.load.mix)
    extra = experiment.extra.load if experiment.extra else experiment.load

    def waited(sample: Sample) -> bool:
        load: Load = experiment.load if sample.mixed < num_main else extra
        return load.arrivals.pace is not Pace.CLOSED and sample.due_s < arm_length_s

    return [
        sample
        for sample in samples
        if sample.ending is not Ending.UNSENT or sample.sent_s is not None or waited(sample)
    ]


def split(arm: Arm, experiment: Experiment) -> dict[Phase, list[Sample]]:
    """The requests of the arm with faults by phase, in the order of the schedule; every phase is there."""
    windows = disturbances(experiment)
    found: dict[Phase, list[Sample]] = {Phase.BEFORE: [], Phase.DURING: [], Phase.AFTER: []}
    for sample in took_part(arm.samples, experiment, arm.length_s):
        phase = phase_of(sample, windows, experiment.warmup_s, arm.length_s)
        if phase is not None:
            found[phase].append(sample)
    return found


def in_control(arm: Arm, experiment: Experiment) -> list[Sample]:
    """The requests of the control arm after its warm-up."""
    part = took_part(arm.samples, experiment, arm.length_s)
    return [sample for sample in part if sample.due_s >= experiment.warmup_s]


def last_sent_s(arm: Arm) -> float:
    """When the arm sent its last request: about when it was stopped, where it was."""
    return max((sample.sent_s for sample in arm.samples if sample.sent_s is not None), default=0.0)


# ── backlog ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Peak:
    """The most requests at one time: due and not ended, of them due and not sent, of them sent and not ended.

    The three may be of different moments."""

    total: int
    queued: int
    in_flight: int


class Backlog:
    """How many requests were waiting, over the time of one arm, by layer: in the client's queue and in flight.

    A request that never ended is in the backlog until `end_s`. At one moment, what ends goes before its successor
    comes, as in a closed loop; a request that took no time was there nevertheless.
    """

    def __init__(self, samples: Iterable[Sample], end_s: float) -> None:
        steps: list[tuple[float, int, int, int]] = []  # at, order, change of the queue, change in flight
        for sample in samples:
            ended_s = end_s if sample.ended_s is None else sample.ended_s
            sent_s = ended_s if sample.sent_s is None else sample.sent_s
            sent_s = max(sent_s, sample.due_s)
            steps.append((sample.due_s, 1, 1, 0))
            steps.append((sent_s, 2, -1, 0 if sample.sent_s is None else 1))
            if sample.sent_s is not None:
                steps.append((max(ended_s, sent_s), 0 if ended_s > sample.due_s else 3, 0, -1))
        self._at: list[float] = []
        self._queued: list[int] = []
        self._in_flight: list[int] = []
        queued = in_flight = 0
        for at, _, queue, flight in sorted(steps):
            queued, in_flight = queued + queue, in_flight + flight
            self._at.append(at)
            self._queued.append(queued)
            self._in_flight.append(in_flight)

    def at(self, at_s: float) -> Peak:
        """What was waiting at a moment."""
        place = bisect_right(self._at, at_s) - 1
        if place < 0:
            return Peak(0, 0, 0)
        return Peak(self._queued[place] + self._in_flight[place], self._queued[place], self._in_flight[place])

    def peak(self, span: Span) -> Peak:
        """The most that waited in a stretch of time, what was there at its beginning counted in."""
        begin, low, high = (
            self.at(span.start_s),
            bisect_right(self._at, span.start_s),
            bisect_left(self._at, span.end_s),
        )
        queued, in_flight = self._queued[low:high], self._in_flight[low:high]
        totals = [one + other for one, other in zip(queued, in_flight, strict=True)]
        return Peak(max([begin.total, *totals]), max([begin.queued, *queued]), max([begin.in_flight, *in_flight]))


def server_peaks(gauges: Iterable[GaugeSample], span: Span) -> Mapping[str, float]:
    """The most that the target itself counted in a stretch of time: `waiting`, `running`, `kv_usage`; what it tells."""
    inside = [one.gauges for one in gauges if span.holds(one.at_s)]
    columns: Mapping[str, Sequence[int | float | None]] = {
        "waiting": [one.waiting_requests for one in inside],
        "running": [one.busy_slots for one in inside],
        "kv_usage": [one.kv_usage_ratio for one in inside],
    }
    found: dict[str, float] = {}
    for name, values in columns.items():
        if told := [float(value) for value in values if value is not None]:
            found[name] = max(told)
    return found


# ── bins over time ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A stretch of the timeline. `due`, `errors` and the quantiles are of the requests that were due in it (so an
    error stands where its request should have been served), `answered` is of those whose answer ended in it.

    Times are in seconds, inf where so many failed, nan where nothing was due. `disturbed`: a fault acted.
    """

    span: Span
    due: int
    errors: int
    answered: int
    ttft_p50_s: float
    ttft_p90_s: float
    backlog: Peak
    disturbed: bool

    @property
    def rate_per_s(self) -> float:
        """Answers per second."""
        return self.answered / self.span.length_s


def bin_length_s(length_s: float, most_bins: int = 60) -> float:
    """A round length for bins, so that there are not more than that many."""
    fits = (step for step in BIN_STEPS_S if length_s / step <= most_bins)
    return next(fits, float(math.ceil(length_s / most_bins)))


def timeline(arm: Arm, experiment: Experiment, bin_s: float | None = None) -> tuple[Bin, ...]:
    """The arm from its zero to its end in bins, the warm-up and the drain too; without samples there is none.

    Nothing disturbs the control arm, whatever the experiment places.
    """
    samples = took_part(arm.samples, experiment, arm.length_s)
    if not samples:
        return ()
    end = max(arm.length_s, *(sample.due_s for sample in samples))
    step = bin_s or bin_length_s(end)
    windows = disturbances(experiment) if is_disturbed(experiment) and arm.name != Phase.CONTROL else ()
    backlog, num = Backlog(samples, end), int(end / step) + 1
    due: list[list[Sample]] = [[] for _ in range(num)]
    ended = [0] * num
    for sample in samples:
        due[min(num - 1, max(0, int(sample.due_s / step)))].append(sample)
        if sample.ended_s is not None and answered(sample):
            ended[min(num - 1, max(0, int(sample.ended_s / step)))] += 1
    bins = []
    for number, there in enumerate(due):
        span = Span(number * step, (number + 1) * step)
        ttfts = sorted(map(ttft_s, there))
        bins.append(
            Bin(
                span=span,
                due=len(there),
                errors=sum(not answered(sample) for sample in there),
                answered=ended[number],
                ttft_p50_s=value_at(ttfts, 0.5),
                ttft_p90_s=value_at(ttfts, 0.9),
                backlog=backlog.peak(span),
                disturbed=any(one.start_s < span.end_s and one.end_s > span.start_s for one in windows),
            )
        )
    while len(bins) > 1 and bins[-1].span.start_s >= end:
        bins.pop()
    return tuple(bins)


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How long after the last fault the steady state was back: the start of the first of `RECOVERY_WINDOWS` windows
    in a row that hold. 0: it never left. None: it did not come back while we looked.

    `enough`: there were enough windows to tell. `held`: for each window whether it held; None: nothing was due in it.
    """

    after_s: float | None
    window_s: float
    held: tuple[bool | None, ...]

    @property
    def enough(self) -> bool:
        """Whether there were windows enough to see it come back."""
        return sum(one is not None for one in self.held) >= RECOVERY_WINDOWS


def recovery(samples: Sequence[Sample], span: Span, holds: Callable[[Sequence[Sample], Span], bool]) -> Recovery:
    """When the bounds held again in a stretch of time after the last fault, windows judged by what was due in them.

    A window is as long as `RECOVERY_REQUESTS` requests take to be due, in half seconds. One in which nothing was due
    neither holds nor breaks.
    """
    inside = [sample for sample in samples if span.holds(sample.due_s)]
    per_request_s = span.length_s / len(inside) if inside else span.length_s
    window_s = max(1, math.ceil(RECOVERY_REQUESTS * per_request_s / WINDOW_STEP_S - 1e-9)) * WINDOW_STEP_S
    num = int((span.length_s + 1e-9) / window_s)
    windows: list[list[Sample]] = [[] for _ in range(num)]
    for sample in inside:
        place = int((sample.due_s - span.start_s) / window_s)
        if place < num:
            windows[place].append(sample)
    held: list[bool | None] = []
    for number, there in enumerate(windows):
        begin = span.start_s + number * window_s
        held.append(holds(there, Span(begin, begin + window_s)) if there else None)
    run: list[int] = []
    for number, one in enumerate(held):
        if one is False:
            run.clear()
        elif one:
            run.append(number)
            if len(run) == RECOVERY_WINDOWS:
                return Recovery(after_s=run[0] * window_s, window_s=window_s, held=tuple(held))
    return Recovery(after_s=None, window_s=window_s, held=tuple(held))
