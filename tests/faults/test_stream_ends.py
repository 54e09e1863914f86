"""Faults that end a reply, silence it or hold it, each measured by its client at a bare socket."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from contextlab.experiment import Placed
from tests.lab.link.relaying import Client, Reads, Relaying, asked, dechunked, fault, until, whole
from tests.lab.link.upstream import FRAMINGS, WORDS, Framing, Upstream, content, event, events, head, reply

pytestmark = pytest.mark.process
PAUSE_S = 0.005
ROLE, *REST = events()
CONTENTS = REST[: len(WORDS)]
SILENCE_S = 0.25
"""How long nothing must come before it counts as silence."""
LATE_S = 1.0
"""What a busy machine may add."""


def seen_with(placed: Placed, framing: Framing = "chunked") -> tuple[Reads, Upstream, dict[str, float]]:
    """One request under a fault: what its client read, what the target saw, what the fault counted."""
    with Upstream(reply(framing, events(), PAUSE_S)) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
        until(lambda: upstream.seen and upstream.seen[0].ended)
        landed = relaying.landed()
        assert landed.proven, landed.why
        return reads, upstream, relaying.tally()


PLACES = {
    "first-token": ROLE + CONTENTS[0],
    "event:0": ROLE + CONTENTS[0][: (len(CONTENTS[0]) + 1) // 2],
    "event:4": ROLE + b"".join(CONTENTS[:4]) + CONTENTS[4][: (len(CONTENTS[4]) + 1) // 2],
    "done": b"".join(events(done=False)),
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("at", PLACES)
def test_cut_ends_the_reply_exactly_there_in_good_order(at: str, framing: Framing) -> None:
    reads, upstream, tally = seen_with(fault("cut", at=at), framing)
    assert dechunked(reads.raw) == (PLACES[at], False)
    assert reads.ended == "fin"
    assert upstream.seen[0].ended
    assert (tally["requests_seen"], tally["requests_hit"], tally["applied"]) == (1, 1, 1)


@pytest.mark.parametrize("at", PLACES)
def test_reset_tears_both_sides_down_exactly_there(at: str) -> None:
    reads, upstream, _ = seen_with(fault("reset", at=at))
    assert dechunked(reads.raw) == (PLACES[at], False)
    assert reads.ended == "reset"
    if at != "done":  # by then the target may have gone by itself
        assert upstream.seen[0].ended == "rst"


def test_an_event_is_cut_inside_a_character() -> None:
    one = content("a" + "ü" * 40)
    steps = reply("close", [one])
    with Upstream(steps) as upstream, Relaying(upstream.address, fault("cut", at="event:0")) as relaying:
        body = asked(relaying).body
    assert body == one[: (len(one) + 1) // 2]
    with pytest.raises(UnicodeDecodeError):
        body.decode()


@pytest.mark.parametrize(("name", "ended"), [("cut", "fin"), ("reset", "reset")])
def test_prefill_ends_after_the_request_and_before_any_byte(name: str, ended: str) -> None:
    steps = [0.01, *reply("chunked", events())]
    placed = fault(name, at="prefill", after_s=0.05)
    with Upstream(steps) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
        until(lambda: upstream.seen[0].ended)
        assert (reads.raw, reads.ended) == (b"", ended)
        assert len(upstream.seen[0].requests) == 1
        assert upstream.seen[0].sent_bytes > 0, "the target had begun to answer"
        assert 0.05 <= reads.ended_s < 0.05 + LATE_S


def test_prefill_does_not_touch_a_reply_that_has_begun() -> None:
    steps = reply("chunked", events(), 0.03)
    with Upstream(steps) as upstream, Relaying(upstream.address, fault("reset", 0.1, at="prefill")) as relaying:
        assert asked(relaying).is_whole
        landed = relaying.landed()
        assert landed.proven is False
        assert "at=prefill" in landed.why


@pytest.mark.parametrize(("name", "ended"), [("cut", "fin"), ("reset", "reset")])
def test_now_ends_live_connections_when_the_window_opens(name: str, ended: str) -> None:
    steps = reply("chunked", events(), 0.04)
    with Upstream(steps) as upstream, Relaying(upstream.address, fault(name, 0.25, at="now")) as relaying:
        reads = asked(relaying)
        assert reads.ended == ended
        assert reads.raw.startswith(head("chunked"))
        assert 0.02 < reads.ended_s < 0.25 + LATE_S
        until(lambda: upstream.seen[0].ended)
        late = asked(relaying)  # a request that comes while the window is open never goes up
        assert (late.raw, late.ended) == (b"", ended)
        until(lambda: relaying.counters()["open_connections"] == 0)
        assert all(not one.requests for one in upstream.seen[1:])


def test_now_leaves_idle_connections_alone() -> None:
    with (
        Upstream(reply("length", [b"hello"])) as upstream,
        Relaying(upstream.address, fault("reset", 0.1, 0.1, at="now")) as relaying,
        Client(relaying.address) as client,
    ):
        client.ask()
        client.read(whole)
        time.sleep(max(0.0, 0.25 - (time.monotonic() - relaying.zero_s)))
        client.ask()
        assert client.read(whole).raw.endswith(b"hello")
        assert relaying.landed().why == "no request was under way while it acted"


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size_bytes", [0, 1, 300])
def test_limit_data_passes_exactly_so_many_body_bytes(size_bytes: int, framing: Framing) -> None:
    reads, _, tally = seen_with(fault("limit-data", size_bytes=size_bytes), framing)
    assert dechunked(reads.raw) == (b"".join(events())[:size_bytes], False)
    assert reads.ended == "fin"
    assert tally["passed_bytes"] == size_bytes


def test_limit_data_leaves_a_short_body_alone() -> None:
    steps = reply("chunked", events())
    size_bytes = len(b"".join(events()))
    with (
        Upstream(steps) as upstream,
        Relaying(upstream.address, fault("limit-data", size_bytes=size_bytes)) as relaying,
    ):
        assert asked(relaying).is_whole
        assert relaying.landed().proven is False


def test_limit_data_counts_the_bytes_of_any_body() -> None:
    steps = reply("length", [b"0123456789"], kind="application/json")
    with Upstream(steps) as upstream, Relaying(upstream.address, fault("limit-data", size_bytes=4)) as relaying:
        reads = asked(relaying)
        assert (reads.body, reads.ended) == (b"0123", "fin")
        assert b"Content-Length: 10" in reads.raw


@pytest.mark.parametrize("at", ["first-token", "event:4", "done"])
def test_blackhole_is_silence_without_an_end(at: str) -> None:
    placed = fault("blackhole", at=at)
    with Upstream(reply("close", events(), PAUSE_S)) as upstream, Relaying(upstream.address, placed) as relaying:
        with Client(relaying.address) as client:
            client.ask()
            reads = client.read(timeout_s=SILENCE_S)
            assert reads.body == PLACES[at]
            assert reads.ended == ""
            client.ask(1)  # what the client says now is lost too
            assert client.read(timeout_s=0.05).ended == ""
            assert not upstream.seen[0].ended
        until(lambda: upstream.seen[0].ended)
        assert len(upstream.seen[0].requests) == 1
        tally = relaying.tally()
        assert tally["applied"] == 1
        assert tally["swallowed_bytes"] > 0


def test_a_blackhole_lasts_when_its_window_is_over() -> None:
    placed = fault("blackhole", 0.1, 0.1, at="now")
    with Upstream(reply("chunked", events(), 0.02)) as upstream, Relaying(upstream.address, placed) as relaying:
        with Client(relaying.address) as client:
            client.ask()
            reads = client.read(timeout_s=0.3)
            assert reads.ended == ""
            assert reads.at_s[-1] < 0.15
        assert asked(relaying).is_whole, "who comes after the window is served"
        assert relaying.tally()["applied"] == 1


def test_a_blackhole_at_once_swallows_the_request() -> None:
    with Upstream([]) as upstream, Relaying(upstream.address, fault("blackhole", at="now")) as relaying:
        assert asked(relaying, timeout_s=0.1).ended == ""
        until(lambda: upstream.seen and upstream.seen[0].ended)
        assert not upstream.seen[0].requests


def test_a_target_that_ends_in_the_dark_is_not_noticed() -> None:
    with (
        Upstream([head("chunked"), 0.02, "rst"]) as upstream,
        Relaying(upstream.address, fault("blackhole", 0.01, at="now")) as relaying,
        Client(relaying.address) as client,
    ):
        client.ask()
        assert client.read(timeout_s=0.1).ended == ""


@pytest.mark.parametrize("at", ["first-token", "event:4", "done"])
def test_stall_holds_the_reply_there_and_loses_nothing(at: str) -> None:
    reads, _, tally = seen_with(fault("stall", at=at, pause_s=0.15))
    assert reads.is_whole
    assert reads.body == b"".join(events())
    gaps = [after - before for before, after in pairwise(reads.at_s)]
    longest = gaps.index(max(gaps))
    assert 0.12 < gaps[longest] < 0.15 + LATE_S
    before = dechunked(b"".join(reads.data[: longest + 1]))[0]
    assert before == PLACES[at]
    assert (tally["applied"], tally["pause_s"]) == (1, 0.15)


def test_a_stall_at_once_holds_all_that_follows_also_after_its_window() -> None:
    placed = fault("stall", 0.1, 0.02, at="now", pause_s=0.2)
    with Upstream(reply("chunked", events(), 0.03)) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
    assert reads.body == b"".join(events())
    assert 0.16 < max(after - before for before, after in pairwise(reads.at_s)) < 0.2 + LATE_S


def test_a_stall_during_prefill_delays_the_first_byte() -> None:
    steps = [0.02, *reply("chunked", events())]
    placed = fault("stall", at="prefill", pause_s=0.1)
    with Upstream(steps) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
    assert reads.is_whole
    assert 0.09 < reads.at_s[0] < 0.1 + LATE_S


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_slow_close_delays_the_end_and_nothing_else(framing: Framing) -> None:
    with (
        Upstream(reply(framing, events())) as upstream,
        Relaying(upstream.address, fault("slow-close", delay_s=0.15)) as relaying,
    ):
        reads = asked(relaying)
        assert reads.body == b"".join(events())
        complete_s = next(
            at for n, at in enumerate(reads.at_s) if dechunked(b"".join(reads.data[: n + 1]))[0] == reads.body
        )
        ended_s = reads.at_s[-1] if framing == "chunked" else reads.ended_s
        assert 0.12 < ended_s - complete_s < 0.15 + LATE_S
        assert relaying.tally()["applied"] == 1


def test_two_faults_on_one_reply_act_in_their_places() -> None:
    faults = [fault("latency", delay_s=0.05), fault("stall", at="event:1", pause_s=0.1), fault("cut", at="event:3")]
    with Upstream(reply("chunked", events())) as upstream, Relaying(upstream.address, *faults) as relaying:
        reads = asked(relaying)
        assert (reads.body, reads.ended) == (
            ROLE + b"".join(CONTENTS[:3]) + CONTENTS[3][: (len(CONTENTS[3]) + 1) // 2],
            "fin",
        )
        assert reads.at_s[0] > 0.045
        assert reads.at_s[-1] > 0.145
        assert all(relaying.tally(n)["applied"] for n in range(3))


def test_a_reset_drops_what_waits_to_be_due() -> None:
    faults = [fault("latency", delay_s=5.0), fault("reset", 0.1, at="now")]
    with Upstream(reply("chunked", events())) as upstream, Relaying(upstream.address, faults[0], faults[1]) as relaying:
        reads = asked(relaying)
    assert (reads.raw, reads.ended) == (b"", "reset")
    assert reads.ended_s < 1.0


def test_an_event_that_never_comes_is_no_proof() -> None:
    placed = fault("cut", at="event:99")
    with Upstream(reply("chunked", events())) as upstream, Relaying(upstream.address, placed) as relaying:
        assert asked(relaying).is_whole
        landed = relaying.landed()
    assert landed.proven is False
    assert landed.why == "none of the 1 requests that it hit reached at=event:99"


def test_done_is_an_event_of_its_own() -> None:
    reads, _, _ = seen_with(fault("cut", at="done"), "close")
    assert event("[DONE]") not in reads.body
    assert b'"finish_reason": "stop"' in reads.body
