"""Clients that leave in the middle of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Call
from contextlab.experiment import option
from contextlab.faults.clients import Misbehaving, count, reply_option
from contextlab.faults.streams import place


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort(Misbehaving):
    """Ask for a long reply and leave it: a stream after event K of it, an answer in one piece after `wait_s`.

    A server should stop what it generates for them, and free what that holds. Who does not stream is easily missed:
    the server learns of their leaving only if it looks.
    """

    NAME: ClassVar[str] = "abort"
    SUMMARY: ClassVar[str] = "clients leave in the middle of a reply"

    at: str = option("event:3", "where a stream is left: first-token or event:K (K counts from 0)", kind="text")
    close: str = option("fin", "how they leave: fin (in order) or reset (RST)", kind="text", choices=("fin", "reset"))
    stream: bool = option(True, "whether they ask for a stream", kind="bool")
    wait_s: float = option(
        0.5, "without a stream: how long they wait for the answer", kind="duration", low=0.0, high=600.0, unit="s"
    )
    reply_tokens: int = reply_option(64)

    def __post_init__(self) -> None:
        place(self.at, only_events=True)

    async def behave(self, call: Call) -> None:
        """Ask, read a bit, leave."""
        if not await call.connect():
            return
        await call.send(stream=self.stream, reply_tokens=self.reply_tokens)
        if await (self._read_a_part(call) if self.stream else self._wait(call)):
            count(call, "aborted")
        else:
            count(call, "ended_before")
        (call.reset if self.close == "reset" else call.close)()

    async def _read_a_part(self, call: Call) -> bool:
        """Whether the reply came as far as that, and was not at its end."""
        for _ in range(place(self.at).event + 1):
            if await call.event() is None:
                return False
            count(call, "events_before_abort")
        return True

    async def _wait(self, call: Call) -> bool:
        """Whether the client still waits after its time."""
        return not await call.whole(self.wait_s)

    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """Replies that were left while they were under way."""
        return tally.get("aborted", 0), "replies left before their end"


FAULT = Abort
