"""The servers that speak OpenAI's language, and what each adds to it.

One `Flavour` for each: how it is recognised, where it declares its limits, how it counts tokens, and what it
measures of itself. Every function here takes `ask`, which puts one question to the server (`wire.Wire.ask`);
nothing is asked unless somebody calls.

    Greeting (GET /v1/models) ─▶ marks ─▶ landmark, one GET each ─▶ Flavour ─▶ about, count, gauges
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from contextlab.model import Api, Gauges, Layer, Limit, Limits, Message, UnableError
from contextlab.targets.openai.loose_json import first, rows, whole, within, words
from contextlab.targets.openai.metrics import Metrics
from contextlab.targets.openai.wire import Answer

BOTH = frozenset({Api.CHAT, Api.COMPLETIONS})
CARD_WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""What servers call the window on a model's card."""
LOAD_TIMEOUT_S = 60.0
"""Time for Ollama to load a model that nobody has used yet."""


class Ask(Protocol):
    """One question to the server: method, path under the root, JSON body, seconds to wait."""

    def __call__(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Awaitable[Answer]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a server's list of models tells of it: the answer, the models' cards, and the host it was asked at."""

    answer: Answer
    host: str

    @property
    def cards(self) -> list[Any]:
        """The models' cards, as the server lists them."""
        return rows(within(self.answer.json, "data"))

    def card(self, model: str) -> Any:
        """The card of one model; the only card there is if its name is not listed."""
        named = [card for card in self.cards if within(card, "id") == model]
        return named[0] if named else within(self.cards, 0)

    def owned_by(self, owner: str) -> bool:
        """Whether any model is said to belong to `owner`."""
        return any(within(card, "owned_by") == owner for card in self.cards)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a server says of itself: its limits and its version."""

    limits: Limits = field(default_factory=Limits)
    version: str = ""


async def _about_card(ask: Ask, model: str, greeting: Greeting) -> About:
    declared = _said(*(_card_window(greeting, model, name) for name in CARD_WINDOWS))
    return About(limits=Limits(context_tokens=_smallest(*declared), declared=declared))


async def _uncounted(ask: Ask, model: str, api: Api, messages: Sequence[Message]) -> int | None:
    return None


async def _unmeasured(ask: Ask) -> Gauges:
    return Gauges()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """One kind of server.

    `marks` recognises it by its list of models; `landmark` by what one more GET finds at a path.
    `count` gives None where the server cannot count this. `apis` None: they have to be tried.
    `guarded_path` wants the key where the list of models does not. `names_matter`: whether a request with a wrong
    model name is refused.
    """

    name: str
    marks: Callable[[Greeting], bool] = lambda greeting: False
    landmark: tuple[str, Callable[[Answer], bool]] | None = None
    about: Callable[[Ask, str, Greeting], Awaitable[About]] = _about_card
    count: Callable[[Ask, str, Api, Sequence[Message]], Awaitable[int | None]] = _uncounted
    gauges: Callable[[Ask], Awaitable[Gauges]] = _unmeasured
    health_path: str = "/health"
    apis: frozenset[Api] | None = BOTH
    ignores_eos: bool = False
    guarded_path: str = ""
    names_matter: bool = True


def chat_of(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as the chat endpoint takes them; a bare prompt is the user's."""
    return [{"role": "user" if one.role == "prompt" else one.role, "content": one.text} for one in messages]


def prompt_of(messages: Sequence[Message]) -> str:
    """Messages as the completions endpoint takes them."""
    return "".join(one.text for one in messages)


async def recognise(ask: Ask, greeting: Greeting) -> Flavour:
    """Which flavour a server is; the greeting is asked first, then the landmarks, one GET each."""
    for flavour in FLAVOURS.values():
        if flavour.marks(greeting):
            return flavour
    for flavour in FLAVOURS.values():
        if flavour.landmark:
            path, is_there = flavour.landmark
            try:
                if is_there(await ask("GET", path)):
                    return flavour
            except UnableError:  # it answered a moment ago: this path is merely not its own
                continue
    return OTHER


# ── llama-server ─────────────────────────────────────────────────────────────────────────────────


async def _about_llama(ask: Ask, model: str, greeting: Greeting) -> About:
    props = (await ask("GET", "/props")).json
    meta = within(greeting.card(model), "meta")
    source = "GET /props default_generation_settings.n_ctx"
    slot = _limit(Layer.ENGINE, "n_ctx", within(props, "default_generation_settings", "n_ctx"), source)
    if slot.tokens is None:
        slot = _limit(Layer.ENGINE, "n_ctx", within(meta, "n_ctx"), "GET /v1/models data[].meta.n_ctx")
    source = "GET /v1/models data[].meta.n_ctx_train"
    trained = _limit(Layer.POSITIONS, "n_ctx_train", within(meta, "n_ctx_train"), source)
    slots = whole(within(props, "total_slots"))
    limits = Limits(context_tokens=slot.tokens, num_slots=slots, declared=_said(slot, trained))
    build = words(within(props, "build_info"))
    return About(limits=limits, version="" if "unknown" in build else build)


async def _count_llama(ask: Ask, model: str, api: Api, messages: Sequence[Message]) -> int | None:
    prompt = prompt_of(messages)
    if api is Api.CHAT:
        chat = {"messages": chat_of(messages)}
        counted = whole(within((await ask("POST", "/v1/chat/completions/input_tokens", chat)).json, "input_tokens"))
        if counted is not None:
            return counted
        prompt = within((await ask("POST", "/apply-template", chat)).json, "prompt")
        if not isinstance(prompt, str):
            return None
    tokenized = await ask("POST", "/tokenize", {"content": prompt, "add_special": True})
    return _length(within(tokenized.json, "tokens"))


async def _gauge_llama(ask: Ask) -> Gauges:
    slots = (await ask("GET", "/slots")).json  # polled, this and /metrics keep the server from seeing who hung up
    metrics = Metrics.of((await ask("GET", "/metrics")).text)
    busy = sum(bool(within(slot, "is_processing")) for slot in slots) if isinstance(slots, list) else None
    return Gauges(
        busy_slots=metrics.count("llamacpp:requests_processing") if busy is None else busy,
        waiting_requests=metrics.count("llamacpp:requests_deferred"),
        generated_tokens=metrics.count("llamacpp:tokens_predicted_total"),
    )


# ── vLLM and SGLang ──────────────────────────────────────────────────────────────────────────────


async def _about_vllm(ask: Ask, model: str, greeting: Greeting) -> About:
    window = _card_window(greeting, model)
    cache = Metrics.of((await ask("GET", "/metrics")).text).labels("vllm:cache_config_info")
    num_blocks, block_size = whole(cache.get("num_gpu_blocks")), whole(cache.get("block_size"))
    size = num_blocks * block_size if num_blocks and block_size else None
    pool = _limit(Layer.KV_CACHE, "num_gpu_blocks * block_size", size, "GET /metrics vllm:cache_config_info")
    limits = Limits(context_tokens=window.tokens, pool_tokens=pool.tokens, declared=_said(window, pool))
    return About(limits=limits, version=words(within((await ask("GET", "/version")).json, "version")))


async def _about_sglang(ask: Ask, model: str, greeting: Greeting) -> About:
    source, answer = "GET /get_server_info", await ask("GET", "/get_server_info")
    if not answer.ok:
        source, answer = "GET /server_info", await ask("GET", "/server_info")
    info = answer.json
    size = first(within(info, "max_total_num_tokens"), within(info, "internal_states", 0, "max_total_num_tokens"))
    card = _card_window(greeting, model)
    context = _limit(Layer.ENGINE, "context_length", within(info, "context_length"), f"{source} context_length")
    prompt = _limit(Layer.ENGINE, "max_req_input_len", within(info, "max_req_input_len"), f"{source} max_req_input_len")
    pool = _limit(Layer.KV_CACHE, "max_total_num_tokens", size, f"{source} max_total_num_tokens")
    limits = Limits(
        context_tokens=_smallest(card, context),
        pool_tokens=pool.tokens,
        declared=_said(card, context, prompt, pool),
    )
    return About(limits=limits, version=words(within(info, "version")))


async def _count_vllm(ask: Ask, model: str, api: Api, messages: Sequence[Message]) -> int | None:
    text = {"messages": chat_of(messages)} if api is Api.CHAT else {"prompt": prompt_of(messages)}
    counted = (await ask("POST", "/tokenize", {"model": model, **text})).json
    return whole(within(counted, "count"))


async def _gauge_vllm(ask: Ask) -> Gauges:
    metrics = Metrics.of((await ask("GET", "/metrics")).text)
    usage = metrics.largest("vllm:kv_cache_usage_perc")
    return Gauges(
        busy_slots=metrics.count("vllm:num_requests_running"),
        waiting_requests=metrics.count("vllm:num_requests_waiting"),
        preemptions=metrics.count("vllm:num_preemptions_total"),
        kv_usage_ratio=metrics.largest("vllm:gpu_cache_usage_perc") if usage is None else usage,
        generated_tokens=metrics.count("vllm:generation_tokens_total"),
    )


async def _gauge_sglang(ask: Ask) -> Gauges:
    metrics = Metrics.of((await ask("GET", "/metrics")).text)

    def number(name: str) -> int | None:  # every rank of a model tells the same number
        return whole(metrics.largest(name))

    return Gauges(
        busy_slots=number("sglang:num_running_reqs"),
        waiting_requests=number("sglang:num_queue_reqs"),
        preemptions=number("sglang:num_retracted_requests_total"),
        kv_usage_ratio=metrics.largest("sglang:token_usage"),
        generated_tokens=number("sglang:generation_tokens_total"),
    )


async def _gauge_fake(ask: Ask) -> Gauges:
    metrics = Metrics.of((await ask("GET", "/metrics")).text)
    return Gauges(
        busy_slots=metrics.count("fake:requests_running"),
        waiting_requests=metrics.count("fake:requests_waiting"),
        generated_tokens=metrics.count("fake:tokens_generated"),
    )


# ── Ollama, TGI, LiteLLM ─────────────────────────────────────────────────────────────────────────


async def _about_ollama(ask: Ask, model: str, greeting: Greeting) -> About:
    details = (await ask("POST", "/api/show", {"model": model})).json
    info = within(details, "model_info")
    positions = (info[name] for name in info if name.endswith(".context_length")) if isinstance(info, dict) else ()
    asked = re.search(r"^num_ctx\s+(\d+)", words(within(details, "parameters")), re.MULTILINE)
    window = await _loaded_window(ask, model)
    if window is None:  # only a loaded model has a window, and the first request would load it anyway
        await ask("POST", "/api/generate", {"model": model}, LOAD_TIMEOUT_S)
        window = await _loaded_window(ask, model)
    loaded = _limit(Layer.ENGINE, "context_length", window, "GET /api/ps models[].context_length")
    num_ctx = _limit(Layer.ENGINE, "num_ctx", asked and asked[1], "POST /api/show parameters num_ctx")
    trained = _limit(Layer.POSITIONS, "context_length", next(iter(positions), None), "POST /api/show model_info")
    limits = Limits(context_tokens=first(loaded.tokens, num_ctx.tokens), declared=_said(loaded, num_ctx, trained))
    return About(limits=limits, version=words(within((await ask("GET", "/api/version")).json, "version")))


async def _loaded_window(ask: Ask, model: str) -> int | None:
    names = (model, f"{model}:latest")
    running = rows(within((await ask("GET", "/api/ps")).json, "models"))
    ours = (one for one in running if within(one, "name") in names or within(one, "model") in names)
    return whole(within(next(ours, None), "context_length"))


async def _about_tgi(ask: Ask, model: str, greeting: Greeting) -> About:
    info = (await ask("GET", "/info")).json
    window, prompt, pool = (
        _limit(layer, name, within(info, name), f"GET /info {name}")
        for layer, name in (
            (Layer.GATEWAY, "max_total_tokens"),
            (Layer.GATEWAY, "max_input_tokens"),
            (Layer.KV_CACHE, "max_batch_total_tokens"),
        )
    )
    limits = Limits(context_tokens=window.tokens, pool_tokens=pool.tokens, declared=_said(window, prompt, pool))
    return About(limits=limits, version=words(within(info, "version")))


async def _count_tgi(ask: Ask, model: str, api: Api, messages: Sequence[Message]) -> int | None:
    if api is Api.CHAT:
        counted = await ask("POST", "/chat_tokenize", {"model": model, "messages": chat_of(messages)})
        return _length(within(counted.json, "tokenize_response"))
    return _length((await ask("POST", "/tokenize", {"inputs": prompt_of(messages)})).json)


async def _about_litellm(ask: Ask, model: str, greeting: Greeting) -> About:
    models = rows(within((await ask("GET", "/model/info")).json, "data"))
    windows = (within(row, "model_info", "max_input_tokens") for row in models if within(row, "model_name") == model)
    source = "GET /model/info data[].model_info.max_input_tokens"
    declared = _said(*(_limit(Layer.GATEWAY, "max_input_tokens", window, source) for window in windows))
    version = words(within((await ask("GET", "/health/readiness")).json, "litellm_version"))
    return About(limits=Limits(context_tokens=_smallest(*declared), declared=declared), version=version)


async def _count_litellm(ask: Ask, model: str, api: Api, messages: Sequence[Message]) -> int | None:
    text = {"messages": chat_of(messages)} if api is Api.CHAT else {"prompt": prompt_of(messages)}
    counted = (await ask("POST", "/utils/token_counter", {"model": model, **text})).json
    tokenizer, counted_as = within(counted, "tokenizer_type"), words(within(counted, "model_used"))
    if tokenizer == "openai_tokenizer" and not re.search(r"gpt|\bo\d", counted_as):
        return None  # its guess for every model whose tokenizer it does not have
    return whole(within(counted, "total_tokens"))


def _limit(layer: Layer, name: str, value: Any, source: str) -> Limit:
    return Limit(layer=layer, name=name, tokens=whole(value), source=source)


def _card_window(greeting: Greeting, model: str, name: str = "max_model_len") -> Limit:
    """The window on a model's card, or on the base model's where its own (an adapter's) has none."""
    cards = (greeting.card(model), within(greeting.cards, 0))
    return _limit(Layer.ENGINE, name, first(*(within(card, name) for card in cards)), f"GET /v1/models data[].{name}")


def _said(*limits: Limit) -> tuple[Limit, ...]:
    return tuple(limit for limit in limits if limit.tokens is not None)


def _smallest(*limits: Limit) -> int | None:
    return min((limit.tokens for limit in limits if limit.tokens is not None), default=None)


def _length(tokens: Any) -> int | None:
    return len(tokens) if isinstance(tokens, list) else None


# ── the table ────────────────────────────────────────────────────────────────────────────────────

OTHER = Flavour(name="other", apis=None)

FLAVOURS: Mapping[str, Flavour] = {
    flavour.name: flavour
    for flavour in (
        Flavour(
            name="llama-server",
            marks=lambda greeting: (
                greeting.owned_by("llamacpp") or greeting.answer.headers.get("server") == "llama.cpp"
            ),
            landmark=("/props", lambda answer: within(answer.json, "default_generation_settings") is not None),
            about=_about_llama,
            count=_count_llama,
            gauges=_gauge_llama,
            ignores_eos=True,
            guarded_path="/props",
            names_matter=False,
        ),
        Flavour(
            name="sglang",
            marks=lambda greeting: greeting.owned_by("sglang"),
            landmark=("/get_model_info", lambda answer: within(answer.json, "model_path") is not None),
            about=_about_sglang,
            count=_count_vllm,
            gauges=_gauge_sglang,
            ignores_eos=True,
        ),
        Flavour(
            name="vllm",
            marks=lambda greeting: greeting.owned_by("vllm"),
            about=_about_vllm,
            count=_count_vllm,
            gauges=_gauge_vllm,
            ignores_eos=True,
        ),
        Flavour(
            name="openai",
            marks=lambda greeting: greeting.host == "api.openai.com" or "openai-version" in greeting.answer.headers,
            apis=frozenset({Api.CHAT}),
            health_path="",
        ),
        Flavour(
            name="tgi",
            landmark=("/info", lambda answer: within(answer.json, "max_total_tokens") is not None),
            about=_about_tgi,
            count=_count_tgi,
        ),
        Flavour(
            name="ollama",
            marks=lambda greeting: greeting.owned_by("library"),
            landmark=("/", lambda answer: answer.text.strip() == "Ollama is running"),
            about=_about_ollama,
            health_path="/",
        ),
        Flavour(
            name="litellm",
            marks=lambda greeting: any(name.startswith("x-litellm-") for name in greeting.answer.headers),
            landmark=("/health/liveliness", lambda answer: "I'm alive" in answer.text),
            about=_about_litellm,
            count=_count_litellm,
            health_path="/health/liveliness",
        ),
        Flavour(
            name="hosted",  # a target of ours that lives in a process, behind `lab/chaos/host.py`
            marks=lambda greeting: greeting.owned_by("contextlab-host"),
            ignores_eos=True,
        ),
        Flavour(
            name="fake",
            marks=lambda greeting: greeting.owned_by("contextlab-fake"),
            gauges=_gauge_fake,
            ignores_eos=True,
        ),
        OTHER,
    )
}
