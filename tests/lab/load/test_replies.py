"""What bytes say: the quick reading and the careful one agree, whatever the bytes are and however reads cut them."""

from __future__ import annotations

import json
from bisect import bisect_left
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.experiment import Ending
from contextlab.lab.load import replies
from contextlab.lab.load.flight import Flight
from contextlab.lab.load.replies import careful, quick, sample_of
from contextlab.targets.servers.null_server import Replies
from tests.lab.load import scripted
from tests.lab.load.scripted import DONE, EVENTS, STREAM, event

texts = st.text(st.characters(codec="utf-8"), max_size=6)
deltas = st.fixed_dictionaries(
    {},
    optional={
        "content": texts | st.none() | st.lists(st.fixed_dictionaries({"text": texts}), max_size=2),
        "reasoning_content": texts,
        "reasoning": texts,
        "role": st.just("assistant"),
    },
)
choices = st.fixed_dictionaries(
    {"index": st.integers(0, 2)},
    optional={
        "delta": deltas | st.none(),
        "text": texts,
        "message": deltas | st.none(),
        "finish_reason": st.sampled_from([None, "stop", "length", "", 3]),
        "logprobs": st.none() | st.lists(st.floats(allow_nan=False)),
    },
)
numbers = st.integers(-5, 5) | st.sampled_from([2**63, 2**70, -(2**63), 2**63 - 1, 1.0, "7", None, True])
usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": numbers,
        "completion_tokens": numbers,
        "prompt_tokens_details": st.none() | st.fixed_dictionaries({}, optional={"cached_tokens": numbers}),
    },
)
frames = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", None, 7]),
        "object": st.sampled_from(["chat.completion.chunk", "error", None]),
        "choices": st.lists(choices, max_size=2) | st.none(),
        "usage": usages | st.none(),
        "error": st.sampled_from([None, "full", {"message": "full"}]),
        "message": st.sampled_from([None, "said", ""]),
        "detail": st.sampled_from([None, "said"]),
        "timings": st.sampled_from([None, {"prompt_n": 4, "cache_n": 2}]),
        "truncated": st.sampled_from([None, True, False]),
    },
)
compact = st.booleans()


def ends_of(body: bytes, cuts: list[int]) -> list[int]:
    """Where reads end that cut a body at these places."""
    return [*sorted(cut % (len(body) + 1) for cut in cuts), len(body)]


def encoded(frame: object, *, compact: bool) -> bytes:
    separators = (",", ":") if compact else None
    return b"data: %b\n\n" % json.dumps(frame, ensure_ascii=compact, separators=separators).encode()


def agree(body: bytes, cuts: list[int]) -> None:
    """The quick reading, where there is one, the careful one, and that without any help of msgspec."""
    ends = ends_of(body, cuts)
    said, slowly = quick(body, ends), careful(body, ends, 200, ended=True)
    with patch.object(replies, "_usual", lambda data: None):
        assert slowly == careful(body, ends, 200, ended=True)
    assert said is None or said == slowly


@given(st.lists(frames, max_size=5), compact, st.lists(st.integers(0), max_size=6))
def test_quick_and_careful_agree_on_any_frames(parts: list[object], compact: bool, cuts: list[int]) -> None:
    agree(b"".join(encoded(part, compact=compact) for part in parts) + DONE, cuts)


@given(st.data())
def test_quick_and_careful_agree_on_damaged_streams(data: st.DataObject) -> None:
    body = bytearray(STREAM)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["flip", "drop", "double", "set"])):
            case "flip":
                body[place] ^= 1 << data.draw(st.integers(0, 7))
            case "drop":
                del body[place : place + data.draw(st.integers(1, 40))]
            case "double":
                body[place:place] = body[place : place + data.draw(st.integers(1, 40))]
            case "set":
                body[place : place + 1] = data.draw(
                    st.sampled_from([b"\n", b"\r", b"}", b"{", b'"', b"\\", b"\xff", b","])
                )
        if not body:
            return
    agree(bytes(body), data.draw(st.lists(st.integers(0), max_size=4)))


