"""What is known of a chaos experiment while it runs: an arm along its time, what came back, and the phase it is in.

    record ──▶ Scope.take (adds to a few counters) ──▶ lines (drawn eight times a second), or sentences for a log

One scope is written by the lab's thread and read by that of the display: counters only grow, and what is read is
copied first. Nothing here keeps a sample: one costs the same, few, steps whatever was before it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from rich.text import Text

from contextlab.analysis.arrivals import expected_requests, schedule
from contextlab.analysis.phases import disturbances, is_disturbed
from contextlab.analysis.trials import CONTROL, FAULT
from contextlab.experiment import Experiment, Load, Pace, Phase
from contextlab.model import UsageError
from contextlab.reports.chaos.timeline import DIED, FAILED, cell_of, fitted, graph, shades, track
from contextlab.reports.chaos.words import EMULATED, is_emulated, load_words, seconds
from contextlab.reports.parts.layout import flowing
from contextlab.reports.parts.wording import clean, num

SLOT_S = 0.25
"""What happens within this time is counted together."""
MAX_SLOTS = 14_400
"""An hour of them; what comes later is counted with the last."""
MAX_SCHEDULE = 200_000
"""Requests whose due times are worked out beforehand; of a larger load only the rate is shown."""
_FIRST_S, _STEP, _NUM_STEPS = 0.0005, 1.03, 500
"""Times to the first token are counted by steps of 3 %, from half a millisecond to twenty minutes."""


class Steps:
    """Times counted in steps of 3 %, for quantiles that are as near as that. Failed requests count as endless."""

    def __init__(self) -> None:
        self._counts = [0] * (_NUM_STEPS + 1)
        self._total = 0

    def add(self, time_s: float | None) -> None:
        """Count one; None is a request for which it never came."""
        step = _NUM_STEPS
        if time_s is not None:
            step = min(_NUM_STEPS - 1, int(math.log(max(time_s, _FIRST_S) / _FIRST_S) / math.log(_STEP)))
        self._counts[step] += 1
        self._total += 1

    def quantile(self, share: float) -> float | None:
        """The middle of the step in which that share of all is reached; infinite among the failed, None of nothing."""
        if not self._total:
            return None
        left = math.ceil(share * self._total)
        for step, count in enumerate(list(self._counts)):
            left -= count
            if left <= 0:
                return math.inf if step == _NUM_STEPS else _FIRST_S * _STEP ** (step + 0.5)
        return math.inf


class _Seen:
    """What came back in one arm so far, counted by slots of `SLOT_S` by when it ended."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.failed: list[int] = []
        self.num_ended = self.num_failed = 0
        self.first = Steps()
        self.gauges: Mapping[str, Any] = {}
        self.due: tuple[float, ...] | None = None

    def add(self, sample: Mapping[str, Any], counts: bool) -> None:
        """Count one request; of one that does not count, only that it ended."""
        due_s = _number(sample.get("due_s")) or 0.0
        ended_s = _number(sample.get("ended_s"))
        slot = min(MAX_SLOTS - 1, max(0, int((due_s if ended_s is None else ended_s) / SLOT_S)))
        for slots in (self.ended, self.failed):
            if slot >= len(slots):
                slots.extend([0] * (slot + 1 - len(slots)))
        self.ended[slot] += 1
        self.num_ended += 1
        if counts:
            failed = _has_failed(sample)
            self.failed[slot] += failed
            self.num_failed += failed
            content_s = sample.get("content_s")
            first_s = _number(content_s[0]) if isinstance(content_s, list | tuple) and content_s else None
            self.first.add(None if first_s is None else first_s - due_s)


