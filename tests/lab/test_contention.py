"""What others use of the machine, from two looks."""

from __future__ import annotations

import pytest

from contextlab.lab.contention import Busy, pressure


def look(at_s: float, stalled_us: int | None) -> Busy:
    return Busy(at_s=at_s, all_s=0.0, ours_s=0.0, stalled_us=stalled_us)


@pytest.mark.parametrize(
    ("stalled_us", "share"),
    [(0, 0.0), (500_000, 0.25), (2_000_000, 1.0), (2_030_000, 1.0)],
)
def test_pressure_is_a_share_of_the_time_also_where_the_kernel_counts_late(stalled_us: int, share: float) -> None:
    assert pressure(look(10.0, 70), look(12.0, 70 + stalled_us)) == pytest.approx(share)


def test_pressure_that_nobody_tells_is_not_none_at_all() -> None:
    assert pressure(look(10.0, None), look(12.0, None)) is None
    assert pressure(look(10.0, 1), look(10.0, 1)) is None
