"""Small servers that answer as they are told, in the test's own event loop: what each engine's endpoints look like.

    async with serving(vllm()) as server, open_target(spec(server.url)) as target: …

Bodies are cut down from what the engines send. A path that is not in the script is a 404.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from contextlab.model import Api, Event, Failure, Knowledge, Limits, Message, Request, TargetSpec
from contextlab.targets.http import open_target

Json = Mapping[str, Any] | list[Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Reply:
    """An answer that is not simply 200 and JSON; a text of type event-stream is sent in pieces of `piece_bytes`."""

    body: Json | str | bytes = ""
    status: int = 200
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    piece_bytes: int | None = None

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Send it."""
        is_json = isinstance(self.body, Mapping | list)
        text = json.dumps(self.body) if is_json else self.body
        body = text if isinstance(text, bytes) else str(text).encode()
        kind = self.content_type or ("application/json" if is_json else "text/plain")
        if self.piece_bytes is None:
            return web.Response(status=self.status, body=body, content_type=kind, headers=self.headers)
        response = web.StreamResponse(status=self.status, headers={**self.headers, "Content-Type": kind})
        await response.prepare(request)
        for start in range(0, len(body), self.piece_bytes):
            await response.write(body[start : start + self.piece_bytes])
        await response.write_eof()
        return response


COMPLETIONS, CHAT = "POST /v1/completions", "POST /v1/chat/completions"
Script = Mapping[str, Json | Reply | Handler]
"""What is answered, by "METHOD /path"."""


@dataclass
class Served:
    """A running server and what it was asked: ("METHOD /path", body) and the headers, oldest first."""

    url: str
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def paths(self) -> list[str]:
        """What was asked for, oldest first."""
        return [question for question, _ in self.asked]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Served]:
    """Serve a script on a free port of 127.0.0.1."""
    served = Served("")

    async def handle(request: web.Request) -> web.StreamResponse:
        question = f"{request.method} {request.path}"
        served.asked.append((question, await request.json() if request.can_read_body else None))
        served.headers.append(dict(request.headers))
        answer = script.get(question, Reply("404 page not found", 404))
        return await (answer if callable(answer) else Reply(answer))(request)

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield served
    finally:
        await runner.cleanup()


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[str]:
    """A server of bare TCP connections; leaving waits until each of them is over and closed."""
    talks: list[asyncio.Task[None] | None] = []

    async def over(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())
        await talk(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(over, "127.0.0.1", 0)
    async with server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            await asyncio.gather(*(task for task in talks if task))


@asynccontextmanager
async def sending(raw: bytes, *, reset: bool = False) -> AsyncIterator[str]:
    """A server that waits for a request, sends these bytes whatever it says, and closes or resets the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**16)
        writer.write(raw)
        await writer.drain()
        if reset:
            linger_for_no_time = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_no_time)

    async with listening(talk) as url:
        yield url


def spec(url: str, **settings: Any) -> TargetSpec:
    """A target as the user would name it."""
    return TargetSpec(name=url, scheme="http", address=url, settings=settings)


def known(flavour: str = "other", *powers: str, model: str = "m") -> Knowledge:
    """What an earlier opening found, so that nothing is asked."""
    return Knowledge(flavour=flavour, model=model, limits=Limits(), powers=frozenset(powers))


def request(api: Api = Api.COMPLETIONS, text: str = "hello", **options: Any) -> Request:
    """A rendered request with one message."""
    return Request(name="r", messages=(Message(role="user", parts=(text,)),), api=api, **options)


def streamed(answer: Json | Reply | Handler, api: Api = Api.COMPLETIONS, **options: Any) -> list[Event]:
    """The events of one request that is answered with `answer`."""

    async def sent() -> list[Event]:
        script = {COMPLETIONS: answer, CHAT: answer}
        async with serving(script) as server, open_target(spec(server.url), known()) as target:
            return [event async for event in target.stream(request(api, **options))]

    return asyncio.run(sent())


def kinds(events: list[Event]) -> list[str]:
    """The kinds of these events, in their order."""
    return [str(event.kind) for event in events]


def failure(events: list[Event]) -> Failure:
    """The one failure among these events."""
    failures = [event.failure for event in events if event.failure]
    assert len(failures) == 1
    return failures[0]


def sse(*events: Json | str, piece_bytes: int = 7, status: int = 200) -> Reply:
    """A stream of these events, cut without regard to their ends."""
    lines = (f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    return Reply("".join(lines), status, content_type="text/event-stream", piece_bytes=piece_bytes)


def models(*cards: Mapping[str, Any], **headers: str) -> Reply:
    """The answer to GET /v1/models."""
    return Reply({"object": "list", "data": [{"object": "model", **card} for card in cards]}, headers=headers)


async def tokenized(asked: web.Request) -> web.StreamResponse:
    """vLLM's and SGLang's /tokenize: one token a character, eight more for a chat template."""
    body = await asked.json()
    if "messages" in body:
        return web.json_response({"count": 8 + len(body["messages"][0]["content"]), "max_model_len": 4096})
    return web.json_response({"count": len(body["prompt"]), "max_model_len": 4096})


# ── the engines ──────────────────────────────────────────────────────────────────────────────────


def llama_server(n_ctx: int = 512) -> Script:
    """llama.cpp's server with --slots and --metrics."""

    async def tokens(asked: web.Request) -> web.StreamResponse:
        body = await asked.json()
        return web.json_response({"tokens": list(range(len(body["content"]) + body["add_special"]))})

    return {
        "GET /v1/models": models(
            {"id": "smol.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": n_ctx, "n_ctx_train": 8192}},
            Server="llama.cpp",
        ),
        "GET /props": {"default_generation_settings": {"n_ctx": n_ctx}, "total_slots": 4, "build_info": "b11434-0c1e"},
        "GET /health": {"status": "ok"},
        "GET /slots": [{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}],
        "GET /metrics": Reply("llamacpp:requests_processing 2\nllamacpp:requests_deferred 3\n"),
        "POST /tokenize": tokens,
        "POST /apply-template": {"prompt": "<user>hello"},
        "POST /v1/chat/completions/input_tokens": {"input_tokens": 31, "object": "response.input_tokens"},
    }


