"""Duplicated and corrupted packets against their definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.experiment import Piece
from contextlab.faults.corrupt import Corrupt
from contextlab.faults.duplicate import Duplicate
from tests.faults.packets import binomial_bounds, fed, is_whole, many, packet, stage_of

NUM = 20_000


@pytest.mark.parametrize("share", [0.01, 0.15, 0.9])
def test_the_realised_shares(share: float) -> None:
    low, high = binomial_bounds(NUM, share)
    doubled, damaged = stage_of(Duplicate(share=share)), stage_of(Corrupt(share=share))
    fed(doubled, many(NUM, packet(b"x")))
    fed(damaged, many(NUM, packet(b"x")))
    assert low <= doubled.tally["duplicated"] <= high
    assert low <= damaged.tally["corrupted"] <= high
    assert doubled.tally["duplicated_bytes"] == len(packet(b"x")) * doubled.tally["duplicated"]


@given(st.binary(max_size=1460), st.integers(0, 1000))
def test_both_copies_are_the_packet(payload: bytes, seed: int) -> None:
    (out,) = fed(stage_of(Duplicate(share=1.0), seed), [Piece(3.0, packet(payload))])
    assert out == [Piece(3.0, packet(payload))] * 2
    assert out[0] is not out[1]  # a later stage moves one without the other


@given(st.binary(max_size=1460), st.integers(0, 1000), st.sampled_from([6, 17]))
def test_one_bit_changes_and_the_checksum_finds_it(payload: bytes, seed: int, protocol: int) -> None:
    whole = packet(payload, protocol=protocol)
    ((out,),) = fed(stage_of(Corrupt(share=1.0), seed), [Piece(0.0, whole)])
    changed = [a ^ b for a, b in zip(whole, out.data, strict=True)]
    assert sum(bits.bit_count() for bits in changed) == 1
    assert not is_whole(out.data)
    place = next(at for at, bits in enumerate(changed) if bits)
    checksum_at = 36 if protocol == 6 else 26
    assert place in (checksum_at, checksum_at + 1) or place >= (40 if protocol == 6 else 28)


def test_every_bit_has_its_turn() -> None:
    whole = packet(b"ab")
    stage = stage_of(Corrupt(share=1.0))
    found = {out.data for (out,) in fed(stage, many(2000, whole))}
    assert len(found) == 8 * (2 + 2)


def test_what_is_neither_tcp_nor_udp_is_left_alone() -> None:
    ping = bytearray(packet(b"x" * 20))
    ping[9] = 1
    stage = stage_of(Corrupt(share=1.0))
    ((out,),) = fed(stage, [Piece(0.0, bytes(ping))])
    assert out.data == bytes(ping)
    assert stage.tally["corrupted"] == 0
