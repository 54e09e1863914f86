"""The child side of a probe: opens the target, sends the requests, and reports each event as it happens.

    order (one JSON line on standard input) ─▶ open target ─▶ neighbour ─▶ requests ─▶ aftermath ─▶ observed
                                                  every event: one JSON line on the event pipe, unbuffered

It judges nothing. If it dies, or the target inside it does, what it had reported is on record in the parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random

import msgspec

from contextlab.analysis import prompts
from contextlab.analysis.exchanges import answered, fold, ttft_s
from contextlab.lab.journal import plain, revive
from contextlab.lab.render import Rendered, render
from contextlab.model import (
    Api,
    ContextlabError,
    CountsTokens,
    Event,
    Exchange,
    Failure,
    Gauges,
    HasGauges,
    HasHealth,
    Health,
    Kind,
    Knowledge,
    Message,
    Performs,
    Probe,
    Request,
    Target,
    TargetSpec,
    UnableError,
)

NEIGHBOUR_HEAD_START_S = 5.0
HEALTH_EVERY_S = 0.5
CALIBRATION_WORDS = (32, 96)
"""Sizes of the two texts whose difference tells how many tokens a word takes."""
PREFILL_WORDS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the parent asks of one child: open a target (`probe` None), or run a probe against one already known."""

    spec: TargetSpec
    began_s: float
    patience_s: float
    knowledge: Knowledge | None = None
    probe: Probe | None = None


class Reporter:
    """Writes one JSON line for each thing that happens, at once. Times are seconds since the run began."""

    def __init__(self, fd: int, began_s: float) -> None:
        self._fd = fd
        self._began_s = began_s

    def now_s(self) -> float:
        """Seconds since the run began; the clock is the machine's, shared by all its processes."""
        return time.monotonic() - self._began_s

    def say(self, kind: str, **fields: object) -> None:
        """Write one line."""
        record = {
            "kind": kind,
            "at_s": round(self.now_s(), 6),
            **{name: plain(value) for name, value in fields.items()},
        }
        line = msgspec.json.encode(record) + b"\n"
        while line:  # a pipe may take a long line in parts
            line = line[os.write(self._fd, line) :]


class Talk:
    """Exchanges with one open target."""

    def __init__(self, target: Target, reporter: Reporter, patience_s: float) -> None:
        self.target = target
        self.reporter = reporter
        self.patience_s = patience_s

    async def count(self, api: Api, messages: Sequence[Message]) -> int:
        """Prompt tokens of small messages: by the target's own counter, else by the usage of a one-token reply.

        Raises UnableError where the target counts nothing.
        """
        if self._counts and isinstance(self.target, CountsTokens):
            return await self.target.count_tokens(api, messages)
        request = Request(name="count", messages=tuple(messages), api=api, reply_tokens=1, stream=False)
        exchange = await self.exchange(Rendered(request=request, prompt_tokens=None, exact=False), quiet=True)
        if exchange.failure is not None and exchange.failure.where == "timeout":
            message = f"the target did not answer a small request: {exchange.failure.message}"
            raise UnableError(message, "is it loading, or overloaded? give it more time: --timeout SECONDS")
        if exchange.failure is not None:
            raise UnableError(
                f"the target refused a small request: {exchange.failure.message[:300]}",
                "check that it answers at all; for a wrong model name, name one it serves: --set model=NAME",
            )
        if exchange.usage is None or exchange.usage.prompt_tokens is None:
            if isinstance(self.target, CountsTokens):  # an estimate, if the user gave one
                return await self.target.count_tokens(api, messages)
            raise UnableError(
                "the target counts no tokens: its replies carry no usage and it has no tokenizer endpoint",
                "turn its usage reporting on, or give an estimate to size prompts by: --set chars_per_token=3.5",
            )
        return exchange.usage.prompt_tokens

    @property
    def _counts(self) -> bool:
        return "counts-tokens" in self.target.knowledge.powers

    async def render(self, request: Request) -> Rendered:
        """The request at its size, counted as this target allows."""
        return await render(
            request,
            self.count,
            counts_any_size=self._counts,
            tokens_per_word=self.target.knowledge.tokens_per_word,
        )

    async def exchange(
        self, rendered: Rendered, *, quiet: bool = False, started: asyncio.Event | None = None
    ) -> Exchange:
        """Send one request and report what comes back until its end, our patience or the plan's hang-up.

        `quiet` keeps it out of the record; `started` is set at its first token or its end.
        """
        request = rendered.request
        events: list[tuple[float, Event]] = []
        num_tokens = 0

        def report(event: Event, **fields: object) -> None:
            events.append((self.reporter.now_s(), event))
            if not quiet:
                self.reporter.say("event", exchange=request.name, event=event, **fields)

        report(
            Event(kind=Kind.SENT, prompt_tokens=rendered.prompt_tokens, exact=rendered.exact),
            request=recipe(request),
        )
        try:
            async with asyncio.timeout(self.patience_s), aclosing(self.target.stream(request)) as stream:
                async for event in stream:
                    report(event)
                    num_tokens += event.kind is Kind.TOKEN
                    if started is not None and event.kind in (Kind.TOKEN, Kind.FAILED, Kind.DONE):
                        started.set()
                    if request.hang_up_after_tokens is not None and num_tokens >= request.hang_up_after_tokens:
                        report(Event(kind=Kind.HUNG_UP))
                        break
        except TimeoutError:
            words = f"{num_tokens} tokens came, then none" if num_tokens else "not a byte of an answer"
            message = f"waited {self.patience_s:g} s for the reply to end: {words}"
            report(Event(kind=Kind.FAILED, failure=Failure(where="timeout", message=message)))
        finally:
            if started is not None:
                started.set()
        return fold(request, events)


