"""Reading named values from a file that nobody vouches for.

Every value is checked where it is read: right kind, inside its range, and an error that names file, field and value.
A field that is absent or null is None; nothing is guessed here.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextlab.model import UnableError

MAX_LAYERS = 4096
MAX_HEADS = 65_536
MAX_WIDTH = 2**24
"""Most numbers in one vector of a model (hidden size, head dimension, state)."""
MAX_VOCAB = 2**26
MAX_TOKENS = 2**40
MAX_TEXT = 200
"""Characters of a name that a message may repeat."""

CHECK_FILE = "Check the file: download it again, or correct the field by hand in a copy."


@dataclass(frozen=True, slots=True)
class Fields:
    """Named values of one file; `prefix` is written before a field's name in messages ("text_config.")."""

    source: str
    values: Mapping[str, object]
    prefix: str = ""

    def find(self, *names: str) -> tuple[str, object] | None:
        """The first of `names` that is there and not null, with its value."""
        for name in names:
            value = self.values.get(name)
            if value is not None:
                return name, value
        return None

    def has(self, *names: str) -> bool:
        """Whether one of `names` is there and not null."""
        return self.find(*names) is not None

    def error(self, name: str, value: object, rule: str) -> UnableError:
        """The error for a field whose value breaks `rule`."""
        return UnableError(f"{self.source}: {self.prefix}{name} = {shown(value)}: {rule}", CHECK_FILE)

    def missing(self, *names: str) -> UnableError:
        """The error for a field that has to be there, under any of its names."""
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        return UnableError(f"{self.source}: {self.prefix}{names[0]}{others} is missing", CHECK_FILE)

    def integer(self, *names: str, high: int, low: int = 1) -> int | None:
        """The first of `names`, a whole number from `low` to `high`; None where none is there."""
        found = self.find(*names)
        if found is None:
            return None
        return self.whole(*found, low=low, high=high)

    def needed(self, *names: str, high: int, low: int = 1) -> int:
        """As `integer`, for a field that has to be there. Two of its names that disagree are an error."""
        there = [(name, self.values[name]) for name in names if self.values.get(name) is not None]
        if not there:
            raise self.missing(*names)
        first_name, first = there[0]
        for name, value in there[1:]:
            if value != first:
                raise self.error(name, value, f"contradicts {self.prefix}{first_name} = {shown(first)}")
        return self.whole(first_name, first, low=low, high=high)

    def whole(self, name: str, value: object, *, low: int, high: int) -> int:
        """`value` as a whole number from `low` to `high`, or the error that names it."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(name, value, f"must be a whole number from {low} to {high}")
        return value

    def number(self, *names: str) -> float | None:
        """The first of `names`, a finite number above 0."""
        found = self.find(*names)
        if found is None:
            return None
        name, value = found
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.error(name, value, "must be a number above 0")
        if value > 1e300:
            raise self.error(name, value, "must be at most 1e300")
        return float(value)

    def text(self, *names: str) -> str | None:
        """The first of `names`, a short text."""
        found = self.find(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise self.error(name, value, f"must be a text of at most {MAX_TEXT} characters")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """`name`, true or false; `default` where it is absent."""
        found = self.find(name)
        if found is None:
            return default
        if not isinstance(found[1], bool):
            raise self.error(name, found[1], "must be true or false")
        return found[1]

    def items(self, *names: str, length: int | None = None) -> Sequence[object] | None:
        """The first of `names`, a list; of exactly `length` entries where that is given."""
        found = self.find(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, list | tuple):
            raise self.error(name, value, "must be a list")
        if length is not None and len(value) != length:
            raise self.error(name, value, f"has {len(value)} entries for {length} layers")
        return value

    def table(self, *names: str) -> Fields | None:
        """The first of `names`, an object of its own."""
        found = self.find(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, Mapping):
            raise self.error(name, value, "must be an object")
        return Fields(self.source, value, f"{self.prefix}{name}.")


def shown(value: object) -> str:
    """A value as a message repeats it: its start, whatever its size."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
