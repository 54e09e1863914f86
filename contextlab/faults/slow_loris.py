"""Clients that send their request byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Call
from contextlab.experiment import option
from contextlab.faults.clients import Misbehaving, clients_option, count


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLoris(Misbehaving):
    """Keep a connection busy with a request that comes one byte at a time, and never come to its end in time.

    A server that gives each connection a thread, or has few of them, has none left for the others.
    """

    NAME: ClassVar[str] = "slow-loris"
    SUMMARY: ClassVar[str] = "clients send the head of their request byte by byte"

    clients: int = clients_option(16)
    pause_s: float = option(0.5, "between two bytes", kind="duration", low=0.001, high=600.0, unit="s")

    async def behave(self, call: Call) -> None:
        """Send a byte, wait, send a byte; ask at last, if it comes to that."""
        if not await call.connect():
            return
        while await call.send(1):
            count(call, "slow_bytes")
            if not await call.wait(self.pause_s):
                return

    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """Bytes that came one by one."""
        return tally.get("slow_bytes", 0), "bytes sent one by one"


FAULT = SlowLoris
