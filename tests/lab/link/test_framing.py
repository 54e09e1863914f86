"""Replies cut into pieces: the same however the bytes came, and nothing lost where no fault acts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.experiment import Close, Mark, Piece
from contextlab.lab.link.framing import ReplyReader, says_words
from contextlab.lab.link.messages import Requests
from tests.lab.link.relaying import dechunked
from tests.lab.link.upstream import FRAMINGS, WORDS, Framing, chunk, content, event, events, head, reply


def wire(framing: Framing, parts: Sequence[bytes], *, kind: str = "text/event-stream") -> bytes:
    """A reply as it stands on the wire."""
    return b"".join(step for step in reply(framing, parts, kind=kind) if isinstance(step, bytes))


def slices(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The data cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in pairwise(places)]


def cut(parts: Sequence[bytes], *, ends: bool = True, rechunks: bool = False) -> tuple[ReplyReader, list[Piece]]:
    """A reader fed with these reads, one every second, and what came of it; `ends`: with the FIN."""
    reader = ReplyReader(cuts=True, rechunks=rechunks)
    pieces = [piece for at, part in enumerate(parts) for piece in reader.feed(part, float(at))]
    return reader, pieces + (reader.close(float(len(parts))) if ends else [])


def shown(pieces: Sequence[Piece]) -> list[tuple[Mark, int | None, bytes]]:
    """What pieces are, without their times; reads of no particular kind as one."""
    found: list[tuple[Mark, int | None, bytes]] = []
    for piece in pieces:
        if found and found[-1][0] is piece.mark is Mark.BYTES:
            found[-1] = (Mark.BYTES, None, found[-1][2] + piece.data)
        elif piece.data or piece.mark is Mark.TAIL:
            found.append((piece.mark, piece.event, piece.data))
    return found


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_reply_is_cut_into_its_events(framing: Framing) -> None:
    parts = events()
    _, pieces = cut([wire(framing, parts)])
    marks = [piece.mark for piece in pieces if piece.close is None]
    assert marks[:3] == [Mark.HEAD, Mark.EVENT, Mark.FIRST_TOKEN]
    assert marks[-2:] == [Mark.DONE, Mark.TAIL]
    assert [piece.event for piece in pieces if piece.event is not None] == list(range(len(WORDS)))
    assert [piece.data for piece in pieces if piece.mark not in (Mark.HEAD, Mark.TAIL)][: len(parts)] == parts
    assert pieces[-1].close is Close.FIN


EVENTS = st.lists(
    st.one_of(
        st.text(max_size=12).map(content),
        st.sampled_from(
            [event("[DONE]"), b": keep-alive\n\n", b"event: x\ndata: {}\nid: 4\n\n", b"data: a\ndata: b\n\n"]
        ),
        st.sampled_from([b'data: {"choices"\n\n', b"\n\n", b"data:\n\n"]),
    ),
    max_size=8,
)


@settings(max_examples=250, deadline=None)
@given(
    EVENTS,
    st.sampled_from(FRAMINGS),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 5000), max_size=12),
    st.lists(st.integers(0, 5000), max_size=12),
    st.booleans(),
    st.sampled_from([b"", b"data: left", b"\r", b"\n"]),
)
def test_slicing_changes_nothing(
    parts: list[bytes],
    framing: Framing,
    end: bytes,
    inner: list[int],
    outer: list[int],
    rechunks: bool,
    rest: bytes,
) -> None:
    body = b"".join(parts).replace(b"\n", end) + rest
    raw = wire(framing, slices(body, inner))
    _, whole = cut([raw], rechunks=rechunks)
    reader, pieces = cut(slices(raw, outer), rechunks=rechunks)
    assert shown(pieces) == shown(whole)
    sent = b"".join(reader.wire(piece) for piece in pieces)
    passed, complete = dechunked(sent)
    assert passed == body
    assert complete is (framing == "chunked" or (rechunks and framing == "length"))
    if framing == "length" and not rechunks:
        assert sent == raw


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(FRAMINGS), st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 999))
)
def test_other_bodies_pass(framing: Framing, parts: list[bytes], cuts: list[int]) -> None:
    raw = wire(framing, parts, kind="application/json")
    reader, pieces = cut(slices(raw, cuts))
    assert {piece.mark for piece in pieces} <= {Mark.HEAD, Mark.BYTES, Mark.TAIL}
    assert dechunked(b"".join(reader.wire(piece) for piece in pieces))[0] == b"".join(parts)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 400)), st.booleans())
def test_what_is_no_http_passes_untouched(data: bytes, cuts: list[int], chunks: bool) -> None:
    raw = (head("chunked") + data) if chunks else data
    reader, pieces = cut(slices(raw, cuts))
    sent = b"".join(reader.wire(piece) for piece in pieces)
    if not chunks:
        assert sent == raw
    else:  # what was still chunks is chunks again, and nothing is invented
        assert len(sent) >= len(head("chunked"))
        assert sent.startswith(head("chunked"))


def test_a_broken_chunk_is_passed_as_it_is() -> None:
    raw = head("chunked") + chunk(content("a")) + b"no size\r\n" + content("b")
    reader, pieces = cut([raw])
    assert b"".join(reader.wire(piece) for piece in pieces) == raw


def test_an_event_left_without_its_end_is_passed() -> None:
    raw = head("close") + content("a") + b'data: {"choices": [{"del'
    reader, pieces = cut([raw])
    assert b"".join(reader.wire(piece) for piece in pieces) == raw
    assert [piece.event for piece in pieces if piece.event is not None] == [0]


def test_trailers_and_extensions_of_chunks_are_kept() -> None:
    raw = head("chunked") + b"5;name=x\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
    reader, pieces = cut([raw.replace(b"event-stream", b"plain")], ends=False)
    assert reader.ended
    assert pieces[-1].data == b"0\r\nX-Sum: 1\r\n\r\n"


def test_an_interim_reply_is_not_the_reply() -> None:
    reader = ReplyReader(cuts=True)
    assert [piece.mark for piece in reader.feed(b"HTTP/1.1 100 Continue\r\n\r\n", 0.0)] == [Mark.HEAD]
    assert not reader.begun
    assert [piece.mark for piece in reader.feed(head("length", 0), 0.0)] == [Mark.HEAD, Mark.TAIL]
    assert reader.begun
    assert reader.ended


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_replies_without_a_body(status: bytes) -> None:
    reader, _ = cut([b"HTTP/1.1 " + status + b"\r\nContent-Length: 10\r\n\r\n"], ends=False)
    assert reader.ended


def test_the_reply_to_a_head_request_has_no_body() -> None:
    reader = ReplyReader(cuts=True, is_bodiless=True)
    reader.feed(head("length", 10), 0.0)
    assert reader.ended


def test_an_encoded_stream_is_not_cut() -> None:
    raw = head("close").replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + content("a")
    _, pieces = cut([raw])
    assert {piece.mark for piece in pieces} == {Mark.HEAD, Mark.BYTES, Mark.TAIL}


def test_a_reply_that_is_only_watched_passes_as_read_and_its_end_is_found() -> None:
    raw = wire("chunked", events())
    parts = slices(raw, range(0, len(raw), 50))
    reader = ReplyReader(cuts=False)
    passed = [reader.wire(piece) for part in parts for piece in reader.feed(part, 0.0)]
    assert passed == parts
    assert reader.ended


def test_a_reply_of_http_1_0_that_may_change_its_length_ends_with_its_connection() -> None:
    raw = wire("length", events()).replace(b"HTTP/1.1", b"HTTP/1.0")
    reader, pieces = cut([raw], ends=False, rechunks=True)
    sent = b"".join(reader.wire(piece) for piece in pieces)
    assert b"Content-Length" not in sent
    assert sent.endswith(event("[DONE]"))
    assert pieces[-1].close is Close.FIN


@pytest.mark.parametrize(
    ("data", "words"),
    [
        # llama-server: chat, completions, its own endpoint
        (b'{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"id":"c"}', False),
        (b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"The"}}],"id":"c"}', True),
        (b'{"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"Hm"}}],"id":"c"}', True),
        (b'{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"usage":{"completion_tokens":4}}', False),
        (
            b'{"choices":[{"text":" sea","index":0,"logprobs":null,"finish_reason":null}],"object":"text_completion"}',
            True,
        ),
        (b'{"index":0,"content":" sea","tokens":[3],"stop":false}', True),
        (b'{"index":0,"content":"","tokens":[],"stop":true,"timings":{"prompt_n":1}}', False),
        # vLLM
        (b'{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null}]}', False),
        (b'{"id":"c","choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}]}', True),
        (b'{"id":"c","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}', False),
        (b'{"id":"c","choices":[{"index":0,"text":"","finish_reason":"stop","stop_reason":null}]}', False),
        # the fake server
        (b'{"id": "cmpl-1", "choices": [{"index": 0, "text": "w1 ", "logprobs": null, "finish_reason": null}]}', True),
        (b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}', False),
        (b'{"choices":[{"delta":{"content":" "}}]}', True),
        (b'{"choices":"no list"}', False),
        (b'{"choices":[1]}', False),
        (b'{"choices":[{"delta":', False),
        (b'{"choices":[{"delta":{"content":"\xff"}}]}', False),
        (b"[DONE]", False),
        (b"", False),
    ],
)
def test_which_events_hold_words(data: bytes, words: bool) -> None:
    assert says_words(data) is words


# ── requests ─────────────────────────────────────────────────────────────────────────────────────

ONE = b"POST /a HTTP/1.1\r\nX-Request-Id: fault-4\r\nContent-Length: 3\r\n\r\nabc"
TWO = b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
THREE = b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([ONE, TWO, THREE]), max_size=4), st.lists(st.integers(0, 400), max_size=20))
def test_requests_are_told_apart(requests: list[bytes], cuts: list[int]) -> None:
    reader = Requests()
    parts = [part for data in slices(b"".join(requests), cuts) for part in reader.feed(data)]
    assert b"".join(part.data for part in parts) == b"".join(requests)
    assert [part.head.first_line for part in parts if part.head] == [one.split(b"\r\n")[0] for one in requests]
    assert sum(part.ends for part in parts) == len(requests)


def test_a_request_that_came_in_one_read_is_one_part() -> None:
    reader = Requests()
    assert [part.data for part in reader.feed(ONE + TWO)] == [ONE, TWO]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_what_is_no_request_passes(data: bytes, cuts: list[int]) -> None:
    reader = Requests()
    parts = [part.data for one in slices(data, cuts) for part in reader.feed(one)]
    assert b"".join(parts) + reader.close() == data
