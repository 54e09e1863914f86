"""Clients that ask and never read the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Call
from contextlab.experiment import option
from contextlab.faults.clients import Misbehaving, reply_option


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverReads(Misbehaving):
    """Ask for a stream, take no byte of it off the socket, and leave after `hold_s`.

    The kernels on both sides hold megabytes before a writer feels it; how much of the reply stood unread is counted.
    """

    NAME: ClassVar[str] = "never-reads"
    SUMMARY: ClassVar[str] = "clients ask for a stream and never read it"

    hold_s: float = option(5.0, "how long a client stays", kind="duration", low=0.0, high=3600.0, unit="s")
    buffer_bytes: int = option(
        4096, "receive buffer that they ask for (SO_RCVBUF)", kind="size", low=1, high=1 << 30, unit="bytes"
    )
    reply_tokens: int = reply_option(128)

    async def behave(self, call: Call) -> None:
        """Ask, and do nothing."""
        if await call.connect(buffer_bytes=self.buffer_bytes):
            await call.send(reply_tokens=self.reply_tokens)
            await call.wait(self.hold_s)
            call.unread()

    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """Bytes that stood unread."""
        return tally.get("most_unread_bytes", 0), "bytes stood unread at one of them"


FAULT = NeverReads
