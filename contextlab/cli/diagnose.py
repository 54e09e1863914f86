"""`contextlab diagnose FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from contextlab.cli.options import Allow, FailOn, Json
from contextlab.cli.output import printing, telling

STDIN = "-"
EPILOG = """
Examples:
  contextlab diagnose server.log
  kubectl logs deploy/vllm | contextlab diagnose - --engine vllm
  curl -s http://127.0.0.1:8080/v1/completions -d @long.json | contextlab diagnose -
  contextlab diagnose server.log --allow SHIFTED --json

Nothing is sent anywhere: it reads words, and knows those of llama.cpp, vLLM, SGLang, Ollama, TGI, TensorRT-LLM,
LMDeploy, transformers, LiteLLM and the hosted APIs.

Exit 0: only clear refusals and replies that ended at the window. Exit 1: something worse. Exit 2: wrong usage.
Exit 3: nothing known was said, which proves nothing. Exit 4: the file cannot be read. Exit 5: it is empty.
"""


def diagnose(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A server's log, or an error's body; - for standard input.")
    ],
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose words these are; by default whoever's they look like.")
    ] = None,
    allow: Allow = None,
    fail_on: FailOn = None,
    json: Json = False,
) -> None:
    """Read what a server said, and tell which of it is about the window: what happened, where, and what to change."""
    from contextlab.reports import diagnosis as writing
    from contextlab.reports.json import write_document

    source = "standard input" if file == STDIN else file
    with telling(partial(writing.failure_document, source) if json else None):
        from contextlab.analysis.diagnosis import diagnose as read
        from contextlab.analysis.signatures import FLAVOURS
        from contextlab.cli.session import policy
        from contextlab.registry import choose

        whose = choose("engine", engine, FLAVOURS) if engine is not None else ""
        rules = policy(allow or [], fail_on or [])
        with _opened(file) as lines:
            found = read(lines, engine=whose, policy=rules)
    with printing() as out:
        if json:
            write_document(writing.document(source, found), out)
        else:
            writing.write_text(source, found, out)
    raise typer.Exit(writing.exit_code(found))


@contextmanager
def _opened(file: str) -> Iterator[Iterator[str]]:
    """The lines, whatever their encoding. Raises UsageError where there is no such file, UnableError where it cannot be
    read."""
    from contextlab.model import UnableError, UsageError

    if file == STDIN:
        if sys.stdin is None:
            raise UnableError("standard input is closed", "name a file")
        stream = open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    else:
        path = Path(file)
        if not path.exists():
            raise UsageError(f"FILE={file!r}: there is no such file", "name a log, or - for standard input")
        try:
            stream = path.open(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UnableError(f"{file}: {error.strerror}", "name a file that can be read") from None
    with stream:
        try:
            yield (line.rstrip("\n") for line in stream)
        except OSError as error:
            raise UnableError(f"{file}: {error.strerror}", "name a file that can be read") from None
