"""What commands say: text on standard output, and what went wrong on standard error, or as JSON."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

from contextlab.model import ContextlabError, UnableError


def hold_streams() -> None:
    """Open each standard stream that the caller has closed on nothing, or the next file of ours would be in its place.

    Raises UnableError where standard output is one of them.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        raise UnableError("standard output is closed", "send it somewhere: > FILE, or > /dev/null for the exit code")


@contextmanager
def printing() -> Iterator[TextIO]:
    """Standard output, flushed at the end; what its encoding lacks is written as an escape.

    A reader that has left (`| head`) ends the writing, not the command.

    Raises UnableError where it cannot take the text (`> FILE` on a full disk).
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        if not isinstance(error, BrokenPipeError):
            message = f"cannot write to standard output: {error.strerror}"
            raise UnableError(message, "free some space; the record of a run is kept in its folder") from None


def beside(left: str, text: str) -> str:
    """`text` to the right of `left`: wrapped on a terminal, one line anywhere else."""
    if not sys.stdout.isatty():
        return left + text
    width = max(shutil.get_terminal_size().columns, len(left) + 20)
    return textwrap.fill(text, width, initial_indent=left, subsequent_indent=" " * len(left), break_on_hyphens=False)


def in_words(error: Exception) -> ContextlabError:
    """An error as the user is told; one that is not ours to tell is a bug, which CONTEXTLAB_DEBUG raises instead."""
    if isinstance(error, ContextlabError):
        return error
    if os.environ.get("CONTEXTLAB_DEBUG"):
        raise error
    message = f"internal error: {type(error).__name__}: {error}"
    return ContextlabError(message, "this is a bug of contextlab; CONTEXTLAB_DEBUG=1 shows where")


@contextmanager
def telling(failure: Callable[[ContextlabError], Mapping[str, Any]] | None) -> Iterator[None]:
    """What goes wrong inside is raised in words. `failure`, of `--json`: makes the document that says so as well."""
    try:
        yield
    except Exception as error:
        told = in_words(error)
        if failure is not None:
            from contextlab.reports.json import write_document

            with printing() as out:
                write_document(failure(told), out)
        raise told from None


def show_error(error: ContextlabError) -> None:
    """What is wrong, and the next step, on standard error."""
    typer.echo(f"error: {error.message.rstrip()}", err=True)
    if error.next_step:
        typer.echo(f" next: {error.next_step}", err=True)


def write_failure(command: str, target: str, error: ContextlabError, folder: Path | None = None) -> None:
    """The one document that `--json` promises, of a command that failed; `folder` holds its record if it has one."""
    from contextlab.reports.json import failure_document, write_document

    document = failure_document(command, target, error) | {"run": str(folder) if folder else None}
    with printing() as out:
        write_document(document, out)
