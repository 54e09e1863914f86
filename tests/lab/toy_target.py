"""A target that lives inside the process that opens it, and ends that process as it is told to.

`toy:WORD[:NUMBER]` answers every request with the words of `REPLY`, except one of the name `ask`: after NUMBER tokens
of that it does what WORD says. WORD also says how it can be warmed up (`warm_up`). It reaches the child processes of a
test as any extension would, by an entry point (`installed`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from contextlab.model import (
    Api,
    Event,
    Evidence,
    Failure,
    Kind,
    Knowledge,
    Limits,
    Message,
    Request,
    Setting,
    Target,
    TargetSpec,
    Usage,
    UsageError,
)

SCHEME = "toy"
IN_PROCESS = True
SETTINGS: tuple[Setting, ...] = ()

WINDOW_TOKENS = 64
REPLY = (" one", " two", " three", " four", " five", " six", " seven", " eight")
WORDS = ("answers", "dies", "exits", "raises", "hangs", "eats", "surrogates", "leaves", "tells")
CLEAN_TASKS = frozenset({"cleanly"})
BALLAST_BYTES = 64 << 20
ASKED = "ask"
EATEN_AT_ONCE_BYTES = 32 << 20


class Toy:
    """One toy, open."""

    def __init__(self, knowledge: Knowledge, word: str, number: int) -> None:
        self._knowledge = knowledge
        self._word = word
        self._number = number

    @property
    def knowledge(self) -> Knowledge:
        return self._knowledge

    async def count_tokens(self, api: Api, messages: Sequence[Message]) -> int:
        """A token is a word."""
        return sum(len(message.text.split()) for message in messages)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        prompt_tokens = await self.count_tokens(request.api, request.messages)
        if prompt_tokens >= WINDOW_TOKENS:
            message = (
                f"This model's maximum context length is {WINDOW_TOKENS} tokens. However, you requested "
                f"{prompt_tokens} tokens."
            )
            yield Event(kind=Kind.FAILED, failure=Failure(where="http", message=message, status=400))
            return
        yield Event(kind=Kind.OPENED, status=200)
        asked = request.name == ASKED
        limit = request.reply_tokens or len(REPLY)
        for number, text in enumerate(REPLY[:limit]):
            if asked and number == self._number:
                await self._act()
            yield Event(kind=Kind.TOKEN, text="\ud83d" if asked and self._word == "surrogates" else text)
        if asked and self._number >= limit:
            await self._act()
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=min(limit, len(REPLY)))
        yield Event(kind=Kind.FINISHED, finish_reason="length")
        yield Event(kind=Kind.USAGE, usage=usage)
        yield Event(kind=Kind.DONE)

    async def perform(self, task: str, about: Mapping[str, int | float | str]) -> AsyncGenerator[Evidence, None]:
        """Report a measurement, then do what it was told."""
        yield {"task": task, "first": 1}
        if self._word == "tells":
            yield {"warm": bool(ballast), "parent": os.getppid()}
            return
        await self._act()
        yield {"second": 2}

    async def _act(self) -> None:
        match self._word:
            case "dies":
                os.write(2, b"these are my last words\n")
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exits":
                os._exit(9)
            case "raises":
                raise ZeroDivisionError("toy")
            case "hangs":
                await asyncio.Event().wait()
            case "leaves":
                subprocess.Popen(["sleep", "3600"], start_new_session=True, close_fds=False)  # noqa: ASYNC220
                os._exit(9)
            case "eats":
                eaten = []
                while True:
                    eaten.append(bytearray(b"\x01") * EATEN_AT_ONCE_BYTES)
                    await asyncio.sleep(0)


ballast: list[bytes] = []
"""What a warm process has loaded."""


def warm_up(spec: TargetSpec) -> bool:
    """Load something, or be in one of the ways of a target that cannot be forked."""
    match spec.address:
        case "threads":
            threading.Thread(target=time.sleep, args=(3600.0,), daemon=True).start()
        case "device":
            return False
        case "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs":
            time.sleep(3600.0)
        case "raises":
            raise ZeroDivisionError("toy")
    ballast.append(b"\x01" * BALLAST_BYTES)
    return True


@asynccontextmanager
async def open_target(spec: TargetSpec, knowledge: Knowledge | None = None) -> AsyncIterator[Target]:
    """Open the toy; refuses an address that names none."""
    word, _, number = spec.address.partition(":")
    if word not in WORDS:
        raise UsageError(f"toy={word!r}: there is no such toy", f"choose from: {', '.join(WORDS)}")
    print(f"toy {word} is open", file=sys.stderr, flush=True)  # noqa: T201 - its log
    yield Toy(knowledge or known(), word, int(number or 0))


def known() -> Knowledge:
    """What a toy says of itself."""
    powers = frozenset({"completions", "counts-tokens", "window"})
    return Knowledge(flavour="toy", model="toy", limits=Limits(context_tokens=WINDOW_TOKENS), powers=powers)


def spec(address: str) -> TargetSpec:
    """`toy:ADDRESS` as it would be parsed."""
    return TargetSpec(name=f"toy:{address}", scheme=SCHEME, address=address)


def installed(folder: Path) -> str:
    """Make the toy known through an entry point in `folder`; returns the PYTHONPATH that its users need."""
    info = folder / "contextlab_toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: contextlab-toy\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[contextlab.targets]\ntoy = {__name__}\n", encoding="utf-8")
    root = Path(__file__).parent.parent.parent
    return os.pathsep.join([str(folder), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
