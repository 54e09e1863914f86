"""Reads a target's own gauges while a load runs, seldom, and past the path that the faults are on.

Some servers notice clients that hang up only while nobody asks them anything (llama.cpp's /slots and /metrics), so a
reading is taken every other second at most, and the record says when.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from contextlab import registry
from contextlab.experiment import GaugeSample
from contextlab.lab.observe.watch import Watch
from contextlab.model import ContextlabError, Gauges, HasGauges, Knowledge, TargetSpec

EVERY_S = 2.0
ANSWER_S = 1.5


class GaugeWatch(Watch[GaugeSample]):
    """Reads gauges while it is entered; times count from `zero_s`. Idle where the target has none or `on` is False."""

    def __init__(self, spec: TargetSpec, known: Knowledge, zero_s: float, *, on: bool = True) -> None:
        super().__init__("gauges", ending_s=2 * ANSWER_S, on=on and "gauges" in known.powers)
        self._spec, self._known, self._zero_s = spec, known, zero_s

    def look(self) -> None:
        """A target that does not answer has no gauges now."""
        with suppress(ContextlabError, OSError):
            asyncio.run(self._read())

    async def _read(self) -> None:
        async with registry.open_target(self._spec, self._known) as target:
            while not await asyncio.to_thread(self.over.wait, EVERY_S):
                at_s = time.monotonic() - self._zero_s
                reading = Gauges()
                with suppress(TimeoutError):
                    async with asyncio.timeout(ANSWER_S):
                        if isinstance(target, HasGauges):
                            reading = await target.gauges()
                if reading != Gauges():
                    self.see(GaugeSample(at_s=round(at_s, 3), gauges=reading))
