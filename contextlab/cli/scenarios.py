"""`contextlab scenarios list | show NAME | settings TARGET`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(help="The scenarios, and the settings of targets.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """Every scenario, in the order in which they run."""
    from contextlab import registry

    for command in registry.COMMANDS:
        for scenario in registry.scenarios(command).values():
            typer.echo(f"{command}  {scenario.name:<22}{scenario.summary}")


@app.command()
def show(name: Annotated[str, typer.Argument(help="A scenario's name.")]) -> None:
    """What one scenario does, what it needs, and where it is defined."""
    from contextlab import registry

    for command in registry.COMMANDS:
        [scenario] = registry.choose_scenarios(command, [name])
        module = sys.modules[scenario.plan.__module__]
        typer.echo(f"{scenario.name} ({command}): {scenario.summary}\n\n{(module.__doc__ or '').strip()}\n")
        typer.echo(f"needs:  {', '.join(scenario.needs) or 'nothing of the target'}")
        typer.echo(f"file:   {module.__file__}")


@app.command()
def settings(target: Annotated[str, typer.Argument(help="A preset or a scheme, such as smollm2, gguf, http.")]) -> None:
    """The settings that a target takes with --set."""
    from contextlab import registry

    preset = registry.presets().get(target)
    scheme = preset.scheme if preset else target.partition(":")[0]
    known = registry.targets()
    if scheme not in known:
        registry.parse_target(target)  # says what is wrong with it
    for setting in registry.settings_of(scheme).values():
        default = preset.settings.get(setting.name, setting.default) if preset else setting.default
        shown = str(default).lower() if isinstance(default, bool) else default
        typer.echo(f"{setting.name:<20}{'' if shown is None else shown!s:<22}{setting.help}")
