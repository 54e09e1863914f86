"""The command line: one file a verb, each parses, calls and returns an exit code.

    0 held · 1 a finding · 2 wrong usage · 3 unknown · 4 target or environment cannot · 5 nothing measured
    6 an undo failed · 70 internal error · 130, 143 interrupted

Nothing heavy is imported before a command runs: `contextlab --help` must answer at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from contextlab import __version__
from contextlab.cli import (
    calibrate,
    chaos,
    diagnose,
    doctor,
    faults,
    gate,
    history,
    inspect,
    models,
    overflow,
    pareto,
    recover,
    replay,
    report,
    scenarios,
    serve,
)
from contextlab.cli.output import hold_streams, in_words, printing, show_error, write_failure
from contextlab.model import ContextlabError, UsageError

app = typer.Typer(
    name="contextlab",
    help="Find out how an LLM server breaks at the edge of its context window, before production does.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try it: contextlab overflow smollm2",
)
app.command(name="overflow", rich_help_panel="Find out", epilog=overflow.EPILOG)(overflow.overflow)
app.command(name="chaos", rich_help_panel="Find out", epilog=chaos.EPILOG)(chaos.chaos)
app.command(name="pareto", rich_help_panel="Find out", epilog=pareto.EPILOG)(pareto.pareto)
app.command(name="inspect", rich_help_panel="Find out", epilog=inspect.EPILOG)(inspect.inspect)
app.command(name="diagnose", rich_help_panel="Find out", epilog=diagnose.EPILOG)(diagnose.diagnose)
app.command(name="doctor", rich_help_panel="Set up", epilog=doctor.EPILOG)(doctor.doctor)
app.command(name="calibrate", rich_help_panel="Set up", epilog=calibrate.EPILOG)(calibrate.calibrate)
app.command(name="replay", rich_help_panel="Find out", epilog=replay.EPILOG)(replay.replay)
app.command(name="serve", rich_help_panel="Find out", epilog=serve.EPILOG)(serve.serve)
app.command(name="recover", rich_help_panel="Set up", epilog=recover.EPILOG)(recover.recover)
app.command(name="history", rich_help_panel="Read", epilog=history.EPILOG)(history.history)
app.command(name="report", rich_help_panel="Read", epilog=report.EPILOG)(report.report)
app.add_typer(gate.app, name="gate", rich_help_panel="Find out")
app.add_typer(scenarios.app, name="scenarios", rich_help_panel="Read")
app.add_typer(faults.app, name="faults", rich_help_panel="Read")
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
    """Run the command line and leave with its exit code. What goes wrong is told in words, never in a traceback."""
    command_has_told = False
    try:
        hold_streams()
        with printing():
            code = app(standalone_mode=False)
        sys.exit(code)
    except typer.TyperException as error:  # the words of the command line do not fit together
        message = error.format_message()  # empty where the help has been shown in its place
        path = getattr(getattr(error, "ctx", None), "command_path", "contextlab COMMAND")
        told: ContextlabError = UsageError(message, f"{path} --help says what it takes")
    except Exception as error:
        told = in_words(error)
        command_has_told = told is error  # a command that takes --json prints its document itself
    if told.message:
        show_error(told)
    if "--json" in sys.argv[2:] and not command_has_told:
        write_failure(sys.argv[1], "", told)
    sys.exit(told.exit_code)
