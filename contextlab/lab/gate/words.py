"""Reads an arm of a gate: a target with its `--set` and `--at`, all in one word of the shell."""

from __future__ import annotations

import shlex

from contextlab import registry
from contextlab.model import TargetSpec, UsageError

_EXAMPLE = "for example --base 'smollm2 --set threads=1'"


def parse_arm(words: str, option: str) -> TargetSpec:
    """The target. Raises UsageError naming `option`, the word and the rule."""
    try:
        first, *rest = shlex.split(words)
    except ValueError:
        raise UsageError(f"{option}={words!r}: must be a target, and quotes must be closed", _EXAMPLE) from None
    assignments: list[str] = []
    at: str | None = None
    given = iter(rest)
    for word in given:
        name, equals, value = word.partition("=")
        if name not in ("--set", "--at"):
            raise UsageError(f"{option}={words!r}: {word!r} is neither --set NAME=VALUE nor --at URL", _EXAMPLE)
        if not equals:
            value = next(given, "")
        if not value:
            raise UsageError(f"{option}={words!r}: {name} lacks its value", _EXAMPLE)
        if name == "--set":
            assignments.append(value)
        else:
            at = value
    return registry.parse_target(first, assignments, at=at)
