"""Clients that read slower than the target writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Call
from contextlab.experiment import option
from contextlab.faults.clients import Misbehaving, count, reply_option
from contextlab.model import UsageError

STEP_S = 0.1
"""They read ten times a second, as many bytes as their rate allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowReader(Misbehaving):
    """Read a stream at `rate_bytes_per_s`, with a small receive buffer.

    The kernels on both sides hold megabytes before a writer feels it; how much of the reply stood unread is counted.
    """

    NAME: ClassVar[str] = "slow-reader"
    SUMMARY: ClassVar[str] = "clients read a stream slower than it is written"

    rate_bytes_per_s: float = option(500.0, "bytes per second", kind="rate", unit="bytes/s")
    buffer_bytes: int = option(
        4096, "receive buffer that they ask for (SO_RCVBUF)", kind="size", low=1, high=1 << 30, unit="bytes"
    )
    reply_tokens: int = reply_option(128)

    def __post_init__(self) -> None:
        if self.rate_bytes_per_s <= 0:
            message = f"rate={self.rate_bytes_per_s:g}: slow-reader needs a rate above 0"
            raise UsageError(message, "clients that never read are another fault: never-reads")

    async def behave(self, call: Call) -> None:
        """Ask, then read a few bytes at a time."""
        if not await call.connect(buffer_bytes=self.buffer_bytes):
            return
        await call.send(reply_tokens=self.reply_tokens)
        allowed_bytes = 0.0
        while await call.wait(STEP_S):
            allowed_bytes += self.rate_bytes_per_s * STEP_S
            count(call, "slow_reads", call.unread() > allowed_bytes)
            if allowed_bytes >= 1:
                read_bytes = await call.read(int(allowed_bytes))
                if not read_bytes:
                    count(call, "read_to_the_end")
                    break
                allowed_bytes -= read_bytes

    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """Reads that left bytes standing."""
        most_bytes = tally.get("most_unread_bytes", 0)
        return tally.get("slow_reads", 0), f"reads that left bytes standing, up to {most_bytes:.0f} bytes"


FAULT = SlowReader
