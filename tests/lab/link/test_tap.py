"""What the target sent is kept by request, so that damage on the way is told from another answer of the target's."""

from __future__ import annotations

from zlib import crc32

from contextlab.experiment import Direction
from contextlab.lab.link import tap as module
from contextlab.lab.link.tap import Tap

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nx-request-id: fault-%d\r\n\r\n{}"


def carried(tap: Tap, index: int, *replies: bytes) -> None:
    """One connection that carries this request, and what came back."""
    kept = tap.connection()
    kept.saw(Direction.UP, HEAD % index)
    for reply in replies:
        kept.saw(Direction.DOWN, reply)


def test_what_was_sent_and_each_beginning_of_it_is_known() -> None:
    tap = Tap()
    carried(tap, 7, b"hello ", b"world")
    for size in (1, 6, 11):
        assert tap.is_as_sent(7, size, crc32(b"hello world"[:size]))
    assert not tap.is_as_sent(7, 11, crc32(b"hello_world"))
    assert not tap.is_as_sent(7, 12, crc32(b"hello world!"))
    assert not tap.is_as_sent(8, 5, crc32(b"hello"))


def test_requests_are_not_mixed_up() -> None:
    tap = Tap()
    carried(tap, 1, b"one")
    carried(tap, 2, b"two")
    assert tap.is_as_sent(2, 3, crc32(b"two"))
    assert not tap.is_as_sent(1, 3, crc32(b"two"))


def test_a_connection_of_two_requests_tells_nothing() -> None:
    tap = Tap()
    kept = tap.connection()
    kept.saw(Direction.UP, HEAD % 1)
    kept.saw(Direction.DOWN, b"one")
    kept.saw(Direction.UP, HEAD % 2)
    kept.saw(Direction.DOWN, b"two")
    assert not tap.is_as_sent(1, 3, crc32(b"one"))
    assert not tap.is_as_sent(2, 3, crc32(b"two"))


def test_a_request_that_came_twice_tells_nothing() -> None:
    tap = Tap()
    carried(tap, 1, b"one")
    carried(tap, 1, b"one")
    assert not tap.is_as_sent(1, 3, crc32(b"one"))


def test_there_is_a_most_that_is_kept() -> None:
    tap = Tap()
    tap.num_bytes = module.MOST_BYTES - 4
    carried(tap, 1, b"more than four")
    assert not tap.is_as_sent(1, 4, crc32(b"more"))
    assert tap.num_bytes <= module.MOST_BYTES
