"""What stands in for packet faults on a relay: bytes come late, never lost, and what cannot be shown so is refused."""

from __future__ import annotations

from random import Random

import pytest

from contextlab import registry
from contextlab.experiment import Direction, Piece, Placed, Plane
from contextlab.lab.link.emulation import SEGMENT_BYTES, Emulated
from contextlab.model import UnableError


def emulated(name: str, **options: float | str) -> Emulated:
    """A packet fault in appearance."""
    return Emulated(registry.wire_fault(Placed(name=name, start_s=0.0, length_s=1.0, options=options)))


@pytest.mark.parametrize("name", ["loss", "delay", "jitter", "rate"])
def test_reads_come_late_in_segments_and_whole(name: str) -> None:
    fault = emulated(name)
    assert fault.PLANE is Plane.STREAM
    assert fault.hits(Random(0))
    stage = fault.stage(Random(1), Direction.DOWN)
    data = bytes(range(256)) * 40
    pieces = [out for n in range(50) for out in stage.feed(Piece(float(n), data))]
    assert b"".join(piece.data for piece in pieces) == data * 50
    assert max(len(piece.data) for piece in pieces) == SEGMENT_BYTES
    assert stage.tally["seen"] == len(pieces) == 50 * 8
    assert stage.tally["delay_s"] > 0
    assert fault.landed(stage.tally, {}).proven


def test_a_loss_is_a_stall_as_long_as_a_retransmission_timeout() -> None:
    stage = emulated("loss", rate=0.1).stage(Random(1), Direction.DOWN)
    delays_s = [out.at_s - n for n in range(2000) for out in stage.feed(Piece(float(n), b"x"))]
    stalled = [delay_s for delay_s in delays_s if delay_s]
    assert min(stalled) == pytest.approx(0.2)
    assert 0.07 < len(stalled) / len(delays_s) < 0.13


def test_ends_and_pokes_cost_no_draw() -> None:
    def delays(with_pokes: bool) -> list[float]:
        stage = emulated("loss", rate=0.5).stage(Random(1), Direction.DOWN)
        found = []
        for n in range(50):
            if with_pokes:
                assert list(stage.feed(Piece(float(n)))) == [Piece(float(n))]
            found += [piece.at_s for piece in stage.feed(Piece(float(n), b"x"))]
        return found

    assert delays(with_pokes=True) == delays(with_pokes=False)


@pytest.mark.parametrize("name", ["corrupt", "duplicate", "reorder"])
def test_what_a_relay_cannot_show_is_refused(name: str) -> None:
    with pytest.raises(UnableError, match=f"cannot {name} packets"):
        emulated(name)


def test_directions_are_kept() -> None:
    fault = emulated("loss", direction="up")
    assert fault.touches(Direction.UP)
    assert not fault.touches(Direction.DOWN)
