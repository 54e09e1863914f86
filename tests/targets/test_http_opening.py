"""What opening says when it cannot, which addresses can be meant, and that the key is told to nobody."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from typing import Any

import pytest
from aiohttp import web

from contextlab.model import Api, Knowledge, UnableError, UsageError
from contextlab.targets import http
from contextlab.targets.http import open_target, shown
from tests.targets import scripted
from tests.targets.scripted import (
    CHAT,
    COMPLETIONS,
    Reply,
    Script,
    known,
    listening,
    models,
    request,
    sending,
    serving,
    spec,
    sse,
)

KEY = "sk-very-secret-7391"


def opened(script: Script, **settings: Any) -> Knowledge:
    async def learnt() -> Knowledge:
        async with serving(script) as server, open_target(spec(server.url, **settings)) as target:
            return target.knowledge

    return asyncio.run(learnt())


def complaint(url: str, **settings: Any) -> tuple[str, str]:
    async def learnt() -> None:
        async with open_target(spec(url, **settings)):
            pass

    with pytest.raises(UnableError) as error:
        asyncio.run(learnt())
    return error.value.message, error.value.next_step


def test_nobody_there() -> None:
    message, next_step = complaint("http://user:hunter2@127.0.0.1:1/v1")
    assert message == "GET http://127.0.0.1:1/v1/models: connection refused"
    assert next_step == "start the server, or check the port"
    message, next_step = complaint("http://no-such-host.invalid")
    assert message.endswith("no such host: no-such-host.invalid")
    assert next_step == "check the host name"


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contextlab.targets.openai.wire.ANSWER_TIMEOUT_S", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def learnt() -> None:
        async with listening(silent) as url, open_target(spec(url)):
            pass

    with pytest.raises(UnableError, match=r"GET http://127.0.0.1:\d+/v1/models: no answer within 0.05 s"):
        asyncio.run(learnt())


def test_no_connection_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as others:
        for _ in range(4):  # nobody takes these in, so there is no room for one more
            waiting = others.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        message, next_step = complaint(url, connect_timeout_s=0.05)
    assert message == f"GET {url}/v1/models: no connection within 0.05 s"
    assert "connect_timeout_s" in next_step


@pytest.mark.parametrize(
    ("raw", "scheme", "message"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "https", "TLS failed"), (b"\x15\x03\x01\r\n\r\n", "http", "not HTTP")],
)
def test_the_wrong_scheme(raw: bytes, scheme: str, message: str) -> None:
    async def learnt() -> None:
        async with sending(raw) as url, open_target(spec(url.replace("http", scheme))):
            pass

    with pytest.raises(UnableError, match=message) as error:
        asyncio.run(learnt())
    assert "speak" in error.value.next_step


MOVED = Reply("", 301, headers={"Location": "https://u:p@there/v1/models?k=1"})


def page(body: str, status: int = 200) -> Reply:
    return Reply(body, status, content_type="text/html")


@pytest.mark.parametrize(
    ("answer", "message", "next_step"),
    [
        (page("<!doctype html><p>It works!"), r"a web page, not an API", "right port and path"),
        (page("<html>404 Not Found</html>", 404), r"a web page, not an API \(404 Not Found\)", "right port"),
        (page("<html>Bad Gateway</html>", 502), r"502 \(Bad Gateway\)", "behind this gateway"),
        (Reply("hello"), r"not JSON \(hello\)", "right port and path"),
        (Reply({"error": {"message": "boom"}}, 500), r"500 \(boom\)", "log"),
        (MOVED, r"moved to https://there/v1/models$", "give"),
        (models(), "serves no model", "load one"),
        (Reply("404 page not found", 404), "does not list its models", "--set model"),
    ],
)
def test_no_api(answer: Reply, message: str, next_step: str) -> None:
    with pytest.raises(UnableError, match=message) as error:
        opened({"GET /v1/models": answer})
    assert next_step in error.value.next_step


def test_a_model_that_is_loading_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LOADING_PAUSE_S", 0.01)
    script, looks = scripted.llama_server(), 0

    async def loading(asked: web.Request) -> web.StreamResponse:
        nonlocal looks
        looks += 1
        listed = script["GET /v1/models"]
        assert callable(listed)
        return await (Reply({"error": {"message": "Loading model", "code": 503}}, 503) if looks < 3 else listed)(asked)

    assert opened({**script, "GET /v1/models": loading}).flavour == "llama-server"
    assert looks == 3
    monkeypatch.setattr(http, "LOADING_TIMEOUT_S", 0.05)
    with pytest.raises(UnableError, match=r"still 503 \(Loading model\) after 0.05 s"):
        opened({"GET /v1/models": Reply({"error": {"message": "Loading model"}}, 503)})


def test_a_model_that_is_not_served() -> None:
    with pytest.raises(UnableError, match=r"model=org/bass: http://.* serves org/base, adapter$") as error:
        opened(scripted.vllm(), model="org/bass")
    assert error.value.next_step == "did you mean org/base?"
    with pytest.raises(UnableError, match=r"m9 and 2 more$") as error:
        opened({"GET /v1/models": models(*({"id": f"m{n}"} for n in range(12)))}, model="zebra")
    assert "first" in error.value.next_step
    assert opened(scripted.llama_server(), model="whatever").model == "whatever"
    assert (
        opened({**scripted.litellm(), "GET /v1/models": models({"id": "openai/*"})}, model="openai/x").model
        == "openai/x"
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://:8080",
        "http://h:99999",
        "http://h:0",
        "http://h:x",
        "ftp://h",
        "http://h?k=1",
        "http://[",
        "h t",
    ],
)
def test_an_address_that_cannot_be_meant(url: str) -> None:
    async def opens() -> None:
        async with open_target(spec(url), known()):
            pass

    with pytest.raises(UsageError, match=r"^url="):
        asyncio.run(opens())


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("http://user:pw@host:80/v1?k=1#f", "http://host:80/v1"),
        ("https://host/@cf/v1", "https://host/@cf/v1"),
        ("user:pw@host:80", "host:80"),
        ("http://user:p#w@host", "http://host"),
        ("http://user:p?w@host", "http://host"),
        ("http://h:x", "http://h:x"),
        ("http://[", "http://["),
    ],
)
def test_what_of_a_url_is_shown(url: str, safe: str) -> None:
    assert shown(url) == safe


# ── the key ──────────────────────────────────────────────────────────────────────────────────────


def test_the_key_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTLAB_API_KEY", KEY + "\n")
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": KEY, "param": KEY, KEY: 1}}

    async def told() -> tuple[str, set[str | None]]:
        script = {
            **scripted.vllm(),
            COMPLETIONS: Reply(echo, 401),
            CHAT: sse({"choices": [{"delta": {"content": f"you said {KEY}"}}]}, echo),
            "GET /health": Reply(f"no {KEY}", 500),
        }
        async with serving(script) as server, open_target(spec(server.url)) as target:
            events = [event for api in Api async for event in target.stream(request(api))]
            said = [target, target.knowledge, vars(target), events, await target.healthy()]
            return repr(said), {headers.get("Authorization") for headers in server.headers}

    said, sent = asyncio.run(told())
    assert KEY not in said
    assert "you said [key]" in said
    assert sent == {f"Bearer {KEY}"}


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_named_but_not_told(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Reply({"error": {"message": f"Invalid key {KEY}"}}, status)
    with pytest.raises(UnableError) as error:
        opened({"GET /v1/models": refusal}, api_key_env="LAB_KEY")
    assert error.value.next_step == "put the key into $LAB_KEY, which is not set here"
    monkeypatch.setenv("LAB_KEY", KEY)
    for script in (
        {"GET /v1/models": refusal},
        {**scripted.llama_server(), "GET /props": refusal},
        {**scripted.other(), CHAT: refusal},
    ):
        with pytest.raises(UnableError, match=rf"{status} \(Invalid key \[key\]\)") as error:
            opened(script, api_key_env="LAB_KEY")
        assert error.value.next_step == "$LAB_KEY is set, but what it holds was refused: check the key"


def test_user_and_password_of_a_url_are_sent_and_never_told() -> None:
    async def told() -> tuple[str, set[str | None]]:
        async with (
            serving(scripted.vllm()) as server,
            open_target(spec(server.url.replace("//", "//me:pass%20word@"))) as target,
        ):
            return repr([target, target.knowledge, vars(target)]), {h.get("Authorization") for h in server.headers}

    said, sent = asyncio.run(told())
    assert sent == {"Basic bWU6cGFzcyB3b3Jk"}
    assert "pass" not in said


def test_a_key_that_is_part_of_a_models_name_does_not_spoil_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTLAB_API_KEY", "llama3")
    assert opened(scripted.ollama()).model == "llama3:latest"


def test_what_a_connection_breaks_with_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTLAB_API_KEY", KEY)

    async def learnt() -> None:
        async with sending(b"SSH-2.0-OpenSSH_9.2\r\n") as url, open_target(spec(url)):
            pass

    with pytest.raises(UnableError, match="not HTTP") as error:
        asyncio.run(learnt())
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_the_settings_of_a_server_of_ours_are_its_own() -> None:
    async def limits(scheme: str) -> int | None:
        async with serving(scripted.vllm()) as server:
            ours = dataclasses.replace(spec(server.url, window=64), scheme=scheme)
            async with open_target(ours) as target:
                return target.knowledge.limits.context_tokens

    assert asyncio.run(limits("fake")) == 4096
    assert asyncio.run(limits("run")) == 64


def test_a_key_is_not_taken_for_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opens(**settings: Any) -> None:
        async with open_target(spec("http://127.0.0.1:1", **settings), known()):
            pass

    with pytest.raises(UsageError) as error:
        asyncio.run(opens(api_key_env=KEY))
    assert KEY not in str(error.value) + error.value.next_step
    monkeypatch.setenv("LAB_KEY", "two\nlines")
    with pytest.raises(UsageError, match=r"the key in \$LAB_KEY holds a line break"):
        asyncio.run(opens(api_key_env="LAB_KEY"))
