"""Any server that speaks OpenAI's language: what is asked of it once, and how a request becomes events.

    http://HOST:PORT[/v1] ─▶ Wire ─▶ learn: flavour, model, limits, powers ─▶ Knowledge
                               └──▶ HttpTarget.stream: one request ─▶ a Reader ─▶ events

`learn` asks once a run. A target opened with what it learnt sends nothing but the requests it is given, so a
probe never disturbs the server that it watches.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from contextlab.model import (
    Api,
    Event,
    Gauges,
    Kind,
    Knowledge,
    Layer,
    Limit,
    Limits,
    Message,
    Request,
    Setting,
    TargetSpec,
    UnableError,
    UsageError,
)
from contextlab.targets.openai.flavours import FLAVOURS, OTHER, Flavour, Greeting, chat_of, prompt_of, recognise
from contextlab.targets.openai.loose_json import within
from contextlab.targets.openai.replies import Reader, Refusal, Streamed, Whole
from contextlab.targets.openai.wire import ANSWER_TIMEOUT_S, Address, Answer, Wire, arrived, open_wire, shown

__all__ = ["ALSO", "SCHEME", "SETTINGS", "HttpTarget", "check", "open_target", "shown", "url_of"]

SCHEME = "http"
ALSO = ("https",)
SETTINGS: tuple[Setting, ...] = (
    Setting(name="model", kind="text", default=None, help="the model to ask for (default: the first one it lists)"),
    Setting(
        name="api_key_env",
        kind="text",
        default="CONTEXTLAB_API_KEY",
        help="the environment variable that holds the key; the key itself is never recorded",
    ),
    Setting(
        name="window",
        kind="int",
        default=None,
        low=1,
        unit="tokens",
        help="the context window, for a server that does not say or says it wrongly",
    ),
    Setting(
        name="connect_timeout_s", kind="float", default=5.0, low=0.001, unit="s", help="time to wait for a connection"
    ),
    Setting(
        name="answer_timeout_s",
        kind="float",
        default=None,
        low=0.001,
        unit="s",
        help=f"time to wait for what the server says of itself (default: {ANSWER_TIMEOUT_S:g}); for replies: --timeout",
    ),
    Setting(
        name="chars_per_token",
        kind="float",
        default=None,
        low=0.1,
        unit="characters",
        help="the last resort where a server counts no tokens: an estimate, never exact",
    ),
)

SCHEMES_WITH_THESE_SETTINGS = frozenset({SCHEME, *ALSO, "run"})
"""A server of ours is opened here too; its settings are its own, though some have the same names."""
PATHS = {Api.CHAT: "/v1/chat/completions", Api.COMPLETIONS: "/v1/completions"}
ABSENT = frozenset({404, 405, 501})
"""What a server answers where it has no such endpoint."""
LOADING_TIMEOUT_S = 60.0
LOADING_PAUSE_S = 0.5
HEALTH_TIMEOUT_S = 10.0
LINGER_S = 2.0
"""Time to go on reading after `[DONE]` or an error: what follows them is a finding, waiting for it for ever is not."""


def url_of(spec: TargetSpec) -> str:
    """The URL that the user means; HOST:PORT alone is one too."""
    return spec.address if "://" in spec.address else f"{spec.scheme}://{spec.address.lstrip('/')}"


def check(spec: TargetSpec) -> None:
    """Look at the address and the settings, without a request. Raises UsageError for what cannot be meant."""
    _address(spec, _settings(spec))


def address_of(spec: TargetSpec) -> Address:
    """Where a target answers and what proves who asks; `url` first, where the tool started it. Raises UsageError."""
    there = replace(spec, address=spec.url or spec.address)
    return _address(there, _settings(there))


def _settings(spec: TargetSpec) -> dict[str, Any]:
    given = spec.settings if spec.scheme in SCHEMES_WITH_THESE_SETTINGS else {}
    return {one.name: given.get(one.name, one.default) for one in SETTINGS}


def _address(spec: TargetSpec, settings: Mapping[str, Any]) -> Address:
    key_name = str(settings["api_key_env"])
    if not re.fullmatch(r"[A-Za-z_]\w*", key_name, re.ASCII):  # it may be the key itself, so it is not repeated
        raise UsageError("api_key_env is not the name of an environment variable", "put the key into one, and name it")
    return Address.of(url_of(spec), key_name)


@asynccontextmanager
async def open_target(spec: TargetSpec, knowledge: Knowledge | None = None) -> AsyncIterator[HttpTarget]:
    """Open the server at `spec.address`, with or without `/v1`; leaving closes every connection.

    Without `knowledge` it is asked what it is; with it, nothing is sent. Raises UsageError for an address or a
    setting that cannot be meant, and UnableError where the server cannot be reached or does not do as an API.
    """
    settings = _settings(spec)
    address = _address(spec, settings)
    async with open_wire(address, settings["connect_timeout_s"], settings["answer_timeout_s"]) as wire:
        knowledge = knowledge or await learn(wire, settings)
        yield HttpTarget(wire, knowledge, settings["chars_per_token"])


class HttpTarget:
    """An OpenAI-compatible server, open. Counts tokens, tells its health and its gauges where its flavour can."""

    def __init__(self, wire: Wire, knowledge: Knowledge, chars_per_token: float | None = None) -> None:
        self._wire = wire
        self._knowledge = knowledge
        self._flavour = FLAVOURS.get(knowledge.flavour, OTHER)
        self._chars_per_token = chars_per_token

    def __repr__(self) -> str:
        return f"HttpTarget({self._wire.address.root}, {self._knowledge.flavour}, {self._knowledge.model})"

    @property
    def knowledge(self) -> Knowledge:
        """What the server says of itself."""
        return self._knowledge

    def knowing(self, knowledge: Knowledge) -> HttpTarget:
        """The same open server, of which its owner knows more than it tells."""
        return HttpTarget(self._wire, knowledge, self._chars_per_token)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Send a rendered request and yield what comes back; cancelling or closing it hangs up.

        `num_bytes` of a TOKEN is the size of the JSON text it came in. Whatever the server does is an event.
        """
        import aiohttp

        body = body_of(request, self._knowledge)
        try:
            async with self._wire.request("POST", PATHS[request.api], body) as response:
                yield Event(kind=Kind.OPENED, status=response.status)
                reader = _reader_for(response, wants_stream=request.stream)
                while True:
                    try:
                        async with asyncio.timeout(LINGER_S if reader.settled else None):
                            chunk = await response.content.readany()
                    except TimeoutError:
                        return
                    except aiohttp.ClientPayloadError:
                        for event in reader.feed(arrived(response.content)):
                            yield self._recordable(event)
                        raise
                    for event in reader.feed(chunk) if chunk else reader.close():
                        yield self._recordable(event)
                    if not chunk:
                        return
        except (aiohttp.ClientError, OSError, ValueError) as error:
            yield Event(kind=Kind.FAILED, failure=self._wire.failure(error))

    async def count_tokens(self, api: Api, messages: Sequence[Message]) -> int:
        """Number of prompt tokens, template included, as the server counts them.

        Where it cannot: an estimate by `chars_per_token` if that is set, else UnableError.
        """
        counted = await self._flavour.count(self._wire.ask, self._knowledge.model, api, messages)
        if counted is not None:
            return counted
        if self._chars_per_token:
            return math.ceil(len(prompt_of(messages)) / self._chars_per_token)
        message = f"{self._wire.address.root} ({self._flavour.name}) does not count the tokens of a {api} prompt"
        next_step = "turn its usage reporting on, or give an estimate to size prompts by: --set chars_per_token=4"
        raise UnableError(message, next_step)

    async def healthy(self) -> tuple[bool, str]:
        """Whether the server says it is well, and its words; where it has no health endpoint, whether it answers."""
        path = self._flavour.health_path if "health" in self._knowledge.powers else "/v1/models"
        try:
            answer = await self._wire.ask("GET", path, timeout_s=HEALTH_TIMEOUT_S)
        except UnableError as error:
            return False, error.message
        return answer.ok, f"GET {path}: {answer.status} {answer.reason}".rstrip() if answer.ok else answer.message

    async def gauges(self) -> Gauges:
        """One reading; all None where the server measures nothing or does not answer."""
        try:
            return await self._flavour.gauges(self._wire.ask)
        except UnableError:
            return Gauges()

    def _recordable(self, event: Event) -> Event:
        clean = self._wire.address.clean
        if event.text:
            return replace(event, text=clean(event.text))
        if event.failure is None:
            return event
        failure = event.failure
        cleaned = replace(
            failure,
            message=clean(failure.message),
            error_type=clean(failure.error_type),
            fields={clean(key): clean(one) if isinstance(one, str) else one for key, one in failure.fields.items()},
        )
        return replace(event, failure=cleaned)


