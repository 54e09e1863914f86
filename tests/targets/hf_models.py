"""Tiny real models for the tests of the hf target, each loaded once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from contextlab.targets.hf import SETTINGS, checked
from contextlab.targets.inside.load import Loaded, find, load
from contextlab.targets.inside.tasks import TASKS

WINDOW = 128


def settings(**chosen: Any) -> dict[str, Any]:
    """The settings of the target, with these in place of the defaults."""
    return {one.name: one.default for one in SETTINGS} | chosen


@cache
def model(name: str, **chosen: Any) -> Loaded:
    """A random model; what the packages warn of while they are imported is theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = find(f"random/{name}", chosen.get("window"))
        return load(source, checked(settings(**chosen), source))


def measured(task: str, loaded: Loaded, **about: int | float | str) -> Mapping[str, Any]:
    """Everything that a task reports, the last word on each."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for evidence in TASKS[task](loaded, about):
            found |= evidence
    return found
