"""Faults that change when bytes come, each measured by its client at a bare socket."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from contextlab.analysis.loads import rng_of
from tests.lab.link.relaying import Client, Reads, Relaying, asked, fault, until
from tests.lab.link.upstream import Step, Upstream, content, events, head, reply

pytestmark = pytest.mark.process
PAUSE_S = 0.02
LATE_S = 1.0
"""What a busy machine may add."""
BODY = b"".join(events())


def gaps(reads: Reads) -> list[float]:
    """Seconds between reads."""
    return [after - before for before, after in pairwise(reads.at_s)]


def test_latency_is_added_once_to_each_read_and_does_not_add_up() -> None:
    with Upstream(reply("chunked", events(), PAUSE_S)) as upstream:
        with Relaying(upstream.address) as relaying:
            plain = asked(relaying)
        with Relaying(upstream.address, fault("latency", delay_s=0.1)) as relaying:
            late = asked(relaying)
            tally, num_reads = relaying.tally(), relaying.counters()["down_reads"]
    assert late.raw == plain.raw
    assert len(late.data) >= len(plain.data) // 2, "reads were merged"
    assert late.at_s[0] >= 0.1
    assert 0.05 < late.at_s[-1] - plain.at_s[-1] < 0.5, "it adds up"
    assert tally["applied"] == num_reads
    assert tally["min_delay_s"] == tally["max_delay_s"] == tally["achieved_p50_s"] == pytest.approx(0.1)
    assert tally["delay_s"] == pytest.approx(0.1 * tally["applied"])


def test_latency_acts_the_way_that_was_asked_for() -> None:
    steps: list[Step] = [head("close"), content("a"), "fin"]
    for direction, times in (("up", 1), ("down", 1), ("both", 2)):
        placed = fault("latency", delay_s=0.04, direction=direction)
        with Upstream(steps) as upstream, Relaying(upstream.address, placed) as relaying:
            assert times * 0.04 <= asked(relaying).ended_s
            counters = relaying.counters()
            late_bytes = sum(counters[f"{way}_bytes"] for way in ("up", "down") if direction in (way, "both"))
            assert relaying.tally()["bytes"] == late_bytes


def test_jitter_keeps_the_order_and_says_what_it_achieved() -> None:
    placed = fault("latency", delay_s=0.04, jitter_s=0.04)
    with Upstream(reply("close", events(), 0.005)) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
        tally = relaying.tally()
    assert reads.body == BODY
    assert 0 <= tally["min_delay_s"] < tally["achieved_p50_s"] <= tally["achieved_p99_s"] <= tally["max_delay_s"] + 1e-9
    assert tally["max_delay_s"] <= 0.08
    assert tally["delay_s"] / tally["applied"] > 0.04, "waiting for those ahead only makes it longer"


def test_equal_seeds_delay_equally_and_others_do_not() -> None:
    def delays(seed: int, index: int) -> float:
        placed = fault("latency", delay_s=0.02, jitter_s=0.02)
        steps = reply("length", [b"hello"])
        with Upstream(steps) as upstream, Relaying(upstream.address, placed, seed=seed) as relaying:
            asked(relaying, index)
            return round(relaying.tally()["max_delay_s"], 6)

    assert delays(1, 5) == delays(1, 5)
    assert delays(1, 5) != delays(2, 5)
    assert delays(1, 5) != delays(1, 6)


def test_late_bytes_are_sent_soon_after_they_are_due() -> None:
    placed = fault("latency", delay_s=0.0237)
    with Upstream(reply("chunked", events(), 0.003)) as upstream, Relaying(upstream.address, placed) as relaying:
        asked(relaying)
        counters = relaying.counters()
    assert counters["released_pieces"] >= len(events())
    assert counters["late_s"] / counters["released_pieces"] < 0.02


def test_bandwidth_passes_so_many_bytes_a_second_smoothly() -> None:
    body = bytes(4000)
    placed = fault("bandwidth", limit_bytes_per_s=20_000.0)
    with Upstream(reply("length", [body])) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
        tally = relaying.tally()
    size_bytes = len(reads.raw)
    assert reads.body == body
    assert size_bytes / 20_000 <= reads.at_s[-1] < size_bytes / 20_000 + LATE_S
    assert len(reads.data) >= 5, "it came in lumps"
    assert tally["bytes"] == size_bytes
    assert tally["applied"] >= 1


def test_bandwidth_of_requests() -> None:
    placed = fault("bandwidth", limit_bytes_per_s=20_000.0, direction="up")
    with (
        Upstream(reply("length", [b"hello"])) as upstream,
        Relaying(upstream.address, placed) as relaying,
        Client(relaying.address) as client,
    ):
        client.ask(body=bytes(2000))
        reads = client.read(lambda reads: reads.raw.endswith(b"hello"))
        assert reads.at_s[-1] > 0.1
        assert upstream.seen[0].requests[0].endswith(bytes(2000))


@pytest.mark.parametrize(("size_bytes", "pause_s"), [(1, 0.001), (7, 0.01), (64, 0.1)], ids=["1", "7", "64"])
def test_slices_have_their_size_and_lose_nothing(size_bytes: int, pause_s: float) -> None:
    sent = head("close") + content("Zwölf Boxer über den Deich")
    placed = fault("slice", size_bytes=size_bytes, pause_s=pause_s)
    with Upstream([sent, "fin"]) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
        tally = relaying.tally()
    assert reads.raw == sent
    assert all(len(data) % size_bytes == 0 for data in reads.data[:-1]), "a slice was cut"
    alone = sum(len(data) <= size_bytes for data in reads.data)
    assert alone > 0.2 * len(sent) / size_bytes, "slices came together"
    assert tally["slices"] == -(-len(sent) // size_bytes)
    assert tally["applied"] == 1


def test_slices_are_a_pause_apart() -> None:
    sent = head("close") + content("a")
    placed = fault("slice", size_bytes=32, pause_s=0.02)
    with Upstream([sent, "fin"]) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
    assert sorted(gaps(reads))[len(gaps(reads)) // 2] == pytest.approx(0.02, abs=0.015)


def test_slices_cut_requests_too() -> None:
    placed = fault("slice", size_bytes=5, pause_s=0.0, direction="both")
    with Upstream(reply("chunked", events())) as upstream, Relaying(upstream.address, placed) as relaying:
        reads = asked(relaying)
        assert reads.body == BODY
        assert reads.is_whole
        assert upstream.seen[0].requests[0].endswith(b'{"prompt": "x"}')


def test_a_window_bounds_what_is_delayed_and_order_is_kept_at_its_end() -> None:
    placed = fault("latency", 0.0, 0.1, delay_s=0.15)
    with Upstream(reply("chunked", events(), 0.02)) as upstream, Relaying(upstream.address, placed) as relaying:
        time.sleep(max(0.0, relaying.zero_s + 0.02 - time.monotonic()))
        reads = asked(relaying)
        tally = relaying.tally()
    assert reads.body == BODY
    assert reads.is_whole
    assert 1 <= tally["applied"] < len(events())


def test_every_request_of_a_kept_connection_has_stages_of_its_own() -> None:
    placed = fault("stall", at="prefill", pause_s=0.12, share=0.5)
    with (
        Upstream(reply("length", [b"hello"])) as upstream,
        Relaying(upstream.address, placed, seed=3) as relaying,
        Client(relaying.address) as client,
    ):
        slow = set()
        for index in range(8):
            client.ask(index)
            reads = client.read(lambda reads: reads.raw.endswith(b"hello"))
            if reads.at_s[0] > 0.11:
                slow.add(index)
        until(lambda: relaying.tally()["requests_seen"] == 8)
        fault_ = relaying.armed[0].fault
        tally = relaying.tally()
        assert len(upstream.seen) == 1
    assert slow == {index for index in range(8) if fault_.hits(rng_of(3, 0, index, "hits"))}
    assert 0 < len(slow) < 8
    assert tally["requests_hit"] == tally["applied"] == len(slow)
