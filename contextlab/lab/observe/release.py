"""Looks whether a target frees what an arm took: once before its load, and after its end until all is back.

    entered: baseline ─── the arm ─── wait(): look, look, … until everything is back, or its time is up

The look must not cause what it reports: llama.cpp's server notices clients that have left only while nobody has asked
anything for a second, so the gauges are asked seldom, and every reading in which they were says how often
(`gauges_every_s`). The process itself is looked at from outside, which it cannot feel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from contextlab import registry
from contextlab.analysis.release import WORDS, allowed
from contextlab.deeds import Reading, Victim
from contextlab.lab.observe.process import living_tree, tree_values
from contextlab.lab.undo.steps import started_of
from contextlab.model import ContextlabError, Gauges, HasGauges, Knowledge, TargetSpec

GAUGES_EVERY_S = 1.5
"""Longer than the second after which llama.cpp's server looks for clients that have left."""
LOOK_EVERY_S = 0.2
ANSWER_S = 1.0


class ReleaseWatch:
    """`root` tells the target's main process where it is known; `within_s`: how long `wait` may take.

    A target that has neither a process that we know nor gauges gives no readings.
    """

    def __init__(
        self,
        spec: TargetSpec,
        known: Knowledge,
        zero_s: float,
        *,
        root: Callable[[], Victim | None],
        within_s: float,
    ) -> None:
        self._spec, self._known, self._zero_s = spec, known, zero_s
        self._root, self._within_s = root, within_s
        self._has_gauges = "gauges" in known.powers
        self._baseline: Mapping[str, float] = {}
        self._new: list[Reading] = []

    def taken(self) -> list[Reading]:
        """The readings since the last look."""
        new, self._new = self._new, []
        return new

    def wait(self) -> None:
        """Look until all is back as it was before the arm, or until the time is up."""
        until_s = time.monotonic() + self._within_s
        asked_s = -GAUGES_EVERY_S
        awaited = set(self._baseline) & WORDS.keys()
        while awaited and (now := time.monotonic()) <= until_s:
            asks = self._has_gauges and now - asked_s >= GAUGES_EVERY_S
            if asks:
                asked_s = now
            seen = self._look(asks)
            awaited -= {name for name in awaited & seen.keys() if seen[name] <= allowed(name, self._baseline[name])}
            if "root_started" in seen and seen["root_started"] != self._baseline.get("root_started"):
                return  # it is another process now
            if awaited:
                time.sleep(LOOK_EVERY_S)

    def __enter__(self) -> Self:
        self._baseline = self._look(self._has_gauges)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def _look(self, asks_gauges: bool) -> Mapping[str, float]:
        at_s = time.monotonic() - self._zero_s
        root = self._root()
        values = {} if root is None else footprint(root)
        if asks_gauges and (told := self._gauges()):
            values |= {**told, "gauges_every_s": GAUGES_EVERY_S}
        if values:
            self._new.append(Reading(source="release", at_s=round(at_s, 3), values=values))
        return values

    def _gauges(self) -> dict[str, float]:
        reading = Gauges()
        with suppress(ContextlabError, OSError):  # a target that does not answer, a timeout too, has no gauges now
            reading = asyncio.run(self._asked())
        named = {
            "busy_slots": reading.busy_slots,
            "waiting_requests": reading.waiting_requests,
            "kv_usage_ratio": reading.kv_usage_ratio,
            "generated_tokens": reading.generated_tokens,
        }
        return {name: float(value) for name, value in named.items() if value is not None}

    async def _asked(self) -> Gauges:
        async with asyncio.timeout(ANSWER_S), registry.open_target(self._spec, self._known) as target:
            return await target.gauges() if isinstance(target, HasGauges) else Gauges()


def warm_up(spec: TargetSpec, known: Knowledge) -> None:
    """Load what a look needs, asking nothing: between an arm's zero and its load there is no time for that."""

    async def opened() -> None:
        async with registry.open_target(spec, known):
            pass

    with suppress(ContextlabError, OSError):
        asyncio.run(opened())


def footprint(root: Victim) -> dict[str, float]:
    """What a process and its descendants hold now, as `process.tree_values` counts it; empty where it is gone.

    `root_started` tells it from a later one.
    """
    if started_of(root.pid) != root.started:
        return {}
    values = tree_values(living_tree(root.pid))
    return {**values, "root_started": float(root.started)} if values else {}
