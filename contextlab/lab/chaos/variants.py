"""A server of ours with other settings for the length of one experiment, at the address that it had if it keeps one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from contextlab import registry
from contextlab.lab.server import OwnedServer
from contextlab.model import ServerCommand, Settings, TargetSpec

THREADS = "threads"
"""The setting of a target's engine threads, and the power to set them."""


def powers_of(spec: TargetSpec) -> frozenset[str]:
    """What can be set of a target whose server we start: "threads"."""
    declared = registry.settings_of(spec.scheme)
    return frozenset({THREADS}) if THREADS in declared and registry.server_command(spec) is not None else frozenset()


@contextmanager
def served_with(
    server: OwnedServer | None, spec: TargetSpec, settings: Settings, noted: Callable[[OwnedServer], None]
) -> Iterator[None]:
    """The server with these settings beside its own; afterwards as it was. `noted` is told of each start.

    Nothing happens where they are its own, or where there is no server of ours. Raises UnableError where it does not
    come up.
    """
    own = {setting.name: setting.default for setting in registry.settings_of(spec.scheme).values()} | dict(
        spec.settings
    )
    command = registry.server_command(replace(spec, settings={**spec.settings, **settings}))
    if server is None or command is None or all(own.get(name) == value for name, value in settings.items()):
        yield
        return
    before = server.command
    try:
        _start(server, command, noted)
        yield
    finally:
        _start(server, before, noted)


def _start(server: OwnedServer, command: ServerCommand, noted: Callable[[OwnedServer], None]) -> None:
    server.command = command
    server.restart()
    noted(server)
