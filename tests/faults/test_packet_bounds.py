"""The bounds that the statistical tests use, against exact probabilities."""

import math

import pytest

from tests.faults.packets import binomial_bounds, checksum, furthest_share, is_whole, packet


def tail(num: int, share: float, low: float, high: float) -> float:
    """P(count < low or count > high) of Binomial(num, share), exactly."""
    return sum(
        math.comb(num, count) * share**count * (1 - share) ** (num - count)
        for count in range(num + 1)
        if not low <= count <= high
    )


@pytest.mark.parametrize("share", [0.01, 0.15, 0.5, 0.9])
@pytest.mark.parametrize("false_alarm", [0.5, 1e-3, 1e-9])
def test_chance_leaves_the_bounds_as_seldom_as_they_say(share: float, false_alarm: float) -> None:
    low, high = binomial_bounds(400, share, false_alarm)
    assert low <= 400 * share <= high
    assert tail(400, share, low, high) <= false_alarm
    assert tail(400, share, low + (400 * share - low) / 2, high) > tail(400, share, low, high)


def test_bounds_come_closer_with_more_packets() -> None:
    low, high = binomial_bounds(100_000, 0.15)
    assert 0.141 < low / 100_000 < 0.15 < high / 100_000 < 0.159
    assert furthest_share(100_000) < furthest_share(1_000) < 0.12


def test_packets_made_by_hand_are_whole() -> None:
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0x220D  # the example of RFC 1071
    assert is_whole(packet(b"abc"))
    assert is_whole(packet(b"abcd", protocol=17))
    assert not is_whole(packet(b"abc").replace(b"abc", b"abd"))
