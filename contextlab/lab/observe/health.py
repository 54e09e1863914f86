"""Asks a target how it is, and for one token, in turn, while a load runs: what it says beside what it does.

    zero ── health ── token ── health ── token ── …      a look every half second, past the faults on the wire

One look of each kind is under way at most, so that a server that hangs is not also flooded. A look goes on until it is
answered, or for `PATIENCE_S`, and the reading says how long it took: which of them was too late is for
`analysis/honesty` to say, which knows what the undisturbed target takes. While one is open it is told once a second how
long it has been, so that a record that ends anywhere has it.

Not to be combined with a measurement of what is freed when clients leave: llama.cpp's server notices them only while
it has no results to hand out, and each of our tokens is one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

from contextlab.analysis.prompts import role_of, usual_api
from contextlab.deeds import Reading
from contextlab.lab.observe.watch import Watch
from contextlab.model import ContextlabError, Knowledge, Message, Request, TargetSpec, UnableError
from contextlab.targets.http import PATHS, address_of, body_of
from contextlab.targets.openai.flavours import FLAVOURS, OTHER
from contextlab.targets.openai.wire import Wire, open_wire

EVERY_S = 0.5
"""Between two looks; health and token take turns, so each comes once a second."""
PATIENCE_S = 30.0
"""After that a look is given up, and another one is sent."""
ENDING_S = 2.0

Look = Callable[[Wire], Awaitable[dict[str, float]]]


class HealthWatch(Watch[Reading]):
    """A thread that looks from `zero_s` (`time.monotonic`) on while it is entered; idle where there is no endpoint.

    Each reading is of one look, `at_s` is when it was sent: `green` and `health_s`, or `completed`, `completion_s` and
    `status` (0 where no status came). One that was not over has `open` 1, and lasted so long by then; a later reading
    of the same `at_s` says more.
    """

    def __init__(self, spec: TargetSpec, known: Knowledge, zero_s: float) -> None:
        super().__init__("health", ending_s=ENDING_S, on="health" in known.powers)
        self._spec, self._known, self._zero_s = spec, known, zero_s

    def look(self) -> None:
        """An address that cannot be opened has no health."""
        with suppress(ContextlabError, OSError):
            asyncio.run(self._look())

    async def _look(self) -> None:
        kinds: tuple[tuple[str, Look], ...] = (("health", self._green), ("completion", self._completed))
        looks: dict[str, asyncio.Task[None]] = {}
        began_s: dict[str, float] = {}
        async with open_wire(address_of(self._spec), PATIENCE_S) as wire:
            for number in count():
                if await self._over(self._zero_s + number * EVERY_S):
                    break
                name, look = kinds[number % len(kinds)]
                if name in looks and not looks[name].done():
                    self._tell(name, began_s[name], _unanswered(name) | {"open": 1.0})
                else:
                    began_s[name] = time.monotonic()
                    looks[name] = asyncio.create_task(self._timed(name, look, wire, began_s[name]))
            for task in looks.values():
                task.cancel()
            await asyncio.gather(*looks.values(), return_exceptions=True)

    async def _over(self, due_s: float) -> bool:
        """Wait for a moment, or until the watch is over; whether it is."""
        while (left_s := due_s - time.monotonic()) > 0:
            if self.over.is_set():
                return True
            await asyncio.sleep(min(left_s, 0.05))
        return self.over.is_set()

    async def _timed(self, name: str, look: Look, wire: Wire, began_s: float) -> None:
        """One look; whatever ends it, the reading says what was known then."""
        values = _unanswered(name) | {"open": 1.0}
        try:
            async with asyncio.timeout(PATIENCE_S):
                values = await look(wire)
        except TimeoutError:
            pass  # it is still open, and nobody waits for it any more
        except UnableError:
            values = _unanswered(name)  # nothing came that could be read, and nothing will
        finally:
            self._tell(name, began_s, values)

    def _tell(self, name: str, began_s: float, values: dict[str, float]) -> None:
        took = {f"{name}_s": round(time.monotonic() - began_s, 6)}
        self.see(Reading(source="health", at_s=round(began_s - self._zero_s, 6), values=values | took))

    async def _green(self, wire: Wire) -> dict[str, float]:
        path = FLAVOURS.get(self._known.flavour, OTHER).health_path
        answer = await wire.ask("GET", path, timeout_s=2 * PATIENCE_S)
        return {"green": float(answer.ok)}

    async def _completed(self, wire: Wire) -> dict[str, float]:
        api = usual_api(self._known)
        hello = Message(role=role_of(api), parts=("Hello",))
        request = Request(name="one-token", messages=(hello,), api=api, reply_tokens=1, stream=False)
        answer = await wire.ask("POST", PATHS[api], body_of(request, self._known), timeout_s=2 * PATIENCE_S)
        completed = answer.ok and isinstance(answer.json, dict) and bool(answer.json.get("choices"))
        return {"completed": float(completed), "status": float(answer.status)}


def _unanswered(name: str) -> dict[str, float]:
    """The values of a look of this kind to which nothing came."""
    return {"green": -1.0} if name == "health" else {"completed": 0.0, "status": 0.0}