def recipe(request: Request) -> Request:
    """The request for the record: texts over 4 KiB are cut in the middle, they can be made again from the seed."""

    def short(text: str) -> str:
        return text if len(text) <= 4096 else f"{text[:2000]} … [{len(text) - 4000} characters] … {text[-2000:]}"

    messages = tuple(
        replace(message, parts=tuple(short(part) if isinstance(part, str) else part for part in message.parts))
        for message in request.messages
    )
    return replace(request, messages=messages)


# ── opening ──────────────────────────────────────────────────────────────────────────────────────


async def get_to_know(talk: Talk) -> Knowledge:
    """What a run must know before it can probe: how tokens are counted, the neighbour's answer, the target's speed."""
    known = talk.target.knowledge
    api = prompts.usual_api(known)
    if api not in known.powers:  # it answers no requests at all, it only carries out tasks
        return replace(known, neighbour_note="the target answers no requests")
    sizes = _calibration_words(known.limits.context_tokens)
    few, many = [
        await talk.count(api, (Message(role=prompts.role_of(api), parts=(prompts.filler(words, Random(0)).strip(),)),))
        for words in sizes
    ]
    slope = (many - few) / (sizes[1] - sizes[0])
    if slope <= 0:
        raise UnableError(
            f"the target's token counts make no sense: {sizes[0]} words are {few} tokens, {sizes[1]} words are {many}",
            "check what it reports as usage.prompt_tokens",
        )
    known = replace(known, tokens_per_word=slope)
    if "serves-many" in known.powers:
        known = await _with_neighbour(talk, known, api)
    else:
        known = replace(known, neighbour_note="the target answers one request at a time")
    known = await _with_speed(talk, known, api)
    gauges = await _gauges(talk.target)
    return replace(known, gauges=gauges)


