"""Misbehaving clients without a socket: what each does with its call, and when that counts as done."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest

from contextlab import registry
from contextlab.deeds import ClientFault
from contextlab.experiment import Fault, Plane
from contextlab.model import UsageError


@dataclass
class Script(list[str]):
    """A call whose other side says these words, then ends whole or not; it keeps what was done, in words.

    `acts`: how many times `wait` says that the fault still acts.
    """

    words: Sequence[str] = ()
    is_whole: bool = False
    connects: bool = True
    acts: float = math.inf
    standing_bytes: int = 0
    request_bytes: int = 5
    tally: dict[str, float] = field(default_factory=dict)
    rng: Random = field(default_factory=Random)
    number: int = 0
    num_events: int = 0
    slept_s: float = 0.0

    async def connect(self, *, buffer_bytes: int = 0) -> bool:
        self.append(f"connect {buffer_bytes}" if buffer_bytes else "connect")
        self.tally["connected"] = self.tally.get("connected", 0) + self.connects
        self._left = list(self.words)
        return self.connects

    async def send(self, num_bytes: int | None = None, **asked: Any) -> int:
        sent = min(self.request_bytes, num_bytes or self.request_bytes)
        self.request_bytes -= sent if num_bytes else 0
        if sent:
            self.append(" ".join(["send", *(f"{name}={value}" for name, value in asked.items())]))
        return sent

    async def event(self) -> str | None:
        if not self._left:
            return None
        self.num_events += 1
        return self._left.pop(0)

    async def read(self, num_bytes: int) -> int:
        self.append(f"read {num_bytes}")
        read = min(num_bytes, self.standing_bytes)
        self.standing_bytes -= read
        return read

    async def whole(self, within_s: float | None = None) -> bool:
        self.append("whole" if within_s is None else f"whole within {within_s:g}")
        self.num_events += len(self._left)
        return self.is_whole

    async def wait(self, seconds: float) -> bool:
        self.slept_s += seconds
        self.acts -= 1
        return self.acts > 0

    def unread(self) -> int:
        return self.standing_bytes

    def half_close(self) -> None:
        self.append("half close")

    def close(self) -> None:
        self.append("close")

    def reset(self) -> None:
        self.append("reset")


def behaved(text: str, script: Script) -> Script:
    """What a fault makes of a script."""
    asyncio.run(cast("ClientFault", fault(text)).behave(script))
    return script


def fault(text: str) -> Fault:
    return registry.make_fault(registry.parse_fault(text, start_s=0.0, length_s=1.0))


CLIENTS = [name for name, one in registry.faults().items() if one.PLANE is Plane.CLIENT]
WORDS = ("a", "b", "c", "d", "e", "f")


def test_these_are_the_client_faults() -> None:
    assert CLIENTS == [
        "abort",
        "abort-prefill",
        "half-open",
        "never-reads",
        "retry-storm",
        "slow-loris",
        "slow-reader",
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_none_lands_without_a_connection_and_none_of_them_means_none(name: str) -> None:
    assert fault(name).landed({"clients": 4.0, "not_connected": 4.0}, {}).proven is False
    assert fault(name).landed({}, {}).proven is False
    assert fault(name).landed({"connected": 4.0}, {}).proven is False
    nobody = fault(f"{name}:clients=0")
    assert nobody.is_null
    assert nobody.landed({}, {}).proven is None
    refused = behaved(name, Script(connects=False))
    assert set(refused) <= {"connect", "connect 4096"}


def test_a_stream_is_left_after_its_event() -> None:
    left = behaved("abort:at=event:3,reply_tokens=64", Script(WORDS))
    assert left == ["connect", "send stream=True reply_tokens=64", "close"]
    assert left.tally == {"connected": 1, "events_before_abort": 4, "aborted": 1}
    assert fault("abort").landed(left.tally, {}).proven is True
    first = behaved("abort:at=first-token,close=reset", Script(WORDS))
    assert (first[-1], first.tally["events_before_abort"]) == ("reset", 1)


def test_a_stream_that_ends_before_was_not_left() -> None:
    ended = behaved("abort:at=event:9", Script(WORDS))
    assert "aborted" not in ended.tally
    assert ended.tally["ended_before"] == 1
    assert fault("abort").landed(ended.tally, {}).proven is False


def test_an_answer_in_one_piece_is_left_after_a_time() -> None:
    left = behaved("abort:stream=false,wait=2s", Script())
    assert left == ["connect", "send stream=False reply_tokens=64", "whole within 2", "close"]
    assert left.tally["aborted"] == 1
    answered = behaved("abort:stream=false", Script(is_whole=True))
    assert answered.tally.get("aborted", 0) == 0


def test_a_place_that_an_abort_has_not() -> None:
    for at in ("prefill", "event:x", "now"):
        with pytest.raises(UsageError, match="no such place"):
            fault(f"abort:at={at}")


def test_a_long_prompt_is_left_before_the_first_token() -> None:
    left = behaved("abort-prefill:words=300,wait=20ms", Script())
    assert left == ["connect", "send stream=True reply_tokens=64 more_words=300", "whole within 0.02", "close"]
    assert left.tally["aborted"] == 1
    soon = behaved("abort-prefill", Script(WORDS))
    assert (soon.tally.get("aborted", 0), soon.tally["answered_before"]) == (0, 1)


def test_a_slow_reader_takes_no_more_than_its_rate() -> None:
    slow = behaved("slow-reader:rate=200", Script(standing_bytes=100))
    reads = [int(word.split()[1]) for word in slow if word.startswith("read")]
    assert reads == [20] * 6  # ten times a second, until nothing is left
    assert slow.slept_s == pytest.approx(0.6)
    assert slow.tally["slow_reads"] == 4  # the last of the five leaves nothing behind
    assert slow.tally["read_to_the_end"] == 1
    with pytest.raises(UsageError, match="above 0"):
        fault("slow-reader:rate=0")


def test_a_rate_below_a_byte_a_look_is_kept_too() -> None:
    slow = behaved("slow-reader:rate=4", Script(standing_bytes=100, acts=11))
    assert [word for word in slow if word.startswith("read")] == ["read 1"] * 4


def test_who_never_reads_needs_bytes_that_stand() -> None:
    silent = behaved("never-reads:hold=3s", Script(standing_bytes=9))
    assert silent == ["connect 4096", "send reply_tokens=128"]
    assert silent.slept_s == 3.0
    never = fault("never-reads")
    assert never.landed({"connected": 2.0, "most_unread_bytes": 0.0}, {}).proven is False
    assert never.landed({"connected": 2.0, "most_unread_bytes": 9.0}, {}).proven is True


def test_a_half_closed_client_reads_to_the_end() -> None:
    cut = behaved("half-open", Script())
    assert cut == ["connect", "send reply_tokens=16", "half close", "whole", "close"]
    assert cut.tally["cut"] == 1
    assert behaved("half-open", Script(is_whole=True)).tally["whole"] == 1


def test_a_storm_asks_the_same_until_it_is_enough() -> None:
    storm = behaved("retry-storm:attempts=3,timeout=500ms", Script())
    assert storm == ["connect", "send reply_tokens=64", "whole within 0.5", "close"] * 3
    assert {name: storm.tally[name] for name in ("asked", "attempts", "retries", "given_up")} == {
        "asked": 1,
        "attempts": 3,
        "retries": 2,
        "given_up": 1,
    }
    assert storm.slept_s == 0.0
    calm = behaved("retry-storm", Script(is_whole=True))
    assert (calm.tally["attempts"], calm.tally.get("given_up", 0)) == (1, 0)
    assert fault("retry-storm").landed({**calm.tally, "requests_repeated": 0.0}, {}).proven is False
    proven = fault("retry-storm").landed({**storm.tally, "requests_repeated": 2.0}, {})
    assert proven.proven is True
    assert "amplification 3.00" in proven.why


def test_a_storm_ends_with_its_window() -> None:
    assert behaved("retry-storm:attempts=9", Script(acts=2)).tally["attempts"] == 2


def test_a_loris_sends_byte_by_byte_to_the_end() -> None:
    slow = behaved("slow-loris:pause=100ms", Script(request_bytes=4))
    assert slow == ["connect", *["send"] * 4]
    assert slow.tally["slow_bytes"] == 4
    assert slow.slept_s == pytest.approx(0.4)
    assert behaved("slow-loris", Script(request_bytes=100, acts=3)).tally["slow_bytes"] == 3