def body_of(request: Request, knowledge: Knowledge) -> dict[str, Any]:
    """The JSON body of a rendered request: greedy and seeded, so that the same request gives the same answer."""
    body: dict[str, Any] = {"model": knowledge.model}
    if request.api is Api.CHAT:
        body["messages"] = chat_of(request.messages)
    else:
        body["prompt"] = prompt_of(request.messages)
    if request.reply_tokens is not None:
        body["max_tokens"] = request.reply_tokens
    body |= {"temperature": 0, "seed": 1, "stream": request.stream}
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    if request.ignore_eos and "ignores-eos" in knowledge.powers:
        body["ignore_eos"] = True
    return body


def _reader_for(response: Any, *, wants_stream: bool) -> Reader:
    """The reader for an aiohttp response; a success that calls itself neither JSON nor HTML is what was asked for."""
    if not 200 <= response.status < 300:
        return Refusal(response.status, response.reason)
    kind = response.content_type
    if kind == "text/event-stream" or (wants_stream and "json" not in kind and "html" not in kind):
        return Streamed(response.status)
    return Whole(response.status)


# ── what is asked once ───────────────────────────────────────────────────────────────────────────


async def learn(wire: Wire, settings: Mapping[str, Any]) -> Knowledge:
    """Ask a server what it is and what it can do. Raises UnableError where it is no API or cannot serve."""
    greeting = await _greeting(wire)
    flavour = await recognise(wire.ask, greeting)
    if flavour.guarded_path:
        _check_key(wire, f"GET {flavour.guarded_path}", await wire.ask("GET", flavour.guarded_path))
    model = _model(wire, settings["model"], greeting, flavour)
    about = await flavour.about(wire.ask, model, greeting)
    known = Knowledge(
        flavour=flavour.name,
        model=model,
        limits=_limits(wire, about.limits, settings["window"]),
        version=wire.address.clean(about.version),
    )
    apis = await _tried_apis(wire, known) if flavour.apis is None else flavour.apis
    gauges = await flavour.gauges(wire.ask)
    powers = {str(api) for api in apis} | {"serves-many"}
    if flavour.ignores_eos:
        powers.add("ignores-eos")
    if await _counts(wire, flavour, model, apis):
        powers.add("counts-tokens")
    if gauges != Gauges():
        powers.add("gauges")
    if flavour.health_path and (await wire.ask("GET", flavour.health_path)).status not in ABSENT:
        powers.add("health")
    return replace(known, powers=frozenset(powers), gauges=gauges if gauges != Gauges() else None)


