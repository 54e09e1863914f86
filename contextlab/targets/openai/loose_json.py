"""Reading JSON that somebody else wrote: nothing here raises, what is missing or of another kind is None or empty."""

from __future__ import annotations

import json
from typing import Any

LARGEST = 2**63
"""Numbers from here on are nonsense that a record could not hold."""


def loaded(text: str) -> Any:
    """The value of a JSON text, or None if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def within(value: Any, *path: str | int) -> Any:
    """The value at `path` in decoded JSON, or None where any step of it is missing."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def whole(value: Any) -> int | None:
    """A whole number, also one written as a float or as text; None for anything else, true and false included."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < LARGEST else None


def first(*values: Any) -> int | None:
    """The first of these that is a whole number."""
    return next((number for value in values if (number := whole(value)) is not None), None)


def rows(value: Any) -> list[Any]:
    """A list as it is, anything else as an empty one."""
    return value if isinstance(value, list) else []


def words(value: Any) -> str:
    """A text as it is, anything else as an empty one."""
    return value if isinstance(value, str) else ""
