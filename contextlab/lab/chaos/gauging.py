"""Reads a target's own gauges while a load runs, seldom, and past the path that the faults are on.

Some servers notice clients that hang up only while nobody asks them anything (llama.cpp's /slots and /metrics), so a
reading is taken every other second at most, and the record says when.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from contextlab import registry
from contextlab.experiment import GaugeSample
from contextlab.model import ContextlabError, Gauges, HasGauges, Knowledge, TargetSpec

EVERY_S = 2.0
ANSWER_S = 1.5


class Gauging:
    """A thread that reads gauges from `zero_s` on while it is open; idle where the target has none or `on` is False."""

    def __init__(self, spec: TargetSpec, known: Knowledge, zero_s: float, *, on: bool = True) -> None:
        self.samples: list[GaugeSample] = []
        self._num_taken = 0
        self._spec, self._known, self._zero_s = spec, known, zero_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauges", daemon=True)
        self._on = on and "gauges" in known.powers

    def taken(self) -> list[GaugeSample]:
        """The readings that have come since the last look."""
        new = self.samples[self._num_taken :]
        self._num_taken += len(new)
        return new

    def __enter__(self) -> Self:
        if self._on:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Read no longer. May be called again."""
        self._stop.set()
        if self._on:
            self._thread.join(ANSWER_S * 2)

    def _run(self) -> None:
        with suppress(ContextlabError, OSError):  # a target that does not answer has no gauges now
            asyncio.run(self._read())

    async def _read(self) -> None:
        async with registry.open_target(self._spec, self._known) as target:
            while not await asyncio.to_thread(self._stop.wait, EVERY_S):
                at_s = time.monotonic() - self._zero_s
                reading = Gauges()
                with suppress(TimeoutError):
                    async with asyncio.timeout(ANSWER_S):
                        if isinstance(target, HasGauges):
                            reading = await target.gauges()
                if reading != Gauges():
                    self.samples.append(GaugeSample(at_s=round(at_s, 3), gauges=reading))
