"""`hf:DIR`, `hf:FILE.gguf` and `hf:random/ARCHITECTURE`: a transformers model in this process, as the library runs it.

    request ─▶ tokens ─▶ prefill through a cache ─▶ one greedy token a step ─▶ events

There is no server between us and the model, so nothing refuses, cuts or hides anything but the library itself. An
exception of the library is the event FAILED with `where` "exception". Nothing is ever downloaded.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contextlab.capacity.limits import limits_of, reach_tokens
from contextlab.capacity.shape import PositionKind
from contextlab.model import (
    Api,
    Event,
    Evidence,
    Failure,
    Gauges,
    Kind,
    Knowledge,
    Layer,
    Limit,
    Limits,
    Message,
    Request,
    Setting,
    Settings,
    TargetSpec,
    UnableError,
    Usage,
    UsageError,
)
from contextlab.targets.inside import batches, memory_tasks
from contextlab.targets.inside.library import start_torch, words_of
from contextlab.targets.inside.load import RANDOM, SMOLLM2, Loaded, Source, find, load
from contextlab.targets.inside.random_models import DEFAULT_WINDOW

SCHEME = "hf"
IN_PROCESS = True

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="attention",
        kind="text",
        default=None,
        choices=("eager", "sdpa"),
        help="attention implementation; by default the library's choice for the model",
    ),
    Setting(
        name="dtype",
        kind="text",
        default="float32",
        choices=("float32", "bfloat16", "float16"),
        help="type of weights and cache",
    ),
    Setting(
        name="cache",
        kind="text",
        default="dynamic",
        choices=("dynamic", "static", "quantised"),
        help="KV cache: it grows, or has max_cache_len tokens, or is kept in fp8",
    ),
    Setting(
        name="max_cache_len",
        kind="int",
        default=None,
        low=1,
        high=1 << 24,
        unit="tokens",
        help="length of a static cache (default: the model's positions)",
    ),
    Setting(name="device", kind="text", default="cpu", choices=("cpu", "cuda"), help="where the model runs"),
    Setting(
        name="threads",
        kind="int",
        default=1,
        low=1,
        high=1024,
        help="torch threads; more than there are idle cores makes it collapse",
    ),
    Setting(
        name="window",
        kind="int",
        default=None,
        low=80,
        high=1 << 20,
        unit="tokens",
        help=f"of hf:random, the positions it has (default {DEFAULT_WINDOW}); else the window to probe around",
    ),
)

AXES = batches.AXES
"""What a sweep can vary besides: the task "batch-speed" takes these in `about`."""

PRESETS = {f"{SCHEME}:{SMOLLM2}": TargetSpec(name=f"{SCHEME}:{SMOLLM2}", scheme=SCHEME, address=SMOLLM2)}

KIB = 1 if sys.platform == "darwin" else 1024
"""Bytes in the unit of `ru_maxrss`."""
CLEAN_TASKS = frozenset(memory_tasks.TASKS)
"""What they break, and measure, is the memory of their process: nothing else is to be in it."""
_WARM: list[Loaded] = []
"""What `warm_up` has loaded."""
DEFAULT_NEW_TOKENS = 20
"""What the library's generate() adds where neither the request nor the model sets an end."""


@asynccontextmanager
async def open_target(spec: TargetSpec, knowledge: Knowledge | None = None) -> AsyncIterator[HfTarget]:
    """Find the model and check its files; it is loaded when it is first asked for something.

    Raises UsageError for a model or a setting that cannot be meant, UnableError for files that cannot be loaded.
    """
    source, settings = _meant(spec)
    yield HfTarget(source, settings, knowledge)


def _meant(spec: TargetSpec) -> tuple[Source, dict[str, Any]]:
    settings = {one.name: spec.settings.get(one.name, one.default) for one in SETTINGS}
    window = settings["window"]
    source = find(spec.address, int(window) if window else None)
    return source, checked(settings, source)


def warm_up(spec: TargetSpec) -> bool:
    """Load the model, with one thread, for the targets of the processes that will be forked from this one.

    False where there is a GPU: what has been opened of it does not survive a fork.
    """
    source, settings = _meant(spec)
    if settings["device"] != "cpu" or any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists():
        return False
    _WARM.append(replace(load(source, {**settings, "threads": 1}), settings=settings))
    return True


def checked(settings: Settings, source: Source) -> dict[str, Any]:
    """The settings, with the length of a static cache filled in. Raises UsageError for those that contradict."""
    filled = dict(settings)
    if filled["cache"] != "static":
        if filled["max_cache_len"] is not None:
            raise UsageError(
                f"max_cache_len={filled['max_cache_len']}: a {filled['cache']} cache has no length of its own",
                "add --set cache=static, or leave it out",
            )
        return filled
    filled["max_cache_len"] = filled["max_cache_len"] or reach_tokens(source.shape) or filled["window"]
    if filled["max_cache_len"] is None:
        raise UsageError("cache=static: how long? The model declares no positions", "add --set max_cache_len=TOKENS")
    return filled


# ── what is known of it ──────────────────────────────────────────────────────────────────────────


def known(loaded: Loaded) -> Knowledge:
    """The limits by layer and the powers; the window of a request is the first limit that really ends one."""
    powers = {"completions", "counts-tokens", "ignores-eos", "gauges", "tasks", "memory-tasks"}
    if getattr(loaded.tokenizer, "chat_template", None):
        powers.add("chat")
    if (loaded.settings.get("device") or "cpu") == "cpu":
        powers.add("host-memory")
    return Knowledge(
        flavour="transformers",
        model=loaded.source.name,
        limits=_limits(loaded),
        powers=frozenset(powers),
        version=f"{version('transformers')}, torch {version('torch')}",
    )


