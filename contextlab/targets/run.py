"""`run:'COMMAND' --at URL`: start any server command, own its process tree, and probe it at that URL.

The lab waits until it answers, keeps its log, and stops it on leaving. Once it runs it is opened as any other
HTTP server.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from contextlab.model import Knowledge, ServerCommand, Setting, Target, TargetSpec, UnableError, UsageError
from contextlab.targets import http
from contextlab.targets.openai.wire import checked_url

SCHEME = "run"
NEEDS_AT = True
"""A target of this scheme must be told where it will answer."""

SETTINGS: tuple[Setting, ...] = (
    *http.SETTINGS,
    Setting(
        name="ready_timeout_s",
        kind="float",
        default=300.0,
        low=1.0,
        unit="s",
        help="how long the server may take to start",
    ),
    Setting(name="ready_path", kind="text", default="/health", help="what is asked to see whether it is ready"),
)


def server(spec: TargetSpec) -> ServerCommand:
    """How to start the command.

    Raises UsageError for a command or a URL that cannot be meant, UnableError for a program that is not there.
    """
    try:
        argv = shlex.split(spec.address)
    except ValueError as error:
        raise UsageError(f"run:{spec.address}: not a command: {error}", "check its quotes") from None
    if not argv:
        raise UsageError(
            "run: names no command", "for example run:'vllm serve MODEL --port 8000' --at http://127.0.0.1:8000"
        )
    checked_url(spec.url or "", "--at")
    if shutil.which(argv[0]) is None:
        raise UnableError(
            f"run:{spec.address}: there is no program {argv[0]!r} that can be run",
            "check its name; only programs on the PATH are found by name alone, and shell words (cd, &&) are none",
        )
    return ServerCommand(
        argv=tuple(argv),
        url=spec.url,
        ready_path=str(spec.settings.get("ready_path", "/health")),
        ready_timeout_s=float(spec.settings.get("ready_timeout_s") or 300.0),
    )


@asynccontextmanager
async def open_target(spec: TargetSpec, knowledge: Knowledge | None = None) -> AsyncIterator[Target]:
    """Open the running server at the URL where the user said it answers."""
    async with http.open_target(replace(spec, address=spec.url or ""), knowledge) as target:
        yield target
