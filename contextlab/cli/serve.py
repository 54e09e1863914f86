"""`contextlab serve TARGET`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contextlab.cli.options import At, IOwnThis, MemoryLimit, Output, Quiet, Runs, Seed, Set, number

if TYPE_CHECKING:
    from contextlab.lab.serving import Serving

EPILOG = """
Examples:
  contextlab serve smollm2 --port 8000
  contextlab serve fake:drops-head
  contextlab serve smollm2 --fault "cut:at=event:5,share=25%"
  contextlab serve http://127.0.0.1:8000 --fault "stall:at=prefill,pause=5s@30s+60s"
  contextlab serve smollm2 | grep --line-buffered -m1 READY

Exit 0: it was stopped. Exit 2: wrong usage. Exit 4: the target did not come up, or ended by itself.
"""
FAULT_HELP = (
    "NAME:OPTION=VALUE,…[@START+LENGTH] on the way to your clients; without a window, always; repeatable "
    "(contextlab faults list: those of streams)."
)
LOOKS_EVERY_S = 0.5
HEARTBEAT_S = 15.0
"""A log is told what came through at most so often, and only where something did."""


def serve(
    target: Annotated[
        str, typer.Argument(help="What to keep up: a preset (smollm2), fake:NAME, gguf:FILE, hf:DIR, run:, a URL.")
    ],
    fault: Annotated[list[str] | None, typer.Option("--fault", "-f", metavar="FAULT", help=FAULT_HELP)] = None,
    port: Annotated[
        int, typer.Option(parser=number("int", low=0, high=65535), metavar="N", help="Port on 127.0.0.1; 0: any.")
    ] = 0,
    settings: Set = None,
    at: At = None,
    seed: Seed = 0,
    allow_emulation: Annotated[
        bool, typer.Option("--allow-emulation", help="Let the relay imitate what packet faults do, by delays.")
    ] = False,
    memory_limit: MemoryLimit = None,
    output: Output = None,
    runs: Runs = Path("runs"),
    quiet: Quiet = False,
    i_own_this: IOwnThis = False,
) -> None:
    """Keep a target up for clients of your own until Ctrl-C: a real one or a fake, with faults on the wire if asked."""
    from contextlab.cli.output import printing
    from contextlab.cli.session import Session, memory_limit_bytes, new_folder
    from contextlab.lab.interrupt import Interrupted, stoppable
    from contextlab.lab.serving import FOREVER_S, Serving, on_stream
    from contextlab.reports import serving as words

    session = Session(command="serve", target=target, json=False, quiet=quiet, runs=runs, output=output)
    with session:
        spec = session.parse(settings or [], at=at, i_own_this=i_own_this)
        faults = on_stream(fault or [], allow_emulation=allow_emulation)
        limit_bytes = memory_limit_bytes(memory_limit)
        folder = output or new_folder(runs, "serve", session.target)
        tell = _Teller(quiet=quiet)
        try:
            with (
                stoppable(),
                Serving(
                    spec,
                    folder,
                    faults=faults,
                    port=port,
                    seed=seed,
                    memory_limit_bytes=limit_bytes,
                    progress=tell.line,
                ) as serving,
            ):
                tell.line("")
                with printing() as out:
                    lines = words.ready(serving.url, session.target, faults, FOREVER_S, str(folder))
                    out.write("\n".join(lines) + "\n")
                began = time.monotonic()
                try:
                    _watch(serving, tell)
                except Interrupted:
                    said = _passed(serving)
                tell.line("")
                with printing() as out:
                    out.write(words.stopped(time.monotonic() - began, said) + "\n")
        except Interrupted as stop:  # before it was up, or once more while it was stopped
            session.code = 128 + stop.number
    raise typer.Exit(session.code)


def _watch(serving: Serving, tell: _Teller) -> None:
    """Tell what comes through, as long as the target lives. Raises UnableError when it has ended."""
    from contextlab.lab.server import end_words
    from contextlab.model import UnableError

    while True:
        if (end := serving.ended()) is not None:
            raise UnableError(
                f"the target has ended by itself: {end_words(end)}",
                "its log says more; contextlab overflow TARGET finds out what it dies of",
            )
        tell.line(_passed(serving), said=True)
        time.sleep(LOOKS_EVERY_S)


def _passed(serving: Serving) -> str:
    from contextlab.reports import serving as words

    return words.passed(*serving.passed())


class _Teller:
    """One line on standard error: renewed on a terminal, now and then in a log, never where it should be quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last, self._told_s = "", time.monotonic()

    def line(self, text: str, *, said: bool = False) -> None:
        """Show this; on a terminal "" takes the line away. `said`: it goes into a log too."""
        if self._quiet:
            return
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            typer.echo(f"\r\x1b[K{text[: width - 1]}", err=True, nl=False)
        elif said and text != self._last and time.monotonic() - self._told_s >= HEARTBEAT_S:
            self._told_s = time.monotonic()
            self._last = text
            typer.echo(text, err=True)