async def _greeting(wire: Wire) -> Greeting:
    """The list of models, or what stands in its place; waits while a model is loading (503)."""
    question, why = f"GET {wire.address.root}/v1/models", ""
    try:
        async with asyncio.timeout(LOADING_TIMEOUT_S):
            while (answer := await wire.ask("GET", "/v1/models")).status == 503:
                why = answer.message
                await asyncio.sleep(LOADING_PAUSE_S)
    except TimeoutError:
        message = f"{question}: still 503 ({why or 'no answer'}) after {LOADING_TIMEOUT_S:g} s of waiting for the model"
        raise UnableError(message, "wait until it is loaded, or see the server's log") from None
    _check_key(wire, question, answer)
    if answer.status in {502, 504}:
        raise UnableError(f"{question}: {answer.status} ({answer.message})", "is the server behind this gateway up?")
    if answer.html:
        raise UnableError(f"{question}: a web page, not an API ({answer.message})", "is this the right port and path?")
    if 300 <= answer.status < 400:
        there = shown(wire.address.clean(answer.headers.get("location", "another address")))
        raise UnableError(f"{question}: moved to {there}", "give that address")
    if not answer.ok and answer.status not in ABSENT:
        raise UnableError(f"{question}: {answer.status} ({answer.message})", "see the server's log")
    if answer.ok and not isinstance(answer.json, dict):
        raise UnableError(f"{question}: not JSON ({answer.message})", "is this the right port and path?")
    return Greeting(answer=answer, host=wire.address.host)


