"""Server-sent events: however the bytes are cut, the same events come out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.targets.openai.sse import SseParser


def parsed(*chunks: bytes) -> list[str]:
    parser = SseParser()
    return [data for chunk in chunks for data in parser.feed(chunk)] + parser.close()


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\n\n", ["a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b": a comment\n\n:\n\ndata: a\n\n", ["a"]),
        (b"event: error\nid: 7\nretry: 10\ndata: a\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data\n\n", [""]),
        (b"\n\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a: b\n\n", ["a: b"]),
        (b"data: \xff\n\n", ["�"]),
        (b"", []),
    ],
)
def test_reads_one_event_after_another(raw: bytes, events: list[str]) -> None:
    assert parsed(raw) == events


@pytest.mark.parametrize("raw", [b"data: a\n", b"data: a", b"data: a\r", b"data: a\r\n"])
def test_a_proper_end_completes_the_last_event(raw: bytes) -> None:
    parser = SseParser()
    assert parser.feed(raw) == []
    assert parser.close() == ["a"]


def test_an_event_comes_out_with_the_chunk_that_ends_it() -> None:
    parser = SseParser()
    assert parser.feed(b"data: one\n") == []
    assert parser.feed(b"\ndata: tw") == ["one"]
    assert parser.feed(b"o\n\n") == ["two"]
    assert parser.num_bytes == 22


LINES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6).map(lambda text: f"data: {text}"),
    st.sampled_from(["", "data: [DONE]", "data", ": keep-alive", "event: x", "data:ключ 🗝"]),
)


@given(
    lines=st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=20),
)
def test_any_slicing_gives_the_same_events(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    raw = "".join(line + end for line, end in lines).encode()
    edges = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    slices = [raw[start:end] for start, end in itertools.pairwise(edges)]
    one_by_one = [raw[at : at + 1] for at in range(len(raw))]
    assert parsed(raw) == parsed(*slices) == parsed(*one_by_one)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), max_size=8))
def test_what_was_sent_is_what_comes_out(texts: list[str]) -> None:
    assert parsed("".join(f"data: {text}\n\n" for text in texts).encode()) == texts
