"""Clients that give up soon and ask again at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from contextlab.deeds import Call
from contextlab.experiment import option
from contextlab.faults.clients import Misbehaving, clients_option, count, reply_option


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryStorm(Misbehaving):
    """Each request is tried up to `attempts` times, without a pause, each try for `timeout_s`.

    The target then answers the same question several times over, and nobody reads it: amplification is the number of
    tries for each thing that was asked.
    """

    NAME: ClassVar[str] = "retry-storm"
    SUMMARY: ClassVar[str] = "clients give up soon, and ask the same again at once"

    clients: int = clients_option(4)
    attempts: int = option(3, "tries for each request", kind="int", low=1, high=1000)
    timeout_s: float = option(
        0.5, "how long a try waits for the whole answer", kind="duration", low=0.001, high=600.0, unit="s"
    )
    reply_tokens: int = reply_option(64)

    async def behave(self, call: Call) -> None:
        """Ask until the answer is there, or until it was asked often enough."""
        count(call, "asked")
        for attempt in range(self.attempts):
            count(call, "attempts")
            count(call, "retries", attempt > 0)
            if await call.connect():
                await call.send(reply_tokens=self.reply_tokens)
                if await call.whole(self.timeout_s):
                    return
                call.close()
            if not await call.wait(0.0):  # the fault is over
                return
        count(call, "given_up")

    def achieved(self, tally: Mapping[str, float]) -> tuple[float, str]:
        """Requests that the target got again."""
        factor = tally.get("attempts", 0) / max(1.0, tally.get("asked", 0))
        return tally.get("requests_repeated", 0), f"requests sent again, amplification {factor:.2f}"


FAULT = RetryStorm
