"""Loss against its definition: the share, the length of bursts, and what stands for it on a relay."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.experiment import Direction, Piece
from contextlab.faults.loss import FIRST_TIMEOUT_S, LONGEST_TIMEOUT_S, Loss
from tests.faults.packets import binomial_bounds, fed, many, stage_of

NUM = 20_000


def lost(fault: Loss, num: int, seed: object = 1) -> list[bool]:
    """Which of so many packets are lost."""
    return [not out for out in fed(stage_of(fault, seed), many(num))]


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.15, 0.5, 0.95])
def test_the_realised_share_is_the_rate(rate: float) -> None:
    low, high = binomial_bounds(NUM, rate)
    assert low <= sum(lost(Loss(rate=rate), NUM)) <= high


@given(rate=st.floats(0.02, 0.9), seed=st.integers(0, 1 << 30))
@settings(max_examples=20)
def test_losses_are_independent_of_each_other(rate: float, seed: int) -> None:
    """After a loss the next packet is lost as often as ever: what a burst of 1 packet would mean is something else."""
    marks = lost(Loss(rate=rate, burst=1.0), 4000, seed)
    after = [then for now, then in pairwise(marks) if now]
    low, high = binomial_bounds(len(after), rate)
    assert low <= sum(after) <= high


@given(rate=st.floats(0.02, 0.5), burst=st.floats(2.5, 20), seed=st.integers(0, 1 << 30))
@settings(max_examples=20)
def test_bursts_are_as_long_as_asked_and_the_share_stays(rate: float, burst: float, seed: int) -> None:
    """Each lost packet ends its burst with probability 1/burst, each other one begins one with p (Gilbert–Elliott)."""
    marks = lost(Loss(rate=rate, burst=burst), 10_000, seed)
    pairs = list(pairwise(marks))
    ends = [not then for now, then in pairs if now]
    begins = [then for now, then in pairs if not now]
    low, high = binomial_bounds(len(ends), 1 / burst) if ends else (0, 0)
    assert low <= sum(ends) <= high
    low, high = binomial_bounds(len(begins), rate / (1 - rate) / burst)
    assert low <= sum(begins) <= high


@pytest.mark.parametrize(("rate", "burst"), [(0.15, 4.0), (0.05, 10.0), (0.5, 3.0)])
def test_share_and_burst_of_a_long_run(rate: float, burst: float) -> None:
    stage = stage_of(Loss(rate=rate, burst=burst))
    fed(stage, many(200_000))
    assert stage.tally["dropped"] / 200_000 == pytest.approx(rate, rel=0.1)
    assert stage.tally["dropped"] / stage.tally["bursts"] == pytest.approx(burst, rel=0.1)
    assert stage.tally["dropped_bytes"] == 100 * stage.tally["dropped"]


def test_independent_losses_have_the_bursts_that_chance_makes() -> None:
    stage = stage_of(Loss(rate=0.5, burst=2.0))  # exactly 1/(1−rate)
    fed(stage, many(NUM))
    num_bursts = stage.tally["bursts"]
    low, high = binomial_bounds(int(stage.tally["dropped"]), 0.5)
    assert low <= num_bursts <= high


@pytest.mark.parametrize("burst", [1.0, 5.0])
def test_the_ends(burst: float) -> None:
    assert all(lost(Loss(rate=1.0, burst=burst), 200))
    assert not any(lost(Loss(rate=0.0, burst=burst), 200))


def test_it_begins_in_its_steady_state() -> None:
    first = [lost(Loss(rate=0.3, burst=50.0), 1, seed)[0] for seed in range(2000)]
    low, high = binomial_bounds(2000, 0.3)
    assert low <= sum(first) <= high


def test_a_relay_stalls_as_long_as_tcp_waits() -> None:
    stage = Loss(rate=0.5).emulated(Random(1), Direction.DOWN)
    delays = [next(iter(stage.feed(Piece(0.0, b"x")))).at_s for _ in range(500)]
    expected, timeout_s = [], FIRST_TIMEOUT_S
    for delay_s in delays:
        expected.append(timeout_s if delay_s else 0.0)
        timeout_s = min(2 * timeout_s, LONGEST_TIMEOUT_S) if delay_s else FIRST_TIMEOUT_S
    assert delays == expected
    low, high = binomial_bounds(500, 0.5)
    assert low <= stage.tally["stalled"] <= high
    assert max(delays) >= 4 * FIRST_TIMEOUT_S
