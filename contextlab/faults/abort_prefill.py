"""Clients that leave while their prompt is being read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Call
from contextlab.experiment import option
from contextlab.faults.clients import Misbehaving, count, reply_option


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortPrefill(Misbehaving):
    """Send a long prompt, never the same twice, and leave before the first token can be there."""

    NAME: ClassVar[str] = "abort-prefill"
    SUMMARY: ClassVar[str] = "clients send a long prompt and leave before the first token"

    words: int = option(
        200, "by how many words their prompts are longer than the load's", kind="int", low=0, high=1_000_000
    )
    wait_s: float = option(
        0.05, "how long after its request a client leaves", kind="duration", low=0.0, high=600.0, unit="s"
    )
    close: str = option("fin", "how they leave: fin (in order) or reset (RST)", kind="text", choices=("fin", "reset"))
    stream: bool = option(True, "whether they ask for a stream", kind="bool")
    reply_tokens: int = reply_option(64)

    async def behave(self, call: Call) -> None:
        """Ask and leave."""
        if not await call.connect():
            return
        await call.send(stream=self.stream, reply_tokens=self.reply_tokens, more_words=self.words)
        ended = await call.whole(self.wait_s)
        count(call, "answered_before" if ended or call.num_events else "aborted")
        (call.reset if self.close == "reset" else call.close)()

    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """Requests of which no word had been answered yet."""
        return tally.get("aborted", 0), "requests left before the first token"


FAULT = AbortPrefill
