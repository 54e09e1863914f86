"""What is known of a gate while it runs: how many blocks are done, the last one, and how long the rest may take.

It looks at the records `gate`, `block` and `progress` only, and concludes nothing: the verdict takes all blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from statistics import mean
from typing import Any

import msgspec
from rich.text import Text

from contextlab.analysis.gate.nouns import Block, Measure
from contextlab.analysis.gate.stored import GateBegins
from contextlab.reports.gate.facts import in_unit, shown_name
from contextlab.reports.parts.layout import flowing, labelled
from contextlab.reports.parts.wording import clean, clock, num

_INDENT = 3
_SHOWN = ("ttft_p50_s", "itl_p50_s", "tokens_per_s")


class Scope:
    """A gate as far as it has come. `take` is given the records; everything else only looks."""

    def __init__(self, begins: Mapping[str, Any]) -> None:
        """`begins`: the record of kind `gate`."""
        self.gate: GateBegins | None = None
        with suppress(msgspec.ValidationError, TypeError, ValueError):
            self.gate = msgspec.convert(begins.get("gate"), GateBegins)
        self._costs_s: list[float] = []
        self._last = ""
        self._text = ""

    def begins(self) -> str:
        """What a log gets when the gate begins."""
        if self.gate is None:
            return "the gate begins"
        plan = self.gate.settings.plan
        most = f", at most {plan.max_blocks}" if plan.max_blocks > plan.blocks else ""
        return f"{clean(self.gate.candidate)} against {clean(self.gate.base)}: {num(plan.blocks, 'block')}{most}"

    def take(self, record: Mapping[str, Any]) -> str:
        """Take in one record. The sentence that a log gets for it, "" for most."""
        match record.get("kind"):
            case "progress":
                self._text = str(record.get("text") or "")
            case "block":
                with suppress(msgspec.ValidationError, TypeError, ValueError):
                    self._last = _block(msgspec.convert(record.get("block"), Block))
                    cost = record.get("cost_s")
                    self._costs_s += [float(cost)] if isinstance(cost, int | float) else []
                    return self._last
        return ""

    def view(self, now_s: float, width: int) -> list[Text]:
        """The display, in lines of at most `width` cells."""
        room = width - _INDENT
        lines = flowing([Text("gate", "bold"), Text(clean(self._text) or "starting")], room)
        lines += flowing([Text(part, "dim") for part in (clock(now_s), *self._counts())], room)
        lines += flowing([Text(self._last)], room) if self._last else []
        return labelled(Text("▸", "bold"), lines, _INDENT)

    def heartbeat(self, now_s: float) -> str:
        """The same in one line of a log."""
        return ", ".join([clean(self._text) or "starting", *self._counts()])

    def _counts(self) -> list[str]:
        done = len(self._costs_s)
        said = [f"{num(done, 'block')} done"]
        if self.gate is not None and done:
            left = max(0, self.gate.settings.plan.blocks - done)
            said += [f"about {clock(left * mean(self._costs_s))} left, if they decide"] if left else []
        return said


def _block(block: Block) -> str:
    kind = "block to confirm" if block.confirming else "block"
    return f"{kind} {block.number}: base {_arm(block.base)}; candidate {_arm(block.candidate)}"


def _arm(arm: Measure | None) -> str:
    if arm is None:
        return "not measured"
    if arm.died:
        return f"died: {clean(arm.died)}"
    said = [f"{shown_name(name)} {in_unit(arm.metrics[name], name)}" for name in _SHOWN if name in arm.metrics]
    said += [f"{arm.num_failed} of {arm.num_requests} failed"] if arm.num_failed else []
    return ", ".join(said) or "nothing"
