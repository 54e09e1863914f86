"""Delay, jitter, reordering and rate against their definition."""

from itertools import accumulate, pairwise
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.experiment import Piece
from contextlab.faults.delay import Delay
from contextlab.faults.jitter import Jitter
from contextlab.faults.rate import Rate
from contextlab.faults.reorder import Reorder
from tests.faults.packets import binomial_bounds, fed, furthest_share, many, packet, stage_of

NUM = 20_000


def delays(fault: Delay | Jitter, num: int = NUM) -> list[float]:
    """The delays of so many packets, all of which arrive at 0."""
    return [out.at_s for (out,) in fed(stage_of(fault), many(num, gap_s=0.0))]


@given(st.floats(0, 60), st.lists(st.floats(0, 1000), max_size=20))
def test_every_packet_is_late_by_the_same_time(delay_s: float, times: list[float]) -> None:
    stage = stage_of(Delay(delay_s=delay_s))
    out = fed(stage, [Piece(at_s, b"x") for at_s in times])
    assert [one.at_s for (one,) in out] == [at_s + delay_s for at_s in times]
    assert stage.tally["delay_s"] == pytest.approx(delay_s * len(times))
    assert stage.tally["max_delay_s"] == (delay_s if times else 0)


def test_uniform_jitter_is_uniform() -> None:
    found = sorted(delays(Jitter(jitter_s=0.02, delay_s=0.1)))
    reach = furthest_share(NUM)
    assert found[0] >= 0.08
    assert found[-1] <= 0.12
    for place, delay_s in enumerate(found, start=1):
        assert abs(place / NUM - (delay_s - 0.08) / 0.04) <= reach + 1 / NUM


def test_normal_jitter_is_normal_with_its_negative_part_at_zero() -> None:
    found = sorted(delays(Jitter(jitter_s=0.05, delay_s=0.1, distribution="normal")))
    truth, reach = NormalDist(0.1, 0.05), furthest_share(NUM)
    num_zero = found.count(0.0)
    low, high = binomial_bounds(NUM, truth.cdf(0.0))
    assert low <= num_zero <= high
    for place, delay_s in enumerate(found[num_zero:], start=num_zero + 1):
        assert abs(place / NUM - truth.cdf(delay_s)) <= reach + 1 / NUM


@pytest.mark.parametrize(("distribution", "mean_s"), [("uniform", 0.03), ("normal", 0.09)])
def test_without_a_mean_nothing_is_cut_off(distribution: str, mean_s: float) -> None:
    fault = Jitter(jitter_s=0.03, distribution=distribution)
    found = delays(fault)
    assert fault.mean_s == pytest.approx(mean_s)
    assert sum(found) / NUM == pytest.approx(mean_s, rel=0.02)
    assert found.count(0.0) < 0.003 * NUM


def test_jitter_lets_packets_overtake_each_other() -> None:
    due = [out.at_s for (out,) in fed(stage_of(Jitter(jitter_s=0.02)), many(1000, gap_s=0.001))]
    assert sum(later < earlier for earlier, later in pairwise(due)) > 300


@given(
    share=st.floats(0, 1),
    hold_s=st.floats(0.001, 1),
    arrivals=st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 3)), max_size=60),
    seed=st.integers(0, 100),
)
def test_overtaken_packets_are_counted_as_a_list_would(
    share: float, hold_s: float, arrivals: list[tuple[float, int]], seed: int
) -> None:
    stage = stage_of(Reorder(share=share, hold_s=hold_s), seed)
    times = list(accumulate(gap_s for gap_s, _ in arrivals))
    sent = [(at_s, port) for at_s, (_, port) in zip(times, arrivals, strict=True)]
    out = fed(stage, [Piece(at_s, packet(ports=(port, 8000))) for at_s, port in sent])
    due = [one.at_s for (one,) in out]
    overtaken = 0
    for number, (at_s, port) in enumerate(sent):
        if due[number] == at_s:
            continue
        assert due[number] == at_s + hold_s
        # by the first packet of its connection that is not held itself
        passer = next((n for n in range(number + 1, len(sent)) if sent[n][1] == port and due[n] == sent[n][0]), None)
        overtaken += passer is not None and due[passer] < due[number]
    assert stage.tally["overtaken"] == overtaken


def test_the_share_that_is_held_back() -> None:
    stage = stage_of(Reorder(share=0.1, hold_s=0.0025))
    fed(stage, many(NUM, packet()))
    low, high = binomial_bounds(NUM, 0.1)
    assert low <= stage.tally["delayed"] <= high
    low, high = binomial_bounds(NUM, 0.1 * (1 - 0.1**2))  # unless both packets inside the hold are held too
    assert low <= stage.tally["overtaken"] <= high


SIZES = st.lists(st.tuples(st.floats(0, 0.05), st.integers(20, 1500)), min_size=1, max_size=80)


@given(sizes=SIZES, limit=st.floats(1e3, 1e7), queue_bytes=st.integers(1500, 20_000))
def test_a_link_of_a_rate_is_a_queue_of_its_own(sizes: list[tuple[float, int]], limit: float, queue_bytes: int) -> None:
    """Against a queue in bytes: what waits, and what is on the link, at the moment of each arrival."""
    stage = stage_of(Rate(limit_bytes_per_s=limit, queue_bytes=queue_bytes))
    at_s, waiting_bytes, dropped, last_due_s = 0.0, 0.0, 0, 0.0
    for gap_s, size in sizes:
        at_s += gap_s
        waiting_bytes = max(0.0, waiting_bytes - gap_s * limit)
        out = list(stage.feed(Piece(at_s, b"x" * size)))
        if abs(waiting_bytes + size - queue_bytes) < 1e-3:
            return  # on the edge the two may round differently
        if waiting_bytes + size > queue_bytes:
            assert out == []
            dropped += 1
            continue
        waiting_bytes += size
        assert out[0].at_s == pytest.approx(at_s + waiting_bytes / limit, abs=1e-6)
        assert out[0].at_s >= last_due_s  # in order
        last_due_s = out[0].at_s
    assert stage.tally["dropped"] == dropped


@given(sizes=SIZES, limit=st.floats(1e3, 1e7))
def test_no_interval_carries_more_than_the_rate(sizes: list[tuple[float, int]], limit: float) -> None:
    stage = stage_of(Rate(limit_bytes_per_s=limit, queue_bytes=10_000))
    at_s, carried = 0.0, []
    for gap_s, size in sizes:
        at_s += gap_s
        carried += [(out.at_s, size) for out in stage.feed(Piece(at_s, b"x" * size))]
    for first in range(len(carried)):
        total = 0
        for due_s, size in carried[first + 1 :]:
            total += size
            assert total <= limit * (due_s - carried[first][0]) * (1 + 1e-9) + 1e-3


def test_a_full_queue_drops_the_last_and_the_link_stays_busy() -> None:
    stage = stage_of(Rate(limit_bytes_per_s=10_000.0, queue_bytes=3000))
    out = fed(stage, many(50, b"x" * 1000, gap_s=0.0))
    assert [len(one) for one in out] == [1, 1, 1] + [0] * 47
    assert [one[0].at_s for one in out[:3]] == pytest.approx([0.1, 0.2, 0.3])
    (late,) = stage.feed(Piece(10.0, b"x" * 1000))
    assert late.at_s == pytest.approx(10.1)
    assert stage.tally["dropped_bytes"] == 47_000