def _calibration_words(window: int | None) -> tuple[int, int]:
    """The usual two sizes, or smaller ones that fit a small window together with a chat template."""
    few, many = CALIBRATION_WORDS
    if window is not None and window < 2 * many:
        many = max(6, window // 3)
        few = many // 3
    return few, many


async def _with_neighbour(talk: Talk, known: Knowledge, api: Api) -> Knowledge:
    """The neighbour's answer alone (twice) and beside a harmless companion: comparable only if all three are equal."""
    request = prompts.neighbour(api, ignore_eos="ignores-eos" in known.powers)
    solo = [await talk.exchange(await talk.render(replace(request, name=f"neighbour-alone-{n}"))) for n in (1, 2)]
    failed = next((exchange for exchange in solo if not answered(exchange)), None)
    if failed is not None:
        words = failed.failure.message[:300] if failed.failure else "the reply did not end properly"
        raise UnableError(
            f"the target does not answer a small request: {words}", "it must serve before it can be probed"
        )
    started = asyncio.Event()
    running = asyncio.create_task(
        talk.exchange(await talk.render(replace(request, name="neighbour-in-company")), started=started)
    )
    await started.wait()
    await talk.exchange(await talk.render(prompts.companion(api)))
    in_company = await running
    texts = [exchange.text for exchange in (*solo, in_company)]
    note = ""
    if texts[0] != texts[1]:
        note = "the same greedy request alone gave two different answers"
    elif texts[1] != texts[2]:
        note = "a harmless companion alone changed the greedy answer (batching changes its arithmetic)"
    first, last = (solo[1].token_s[0], solo[1].token_s[-1]) if solo[1].token_s else (0.0, 0.0)
    speed = (len(solo[1].token_s) - 1) / (last - first) if last > first else None
    return replace(
        known,
        neighbour_text=texts[0],
        neighbour_stable=not note,
        neighbour_note=note,
        decode_tokens_per_s=speed,
    )


async def _with_speed(talk: Talk, known: Knowledge, api: Api) -> Knowledge:
    """Prefill speed, from the time to first token of a prompt of moderate size (no larger than half a window)."""
    window = known.limits.context_tokens
    most = PREFILL_WORDS if window is None else int(window / 2 / known.tokens_per_word)
    num_words = max(8, min(PREFILL_WORDS, most))
    text = prompts.filler(num_words, Random(1)).strip()  # other words than were counted: no prefix cache may help
    request = Request(
        name="speed", messages=(Message(role=prompts.role_of(api), parts=(text,)),), api=api, reply_tokens=1
    )
    exchange = await talk.exchange(await talk.render(request))
    first_s = ttft_s(exchange)
    tokens = exchange.usage.prompt_tokens if exchange.usage else None
    return replace(known, prefill_tokens_per_s=tokens / first_s) if first_s and tokens else known


# ── probing ──────────────────────────────────────────────────────────────────────────────────────


async def run_probe(talk: Talk, probe: Probe) -> None:
    """Neighbour, requests, aftermath; then what the target's gauges say."""
    known = talk.target.knowledge
    api = prompts.usual_api(known)
    rendered = [await talk.render(request) for request in probe.requests]
    neighbour: Rendered | None = None
    if probe.neighbour and "serves-many" in known.powers:
        neighbour = await talk.render(prompts.neighbour(api, ignore_eos="ignores-eos" in known.powers))
    watching = asyncio.create_task(_watch_health(talk)) if probe.watch else None
    running: asyncio.Task[Exchange] | None = None
    if neighbour is not None:
        started = asyncio.Event()
        running = asyncio.create_task(talk.exchange(neighbour, started=started))
        await _wait(started, NEIGHBOUR_HEAD_START_S)
    if probe.parallel:
        await asyncio.gather(*(talk.exchange(one) for one in rendered))
    else:
        for one in rendered:
            if (await talk.exchange(one)).failure is not None:
                break
    if running is not None and neighbour is not None:
        beside = await running
        if beside.failure is None and known.neighbour_stable and beside.text != known.neighbour_text:
            await _repeat_neighbour(talk, neighbour, api)
    if probe.task:
        await _perform(talk, probe)
    if api in known.powers and (probe.requests or not probe.task):
        await talk.exchange(await talk.render(prompts.aftermath(api)))
    if watching is not None:
        watching.cancel()
    gauges = await _gauges(talk.target) if probe.watch else None
    talk.reporter.say("seen", gauges=gauges)


async def _perform(talk: Talk, probe: Probe) -> None:
    """Have the target carry out the probe's task, and report each measurement as it comes."""
    if not isinstance(talk.target, Performs):
        raise UnableError(f"the target cannot carry out the task {probe.task!r}", "probe a target that can")
    async with aclosing(talk.target.perform(probe.task, probe.about)) as measurements:
        async for measured in measurements:
            talk.reporter.say("measured", measured=measured)


async def _repeat_neighbour(talk: Talk, neighbour: Rendered, api: Api) -> None:
    """The changed neighbour once more alone, and beside a companion: is it the overflow, or the target's own noise?"""

    def named(name: str) -> Rendered:
        return replace(neighbour, request=replace(neighbour.request, name=name))

    await talk.exchange(named("neighbour-again-alone"))
    companion = await talk.render(prompts.companion(api))
    await asyncio.gather(talk.exchange(named("neighbour-again-in-company")), talk.exchange(companion))


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


async def _watch_health(talk: Talk) -> None:
    """Look at the health endpoint while a probe runs; it is the one endpoint whose polling changes nothing."""
    if "health" not in talk.target.knowledge.powers or not isinstance(talk.target, HasHealth):
        return
    while True:
        try:
            async with asyncio.timeout(2.0):
                healthy, words = await talk.target.healthy()
        except TimeoutError:
            healthy, words = False, "no answer within 2 s"
        talk.reporter.say("health", health=Health(at_s=talk.reporter.now_s(), healthy=healthy, detail=words[:200]))
        await asyncio.sleep(HEALTH_EVERY_S)


async def _gauges(target: Target) -> Gauges | None:
    if "gauges" not in target.knowledge.powers or not isinstance(target, HasGauges):
        return None
    return await target.gauges()


async def obey(order: Order, reporter: Reporter) -> None:
    """Carry out one order."""
    from contextlab import registry

    async with registry.open_target(order.spec, order.knowledge) as target:
        talk = Talk(target, reporter, order.patience_s)
        if order.probe is None:
            reporter.say("opened", knowledge=target.knowledge)
            reporter.say("knowledge", knowledge=await get_to_know(talk))
        else:
            await run_probe(talk, order.probe)


def main(events_fd: int) -> None:
    """Read the order, carry it out; a failure that is the user's to mend is reported, any other is a traceback."""
    with os.fdopen(0, "rb", closefd=False) as orders:
        order = revive(msgspec.json.decode(orders.readline()), Order)
    reporter = Reporter(events_fd, order.began_s)
    try:
        asyncio.run(obey(order, reporter))
    except ContextlabError as error:
        reporter.say("cannot", message=error.message, next_step=error.next_step, exit_code=error.exit_code)
    reporter.say("finished")


if __name__ == "__main__":
    main(int(sys.argv[1]))
