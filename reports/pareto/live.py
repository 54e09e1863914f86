"""What is known of a sweep while it runs: what is being measured, what is left, and the best of each goal so far.

    record ──▶ Scope.take (a few sums a setting) ──▶ view (drawn eight times a second), or a line for a log

It looks at the records `sweep`, `measurement` and `progress` only; a `progress` may name `settings` and `block`, or say
both in its text. Means, not statistics: what is on the frontier is told when all is measured. One scope is written by
the lab's thread and read by that of the display; what is read is copied first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from rich.text import Text

from contextlab.analysis.frontier import Direction, Status, best_of
from contextlab.analysis.sweeps import Measurement, Sweep, result_of
from contextlab.model import Settings
from contextlab.reports.pareto.facts import duration
from contextlab.reports.pareto.figures import amount, goal_names, settings_words, unit_of
from contextlab.reports.parts.layout import flowing, labelled
from contextlab.reports.parts.wording import clean, clock, num, quote

_INDENT = 3


@dataclass(slots=True)
class _Sums:
    """One setting so far."""

    settings: Settings
    count: int = 0
    totals: list[float] = field(default_factory=list)
    is_out: bool = False

    @property
    def means(self) -> tuple[float, ...]:
        """The mean of each goal."""
        return tuple(total / self.count for total in self.totals)


class Scope:
    """A sweep as far as it has come. `take` is given the records; everything else only looks."""

    def __init__(self, begins: Mapping[str, Any]) -> None:
        """`begins`: the record of kind `sweep`."""
        self.sweep: Sweep | None = None
        with suppress(msgspec.ValidationError, TypeError, ValueError):
            self.sweep = msgspec.convert(begins.get("sweep"), Sweep)
        self._sums: dict[str, _Sums] = {}
        self._statuses: Counter[Status] = Counter()
        self._used_s = 0.0
        self._block: int | None = None
        self._settings: Settings | None = None
        self._text = ""

    def take(self, record: Mapping[str, Any]) -> str:
        """Take in one record. The sentence that a log gets for it, "" for most."""
        match record.get("kind"):
            case "progress":
                self._text = str(record.get("text") or "")
                settings, block = record.get("settings"), record.get("block")
                self._settings = settings if isinstance(settings, Mapping) and settings else None
                self._block = block if isinstance(block, int) else self._block
            case "measurement":
                with suppress(msgspec.ValidationError, TypeError, ValueError, OverflowError):
                    return self._measured(msgspec.convert(record.get("measurement"), Measurement))
        return ""

    def _measured(self, one: Measurement) -> str:
        self._text, self._settings, self._block = "", None, one.block
        self._used_s += one.cost_s if math.isfinite(one.cost_s) else 0.0
        if self.sweep is None:
            self._statuses[one.status] += 1
            return f"block {one.block + 1}: {one.status}"
        result = result_of(self.sweep, one)
        self._statuses[result.status] += 1
        sums = self._sums.setdefault(one.key, _Sums(settings=dict(one.settings)))
        if result.status is Status.OK:
            totals = sums.totals or [0.0] * len(result.values)
            sums.totals = [total + value for total, value in zip(totals, result.values, strict=True)]
            sums.count += 1
        elif result.status in (Status.CRASHED, Status.INFEASIBLE):
            sums.is_out = True
        said = self._values(result.values) if result.status is Status.OK else [f"{result.status}: {quote(result.why)}"]
        if one.num_requests and (one.num_failed or result.status is Status.OK):
            said.append(f"{one.num_failed} of {one.num_requests} failed")
        base = " (baseline)" if one.baseline else ""
        return f"block {one.block + 1}: {settings_words(one.settings, self.sweep)}{base}: {', '.join(said)}"

    # ── what is shown ──

    def view(self, now_s: float, width: int) -> list[Text]:
        """The display, in lines of at most `width` cells."""
        doing = [Text("pareto", "bold"), *map(Text, self._doing() or ["starting"])]
        room = width - _INDENT
        lines = flowing(doing, room)
        lines += flowing([Text(part, "dim") for part in [clock(now_s), *self._counts()]], room)
        lines += flowing([Text(part) for part in self.best()], room)
        lines += flowing([Text(part, "yellow") for part in self._others()], room)
        return labelled(Text("▸", "bold"), lines, _INDENT)

    def heartbeat(self, now_s: float) -> str:
        """The same in one line of a log."""
        return ", ".join([": ".join(self._doing()) or "starting", *self._counts(), *self._others(), *self.best()])

    def _doing(self) -> list[str]:
        block = f"block {self._block + 1}" if self._block is not None else ""
        named = ""
        if self._settings is not None:
            named = settings_words(self._settings, self.sweep) if self.sweep else clean(str(dict(self._settings)))
        return [part for part in (block, named, clean(self._text)) if part]

    def _counts(self) -> list[str]:
        """What is done, how much is likely left, and what is left of the budget."""
        done = sum(self._statuses.values())
        said = [num(done, "measurement")]
        if self.sweep is None:
            return said
        if self.sweep.num_configs > 0:
            said.append(f"{len(self._sums)} of {num(self.sweep.num_configs, 'setting')}")
        if not self.sweep.budget_s > 0:
            return said
        left_s = max(0.0, self.sweep.budget_s - self._used_s)
        if done and self._used_s > 0:
            said.append(f"at most {math.floor(left_s * done / self._used_s + 1e-9)} more")
        return [*said, f"{duration(round(left_s))} of {duration(self.sweep.budget_s)} left"]

    def _others(self) -> list[str]:
        """What could not be used, counted."""
        counts = dict(self._statuses)
        return [f"{counts[status]} {status}" for status in Status if status is not Status.OK and counts.get(status)]

    def best(self) -> list[str]:
        """`best tokens_per_s 412 tokens/s (slots=4)` for each goal, and how many seem to be on the frontier."""
        sweep = self.sweep
        sound = [sums for sums in list(self._sums.values()) if sums.count and not sums.is_out]
        if sweep is None or not sound:
            return []
        signs = [1.0 if goal.direction is Direction.UP else -1.0 for goal in sweep.goals]
        vectors = [tuple(sign * mean for sign, mean in zip(signs, sums.means, strict=True)) for sums in sound]
        said = []
        for place, goal in enumerate(sweep.goals):
            top = max(range(len(sound)), key=lambda k: vectors[k][place])
            value = amount(sound[top].means[place], unit_of(goal))
            said.append(f"best {clean(goal.text)} {value} ({settings_words(sound[top].settings, sweep)})")
        return [*said, f"{len(best_of(vectors))} on the frontier so far"]

    def _values(self, values: Sequence[float]) -> list[str]:
        goals = self.sweep.goals if self.sweep else ()
        return [f"{clean(goal.text)} {amount(value, unit_of(goal))}" for goal, value in zip(goals, values, strict=True)]

    def begins(self) -> str:
        """What a log gets when the sweep begins."""
        sweep = self.sweep
        if sweep is None:
            return "the sweep begins"
        axes = ", ".join(clean(axis.name) for axis in sweep.axes)
        budget = f", within {duration(sweep.budget_s)}" if sweep.budget_s > 0 else ""
        return f"sweep of {axes}: {num(sweep.num_configs, 'setting')}, for {goal_names(sweep)}{budget}"
