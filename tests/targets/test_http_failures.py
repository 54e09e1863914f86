"""Each way in which a request fails, and what is said of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from contextlab.model import Event, Failure
from contextlab.targets import http
from contextlab.targets.http import open_target
from tests.targets.scripted import Reply, failure, kinds, known, request, sending, spec, sse, streamed


def text(piece: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": piece, "finish_reason": None, **more}]}


OVERFLOW = {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 512, "n_ctx": 9}
PAGE = Reply("<html><p>Hi</html>", content_type="text/html")


def json_text(body: str) -> Reply:
    return Reply(body, content_type="application/json")


@pytest.mark.parametrize(
    ("status", "body", "message", "error_type", "fields"),
    [
        (400, {"error": OVERFLOW}, "too long", "exceed_context_size_error", {"n_prompt_tokens": 512, "n_ctx": 9}),
        (
            400,
            {"error": {"message": "max", "type": "invalid_request_error", "param": "messages", "code": "context_len"}},
            "max",
            "invalid_request_error",
            {"code": "context_len", "param": "messages"},
        ),
        (500, {"error": {"message": "no", "code": 400}}, "no", "", {"code": 400}),
        (
            422,
            {"error": "Input validation error", "error_type": "validation"},
            "Input validation error",
            "validation",
            {},
        ),
        (
            400,
            {"object": "error", "message": "long", "type": "BadRequestError", "code": 400},
            "long",
            "BadRequestError",
            {},
        ),
        (404, {"detail": "Not Found"}, "Not Found", "", {}),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "is missing"}]}, "body.n: is missing", "", {}),
        (429, {"message": "slow down"}, "slow down", "", {}),
        (400, {"weird": [1]}, '{"weird": [1]}', "", {}),
        (400, [1], "[1]", "", {}),
        (413, "", "413 Request Entity Too Large, with no body", "", {}),
        (500, "Internal Server Error\n", "Internal Server Error", "", {}),
        (502, "<html><head><style>p {}</style></head><h1>502  Bad</h1> Gateway</html>", "502 Bad Gateway", "", {}),
        (503, "x" * 400, "x" * 299 + "…", "", {}),
        (400, 'data: {"error": {"message": "in a stream"}}\n\n', "in a stream", "", {}),
        (400, '{"error": {"message": "lone \\ud800", "n": 1e999, "m": 99999999999999999999}}', "lone �", "", {}),
        (307, "", "307 Temporary Redirect, with no body", "", {}),
    ],
)
def test_refusals(status: int, body: Any, message: str, error_type: str, fields: dict[str, Any]) -> None:
    events = streamed(Reply(body, status))
    assert kinds(events) == ["opened", "failed"]
    assert events[0].status == status
    assert failure(events) == Failure(
        where="http", message=message, status=status, error_type=error_type, fields=fields
    )


def test_an_error_inside_a_stream_is_told_and_so_is_what_follows_it() -> None:
    error = {"error": {"object": "error", "message": "The input is longer", "type": "BadRequestError", "code": 400}}
    events = streamed(sse(text("a"), error, text("b"), "[DONE]"))
    assert kinds(events) == ["opened", "token", "failed", "token", "done"]
    assert failure(events) == Failure(
        where="stream", message="The input is longer", status=200, error_type="BadRequestError", fields={"code": 400}
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"error": "Request failed", "error_type": "generation"}, "Request failed"),
        ({"object": "error", "message": "kv"}, "kv"),
        ({"detail": "no"}, "no"),
        ({"message": "no", "code": 500}, "no"),
        ({"error": {"message": "mid"}, "choices": []}, "mid"),
    ],
)
def test_an_error_inside_a_success_is_no_success(error: dict[str, Any], message: str) -> None:
    for answer, stream in ((error, False), (error, True), (sse(error), True)):
        events = streamed(answer, stream=stream)
        assert kinds(events) == ["opened", "failed"]
        assert (failure(events).where, failure(events).message) == ("stream", message)


def test_words_beside_an_error_are_kept() -> None:
    events = streamed(sse({**text("so far", finish_reason="error"), "error": {"message": "died"}}))
    assert kinds(events) == ["opened", "failed", "token", "finished"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (PAGE, "an HTML page instead of a reply: Hi"),
        (json_text(""), "an empty body instead of a reply"),
        (json_text("[1]"), "not a JSON object instead of a reply: [1]"),
        (json_text("{"), "not a JSON object instead of a reply: {"),
        ({"choices": []}, 'a success without choices: {"choices": []}'),
        ({"id": "x"}, 'a success without choices: {"id": "x"}'),
        (sse("{half"), "an event that is not a JSON object: {half"),
        (sse('"text"'), 'an event that is not a JSON object: "text"'),
        (sse({"type": "ping"}), 'a stream without one event of a reply: data: {"type": "ping"}'),
        (Reply(": hi\n\n", content_type="text/event-stream"), "a stream without one event of a reply: : hi"),
        (json_text("[" * 100_000), "not a JSON object instead of a reply: " + "[" * 299 + "…"),
    ],
)
def test_answers_that_are_something_else(answer: Any, message: str) -> None:
    events = streamed(answer)
    assert kinds(events) == ["opened", "failed"]
    assert failure(events) == Failure(where="protocol", message=message, status=200)


CHUNK = b'data: {"choices":[{"text":"x"}]}\n\n'
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ONE_CHUNK = b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK)


@pytest.mark.parametrize(
    ("raw", "reset", "where", "message"),
    [
        (b"", False, "transport", "the connection was closed before an answer"),
        (b"", True, "transport", "the connection was reset"),
        (SSE_HEAD + ONE_CHUNK, False, "transport", "the connection ended in the middle of the answer"),
        (SSE_HEAD + ONE_CHUNK, True, "transport", "the connection ended in the middle of the answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", False, "transport", "the connection ended in the middle"),
        (b"\x15\x03\x01\x00\x02\x02\x0a", False, "protocol", "the answer is not HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False, "protocol", "the answer is not HTTP"),
        (b"\xff" * 3000, False, "protocol", "the answer is not HTTP"),
    ],
)
def test_broken_connections(raw: bytes, reset: bool, where: str, message: str) -> None:
    async def sent() -> list[Event]:
        async with sending(raw, reset=reset) as url, open_target(spec(url), known()) as target:
            return [event async for event in target.stream(request())]

    events = asyncio.run(sent())
    assert failure(events).where == where
    assert failure(events).message.startswith(message)
    assert len(failure(events).message) < 400
    assert kinds(events)[:-1] == (["opened", "token"] if ONE_CHUNK in raw else ["opened"] if b"200" in raw else [])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1", "connection refused"),
        ("http://no-such-host.invalid", "no such host: no-such-host.invalid"),
    ],
)
def test_no_connection(url: str, message: str) -> None:
    async def sent() -> list[Event]:
        async with open_target(spec(url), known()) as target:
            return [event async for event in target.stream(request())]

    events = asyncio.run(sent())
    assert failure(events) == Failure(where="connect", message=message)
    assert kinds(events) == ["failed"]


def test_a_stream_that_says_done_and_stays_open_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LINGER_S", 0.05)

    async def lingering(asked: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(asked)
        await response.write(b"data: [DONE]\n\n")
        await asyncio.sleep(60)
        return response

    assert kinds(streamed(lingering)) == ["opened", "done"]