def _limits(loaded: Loaded) -> Limits:
    source, settings = loaded.source, loaded.settings
    declared = list(limits_of(source.shape, tokenizer=loaded.tokenizer_limit, generation=source.generation))
    kind = source.shape.positions.kind
    ends = [reach_tokens(source.shape)]
    if kind in (PositionKind.ALIBI, PositionKind.NONE):  # what such a model calls its length ends nothing
        words, ends = f" ({kind}: no range)", []
        declared = [
            replace(limit, name=limit.name + words, tokens=None) if limit.layer is Layer.POSITIONS else limit
            for limit in declared
        ]
    if settings.get("cache") == "static":
        tokens = int(settings["max_cache_len"] or 0)
        declared.append(Limit(layer=Layer.KV_CACHE, name="max_cache_len", tokens=tokens, source="--set max_cache_len"))
        ends.append(tokens)
    window = min((tokens for tokens in ends if tokens is not None), default=None)
    if settings.get("window") and not source.name.startswith(RANDOM):
        window = int(settings["window"] or 0)
        declared.append(Limit(layer=Layer.ENGINE, name="window", tokens=window, source="--set window"))
    return Limits(context_tokens=window, declared=tuple(declared))


# ── the target ───────────────────────────────────────────────────────────────────────────────────


class HfTarget:
    """A model of this process, open. It answers one request at a time; a prefill holds the event loop.

    Tasks around memory need no model, and load none.
    """

    def __init__(self, source: Source, settings: Settings, knowledge: Knowledge | None = None) -> None:
        self._source = source
        self._settings = settings
        self._known = knowledge

    def __repr__(self) -> str:
        return f"HfTarget({self._source.name})"

    @property
    def knowledge(self) -> Knowledge:
        """What its files and its settings say."""
        if self._known is None:
            self._known = known(self._loaded)
        return self._known

    @cached_property
    def _loaded(self) -> Loaded:
        for warm in _WARM:
            if (warm.source, warm.settings) == (self._source, self._settings):
                start_torch(int(self._settings.get("threads") or 1))
                return warm
        return load(self._source, self._settings)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Generate greedily and yield each token; whatever the library raises is an event."""
        yield Event(kind=Kind.OPENED)
        loaded, reply, shown = self._loaded, list[int](), ""
        try:
            prompt = loaded.prompt_ids(request.api, request.messages)
            steps = self._steps(prompt, request)
        except Exception as error:
            yield _failed(error)
            return
        finish = "length"
        while True:
            try:
                token = next(steps, None)
                if token is None:
                    break
                if token == loaded.tokenizer.eos_token_id and not request.ignore_eos:
                    finish = "stop"
                    break
                reply.append(token)
                text = loaded.tokenizer.decode(reply, skip_special_tokens=True)
            except Exception as error:
                yield _failed(error)
                return
            whole = text if not text.endswith("\N{REPLACEMENT CHARACTER}") else shown  # an unfinished character waits
            yield Event(kind=Kind.TOKEN, text=whole[len(shown) :])
            shown = whole
            await asyncio.sleep(0)
        yield Event(kind=Kind.FINISHED, finish_reason=finish)
        usage = Usage(
            prompt_tokens=len(prompt),
            completion_tokens=len(reply),
            evaluated_tokens=len(prompt),
            truncated=False,
        )
        yield Event(kind=Kind.USAGE, usage=usage)
        yield Event(kind=Kind.DONE)

    def _steps(self, prompt: list[int], request: Request) -> Iterator[int]:
        most = request.reply_tokens
        if most is None:  # as generate() ends where nobody says otherwise
            window = self.knowledge.limits.context_tokens
            most = DEFAULT_NEW_TOKENS if window is None else max(0, window - len(prompt))
        return greedy(self._loaded, prompt, most)

    async def count_tokens(self, api: Api, messages: Sequence[Message]) -> int:
        """Number of prompt tokens, by the model's own tokenizer."""
        return len(self._loaded.prompt_ids(api, messages))

    async def gauges(self) -> Gauges:
        """The memory of this process, at its largest: the model, and what the last request took."""
        return Gauges(memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB)

    async def perform(self, task: str, about: Mapping[str, int | float | str]) -> AsyncGenerator[Evidence, None]:
        """Carry out a task; the library's own errors are measurements. Raises UnableError for an unknown one."""
        for measured in self._measurements(task, about):
            yield measured
            await asyncio.sleep(0)

    def _measurements(self, task: str, about: Mapping[str, int | float | str]) -> Iterator[Evidence]:
        from contextlab.targets.inside.tasks import TASKS

        if task in memory_tasks.TASKS:
            return memory_tasks.TASKS[task](about)
        if task in TASKS:
            return TASKS[task](self._loaded, about)
        names = ", ".join([*TASKS, *memory_tasks.TASKS])
        raise UnableError(f"task={task!r}: an hf target cannot carry it out", f"it can: {names}")


def greedy(loaded: Loaded, prompt: Sequence[int], max_tokens: int) -> Iterator[int]:
    """The most likely token at each step, through the cache of the settings; raises what the library raises."""
    cache = loaded.usual_cache(len(prompt) + max_tokens)
    feed = list(prompt)
    for _ in range(max_tokens):
        token = int(loaded.logits(feed, cache=cache)[-1].argmax())
        yield token
        feed = [token]


def _failed(error: Exception) -> Event:
    words = words_of(error)
    failure = Failure(where="exception", message=words["error"], error_type=words["error_type"])
    return Event(kind=Kind.FAILED, failure=failure)
