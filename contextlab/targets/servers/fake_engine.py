"""The engine inside the fake server, and the ways in which fakes depart from good behaviour.

    Job ─ admit ─▶ refused, or let in (perhaps altered) ─ generate ─▶ tokens ─▶ finish_reason

One name, one departure: everything else is what a well-behaved engine does, so that a classifier must name
just that. HTTP and pacing are the server's; nothing heavy is imported here, so that listing the fakes is fast.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from itertools import cycle, islice
from typing import NoReturn

from contextlab.model import Api, Outcome
from contextlab.targets.servers import fake_model

REPLY_ROOM_TOKENS = 64
"""What a fake that cuts prompts leaves free in the window (half of a window below twice that)."""
LEAKED_WORDS = 60
OWN_WORDS = 4
TELLING_WORDS = 10
SEEN_JOBS = 16
EATEN_AT_ONCE_BYTES = 16 * 2**20
EATEN_AT_MOST_BYTES = 2 * 2**30
KEPT_BYTES = 2**20
"""What a fake that keeps memory keeps of each client that left."""
OTHER_WORDS = (" purple", " anvil", " sideways", " kettle", " nineteen", " moth", " gravel")
"""What a corrupted reply says instead; none of them is among the model's own words."""


class Refused(Exception):
    """The engine does not answer, or no further; carries the OpenAI-style error.

    `in_success`: sent with status 200, as the whole of the answer.
    """

    def __init__(
        self, code: int, message: str, error_type: str = "BadRequestError", *, in_success: bool = False
    ) -> None:
        super().__init__(message)
        self.status = 200 if in_success else code
        self.body = {"error": {"message": message, "type": error_type, "code": code}}


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """One generation request. `prompt` holds its tokens, template included; `text` what the client wrote.

    `scripted`: tokens to say instead of a reply. `aborted` and `corrupted` are done to it by another job.
    `num_generated` and `finish_reason` (None: it never came to a proper end) are known when it has ended.
    """

    api: Api
    prompt: list[str]
    text: str
    max_tokens: int | None = None
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    scripted: list[str] | None = None
    aborted: bool = False
    corrupted: bool = False
    num_generated: int = 0
    finish_reason: str | None = None


class AtWindow(Enum):
    """What happens to a reply that could reach past the window."""

    REFUSE = auto()
    """It is refused beforehand."""
    CAP = auto()
    """It ends there and says so: "length"."""
    BREAK_OFF = auto()
    """If streamed, it ends there and says nothing."""
    SHIFT = auto()
    """It goes on; the older half of what is visible goes, each time the window is full."""
    RUN_AWAY = auto()
    """It never ends, whether or not it gets there."""


