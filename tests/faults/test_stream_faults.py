"""What holds for every stream fault: its options, whom it hits, what it does to pieces, when it has landed. Pure."""

from __future__ import annotations

import statistics
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab import registry
from contextlab.analysis.loads import rng_of
from contextlab.experiment import Close, Direction, Mark, Piece, Plane, WireFault
from contextlab.faults.streams import Sketch, add_tally
from contextlab.model import UsageError

STREAM = {name: fault for name, fault in registry.faults().items() if fault.PLANE is Plane.STREAM}
NAMES = (
    *("bandwidth", "blackhole", "corrupt-event", "cut", "drop-event", "duplicate-event", "latency", "limit-data"),
    *("reset", "slice", "slow-close", "stall"),
)
CHANGES = {"corrupt-event", "drop-event", "duplicate-event"}
ENDS = {"cut", "reset", "blackhole", "limit-data"}


def made(name: str, **options: Any) -> Any:
    """A fault by name."""
    return STREAM[name](**options)


def test_these_are_the_stream_faults() -> None:
    assert sorted(STREAM) == sorted(NAMES)
    assert all(other in registry.faults() for fault in STREAM.values() for other in fault.EXCLUDES)
    assert all(
        name in STREAM[other].EXCLUDES for name, fault in STREAM.items() for other in fault.EXCLUDES if other in STREAM
    ), "who contradicts is contradicted"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bandwidth:limit=0", "use stall, for good use blackhole"),
        ("cut:at=event", "at='event'"),
        ("cut:at=event:x", "first-token"),
        ("reset:at=now:3", "at='now:3'"),
        ("stall:at=later", "at='later'"),
        ("drop-event:at=now", "first-token, event:K or done"),
        ("corrupt-event:at=done", "no words to damage"),
        ("corrupt-event:what=mood", "text, json, utf8"),
        ("cut:share=120%", "share"),
        ("slice:size=0", "size"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        registry.parse_fault(text, start_s=0.0, length_s=1.0)
    assert words in f"{refused.value.message} {refused.value.next_step}"


@pytest.mark.parametrize("name", NAMES)
def test_a_share_of_requests_is_hit_and_the_seed_says_which(name: str) -> None:
    fault = made(name, share=0.3)
    hit = [index for index in range(2000) if fault.hits(rng_of(1, 0, index, "hits"))]
    assert 500 < len(hit) < 700
    assert hit == [index for index in range(2000) if made(name, share=0.3).hits(rng_of(1, 0, index, "hits"))]
    assert hit != [index for index in range(2000) if fault.hits(rng_of(2, 0, index, "hits"))]
    assert all(made(name).hits(Random(n)) for n in range(20))
    assert not any(made(name, share=0.0).hits(Random(n)) for n in range(20))


@pytest.mark.parametrize("name", NAMES)
def test_when_it_has_landed(name: str) -> None:
    fault: WireFault = made(name)

    def landed(**tally: float) -> tuple[bool | None, str]:
        found = fault.landed(tally, {})
        return found.proven, found.why

    assert landed() == (False, "no request was under way while it acted")
    assert landed(requests_seen=9) == (False, "its share hit none of 9 requests")
    proven, why = landed(requests_seen=9, requests_hit=2)
    assert (proven, why.startswith("none of the 2 requests that it hit")) == (False, True)
    proven, why = landed(requests_seen=9, requests_hit=2, applied=2)
    assert (proven, "2 of 9" in why) == (True, True)
    assert made(name, share=0.0).landed({}, {}).proven is None
    assert made(name, share=0.0).is_null
    assert not fault.is_null


@pytest.mark.parametrize(
    ("name", "options"), [("latency", {"delay_s": 0.0}), ("stall", {"pause_s": 0.0}), ("slow-close", {"delay_s": 0.0})]
)
def test_what_asks_for_nothing_says_so(name: str, options: dict[str, float]) -> None:
    fault = made(name, **options)
    assert fault.is_null
    assert fault.landed({}, {}).proven is None


@pytest.mark.parametrize("name", ["latency", "bandwidth", "slice"])
def test_directions(name: str) -> None:
    both = [Direction.UP, Direction.DOWN]
    assert [way for way in both if made(name).touches(way)] == [Direction.DOWN]
    assert [way for way in both if made(name, direction="both").touches(way)] == both
    assert [way for way in both if made(name, direction="up").touches(way)] == [Direction.UP]


PIECES = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=40), st.booleans()), max_size=20)


