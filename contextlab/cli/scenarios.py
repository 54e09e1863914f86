"""`contextlab scenarios list | show NAME | settings TARGET`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from contextlab.cli.output import beside, printing

app = typer.Typer(help="The scenarios, and the settings of targets.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """Every scenario, in the order in which they run."""
    from contextlab import registry

    with printing() as out:
        for command in registry.COMMANDS:
            for scenario in registry.scenarios(command).values():
                out.write(beside(f"{command}  {scenario.name:<22}", scenario.summary) + "\n")


@app.command()
def show(name: Annotated[str, typer.Argument(help="A scenario's name.")]) -> None:
    """What one scenario does, what it needs, and where it is defined."""
    from contextlab import registry

    everywhere = {command: registry.scenarios(command) for command in registry.COMMANDS}
    found = [(command, known[name]) for command, known in everywhere.items() if name in known]
    if not found:
        registry.choose("scenario", name, [one for known in everywhere.values() for one in known])
    with printing() as out:
        for command, scenario in found:
            module = sys.modules[scenario.plan.__module__]
            out.write(f"{scenario.name} ({command}): {scenario.summary}\n\n{(module.__doc__ or '').strip()}\n\n")
            out.write(f"needs:  {', '.join(scenario.needs) or 'nothing of the target'}\n")
            out.write(f"file:   {module.__file__}\n")


@app.command(epilog="Example: contextlab scenarios settings smollm2")
def settings(target: Annotated[str, typer.Argument(help="A preset or a scheme, such as smollm2, gguf, http.")]) -> None:
    """The settings that a target takes with --set: name, default, what it does."""
    from contextlab import registry

    preset = registry.presets().get(target)
    scheme = preset.scheme if preset else target.partition(":")[0]
    known = registry.targets()
    if scheme not in known:
        registry.parse_target(target)  # says what is wrong with it
    with printing() as out:
        for setting in registry.settings_of(scheme).values():
            default = preset.settings.get(setting.name, setting.default) if preset else setting.default
            choices = f": {', '.join(setting.choices)}" if setting.choices else ""
            out.write(beside(f"{setting.name:<19} {_shown(default):<18} ", setting.help + choices) + "\n")


def _shown(default: int | bool | float | str | None) -> str:
    """A default as the user would write it."""
    if default is None:
        return "–"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
