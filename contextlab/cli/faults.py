"""`contextlab faults list|show`: what can be injected, and with which options."""

from __future__ import annotations

from typing import Annotated

import typer

from contextlab.cli.output import beside, printing

app = typer.Typer(help="The faults that chaos can inject.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """Every fault: its name, what it acts on, what it does."""
    from contextlab import registry

    with printing() as out:
        for name, fault in registry.faults().items():
            out.write(beside(f"{name:<16} {fault.PLANE:<7} ", fault.SUMMARY) + "\n")


@app.command(epilog="Example: contextlab faults show loss")
def show(name: Annotated[str, typer.Argument(help="A fault's name.")]) -> None:
    """One fault: what it does, its options with their defaults, and how it is written."""
    import inspect

    from contextlab import registry
    from contextlab.analysis import quantities

    fault = registry.choose_fault(name)
    options = registry.fault_options(fault)
    with printing() as out:
        out.write(f"{fault.NAME} ({fault.PLANE}): {fault.SUMMARY}\n\n{inspect.cleandoc(fault.__doc__ or '')}\n\n")
        for setting in options.values():
            default = setting.default
            if setting.kind in quantities.PARSERS and isinstance(default, int | float):
                default = quantities.shown(setting.kind, default)
            choices = f": {', '.join(setting.choices)}" if setting.choices else ""
            shown = "–" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
            out.write(beside(f"{setting.name:<13} {shown:<12} ", setting.help + choices) + "\n")
        if fault.EXCLUDES:
            out.write(f"\nnot together with: {', '.join(sorted(fault.EXCLUDES))}\n")