class Scope:
    """An experiment as far as it has come. `take` is given the records; everything else only looks."""

    def __init__(self, begins: Mapping[str, Any]) -> None:
        """`begins`: the record of kind `experiment`."""
        self.experiment: Experiment | None = None
        with suppress(msgspec.ValidationError, TypeError):
            self.experiment = msgspec.convert(begins.get("experiment"), Experiment)
        self.seed = 0
        self.is_emulated = is_emulated(_text(begins, "path"))
        self.arm = ""
        self._zero_s = 0.0
        self._seen = _Seen()
        self._deaths_s: list[float] = []

    def take(self, record: Mapping[str, Any]) -> str:
        """Take in one record. The sentence that a log gets for it, "" for most."""
        match record.get("kind"):
            case "decisions":
                self.seed = seed if isinstance(seed := record.get("seed"), int) else 0
            case "arm":
                self.arm, self._zero_s = _text(record, "arm"), _number(record.get("zero_at_s")) or 0.0
                self._seen, self._deaths_s = _Seen(), []
                return self._arm_begins(_text(record, "of"))
            case "fault":
                return f"{clean(_text(record, 'name'))} {'begins' if record.get('on') else 'ends'}"
            case "sample":
                sample = record.get("sample")
                if isinstance(sample, Mapping) and _text(record, "arm") == self.arm:
                    self._seen.add(sample, counts=not self._is_left_out(sample))
            case "gauge":
                gauge = record.get("gauge")
                gauges = gauge.get("gauges") if isinstance(gauge, Mapping) else None
                self._seen.gauges = gauges if isinstance(gauges, Mapping) else {}
            case "deed":
                return self._deed(record)
            case "death":
                return self._death(record)
            case "arm_end":
                return self._arm_ends(record)
        return ""

    def _is_left_out(self, sample: Mapping[str, Any]) -> bool:
        """Whether it is of an extra load that does not count."""
        made = self.experiment
        if made is None or made.extra is None or made.extra.counts:
            return False
        mixed = sample.get("mixed")
        return isinstance(mixed, int) and mixed >= len(made.load.mix)

    # ── sentences for a log ──────────────────────────────────────────────────────────────────────

    def _arm_begins(self, of: str) -> str:
        if of:
            return f"{clean(self.arm)} arm: that of {clean(of)}"
        load, how = self._load(), f" ({EMULATED})" if self.is_emulated else ""
        return f"{clean(self.arm)} arm begins{how}" + (f": {load_words(load)}" if load else "")

    def _deed(self, record: Mapping[str, Any]) -> str:
        deed = record.get("deed")
        return f"{clean(_text(deed, 'fault'))}: {clean(_text(deed, 'what'))}" if isinstance(deed, Mapping) else ""

    def _death(self, record: Mapping[str, Any]) -> str:
        """A death, or, told again, how soon it answered after it."""
        death = record.get("death")
        if not isinstance(death, Mapping):
            return ""
        if (ready_s := _number(death.get("ready_s"))) is not None:
            return f"the target answers again, {seconds(ready_s)} after its end"
        if (at_s := _number(death.get("at_s"))) is not None:
            self._deaths_s.append(at_s)
        end = death.get("end")
        signal = f": {clean(_text(end, 'signal'))}" if isinstance(end, Mapping) and end.get("signal") else ""
        return f"the target's process ended{signal}" + (", by our hand" if death.get("ours") else "")

    def _arm_ends(self, record: Mapping[str, Any]) -> str:
        stopped = _text(record, "stopped")
        words = [f"{clean(self.arm)} arm ends", num(self._seen.num_ended, "request"), f"{self._seen.num_failed} failed"]
        words += [self._ttft_words(), f"stopped: {clean(stopped)}" if stopped else ""]
        return ", ".join(word for word in words if word)

    def heartbeat(self, now_s: float) -> str:
        """The state of the arm in one sentence; "" where none runs."""
        if not self.arm:
            return ""
        return ", ".join([self.title(now_s), *self._facts(now_s)])

    # ── what the display shows ───────────────────────────────────────────────────────────────────

    def elapsed_s(self, now_s: float) -> float:
        """Time since the arm's zero; negative before it."""
        return now_s - self._zero_s

    def title(self, now_s: float) -> str:
        """`fault arm: during`."""
        phase = self.phase(now_s)
        words = f"{clean(self.arm)} arm" + (f": {phase}" if phase != self.arm else "")
        return f"{words} ({EMULATED})" if self.is_emulated else words

    def phase(self, now_s: float) -> str:
        """The phase that the arm is in, by the plan of its faults."""
        at_s = self.elapsed_s(now_s)
        if self.experiment is None or not self.arm:
            return "starting"
        if self._load() is not None and at_s < self.experiment.warmup_s:
            return "warm-up"
        if self.arm != FAULT:
            return self.arm
        windows = disturbances(self.experiment)
        if at_s < windows[0].start_s:
            return str(Phase.BEFORE)
        return str(Phase.DURING if at_s < max(window.end_s for window in windows) else Phase.AFTER)

    def lines(self, now_s: float, width: int) -> list[Text]:
        """The arm as a timeline, and its numbers; nothing where no arm runs."""
        if self.experiment is None or self._load() is None:
            return [Text(", ".join(self._facts(now_s)))] if self.arm else []
        at_s, label = self.elapsed_s(now_s), "backlog  "
        length_s = max(self.experiment.load.duration_s, at_s, SLOT_S)
        num_cells = max(8, min(100, width - len(label)))
        windows = disturbances(self.experiment) if self.arm == FAULT and is_disturbed(self.experiment) else ()
        acting = shades([(window.start_s, window.end_s) for window in windows], length_s, num_cells)
        now = cell_of(at_s, length_s, num_cells)
        failed = fitted(self._padded(self._seen.failed, length_s), num_cells)
        marks = {cell: (FAILED, "red") for cell, count in enumerate(failed) if count and cell <= now}
        marks |= {cell_of(at_s, length_s, num_cells): (DIED, "bold red") for at_s in list(self._deaths_s)}
        lane = Text.assemble(("faults   ", "dim"), track(acting, marks, now))
        shown = [lane]
        if (backlog := self._backlogs(at_s)) is not None:
            seen = fitted(self._padded(backlog, length_s), num_cells)[: now + 1]
            shown.insert(0, Text.assemble((label, "dim"), graph(seen, acting[: now + 1])))
        return [*shown, *flowing([Text(fact) for fact in self._facts(now_s)], width)]

    def _facts(self, now_s: float) -> list[str]:
        """Rates, backlog, the server's own gauges, latency so far, failures; what is not known is left out."""
        at_s = self.elapsed_s(now_s)
        facts = [self._rates(at_s)]
        if (due := self._num_due(at_s)) is not None:
            facts.append(f"backlog {max(0, due - self._seen.num_ended)}")
        named = (("running", "busy_slots"), ("waiting", "waiting_requests"))
        counted = [f"{count} {word}" for word, name in named if isinstance(count := self._seen.gauges.get(name), int)]
        facts += [f"server {', '.join(counted)}"] if counted else []
        return [fact for fact in (*facts, self._ttft_words(), f"{self._seen.num_failed} failed") if fact]

    def _ttft_words(self) -> str:
        p50, p90 = self._seen.first.quantile(0.5), self._seen.first.quantile(0.9)
        return "" if p50 is None or p90 is None else f"TTFT p50 {seconds(p50)}, p90 {seconds(p90)}"

    def _rates(self, at_s: float) -> str:
        """`8/s planned, 7.9/s answered`, the latter over the last five seconds."""
        back = int(min(5.0, max(at_s, SLOT_S)) / SLOT_S)
        last = int(max(at_s, 0.0) / SLOT_S)
        seen, lately = self._seen, slice(max(0, last - back), last)
        answered = (sum(seen.ended[lately]) - sum(seen.failed[lately])) / (back * SLOT_S) if back else 0.0
        plan = self._plan()
        planned = sum(_planned_per_s(load, at_s - begin_s) for load, _, begin_s in plan)
        is_over = all(at_s >= begin_s + load.duration_s for load, _, begin_s in plan)
        words = "all of them due, " if is_over else f"{planned:.3g}/s planned, "
        return f"{words if plan else ''}{answered:.3g}/s answered"

    # ── counts along time ────────────────────────────────────────────────────────────────────────

    def _load(self) -> Load | None:
        """What the arm sends by plan; None for one that only learns the undisturbed texts."""
        return self.experiment.load if self.experiment and self.arm in (CONTROL, FAULT) else None

    def _plan(self) -> list[tuple[Load, int, float]]:
        """The open loads of the arm: (load, seed, when it begins)."""
        main = self._load()
        if self.experiment is None or main is None or main.arrivals.pace is Pace.CLOSED:
            return []
        extra = self.experiment.extra if self.arm == FAULT else None
        return [(main, self.seed, 0.0), *([(extra.load, self.seed + 1, extra.start_s)] if extra else [])]

    def _schedule(self) -> tuple[float, ...]:
        """When each request of the arm is due, sorted; () where that is not known or too much to work out."""
        if self._seen.due is None:
            self._seen.due = ()
            plan = self._plan()
            if sum(expected_requests(load, load.duration_s) for load, _, _ in plan) <= MAX_SCHEDULE:
                with suppress(UsageError, ArithmeticError, ValueError):  # (what cannot be planned has no backlog)
                    times = (begin_s + due.at_s for load, seed, begin_s in plan for due in schedule(load, seed))
                    self._seen.due = tuple(sorted(times))
        return self._seen.due

    def _num_due(self, at_s: float) -> int | None:
        due = self._schedule()
        return bisect_right(due, at_s) if due else None

    def _backlogs(self, at_s: float) -> list[int] | None:
        """Requests that were due and had not ended, at the end of each slot; None where that is not known."""
        due, ended = self._schedule(), list(self._seen.ended)
        if not due:
            return None
        found, num_ended = [], 0
        for slot in range(min(MAX_SLOTS, int(max(at_s, 0.0) / SLOT_S) + 1)):
            num_ended += ended[slot] if slot < len(ended) else 0
            num_due = bisect_right(due, min(at_s, (slot + 1) * SLOT_S))
            found.append(max(0, num_due - num_ended))
        return found

    def _padded(self, counts: list[int], length_s: float) -> list[int]:
        """A value for each slot of the arm's whole length."""
        num_slots = max(1, min(MAX_SLOTS, math.ceil(length_s / SLOT_S)))
        return [*counts[:num_slots], *[0] * (num_slots - len(counts))]


def _planned_per_s(load: Load, at_s: float) -> float:
    """The rate that the plan has for this moment."""
    begin_s, end_s = max(0.0, at_s - 0.5), min(load.duration_s, at_s + 0.5)
    if end_s <= begin_s:
        return 0.0
    return (expected_requests(load, end_s) - expected_requests(load, begin_s)) / (end_s - begin_s)


def _has_failed(sample: Mapping[str, Any]) -> bool:
    """Whether a request was not answered, as `contextlab.analysis.replies.answered` says of a whole sample."""
    status = sample.get("status")
    if not (isinstance(status, int) and 200 <= status < 300) or sample.get("error_frames"):
        return True
    ended = sample.get("num_done") if sample.get("num_frames") else sample.get("ending") == "whole"
    return not (ended and sample.get("finish_reason"))


def _number(value: object) -> float | None:
    """The number that stands in a record; None where none does, or none that is finite."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    with suppress(OverflowError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def _text(record: Mapping[str, Any], name: str) -> str:
    return str(record.get(name) or "")