TooLong = Callable[["Engine", Job], Awaitable[None]]
"""What is done with a prompt that fills the window: raise Refused, alter the job, or worse."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """The state that jobs share: who is being answered (oldest first), who was let in of late, and what is due."""

    window: int
    departure: Departure
    running: list[Job] = field(default_factory=list)
    seen: deque[Job] = field(default_factory=lambda: deque(maxlen=SEEN_JOBS))
    doomed: bool = False
    wedged: bool = False
    kept: list[object] = field(default_factory=list)
    num_waiting: int = 0
    num_kept_slots: int = 0
    num_generated: int = 0

    async def admit(self, job: Job) -> None:
        """Let the job in, or raise Refused. A departing engine may alter the job, wait for ever, or die."""
        if self.doomed:
            os.kill(os.getpid(), signal.SIGSEGV)
        if len(job.prompt) >= self.window:
            await self.departure.too_long(self, job)
            return
        asks_too_much = len(job.prompt) + (job.max_tokens or 0) > self.window
        if asks_too_much and self.departure.at_window is AtWindow.REFUSE:
            raise self.refusal(job)
        self.seen.append(job)

    @contextmanager
    def answering(self, job: Job) -> Iterator[Iterator[str]]:
        """The job's tokens, while others can see that it runs."""
        self.running.append(job)
        try:
            yield self.generate(job)
        finally:
            self.running.remove(job)

    def abandon(self) -> bool:
        """A client has left in the middle of its reply; whether its slot is free again."""
        match self.departure.keeps:
            case "slot":
                self.num_kept_slots += 1
                return False
            case "descriptor":
                self.kept.append(os.open(os.devnull, os.O_RDONLY))
            case "memory":
                self.kept.append(bytearray(b"\x01") * KEPT_BYTES)  # written to, so that it is really there
        return True

    def generate(self, job: Job) -> Iterator[str]:
        """The tokens of the reply; counts them in the job and leaves its `finish_reason`.

        Raises Refused between two tokens if the job is aborted meanwhile.
        """
        if job.scripted is not None:
            job.num_generated, job.finish_reason = len(job.scripted), "stop"
            yield from job.scripted
            return
        at_window = self.departure.at_window
        room_tokens = max(0, self.window - len(job.prompt))
        past_window = job.max_tokens is None or job.max_tokens > room_tokens
        endless = at_window is AtWindow.RUN_AWAY and past_window
        if endless:
            limit_tokens = sys.maxsize
        elif at_window is AtWindow.SHIFT:
            limit_tokens = job.max_tokens or 2 * self.window
        else:
            limit_tokens = room_tokens if job.max_tokens is None else min(job.max_tokens, room_tokens)

        context = list(job.prompt)
        others = cycle(OTHER_WORDS)
        for token in islice(fake_model.reply(context, job.api, ignore_eos=job.ignore_eos or endless), limit_tokens):
            if job.aborted:
                raise Refused(500, "Context size has been exceeded.", "server_error")
            job.num_generated += 1
            self.num_generated += 1
            yield next(others) if job.corrupted else token
            if len(context) >= self.window:  # a reply that may go on, or that ends here anyway
                del context[: self.window // 2]

        if job.num_generated < limit_tokens or (at_window is AtWindow.SHIFT and job.max_tokens is None):
            job.finish_reason = "stop"
        elif not (at_window is AtWindow.BREAK_OFF and past_window and job.stream):
            job.finish_reason = "length"

    def refusal(
        self, job: Job, *, code: int = 400, limit_tokens: int | None = None, in_success: bool = False
    ) -> Refused:
        """The proper refusal of a job that does not fit, or one that is wrong in what is given."""
        prompt_tokens, reply_tokens = len(job.prompt), job.max_tokens or 0
        return Refused(
            code,
            f"This model's maximum context length is {limit_tokens or self.window} tokens. However, you requested "
            f"{prompt_tokens + reply_tokens} tokens ({prompt_tokens} in the messages, {reply_tokens} in the "
            "completion). Please reduce the length of the messages or completion.",
            "BadRequestError" if code == 400 else "InternalServerError",
            in_success=in_success,
        )


# ── what is done with a prompt that fills the window ─────────────────────────────────────────────


async def refuse(engine: Engine, job: Job) -> None:
    """As it should be: status 400, with the right numbers."""
    raise engine.refusal(job)


async def refuse_with_500(engine: Engine, job: Job) -> None:
    """The client's mistake is called the server's."""
    raise engine.refusal(job, code=500)


async def refuse_in_success(engine: Engine, job: Job) -> None:
    """The error comes with status 200."""
    raise engine.refusal(job, in_success=True)


async def quote_wrong_limit(engine: Engine, job: Job) -> None:
    """The message names half of the window, although longer prompts are accepted."""
    raise engine.refusal(job, limit_tokens=engine.window // 2)


async def say_nothing(engine: Engine, job: Job) -> None:
    """A success without a single token."""
    job.max_tokens = 0


def _kept_tokens(engine: Engine) -> int:
    return max(engine.window - REPLY_ROOM_TOKENS, engine.window // 2)


async def drop_head(engine: Engine, job: Job) -> None:
    """Keep the end."""
    job.prompt = job.prompt[-_kept_tokens(engine) :]


async def drop_middle(engine: Engine, job: Job) -> None:
    """Keep the end, and as a quarter of what is kept, the beginning."""
    kept = _kept_tokens(engine)
    job.prompt = job.prompt[: kept // 4] + job.prompt[kept // 4 - kept :]


async def drop_tail(engine: Engine, job: Job) -> None:
    """Keep the beginning."""
    job.prompt = job.prompt[: _kept_tokens(engine)]


async def abort_neighbours(engine: Engine, job: Job) -> None:
    """Refuse, and end whatever else is being answered."""
    for other in engine.running:
        other.aborted = True
    raise engine.refusal(job)


async def corrupt_neighbours(engine: Engine, job: Job) -> None:
    """Refuse, and change what else is being answered."""
    for other in engine.running:
        other.corrupted = True
    raise engine.refusal(job)


async def leak(engine: Engine, job: Job) -> None:
    """Answer with the last words of what another client sent; refuse while there was none."""
    known = (*engine.seen, *engine.running)
    other = next((one for one in reversed(known) if _is_of_another(one, job)), None)
    if other is None:
        raise engine.refusal(job)
    job.scripted = fake_model.tokenize(" ".join(other.text.split()[-LEAKED_WORDS:]))


def _is_of_another(other: Job, job: Job) -> bool:
    """Whether another client sent it (each begins its questions in its own way), and it has something to give away."""
    words, own = other.text.split(), job.text.split()
    return len(words) >= TELLING_WORDS and words[:OWN_WORDS] != own[:OWN_WORDS]


async def hang(engine: Engine, job: Job) -> None:
    """Never answer; only the client's leaving ends it."""
    import asyncio

    await asyncio.Event().wait()


async def abort(engine: Engine, job: Job) -> None:
    """Die as a native server does when an assertion fails."""
    _die("fake_server: GGML_ASSERT(n_tokens <= n_ctx) failed")


async def segfault(engine: Engine, job: Job) -> None:
    """Read where there is no memory."""
    import ctypes

    ctypes.string_at(0)


async def die_later(engine: Engine, job: Job) -> None:
    """Refuse, but fall with the next request."""
    engine.doomed = True
    raise engine.refusal(job)


async def eat_memory(engine: Engine, job: Job) -> None:
    """Take memory until whoever limits this process stops it; give up where nobody does."""
    import asyncio

    eaten: list[bytearray] = []
    try:
        while len(eaten) * EATEN_AT_ONCE_BYTES < EATEN_AT_MOST_BYTES:
            eaten.append(bytearray(b"\x01") * EATEN_AT_ONCE_BYTES)  # written to, so that it is really there
            await asyncio.sleep(0)
    except MemoryError:
        _die(f"MemoryError: cannot allocate {EATEN_AT_ONCE_BYTES} bytes")
    raise Refused(500, "memory limit missing", "InternalServerError")


def _die(last_words: str) -> NoReturn:
    """Write straight to standard error and abort: nothing may be buffered, nothing cleaned up."""
    os.write(2, f"{last_words}\n".encode())
    os.abort()


# ── the fakes, by name ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Departure:
    """One fake: the outcome that a classifier must find, a line about it, and what it does.

    `wedges`: after its process was stopped for a while nobody gets another token, ever. `says_unwell`: its health
    endpoint answers 503, however well it serves. `keeps`: what is never free again when a client leaves in the middle
    of its reply: "slot", "descriptor" or "memory".
    """

    outcome: Outcome
    about: str
    _: KW_ONLY
    too_long: TooLong = refuse
    at_window: AtWindow = AtWindow.CAP
    wedges: bool = False
    says_unwell: bool = False
    keeps: str = ""


DEPARTURES: dict[str, Departure] = {
    "rejects": Departure(
        Outcome.REJECTED, "refuses what does not fit, prompt and reply together", at_window=AtWindow.REFUSE
    ),
    "caps": Departure(Outcome.CAPPED, "ends the reply at the window and says so"),
    "rejects-500": Departure(
        Outcome.REJECTED_BADLY, "refuses a prompt that is too long with status 500", too_long=refuse_with_500
    ),
    "error-in-200": Departure(
        Outcome.REJECTED_BADLY, "refuses a prompt that is too long inside a success", too_long=refuse_in_success
    ),
    "wrong-limit": Departure(
        Outcome.REJECTED_BADLY, "quotes half of its window as the limit", too_long=quote_wrong_limit
    ),
    "empty-200": Departure(Outcome.EMPTY, "answers a prompt that is too long with nothing", too_long=say_nothing),
    "no-done": Departure(
        Outcome.CUT, "breaks a stream off at the window, without its end", at_window=AtWindow.BREAK_OFF
    ),
    "drops-head": Departure(
        Outcome.TRUNCATED_HEAD, "drops the beginning of a prompt that is too long", too_long=drop_head
    ),
    "drops-middle": Departure(
        Outcome.TRUNCATED_MIDDLE, "drops the middle of a prompt that is too long", too_long=drop_middle
    ),
    "drops-tail": Departure(Outcome.TRUNCATED_TAIL, "drops the end of a prompt that is too long", too_long=drop_tail),
    "shifts": Departure(Outcome.SHIFTED, "slides the window while it replies", at_window=AtWindow.SHIFT),
    "runs-away": Departure(
        Outcome.RUNAWAY, "never ends a reply that may reach past the window", at_window=AtWindow.RUN_AWAY
    ),
    "aborts-neighbour": Departure(
        Outcome.NEIGHBOUR_ABORTED, "ends the other replies when a prompt is too long", too_long=abort_neighbours
    ),
    "corrupts-neighbour": Departure(
        Outcome.NEIGHBOUR_CORRUPTED, "changes the other replies when a prompt is too long", too_long=corrupt_neighbours
    ),
    "leaks": Departure(Outcome.LEAKED, "answers a prompt that is too long with another client's", too_long=leak),
    "hangs": Departure(Outcome.HUNG, "never answers a prompt that is too long", too_long=hang),
    "aborts": Departure(Outcome.CRASHED, "fails an assertion on a prompt that is too long", too_long=abort),
    "segfaults": Departure(Outcome.CRASHED, "reads invalid memory on a prompt that is too long", too_long=segfault),
    "dies-later": Departure(
        Outcome.CRASHED, "refuses a prompt that is too long, and dies of the next request", too_long=die_later
    ),
    "eats-memory": Departure(
        Outcome.CRASHED, "takes memory without end on a prompt that is too long", too_long=eat_memory
    ),
}

UNDER_FAULTS: dict[str, Departure] = {
    "says-well": Departure(
        Outcome.HEALTH_LIED, "never answers again once its process was paused, and says that it is well", wedges=True
    ),
    "says-unwell": Departure(
        Outcome.HEALTH_LIED, "answers every request, and says that it is not well", says_unwell=True
    ),
    "keeps-slot": Departure(Outcome.NOT_RELEASED, "never frees the slot of a client that left", keeps="slot"),
    "keeps-descriptor": Departure(
        Outcome.NOT_RELEASED, "leaves a file open for each client that left", keeps="descriptor"
    ),
    "keeps-memory": Departure(Outcome.NOT_RELEASED, "keeps memory of each client that left", keeps="memory"),
}
"""Fakes that only a chaos scenario finds out: no prompt makes them misbehave."""