def _check_key(wire: Wire, question: str, answer: Answer) -> None:
    if answer.status in {401, 403}:
        raise UnableError(f"{question}: {answer.status} ({answer.message})", wire.address.advice)


def _model(wire: Wire, asked: str | None, greeting: Greeting, flavour: Flavour) -> str:
    """The model to ask for: the one named, if it is served, else the first one listed."""
    names = (within(card, "id") for card in greeting.cards)
    served = [name for name in names if isinstance(name, str)]
    if asked is None:
        if served:
            return served[0]
        if greeting.answer.ok:
            raise UnableError(f"{wire.address.root} serves no model", "load one into the server")
        raise UnableError(f"{wire.address.root} does not list its models", "name one: --set model=NAME")
    known = not served or asked in served or f"{asked}:latest" in served or any("*" in name for name in served)
    if known or not flavour.names_matter:
        return asked
    close = get_close_matches(asked, served, n=1)
    few = ", ".join(served[:10]) + (f" and {len(served) - 10} more" if len(served) > 10 else "")
    next_step = f"did you mean {close[0]}?" if close else "name one of these, or none to take the first"
    raise UnableError(f"model={asked}: {wire.address.root} serves {few}", next_step)


def _limits(wire: Wire, limits: Limits, window: int | None) -> Limits:
    """The declared limits, the user's own window in their place if there is one."""
    if window is not None:
        if window < 1:
            raise UsageError(f"window={window}: a window has at least 1 token")
        said = Limit(layer=Layer.ENGINE, name="window", tokens=window, source="--set window")
        return replace(limits, context_tokens=window, declared=(*limits.declared, said))
    if limits.context_tokens is not None and limits.context_tokens < 1:
        message = f"{wire.address.root} declares a window of {limits.context_tokens} tokens, which has no room"
        raise UnableError(message, "see its settings, or give the real one: --set window=TOKENS")
    return limits


async def _tried_apis(wire: Wire, known: Knowledge) -> frozenset[Api]:
    """The endpoints that answer a request for one token with anything but "no such endpoint"."""
    found = set()
    for api, path in PATHS.items():
        hello = Message(role="user", parts=("Hello",))
        request = Request(name="hello", messages=(hello,), api=api, reply_tokens=1, stream=False)
        answer = await wire.ask("POST", path, body_of(request, known))
        _check_key(wire, f"POST {wire.address.root}{path}", answer)
        if answer.status not in ABSENT and not answer.html:
            found.add(api)
    if not found:
        message = f"{wire.address.root} has neither {' nor '.join(PATHS.values())}"
        raise UnableError(message, "is this the right port and path?")
    return frozenset(found)


async def _counts(wire: Wire, flavour: Flavour, model: str, apis: frozenset[Api]) -> bool:
    """Whether the server counts the prompts of every endpoint it has."""
    hello = (Message(role="user", parts=("Hello",)),)
    return all([await flavour.count(wire.ask, model, api, hello) is not None for api in sorted(apis)])