def vllm() -> Script:
    """vLLM's OpenAI server."""
    metrics = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/base"} 1.0
vllm:num_requests_running{engine="1",model_name="org/base"} 2.0
vllm:num_requests_waiting{engine="0",model_name="org/base"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/base"} 0.25
vllm:num_preemptions_total{engine="0",model_name="org/base"} 7.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="50",sliding_window="None"} 1.0
"""
    base = {"id": "org/base", "owned_by": "vllm", "max_model_len": 4096}
    return {
        "GET /v1/models": models(base, {"id": "adapter", "owned_by": "vllm", "max_model_len": None}, Server="uvicorn"),
        "GET /version": {"version": "0.33.0"},
        "GET /health": Reply(),
        "GET /metrics": Reply(metrics),
        "POST /tokenize": tokenized,
    }


def sglang() -> Script:
    """SGLang's server with --enable-metrics, two ranks."""
    metrics = """sglang:num_running_reqs{model_name="q",tp_rank="0"} 4.0
sglang:num_running_reqs{model_name="q",tp_rank="1"} 4.0
sglang:num_queue_reqs{model_name="q"} 1.0
sglang:token_usage{model_name="q"} 0.5
sglang:num_retracted_requests_total{model_name="q"} 2.0
"""
    info = {"context_length": None, "max_total_num_tokens": 20480, "max_req_input_len": 20474, "version": "0.5.23"}
    return {
        "GET /v1/models": models({"id": "q", "owned_by": "sglang", "max_model_len": 32768}),
        "GET /server_info": {**info, "internal_states": [{}]},
        "GET /health": Reply(),
        "GET /metrics": Reply(metrics),
        "POST /tokenize": tokenized,
    }


def ollama() -> Script:
    """Ollama, its model not loaded until somebody asks."""
    loaded: list[Mapping[str, Any]] = []

    async def generate(asked: web.Request) -> web.StreamResponse:
        loaded.append({"name": "llama3:latest", "model": "llama3:latest", "context_length": 4096})
        return web.json_response({"model": (await asked.json())["model"], "done": True, "done_reason": "load"})

    async def running(asked: web.Request) -> web.StreamResponse:
        return web.json_response({"models": loaded})

    return {
        "GET /": Reply("Ollama is running"),
        "GET /v1/models": models({"id": "llama3:latest", "owned_by": "library"}),
        "GET /api/version": {"version": "0.33.0"},
        "GET /api/ps": running,
        "POST /api/generate": generate,
        "POST /api/show": {
            "parameters": 'stop                           "<|eot_id|>"\nnum_ctx                        8192',
            "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
        },
    }


def tgi() -> Script:
    """Hugging Face's text-generation-inference, which names the model as its own owner."""
    return {
        "GET /v1/models": models({"id": "org/tgi", "owned_by": "org/tgi"}),
        "GET /info": {
            "model_id": "org/tgi",
            "max_input_tokens": 1024,
            "max_total_tokens": 2048,
            "max_batch_total_tokens": 16000,
            "version": "3.3.7",
        },
        "GET /health": Reply(),
        "POST /tokenize": [
            {"id": 1, "text": "he", "start": 0, "stop": 2},
            {"id": 2, "text": "y", "start": 2, "stop": 3},
        ],
        "POST /chat_tokenize": {"tokenize_response": [{"id": 1}, {"id": 2}, {"id": 3}], "templated_text": "<u>hey"},
    }


def litellm(tokenizer: str = "huggingface_tokenizer", counted_as: str = "hosted_vllm/llama") -> Script:
    """LiteLLM's proxy, two deployments of one model."""
    count = {"total_tokens": 11, "request_model": "big", "model_used": counted_as, "tokenizer_type": tokenizer}
    rows = [{"model_name": "big", "model_info": {"max_input_tokens": size}} for size in (16385, 8192)]
    return {
        "GET /v1/models": models({"id": "big", "owned_by": "openai"}),
        "GET /health/liveliness": Reply('"I\'m alive!"', content_type="application/json"),
        "GET /health/readiness": {"status": "healthy", "litellm_version": "1.110.2"},
        "GET /model/info": {"data": [*rows, {"model_name": "small", "model_info": {"max_input_tokens": 10}}]},
        "POST /utils/token_counter": count,
    }


def openai() -> Script:
    """OpenAI's own, as far as anybody can see."""
    return {"GET /v1/models": models({"id": "gpt-4o", "owned_by": "system"}, **{"openai-version": "2020-10-01"})}


def other() -> Script:
    """A server of an unknown make with the chat endpoint alone."""
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "length"}]}
    return {
        "GET /v1/models": models({"id": "mystery", "owned_by": "me", "context_window": 2048}),
        "POST /v1/chat/completions": reply,
    }
