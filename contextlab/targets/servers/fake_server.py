"""A small OpenAI-compatible HTTP server that misbehaves in exactly one way, by name.

    python -m contextlab.targets.servers.fake_server NAME --window 256 --slots 2 --port 0 --token-delay-s 0.004

It listens on 127.0.0.1 only, prints `READY http://127.0.0.1:PORT` when it does, logs to standard error and
exits 0 on SIGTERM. Which departures there are is said in `fake_engine`; here are HTTP, the slots (requests
beyond them wait) and the pace. There is no /tokenize: whoever wants to count has the usage to go by.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import json
import logging
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

from aiohttp import web

from contextlab.model import Api
from contextlab.targets.servers import fake_model, own_port
from contextlab.targets.servers.fake_engine import DEPARTURES, UNDER_FAULTS, Engine, Job, Refused

MODEL = "fake"
MAX_BODY_BYTES = 16 * 2**20
LOOKS_EVERY_S, WEDGING_PAUSE_S = 0.05, 0.8
"""A fake that wedges looks at the time so often, and a pause of its process that is longer than that wedges it."""
ENDING_S = 0.1
"""How long running requests may go on after SIGTERM."""

Json = Mapping[str, Any]
T = TypeVar("T")
log = logging.getLogger("fake_server")


# ── what comes in ────────────────────────────────────────────────────────────────────────────────


def parsed_job(api: Api, raw: bytes) -> Job:
    """The job that a request body asks for; raises Refused with 400 or 404, as OpenAI's API does."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "The body must be a JSON object.")
    model = _optional(body, "model", str)
    if model not in (None, MODEL):
        raise Refused(404, f"The model `{model}` does not exist.", "NotFoundError")
    max_tokens = _optional(body, "max_completion_tokens", int)
    if max_tokens is None:
        max_tokens = _optional(body, "max_tokens", int)
    if max_tokens is not None and max_tokens < 1:
        raise Refused(400, f"max_tokens must be at least 1, got {max_tokens}.")
    if api is Api.CHAT:
        messages = _messages(body)
        prompt, text = fake_model.chat_prompt(messages), "\n".join(content for _, content in messages)
    else:
        text = _required(body, "prompt", str)
        prompt = fake_model.tokenize(text)
    stream_options = _optional(body, "stream_options", dict) or {}
    return Job(
        api=api,
        prompt=prompt,
        text=text,
        max_tokens=max_tokens,
        ignore_eos=_optional(body, "ignore_eos", bool) or False,
        stream=_optional(body, "stream", bool) or False,
        include_usage=_optional(stream_options, "include_usage", bool) or False,
    )


def _messages(body: Json) -> list[tuple[str, str]]:
    """(role, content) of each message, oldest first."""
    messages = _required(body, "messages", list)
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise Refused(400, "messages must be a list of at least one object.")
    return [(_required(message, "role", str), _required(message, "content", str)) for message in messages]


def _optional(body: Json, name: str, kind: type[T]) -> T | None:
    """The value of a field if it is there and not null; raises Refused if it is of another type."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refused(400, f"{name} must be of type {kind.__name__}, not {type(value).__name__}.")
    return value


def _required(body: Json, name: str, kind: type[T]) -> T:
    value = _optional(body, name, kind)
    if value is None:
        raise Refused(400, f"{name} is required.")
    return value


# ── what goes out ────────────────────────────────────────────────────────────────────────────────


def usage(job: Job) -> Json:
    """Token counts of a job that has ended; those of the prompt as the engine saw it."""
    return {
        "prompt_tokens": len(job.prompt),
        "completion_tokens": job.num_generated,
        "total_tokens": len(job.prompt) + job.num_generated,
    }


def whole_answer(job: Job, answer_id: str, text: str) -> Json:
    """The body of an answer that is not streamed."""
    said = {"message": {"role": "assistant", "content": text}} if job.api is Api.CHAT else {"text": text}
    return {**_answer(job, answer_id, said, job.finish_reason), "usage": usage(job)}


def chunk(job: Job, answer_id: str, delta: Json, finish_reason: str | None = None) -> Json:
    """One event of a stream; `delta` is in chat's words."""
    said = {"delta": delta} if job.api is Api.CHAT else {"text": delta.get("content", "")}
    return _answer(job, answer_id, said, finish_reason)


def _answer(job: Job, answer_id: str, said: Json, finish_reason: str | None) -> Json:
    kind = "text_completion" if job.api is Api.COMPLETIONS else "chat.completion" + ".chunk" * job.stream
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}
    return {"id": answer_id, "object": kind, "created": 0, "model": MODEL, "choices": [choice]}


def sse(data: Json | str) -> bytes:
    """One server-sent event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


DONE = sse("[DONE]")


async def opened_stream(request: web.Request) -> web.StreamResponse:
    """A stream whose status and headers are sent."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


# ── the server ───────────────────────────────────────────────────────────────────────────────────


