"""The command line: one file a verb, each parses, calls and returns an exit code.

    0 held · 1 a finding · 2 wrong usage · 3 unknown · 4 target or environment cannot · 5 nothing measured
    6 an undo failed · 70 internal error · 130, 143 interrupted

Nothing heavy is imported before a command runs: `contextlab --help` must answer at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from contextlab import __version__
from contextlab.cli import models, overflow, replay, report, scenarios
from contextlab.model import ContextlabError

INTERNAL_ERROR = 70

app = typer.Typer(
    name="contextlab",
    help="Find out how an LLM server breaks at the edge of its context window, before production does.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try it: contextlab overflow smollm2",
)
app.command(name="overflow", rich_help_panel="Find out")(overflow.overflow)
app.command(name="replay", rich_help_panel="Find out")(replay.replay)
app.command(name="report", rich_help_panel="Read")(report.report)
app.add_typer(scenarios.app, name="scenarios", rich_help_panel="Read")
app.add_typer(models.app, name="models", rich_help_panel="Set up")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"contextlab {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Find out how an LLM server breaks at the edge of its context window, before production does."""


def main() -> None:
    """Run the command line; every error that is not ours to hide has its exit code, none is a traceback."""
    try:
        app()
    except ContextlabError as error:
        show_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `contextlab … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("CONTEXTLAB_DEBUG"):
            raise
        message = f"internal error: {type(error).__name__}: {error}"
        show_error(ContextlabError(message, "this is a bug of contextlab; CONTEXTLAB_DEBUG=1 shows where"))
        sys.exit(INTERNAL_ERROR)


def show_error(error: ContextlabError) -> None:
    """What is wrong, and the next step, on standard error."""
    typer.echo(f"error: {error.message}", err=True)
    if error.next_step:
        typer.echo(f" next: {error.next_step}", err=True)
