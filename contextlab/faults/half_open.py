"""Clients that close their sending side after the request, and go on reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Call
from contextlab.faults.clients import Misbehaving, count, reply_option


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfOpen(Misbehaving):
    """Send FIN after the request and wait for the answer, as HTTP/1.1 allows.

    Some servers take that for a client that has left, and cut the answer off: `cut` says how many did not come whole.
    """

    NAME: ClassVar[str] = "half-open"
    SUMMARY: ClassVar[str] = "clients close their sending side after the request and wait for the answer"

    reply_tokens: int = reply_option(16)

    async def behave(self, call: Call) -> None:
        """Ask, send FIN, read to the end."""
        if not await call.connect() or not await call.send(reply_tokens=self.reply_tokens):
            return
        call.half_close()
        count(call, "half_closed")
        count(call, "whole" if await call.whole() else "cut")
        call.close()

    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """FINs that were sent while an answer was owed."""
        whole, cut = tally.get("whole", 0), tally.get("cut", 0)
        return tally.get("half_closed", 0), f"of them half closed: {whole:.0f} answers came whole, {cut:.0f} did not"


FAULT = HalfOpen
