"""Chains of stages: windows, order, and tallies as one."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.experiment import Piece
from contextlab.faults.delay import Delay
from contextlab.faults.duplicate import Duplicate
from contextlab.faults.loss import Loss
from contextlab.faults.rate import Rate
from contextlab.lab.link.chain import Chain, total
from tests.faults.packets import fed, stage_of


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.floats(0, 1)), max_size=5), st.floats(0, 20))
def test_a_stage_acts_inside_its_window_and_delays_add(
    windows: list[tuple[float, float, float]], arrived_s: float
) -> None:
    chain = Chain([(start, start + length, stage_of(Delay(delay_s=delay_s))) for start, length, delay_s in windows])
    acting = [delay_s for start, length, delay_s in windows if start <= arrived_s < start + length]
    (out,) = chain.feed(Piece(arrived_s, b"x"), arrived_s)
    assert out.at_s == pytest.approx(arrived_s + sum(acting))
    assert not acting or chain.acts(arrived_s)
    assert chain.acts(arrived_s) or out == Piece(arrived_s, b"x")


def test_windows_go_by_arrival_not_by_when_a_piece_is_due() -> None:
    late = stage_of(Delay(delay_s=2.0))
    lost = stage_of(Loss(rate=1.0))
    chain = Chain([(0.0, 1.0, late), (2.0, 3.0, lost)])
    assert chain.feed(Piece(0.5, b"x"), 0.5) == [Piece(2.5, b"x")]
    assert chain.feed(Piece(2.5, b"x"), 2.5) == []


def test_an_empty_chain() -> None:
    chain = Chain()
    assert (chain.begins_s, chain.ends_s) == (inf, -inf)
    assert not chain.acts(0.0)
    assert chain.feed(Piece(1.0, b"x"), 1.0) == [Piece(1.0, b"x")]


def test_what_one_stage_drops_the_next_does_not_see_and_what_it_doubles_it_sees_twice() -> None:
    windows = (0.0, 10.0)
    after_loss, after_doubling = stage_of(Delay(delay_s=1.0)), stage_of(Rate(limit_bytes_per_s=1000.0))
    assert Chain([(*windows, stage_of(Loss(rate=1.0))), (*windows, after_loss)]).feed(Piece(0.0, b"x"), 0.0) == []
    assert after_loss.tally["seen"] == 0
    chain = Chain([(*windows, stage_of(Duplicate(share=1.0))), (*windows, after_doubling)])
    out = chain.feed(Piece(0.0, b"x" * 100), 0.0)
    assert [one.at_s for one in out] == pytest.approx([0.1, 0.2])


def test_tallies_add_up_and_maxima_stay_maxima() -> None:
    stages = [stage_of(Delay(delay_s=delay_s)) for delay_s in (1.0, 3.0)]
    for stage in stages:
        fed(stage, [Piece(0.0, b"xy"), Piece(1.0, b"z")])
    found = total(stage.tally for stage in stages)
    assert found == {"seen": 4, "seen_bytes": 6, "delayed": 4, "delay_s": 8.0, "max_delay_s": 3.0}
    assert total([]) == {}
