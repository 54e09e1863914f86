"""What holds for every packet fault, whatever it does."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab import registry
from contextlab.experiment import Direction, Landed, Piece, Placed, Plane, WireFault
from tests.faults.packets import SHAPED, CountingRandom, packet, stage_of

ACTIVE = {
    "corrupt": {"share": 0.3},
    "delay": {"delay_s": 0.05},
    "duplicate": {"share": 0.3},
    "jitter": {"jitter_s": 0.01, "distribution": "normal"},
    "loss": {"rate": 0.3, "burst": 3.0},
    "rate": {"limit_bytes_per_s": 20_000.0, "queue_bytes": 3000},
    "reorder": {"share": 0.3},
}
NULL = {
    "corrupt": {"share": 0.0},
    "delay": {"delay_s": 0.0},
    "duplicate": {"share": 0.0},
    "jitter": {"jitter_s": 0.0},
    "loss": {"rate": 0.0},
    "rate": {"limit_bytes_per_s": 0.0},
    "reorder": {"share": 0.0},
}
DRAWS = {"corrupt": 2, "delay": 0, "duplicate": 1, "jitter": 1, "loss": 1, "rate": 0, "reorder": 1}
MADE = st.builds(
    Piece,
    st.floats(0, 100),
    st.binary(max_size=200).map(packet),
)
every = pytest.mark.parametrize("name", SHAPED)


def active(name: str) -> WireFault:
    return registry.wire_fault(Placed(name=name, start_s=0.0, length_s=1.0, options=ACTIVE[name]))  # type: ignore[arg-type]


def null(name: str) -> WireFault:
    return registry.wire_fault(Placed(name=name, start_s=0.0, length_s=1.0, options=NULL[name]))


def test_these_are_all_packet_faults() -> None:
    assert {name for name, fault in registry.faults().items() if fault.PLANE is Plane.PACKET} == set(SHAPED)


@every
def test_its_name_and_what_contradicts_it(name: str) -> None:
    fault = active(name)
    assert name == fault.NAME
    assert name in fault.EXCLUDES
    assert not fault.by_event
    assert fault.hits(Random(0))
    assert registry.faults()[name]().is_null is False  # its defaults do something


@every
@pytest.mark.parametrize(
    ("direction", "up", "down"), [("both", True, True), ("up", True, False), ("down", False, True)]
)
def test_direction(name: str, direction: str, up: bool, down: bool) -> None:
    fault = registry.wire_fault(Placed(name=name, start_s=0.0, length_s=1.0, options={"direction": direction}))
    assert (fault.touches(Direction.UP), fault.touches(Direction.DOWN)) == (up, down)


@every
@given(pieces=st.lists(MADE, max_size=20))
@settings(max_examples=10)
def test_where_nothing_is_asked_nothing_changes(name: str, pieces: list[Piece]) -> None:
    fault = null(name)
    stage = stage_of(fault)
    for piece in pieces:
        before = Piece(piece.at_s, piece.data)
        assert list(stage.feed(piece)) == [before]
    assert fault.is_null
    assert fault.landed(stage.tally, {}).proven is None


@every
@given(pieces=st.lists(MADE, max_size=20), seed=st.integers(0, 10))
@settings(max_examples=10)
def test_never_earlier_and_all_counted(name: str, pieces: list[Piece], seed: int) -> None:
    pieces.sort(key=lambda piece: piece.at_s)
    stage = stage_of(active(name), seed)
    num_bytes = sum(len(piece.data) for piece in pieces)
    num_out = 0
    for piece in pieces:
        arrived_s, size = piece.at_s, len(piece.data)
        out = list(stage.feed(piece))
        num_out += len(out)
        assert all(one.at_s >= arrived_s and len(one.data) == size for one in out)
    tally = stage.tally
    assert (tally["seen"], tally["seen_bytes"]) == (len(pieces), num_bytes)
    assert num_out == tally["seen"] - tally.get("dropped", 0) + tally.get("duplicated", 0)


@every
@given(first=st.lists(MADE, min_size=1, max_size=12), second=st.lists(MADE, min_size=1, max_size=12))
@settings(max_examples=10)
def test_the_number_of_draws_depends_on_the_number_of_packets_alone(
    name: str, first: list[Piece], second: list[Piece]
) -> None:
    for seed, pieces in enumerate((first, second)):
        rng = CountingRandom(seed)
        stage = active(name).stage(rng, Direction.UP)
        at_first = rng.draws
        for piece in pieces:
            list(stage.feed(piece))
        assert rng.draws - at_first == len(pieces) * DRAWS[name]


@pytest.mark.parametrize("name", ["loss", "duplicate", "corrupt", "reorder"])
def test_equal_seeds_decide_alike_whatever_the_packets_hold(name: str) -> None:
    def decisions(data: bytes, seed: int) -> list[bool]:
        stage, found = stage_of(active(name), seed), []
        for number in range(200):
            out = list(stage.feed(Piece(number / 10, data)))
            found.append(len(out) == 1 and out[0] == Piece(number / 10, data))
        return found

    assert decisions(packet(b"a"), 5) == decisions(packet(b"b" * 900), 5)
    assert decisions(packet(b"a"), 5) != decisions(packet(b"a"), 6)
    assert {True, False} == set(decisions(packet(b"a"), 5))


@every
def test_nothing_passed_is_not_proven(name: str) -> None:
    assert active(name).landed({}, {}) == Landed(proven=False, why="no packet passed while it acted")
    assert active(name).landed(stage_of(active(name)).tally, {"retransmitted_segments": 9.0}).proven is False


@every
def test_what_stands_for_it_on_a_relay_only_delays(name: str) -> None:
    emulated = active(name).emulated(Random(1), Direction.DOWN)  # type: ignore[attr-defined]
    if name in ("corrupt", "duplicate", "reorder"):
        assert emulated is None
        return
    for number in range(300):
        data = b"x" * number
        (out,) = emulated.feed(Piece(number * 0.001, data))
        assert out.data == data
        assert out.at_s >= number * 0.001
    assert emulated.tally["delay_s"] > 0
    assert active(name).landed(emulated.tally, {}).proven


@pytest.mark.parametrize(
    ("name", "tally", "kernel", "proven"),
    [
        ("loss", {"dropped": 3}, {"retransmitted_segments": 2}, True),
        ("loss", {"dropped": 3}, {"retransmitted_segments": 0}, False),
        ("loss", {"dropped": 0}, {"retransmitted_segments": 2}, False),
        ("loss", {"dropped": 3}, {}, False),
        ("duplicate", {"duplicated": 3}, {"duplicate_segments": 1}, True),
        ("duplicate", {"duplicated": 3}, {}, False),
        ("duplicate", {}, {"duplicate_segments": 1}, True),  # netem does not tell, the kernel does
        ("corrupt", {"corrupted": 3}, {"checksum_errors": 1}, True),
        ("corrupt", {"corrupted": 0}, {"checksum_errors": 1}, False),
        ("reorder", {"overtaken": 3}, {"out_of_order_segments": 1}, True),
        ("reorder", {"overtaken": 0, "delayed": 5}, {"out_of_order_segments": 0}, False),
        ("delay", {"delayed": 3, "delay_s": 0.15, "max_delay_s": 0.05}, {}, True),
        ("delay", {"delayed": 0, "delay_s": 0.0, "max_delay_s": 0.0}, {}, False),
        ("delay", {"delayed": 10}, {}, True),
        ("delay", {}, {}, False),
        ("jitter", {"delayed": 10, "delay_s": 0.15, "max_delay_s": 0.05}, {}, True),
        ("jitter", {"delayed": 1, "delay_s": 0.5, "max_delay_s": 0.05}, {}, False),
        ("rate", {"delayed": 3, "dropped": 0, "delay_s": 1.0, "max_delay_s": 0.5}, {}, True),
        ("rate", {"delayed": 0, "dropped": 4}, {}, True),
        ("rate", {"delayed": 0, "dropped": 0}, {}, False),
    ],
)
def test_proofs(name: str, tally: dict[str, float], kernel: dict[str, float], proven: bool) -> None:
    landed = active(name).landed({"seen": 10, "seen_bytes": 1000, **tally}, kernel)
    assert landed.proven is proven
    assert landed.why.startswith("10 packets passed")