class Server:
    """HTTP in front of an engine: at most `num_slots` jobs are answered at once, the others wait."""

    def __init__(self, engine: Engine, *, num_slots: int, token_delay_s: float) -> None:
        self.engine = engine
        self._slots = asyncio.Semaphore(num_slots)
        self._token_delay_s = token_delay_s
        self._ids = count(1)

    def app(self) -> web.Application:
        """The application with its routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self._generation(Api.COMPLETIONS))
        app.router.add_post("/v1/chat/completions", self._generation(Api.CHAT))
        return app

    async def health(self, request: web.Request) -> web.Response:
        """It is always well, or never; that is part of the lie."""
        if self.engine.departure.says_unwell:
            return web.json_response({"status": "unhealthy"}, status=503)
        return web.json_response({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        """How many requests are answered, how many wait, and how many tokens were generated until now."""
        counted = {
            "fake:requests_running": len(self.engine.running) + self.engine.num_kept_slots,
            "fake:requests_waiting": self.engine.num_waiting,
            "fake:tokens_generated": self.engine.num_generated,
        }
        return web.Response(text="".join(f"{name} {number}\n" for name, number in counted.items()))

    async def models(self, request: web.Request) -> web.Response:
        """The one model, with its window."""
        model = {
            "id": MODEL,
            "object": "model",
            "created": 0,
            "owned_by": "contextlab-fake",
            "max_model_len": self.engine.window,
        }
        return web.json_response({"object": "list", "data": [model]})

    def _generation(self, api: Api) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def generation(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            stream = False
            try:
                job = parsed_job(api, raw)
                stream = job.stream
                await self.engine.admit(job)
                if stream:
                    return await self._streamed(request, job)
                return await self._whole(job)
            except Refused as refused:
                log.info("%s: refused: %s", api, refused)
                if stream and refused.status == 200:
                    return await self._refused_in_stream(request, refused)
                return web.json_response(refused.body, status=refused.status)

        return generation

    async def _whole(self, job: Job) -> web.Response:
        said: list[str] = []
        async with self._answering(job) as tokens:
            for token in tokens:
                await self._pause()
                said.append(token)
        return web.json_response(whole_answer(job, self._next_id(job), "".join(said)))

    async def _streamed(self, request: web.Request, job: Job) -> web.StreamResponse:
        answer_id = self._next_id(job)
        async with self._answering(job) as tokens:
            response = await opened_stream(request)
            if job.api is Api.CHAT:
                await response.write(sse(chunk(job, answer_id, {"role": "assistant", "content": ""})))
            try:
                for token in tokens:
                    await self._pause()
                    await response.write(sse(chunk(job, answer_id, {"content": token})))
            except Refused as aborted:
                await response.write(sse(aborted.body))
        if job.finish_reason is not None:
            await response.write(sse(chunk(job, answer_id, {}, job.finish_reason)))
            if job.include_usage:
                await response.write(sse({**chunk(job, answer_id, {}), "choices": [], "usage": usage(job)}))
            await response.write(DONE)
        return response

    async def _pause(self) -> None:
        """Before each token; for ever once the engine is wedged."""
        await asyncio.sleep(self._token_delay_s)
        if self.engine.wedged:
            await asyncio.Event().wait()

    async def wedge_when_paused(self) -> None:
        """Notice that the process was stopped meanwhile, and be wedged from then on."""
        while not self.engine.wedged:
            looked_s = time.monotonic()
            await asyncio.sleep(LOOKS_EVERY_S)
            self.engine.wedged = time.monotonic() - looked_s > WEDGING_PAUSE_S
        log.info("engine: stuck")

    @asynccontextmanager
    async def _answering(self, job: Job) -> AsyncIterator[Iterator[str]]:
        """The job's tokens, once a slot is free, and until they end or the client leaves."""
        self.engine.num_waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.engine.num_waiting -= 1
        is_free = True
        try:
            with self.engine.answering(job) as tokens:
                yield tokens
        except (asyncio.CancelledError, ConnectionError):
            is_free = self.engine.abandon()
            raise
        finally:
            if is_free:
                self._slots.release()
        log.info("%s: %d + %d tokens, %s", job.api, len(job.prompt), job.num_generated, job.finish_reason)

    async def _refused_in_stream(self, request: web.Request, refused: Refused) -> web.StreamResponse:
        response = await opened_stream(request)
        await response.write(sse(refused.body))
        await response.write(DONE)
        return response

    def _next_id(self, job: Job) -> str:
        return f"{'chatcmpl' if job.api is Api.CHAT else 'cmpl'}-{next(self._ids)}"


async def serve(server: Server, port: int) -> None:
    """Serve until SIGTERM or SIGINT; a handler whose client has left is cancelled."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True, shutdown_timeout=ENDING_S)
    await runner.setup()
    wedging = asyncio.create_task(server.wedge_when_paused()) if server.engine.departure.wedges else None
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        sys.stdout.write(f"READY http://127.0.0.1:{runner.addresses[0][1]}\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        if wedging is not None:
            wedging.cancel()
        await runner.cleanup()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the fake that the command line names."""
    parser = argparse.ArgumentParser(prog="fake_server", description="An LLM server that misbehaves in one way.")
    parser.add_argument("name", choices=[*DEPARTURES, *UNDER_FAULTS], help="what it does wrong")
    parser.add_argument("--window", type=int, default=256, help="tokens of prompt and reply together (%(default)s)")
    parser.add_argument("--slots", type=int, default=2, help="requests answered at once (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (%(default)s)")
    parser.add_argument("--token-delay-s", type=float, default=0.004, help="pause before each token (%(default)s)")
    options = parser.parse_args(argv)
    # A crash here is meant: it must look like a native server's, and leave neither a traceback nor a core file.
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    engine = Engine(window=options.window, departure={**DEPARTURES, **UNDER_FAULTS}[options.name])
    server = Server(engine, num_slots=options.slots, token_delay_s=options.token_delay_s)
    asyncio.run(serve(server, own_port(options.port)))


if __name__ == "__main__":
    main()
