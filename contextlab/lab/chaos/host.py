"""Puts a target that lives inside a process behind an OpenAI-compatible server, so that a load can reach it.

    python -m contextlab.lab.chaos.host SPEC     ─▶ READY http://127.0.0.1:PORT

One request at a time, the others wait: what is measured is the library's own speed and its queue. The server adds
nothing to what the target says: its events become chunks, its failures become errors.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from aiohttp import web

from contextlab import registry
from contextlab.model import Api, ContextlabError, Event, Failure, Kind, Message, Request, Target, TargetSpec
from contextlab.targets.servers import own_port

MAX_BODY_BYTES = 16 * 2**20
ENDING_S = 0.5
DONE = b"data: [DONE]\n\n"


class Host:
    """HTTP in front of one open target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.model = target.knowledge.model or "hosted"
        self._turn = asyncio.Lock()
        self._num_requests = 0

    def app(self) -> web.Application:
        """The application with its routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self._answering(Api.COMPLETIONS))
        app.router.add_post("/v1/chat/completions", self._answering(Api.CHAT))
        return app

    async def health(self, request: web.Request) -> web.Response:
        """It answers, so it runs."""
        return web.json_response({"status": "ok"})

    async def models(self, request: web.Request) -> web.Response:
        """The one model and its window."""
        window = self.target.knowledge.limits.context_tokens
        card = {"id": self.model, "object": "model", "owned_by": "contextlab-host", "max_model_len": window}
        return web.json_response({"object": "list", "data": [card]})

    def _answering(self, api: Api) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                asked = _asked(api, json.loads(await request.read()))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                return _refused(Failure(where="http", message=f"not a request: {error}", status=400))
            if str(api) not in self.target.knowledge.powers:
                return _refused(Failure(where="http", message=f"no {api} endpoint", status=404))
            self._num_requests += 1
            reply = _Reply(request, api, self.model, f"host-{self._num_requests}", stream=asked.stream)
            async with self._turn, aclosing(self.target.stream(asked)) as events:
                async for event in events:
                    await reply.add(event)
                    await asyncio.sleep(0)  # the others may be taken in, and a client that left is seen
            return await reply.end()

        return answer


class _Reply:
    """One answer, streamed or whole, made of the target's events."""

    def __init__(self, request: web.Request, api: Api, model: str, reply_id: str, *, stream: bool) -> None:
        self._request, self._api, self._stream = request, api, stream
        self._frame = {"id": reply_id, "created": int(time.time()), "model": model}
        self._response: web.StreamResponse | None = None
        self._text: list[str] = []
        self._finish_reason: str | None = None
        self._usage: dict[str, int] | None = None
        self._failure: Failure | None = None

    async def add(self, event: Event) -> None:
        """Pass on what the target says."""
        match event.kind:
            case Kind.TOKEN:
                self._text.append(event.text)
                await self._say(self._chunk(event.text, None))
            case Kind.FINISHED:
                self._finish_reason = event.finish_reason
                await self._say(self._chunk("", event.finish_reason))
            case Kind.USAGE if event.usage is not None:
                prompt, completion = event.usage.prompt_tokens or 0, event.usage.completion_tokens or 0
                total = prompt + completion
                self._usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
                await self._say({**self._frame, "choices": [], "usage": self._usage})
            case Kind.FAILED:
                self._failure = event.failure
                if self._response is not None and event.failure is not None:
                    await self._say(_error(event.failure))
            case _:
                pass

    async def end(self) -> web.StreamResponse:
        """The end of the answer: `[DONE]` after a whole stream, an error where the target failed."""
        if self._response is not None:
            if self._failure is None:
                await self._response.write(DONE)
            return self._response
        if self._failure is not None:
            return _refused(self._failure)
        text = "".join(self._text)
        choice = {"index": 0, "finish_reason": self._finish_reason}
        said = {"message": {"role": "assistant", "content": text}} if self._api is Api.CHAT else {"text": text}
        return web.json_response({**self._frame, "choices": [{**choice, **said}], "usage": self._usage or {}})

    async def _say(self, thing: dict[str, Any]) -> None:
        if not self._stream:
            return
        if self._response is None:
            self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await self._response.prepare(self._request)
        await self._response.write(f"data: {json.dumps(thing)}\n\n".encode())

    def _chunk(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        said: dict[str, Any] = {"delta": {"content": text}} if self._api is Api.CHAT else {"text": text}
        return {**self._frame, "choices": [{"index": 0, **said, "finish_reason": finish_reason}]}


def _asked(api: Api, body: dict[str, Any]) -> Request:
    if api is Api.CHAT:
        messages = tuple(Message(role=str(one["role"]), parts=(str(one["content"]),)) for one in body["messages"])
    else:
        messages = (Message(role="prompt", parts=(str(body["prompt"]),)),)
    tokens = body.get("max_tokens")
    return Request(
        name="hosted",
        messages=messages,
        api=api,
        reply_tokens=int(tokens) if tokens is not None else None,
        stream=bool(body.get("stream")),
        ignore_eos=bool(body.get("ignore_eos")),
    )


def _refused(failure: Failure) -> web.Response:
    return web.json_response(_error(failure), status=failure.status or 500)


def _error(failure: Failure) -> dict[str, Any]:
    return {"error": {"message": failure.message, "type": failure.error_type or failure.where, "code": failure.status}}


async def serve(spec: TargetSpec) -> None:
    """Open the target, serve it until SIGTERM, close it."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with registry.open_target(spec) as target:
        runner = web.AppRunner(
            Host(target).app(), access_log=None, handler_cancellation=True, shutdown_timeout=ENDING_S
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", own_port(0)).start()
            sys.stdout.write(f"READY http://127.0.0.1:{runner.addresses[0][1]}\n")
            sys.stdout.flush()
            await stop.wait()
        finally:
            await runner.cleanup()


def main() -> None:
    """Serve the target whose spec is on the command line, as JSON."""
    spec = msgspec.json.decode(sys.argv[1].encode(), type=TargetSpec)
    try:
        asyncio.run(serve(spec))
    except ContextlabError as error:
        sys.exit(f"{error.message}\n{error.next_step}".strip())


if __name__ == "__main__":
    main()
