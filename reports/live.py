"""What is going on while a run runs: a few lines that renew themselves, or a line a scenario in a log.

    lab ── record ──▶ Live ──▶ Progress.after (a pure fold) ──▶ a rich display, or plain lines

A listener of the lab, on standard error. It only looks: it writes no record, judges nothing, and what
goes wrong here ends the display, never the run. The display draws itself in a thread of its own, so
that a probe in which nothing happens is still seen to take time, and a record costs no drawing.
A chaos experiment has more to show while it runs: `chaos_live`; so has a sweep: `pareto_live`, and a gate: `gate_live`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO, runtime_checkable

from rich.console import Console
from rich.live import Live as Display
from rich.text import Text

from contextlab.model import Outcome, Verdict
from contextlab.reports.parts.layout import grid, labelled
from contextlab.reports.parts.wording import COLOURS, MARKS, clean, clock, encodable, num

if TYPE_CHECKING:  # a run imports the views of its own command only, when it gets there
    from contextlab.reports.chaos.live import Scope

DRAWS_PER_S = 8
HEARTBEAT_S = 15.0
"""A log that has heard nothing for this long is told, with the next record, what is running."""


TICK_S = 0.1
"""Samples that come closer to each other than this do not each move the time."""

MAX_RUN_S = 1e9
"""A record from later than this is no clock of ours."""

_ARM_INDENT = 3
"""Where the lines of an experiment begin, under what stands beside the mark."""


@runtime_checkable
class Whole(Protocol):
    """What is known of a run without scenarios and probes: all of its display is its own."""

    def begins(self) -> str:
        """What a log gets at the beginning."""

    def take(self, record: Mapping[str, Any]) -> str:
        """Take in one record; what a log gets of it, or ""."""

    def view(self, now_s: float, width: int) -> list[Text]:
        """The lines of the display."""

    def heartbeat(self, now_s: float) -> str:
        """The same in one line of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands. Never changed in place: the display reads it from another thread.

    `num_probes`: probes foreseen in this scenario, None where the record does not say; `num_later`: in those after it.
    `spent_s`: what each finished probe took; `num_done_here` of them belong to this scenario.
    `others`: findings that do not pass, counted by verdict and outcome. `noun`: what a probe is called.
    """

    at_s: float = 0.0
    noun: str = "probe"
    text: str = ""
    scenario: str = ""
    about: str = ""
    probe: str = ""
    probe_began_s: float = 0.0
    num_probes: int | None = None
    num_later: int = 0
    spent_s: tuple[float, ...] = ()
    num_done: int = 0
    num_done_here: int = 0
    num_held: int = 0
    others: Mapping[tuple[Verdict, Outcome], int] = field(default_factory=dict)

    def after(self, record: Mapping[str, Any]) -> Progress:
        """The progress one record later; kinds that it does not know only move the time."""
        now, at_s = self, record.get("at_s")
        if isinstance(at_s, int | float) and self.at_s <= at_s < MAX_RUN_S:
            now = replace(self, at_s=float(at_s))
        match record.get("kind"):
            case "header" if record.get("command") == "chaos":
                return replace(now, noun="experiment")
            case "progress":
                return replace(now, text=_text(record, "text"))
            case "scenario":
                return replace(now._nothing_running(), **_scenario(record))
            case "probe":
                return replace(now, probe=_probe_name(record), probe_began_s=now.at_s, text="")
            case "experiment":
                return replace(now, noun="experiment", probe=_probe_name(record), probe_began_s=now.at_s, text="")
            case "observed" | "trial" if now.probe:
                spent_s = (*now.spent_s, now.at_s - now.probe_began_s)
                num_done_here = now.num_done_here + 1
                return replace(now, probe="", spent_s=spent_s, num_done=now.num_done + 1, num_done_here=num_done_here)
            case "finding":
                finding = record.get("finding")
                return now._counting(finding if isinstance(finding, Mapping) else record)
        return now

    def left_s(self, now_s: float) -> float | None:
        """Time left in the run: the mean of its finished probes for each one to come; None if unknown."""
        if self.num_probes is None or not self.spent_s:
            return None
        mean_s = sum(self.spent_s) / len(self.spent_s)
        running_s = now_s - self.probe_began_s if self.probe else 0.0
        num_left = max(0, self.num_probes - self.num_done_here) + self.num_later
        return max(0.0, num_left * mean_s - min(running_s, mean_s))

    def _nothing_running(self) -> Progress:
        return replace(self, probe="", text="", num_done_here=0)

    def _counting(self, finding: Mapping[str, Any]) -> Progress:
        try:
            key = Verdict(finding.get("verdict")), Outcome(finding.get("outcome"))
        except ValueError:
            return self
        if key[0] is Verdict.PASS:
            return replace(self, num_held=self.num_held + 1)
        return replace(self, others={**self.others, key: self.others.get(key, 0) + 1})


def _text(record: Mapping[str, Any], name: str) -> str:
    return str(record.get(name) or "")


def _scenario(record: Mapping[str, Any]) -> dict[str, Any]:
    planned = record.get("num_probes")
    num_probes = planned if isinstance(planned, int) and planned > 0 else None
    later = record.get("num_later")
    return {
        "scenario": _text(record, "name"),
        "about": _text(record, "summary"),
        "num_probes": num_probes,
        "num_later": later if isinstance(later, int) and later > 0 else 0,
    }


def _probe_name(record: Mapping[str, Any]) -> str:
    probe = record.get("probe")
    return _text(probe if isinstance(probe, Mapping) else {"name": probe}, "name")


# ── what is shown ────────────────────────────────────────────────────────────────────────────────


def view(progress: Progress, now_s: float, width: int, scope: Scope | Whole | None = None) -> Text:
    """The display: what is running, for how long and how much longer, and what was found so far.

    `scope`: the chaos experiment that runs; its arm stands below. Or a sweep or a gate, which is all there is.
    """
    if isinstance(scope, Whole):
        return Text("\n").join(scope.view(now_s, width))
    doing = [clean(part) for part in (progress.scenario, progress.probe, progress.text) if part] or ["starting"]
    running = scope if scope is not None and progress.probe else None
    if running is not None and running.arm:
        doing.append(running.title(now_s))
    lines = [
        Text(" · ").join([Text(doing[0], "bold"), *map(Text, doing[1:])]),
        Text(" · ".join([clock(now_s), *_counts(progress, now_s)]), "dim"),
        _found(progress),
    ]
    marks = [Text("▸", "bold"), Text(), Text()]
    shown = grid([row for row in zip(marks, lines, strict=True) if row[1]], width)
    if running is not None:
        shown += labelled(Text(), running.lines(now_s, width - _ARM_INDENT), _ARM_INDENT)
    return Text("\n").join(shown)


def heartbeat(progress: Progress, now_s: float, scope: Scope | Whole | None = None) -> str:
    """The same in one line of a log."""
    if isinstance(scope, Whole):
        return scope.heartbeat(now_s)
    arm = scope.heartbeat(now_s) if scope is not None and progress.probe else ""
    running = "/".join(part for part in (progress.scenario, progress.probe) if part)
    doing = ": ".join(clean(part) for part in (running, progress.text) if part) or "starting"
    return ", ".join(part for part in (doing, arm, *_counts(progress, now_s), _found(progress).plain) if part)


def _counts(progress: Progress, now_s: float) -> list[str]:
    counts = [f"{num(progress.num_done, progress.noun)} done"]
    if progress.num_probes is not None:
        counts.append(f"{min(progress.num_done_here, progress.num_probes)} of {progress.num_probes} in this scenario")
    left_s = round(progress.left_s(now_s) or 0.0)
    if left_s:  # a probe that takes longer than the others leaves nothing to say
        counts.append(f"about {clock(left_s)} left")
    return counts


def _found(progress: Progress) -> Text:
    parts = [
        Text(f"{MARKS[verdict]} {count} {outcome}", COLOURS[verdict])
        for (verdict, outcome), count in sorted(progress.others.items(), reverse=True)
    ]
    if progress.num_held:
        parts.append(Text(f"{MARKS[Verdict.PASS]} {progress.num_held} held", COLOURS[Verdict.PASS]))
    return Text("  ").join(parts)


# ── the listener ─────────────────────────────────────────────────────────────────────────────────


class Live:
    """A context manager that is called with each record as it is made.

    On a terminal it shows a display that is gone when the run ends; on any other stream, a line a scenario, a line for
    each arm and fault of an experiment, and at most one heartbeat every 15 s of the run. `quiet` shows nothing at all.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._progress = Progress()
        self._scope: Scope | Whole | None = None
        self._now = now
        self._heard = now()
        self._spoke_s = 0.0
        self._stream = None if quiet else stream
        self._console = Console(
            file=stream,
            force_jupyter=False,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            highlight=False,
        )
        self._display = self._new_display() if not quiet and _draws(self._console) else None

    def __enter__(self) -> Self:
        if self._display is not None:
            self._display.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._display is not None:
            with suppress(OSError, ValueError):  # the terminal is gone
                self._display.stop()

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take in one record. Draws nothing on a terminal, and writes at most one line elsewhere."""
        elapsed_s = self._elapsed_s()
        event = ""
        if self._scope is not None:
            event = self._scope.take(record)
            at_s = record.get("at_s", elapsed_s)
            if record.get("kind") == "sample" and isinstance(at_s, float) and at_s - self._progress.at_s < TICK_S:
                return  # one of thousands: time goes on without it
        self._progress = self._progress.after({"at_s": elapsed_s, **record})
        self._heard = self._now()
        if (scope := _scope(record)) is not None:
            self._scope = scope
            event = scope.begins() if isinstance(scope, Whole) else event
        if self._display is None:
            self._say(record.get("kind") == "scenario", event)

    def _elapsed_s(self) -> float:
        """Time since the run began: that of the last record, and what went by since it came."""
        return self._progress.at_s + self._now() - self._heard

    def _say(self, begins: bool, event: str) -> None:
        """Write the line of a scenario that begins, of an arm or a fault, or a heartbeat where one is due."""
        seen = self._progress
        if begins:
            line = ": ".join(clean(part) for part in (seen.scenario, seen.about) if part)
        elif event:
            where = "/".join(clean(part) for part in (seen.scenario, seen.probe) if part)
            line = f"{where}: {event}" if where else event
        elif seen.at_s - self._spoke_s >= HEARTBEAT_S:
            line = heartbeat(seen, seen.at_s, self._scope)
        else:
            return
        self._spoke_s = seen.at_s
        if self._stream is not None:
            try:
                self._stream.write(encodable(f"{clock(seen.at_s)} {line}\n", getattr(self._stream, "encoding", None)))
                self._stream.flush()
            except (OSError, ValueError):  # nobody listens any more
                self._stream = None

    def _new_display(self) -> Display:
        return Display(
            console=self._console,
            get_renderable=lambda: view(self._progress, self._elapsed_s(), self._console.width, self._scope),
            refresh_per_second=DRAWS_PER_S,
            vertical_overflow="crop",
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def _scope(record: Mapping[str, Any]) -> Scope | Whole | None:
    """What follows from here on, if the record begins such a thing."""
    match record.get("kind"):
        case "experiment":
            from contextlab.reports.chaos.live import Scope

            return Scope(record)
        case "sweep":
            from contextlab.reports.pareto.live import Scope as SweepScope

            return SweepScope(record)
        case "gate":
            from contextlab.reports.gate.live import Scope as GateScope

            return GateScope(record)
    return None


def _draws(console: Console) -> bool:
    """Whether a display can renew itself there."""
    return console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")
