"""Events dropped, doubled and damaged: exactly those, in replies whose HTTP stays valid."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.faults.corrupt_event import broken_json, broken_utf8, other_words
from tests.lab.link.relaying import Relaying, asked, fault, texts
from tests.lab.link.upstream import FRAMINGS, WORDS, Framing, Upstream, content, event, events, reply

pytestmark = pytest.mark.process
OPTIONS = {"drop-event": {}, "duplicate-event": {}, "corrupt-event": {"what": "text"}}


def body_under(name: str, framing: Framing = "chunked", **options: Any) -> bytes:
    """The body of a reply under a fault, as Python's own client, which is strict about HTTP, reads it to its end."""
    placed = fault(name, **options)
    with Upstream(reply(framing, events(), 0.002)) as upstream, Relaying(upstream.address, placed) as relaying:
        connection = http.client.HTTPConnection(*relaying.address, timeout=5.0)
        connection.request("POST", "/v1/chat/completions", body="{}")
        body = connection.getresponse().read()
        connection.close()
        landed = relaying.landed()
        assert landed.proven, landed.why
        assert relaying.tally()["applied"] == 1
    return body


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(("at", "gone"), [("first-token", 0), ("event:0", 0), ("event:3", 3), ("event:7", 7)])
def test_a_dropped_event_is_gone_and_nothing_else(at: str, gone: int, framing: Framing) -> None:
    expected = [one for n, one in enumerate(events()) if n != gone + 1]
    assert body_under("drop-event", framing, at=at) == b"".join(expected)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_end_mark_can_be_dropped(framing: Framing) -> None:
    assert body_under("drop-event", framing, at="done") == b"".join(events(done=False))


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_doubled_event_comes_twice_and_nothing_else(framing: Framing) -> None:
    parts = events()
    assert body_under("duplicate-event", framing, at="event:2") == b"".join([*parts[:4], parts[3], *parts[4:]])
    assert body_under("duplicate-event", framing, at="done") == b"".join([*parts, parts[-1]])


@pytest.mark.parametrize("framing", FRAMINGS)
def test_damaged_words_are_seen_only_by_who_knows_them(framing: Framing) -> None:
    body = body_under("corrupt-event", framing, at="event:1", what="text")
    found = texts(body)
    assert len(found) == len(WORDS)
    assert [n for n, (seen, word) in enumerate(zip(found, WORDS, strict=True)) if seen != word] == [1]
    assert len(body) == len(b"".join(events()))


def test_damaged_json_and_damaged_characters() -> None:
    bad = body_under("corrupt-event", what="json").split(b"\n\n")[2].removeprefix(b"data: ")
    with pytest.raises(json.JSONDecodeError):
        json.loads(bad)
    with pytest.raises(UnicodeDecodeError):
        body_under("corrupt-event", what="utf8").decode()


@pytest.mark.parametrize("name", OPTIONS)
def test_a_share_of_events_is_drawn_one_by_one(name: str) -> None:
    words = [f"word{n} " for n in range(60)]

    def seen(seed: int) -> tuple[list[str], float, float]:
        placed = fault(name, events=0.3)
        steps = reply("chunked", events(words))
        with Upstream(steps) as upstream, Relaying(upstream.address, placed, seed=seed) as relaying:
            reads = asked(relaying)
            assert reads.is_whole
            tally = relaying.tally()
            return texts(reads.body), tally["applied"], tally["events_seen"]

    found, applied, num_seen = seen(1)
    assert num_seen == len(words)
    assert 8 <= applied <= 30
    assert {
        "drop-event": len(words) - len(found),
        "duplicate-event": len(found) - len(words),
        "corrupt-event": sum(seen != word for seen, word in zip(found, words, strict=False)),
    }[name] == applied
    assert seen(1)[0] == found
    assert seen(2)[0] != found


def test_equal_seeds_choose_the_same_events_whatever_is_done_to_them() -> None:
    words = [f"{n} " for n in range(40)]

    def hit(name: str) -> set[str]:
        steps, placed = reply("close", events(words)), fault(name, events=0.4)
        with Upstream(steps) as upstream, Relaying(upstream.address, placed, seed=5) as relaying:
            found = texts(asked(relaying).body)
        return {word for word in words if found.count(word) != 1}

    assert hit("drop-event") == hit("duplicate-event") != set()


def test_other_replies_are_left_alone() -> None:
    steps = reply("length", [b'{"choices": []}'], kind="application/json")
    for name in OPTIONS:
        with Upstream(steps) as upstream, Relaying(upstream.address, fault(name)) as relaying:
            assert asked(relaying).raw == b"".join(step for step in steps if isinstance(step, bytes))
            assert relaying.landed().proven is False


ODD_WORDS = st.text(max_size=20) | st.sampled_from(["\n", '"', "\\", "…", " ", ",", '\\"content\\": \\"x', "é", "\t\t"])


@settings(max_examples=200, deadline=None)
@given(ODD_WORDS.filter(bool), st.floats(0, 1, exclude_max=True), st.booleans())
def test_changed_words_are_valid_and_others(words: str, draw: float, escaped: bool) -> None:
    data = {"choices": [{"index": 0, "delta": {"content": words}}]}
    one = event(json.dumps(data, ensure_ascii=escaped))
    other = other_words(one, draw)
    seen = json.loads(other.decode().removeprefix("data: "))
    changed = seen["choices"][0]["delta"].pop("content")
    assert changed != words
    assert seen == {"choices": [{"index": 0, "delta": {}}]}


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20).filter(bool), st.floats(0, 1, exclude_max=True))
def test_broken_events_are_broken(words: str, draw: float) -> None:
    one = content(words)
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken_json(one, draw).decode().removeprefix("data: "))
    with pytest.raises(UnicodeDecodeError):
        broken_utf8(one, draw).decode()
    assert broken_utf8(one, draw).replace(b"\xff", b"") == one


def test_what_has_no_words_has_none_to_change() -> None:
    for one in (event("[DONE]"), b": ping\n\n", event({"choices": [], "usage": {"completion_tokens": 1}})):
        assert other_words(one, 0.5) == one
    assert broken_json(event("[DONE]"), 0.5) == event("[DONE]")
    assert broken_utf8(event("[DONE]"), 0.5) == event("[DONE]")