def reply_of(steps: list[tuple[float, bytes, bool]]) -> list[Piece]:
    """A reply as the relay would feed it: pokes, a head, events with and without words, the end."""
    at_s, number = 100.0, 0
    pieces = [Piece(at_s), Piece(at_s, mark=Mark.HEAD), Piece(at_s, b"HTTP/1.1 200 OK\r\n\r\n", Mark.HEAD)]
    for pause_s, data, has_words in steps:
        at_s += pause_s
        block = b'data: {"choices": [{"text": "' + data.hex().encode() + b'"}]}\n\n'
        mark = Mark.EVENT if number or not has_words else Mark.FIRST_TOKEN
        pieces.append(Piece(at_s, block, mark, number if has_words else None))
        number += has_words
    done = Piece(at_s, b"data: [DONE]\n\n", Mark.DONE)
    return [*pieces, done, Piece(at_s, b"0\r\n\r\n", Mark.TAIL), Piece(at_s, close=Close.FIN)]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(PIECES, st.integers(0, 9))
def test_pieces_are_never_early_and_bytes_keep_their_order(
    name: str, steps: list[tuple[float, bytes, bool]], seed: int
) -> None:
    def through() -> tuple[list[Piece], dict[str, float]]:
        stage = made(name).stage(Random(seed), Direction.DOWN)
        found = []
        for piece in reply_of(steps):
            arrived_s = piece.at_s
            pieces = list(stage.feed(piece))
            assert all(one.at_s >= arrived_s for one in pieces)
            found += pieces
        return found, stage.tally

    out, tally = through()
    assert (out, tally) == through()
    sent, came = b"".join(piece.data for piece in reply_of(steps)), b"".join(piece.data for piece in out)
    if name in ENDS:
        assert sent.startswith(came)
        assert len(sent) - len(came) == tally["swallowed_bytes"]
    elif name not in CHANGES:
        assert came == sent
    assert sum(piece.close is not None for piece in out) == (name != "blackhole" or not tally["applied"])
    assert tally["applied"] >= 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_sketch_is_exact_while_numbers_are_few(numbers: list[float], share: float) -> None:
    one, other, both = Sketch(), Sketch(), Sketch()
    for number in numbers[::2]:
        one.add(number)
    for number in numbers[1::2]:
        other.add(number)
    both.merge(one)
    both.merge(other)
    found = both.quantile(share)
    assert found is not None
    assert sum(number <= found for number in numbers) >= share * len(numbers) - 1e-6
    assert sum(number < found for number in numbers) <= share * len(numbers) + 1e-6


def test_a_sketch_of_many_numbers_is_small_and_close() -> None:
    rng, sketch = Random(3), Sketch(limit=512)
    numbers = [rng.gauss(0.0, 1.0) for _ in range(100_000)]
    for number in numbers:
        sketch.add(number)
    expected = statistics.quantiles(numbers, n=100)
    for percent in (1, 50, 90, 99):
        found = sketch.quantile(percent / 100)
        assert found is not None
        rank = sum(number <= found for number in numbers) / len(numbers)
        assert rank == pytest.approx(percent / 100, abs=0.02), expected[percent - 1]
    assert Sketch().quantile(0.5) is None


def test_tallies_add_up() -> None:
    total: dict[str, float] = {}
    add_tally(total, {"applied": 2, "min_delay_s": 0.3, "max_delay_s": 0.4})
    add_tally(total, {"applied": 1, "min_delay_s": 0.1, "max_delay_s": 0.2, "bytes": 5})
    assert total == {"applied": 3, "min_delay_s": 0.1, "max_delay_s": 0.4, "bytes": 5}