@pytest.mark.parametrize("chat", [True, False])
def test_the_null_servers_reply_is_read_quickly(chat: bool) -> None:
    writes = Replies(16, ["null"]).to(
        b"/v1/chat/completions" if chat else b"/v1/completions", b'{"stream": true, "messages": []}'
    )
    body = b"".join(
        piece.partition(b"\r\n")[2].removesuffix(b"0\r\n\r\n").removesuffix(b"\r\n") for piece in writes[1:]
    )
    said = quick(body, [len(body)])
    assert said == careful(body, [len(body)], 200, ended=True)
    assert said is not None
    assert (len(said.pieces), said.num_frames, said.num_done, said.finish_reason) == (16, 19, 1, "stop")


@pytest.mark.parametrize(
    "body", [STREAM, STREAM.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + STREAM], ids=["", "crlf", "bom"]
)
@given(cuts=st.lists(st.integers(0), max_size=8))
def test_an_event_belongs_to_the_read_that_completed_it(body: bytes, cuts: list[int]) -> None:
    ends = ends_of(body, cuts)
    blank = b"\r\n\r\n" if b"\r" in body else b"\n\n"
    untils, until = [], 0
    for block in body.split(blank)[:-1]:
        until += len(block) + len(blank)
        untils.append(until)
    said = careful(body, ends, 200, ended=True)
    assert said.reads == [bisect_left(ends, until) for until in untils[:3]]
    assert said.end_read == bisect_left(ends, untils[-1])
    assert tuple(said.pieces) == scripted.WORDS


@given(st.integers(0, len(STREAM)))
def test_a_stream_cut_anywhere_gives_what_was_whole(place: int) -> None:
    said = careful(STREAM[:place], [place], 200, ended=False)
    whole = sum(len(b"".join(EVENTS[: number + 1])) <= place for number in range(len(EVENTS)))
    assert said.num_frames == whole
    assert (said.num_bad_json, said.num_bad_utf8, said.failure) == (0, 0, None)


def test_an_event_without_its_empty_line_counts_only_at_a_proper_end() -> None:
    body = STREAM.removesuffix(b"\n\n")
    assert careful(body, [len(body)], 200, ended=True).num_done == 1
    assert careful(body, [len(body)], 200, ended=False).num_done == 0


def test_what_is_no_stream_at_all_is_said() -> None:
    said = careful(b"hello", [5], 200, ended=True)
    assert said.failure is not None
    assert said.failure.where == "protocol"


def test_words_that_must_not_be_recorded_are_hidden() -> None:
    flight = Flight(0, 0, 1.0)
    body = event({"error": {"message": "bad key sk-12345", "param": "sk-12345"}}) + scripted.word("sk-12345")
    flight.status, flight.pieces, flight.stamps, flight.counts = 200, [body], [2.0], [1]
    flight.land(Ending.WHOLE, 2.5)
    sample = sample_of(flight, 1.0, lambda text: text.replace("sk-12345", "[key]"))
    assert "sk-12345" not in repr(sample)
    assert repr(sample).count("[key]") == 5  # in the failure and its frame, message and field each, and in the words
    assert (sample.due_s, sample.first_byte_s, sample.content_s, sample.ended_s) == (0.0, 1.0, (1.0,), 1.5)


@given(st.lists(st.integers(0, len(STREAM)), max_size=5))
def test_last_words_are_found_however_they_are_cut(cuts: list[int]) -> None:
    flight = Flight(0, 0, 1.0)
    places = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(places):
        assert not flight.has_said_last_words(1.0) or start > len(STREAM) - 4
        flight.pieces.append(STREAM[start:end])
        flight.stamps.append(5.0)
    assert flight.has_said_last_words(9.0)
    assert flight.last_words_s == 5.0


def test_words_of_a_reply_are_no_last_words() -> None:
    flight = Flight(0, 0, 1.0)
    flight.pieces = [scripted.word('data: [DONE]\ndata: {"error"'), b": data: [DONE]\n\n"]
    assert not flight.has_said_last_words(1.0)


def test_a_refusal_keeps_when_to_come_again() -> None:
    flight = Flight(0, 0, 1.0)
    flight.status, flight.pieces, flight.stamps, flight.counts = 503, [b"busy"], [2.0], [1]
    flight.headers = {b"retry-after": b"5\xff"}
    flight.land(Ending.WHOLE, 2.5)
    told = sample_of(flight, 1.0, str).failure
    assert told is not None
    assert told.fields["retry_after"] == "5ÿ"
    flight.headers = {}
    silent = sample_of(flight, 1.0, str).failure
    assert silent is not None
    assert "retry_after" not in silent.fields
