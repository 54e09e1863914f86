"""Quantities as people write them: `15%`, `200ms`, `1.5s`, `64KB`, `1MB/s`, `10mbit/s`, `200m` of a CPU; pure.

Decimal prefixes are powers of 1000, `Ki`, `Mi`, `Gi` powers of 1024. Every parser raises ValueError with its rule, and
nothing else; `quantity` tells the user.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from contextlab.model import UsageError

_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e([-+]?[0-9]{1,2}))?"
_DURATION = re.compile(rf"{_NUMBER}\s*(us|µs|ms|s|m|min|h)?")
_SIZE = re.compile(rf"{_NUMBER}\s*(k|m|g|ki|mi|gi)?(b|bit)?")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
LARGEST = 1e15
"""Nothing that can be meant is larger."""


def share(text: str) -> float:
    """A share from 0 to 1: `15%`, or `0.15`."""
    rule = "a share such as 15% or 0.15, from 0 to 1"
    word = text.strip()
    value = _float(word.removesuffix("%").strip(), rule) / (100.0 if word.endswith("%") else 1.0)
    if not 0.0 <= value <= 1.0:
        raise ValueError(rule)
    return value


def duration(text: str) -> float:
    """Seconds: `200ms`, `1.5s`, `2min`; a bare number is seconds."""
    rule = "a duration such as 200ms, 1.5s or 2min"
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(rule)
    return _finite(found, _SECONDS[found[3] or ""], rule)


def size(text: str) -> int:
    """Bytes: `64KB`, `1.5MiB`, `4096`."""
    rule = "a size such as 4096, 64KB or 1MiB"
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[4] == "bit":
        raise ValueError(rule)
    return int(_finite(found, _BYTES[found[3] or ""], rule))


def rate(text: str) -> float:
    """Bytes per second: `1MB/s`, `64kbit/s`, `10mbit`; a bare number is bytes per second."""
    rule = "a rate such as 64KB/s or 10mbit/s"
    word = text.strip().lower()
    found = _SIZE.fullmatch(re.sub(r"(/s|ps)$", "", word))
    if found is None:
        raise ValueError(rule)
    return _finite(found, _BYTES[found[3] or ""] / (8.0 if found[4] == "bit" else 1.0), rule)


def cpus(text: str) -> float:
    """Processors: `0.2`, `2`, or in thousandths, `200m`."""
    rule = "a number of CPUs such as 200m, 0.2 or 2"
    word = text.strip().lower()
    value = _float(word.removesuffix("m"), rule) / (1000.0 if word.endswith("m") else 1.0)
    if value > LARGEST:
        raise ValueError(rule)
    return value


PARSERS: Mapping[str, Callable[[str], float]] = {
    "share": share,
    "duration": duration,
    "size": size,
    "rate": rate,
    "cpus": cpus,
}
"""The kinds of a `Setting` that are written with a unit."""


EXAMPLES = {"duration": "30s", "share": "15%", "size": "64KB", "rate": "1MB/s", "cpus": "200m"}
LONGEST_S = 24 * 3600.0
"""No experiment lasts longer."""


def quantity(name: str, text: str, kind: str, *, low: float, high: float = LONGEST_S) -> float:
    """A number with a unit inside a range. Raises UsageError naming the value and the rule."""
    try:
        value = PARSERS[kind](text)
    except ValueError as error:
        raise UsageError(f"{name}={text!r}: must be {error}", f"for example {EXAMPLES.get(kind, '1')}") from None
    if not low <= value <= high:
        message = f"{name}={text!r}: must be from {shown(kind, low)} to {shown(kind, high)}"
        raise UsageError(message, "choose a value in between")
    return value


def count(number: int, noun: str) -> str:
    """A number and its noun, in the plural where it is not one: `1 probe`, `2 probes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def num_of(number: float, words: str) -> str:
    """`3 packets dropped`, `1 packet dropped`: `words` begin with their noun in the plural."""
    noun, space, rest = words.partition(" ")
    if f"{number:.0f}" == "1":
        noun = f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{number:.0f} {noun}{space}{rest}"


def shown_seconds(value_s: float) -> str:
    """`200ms`, `1.5s`, `90s`: a duration as `duration` reads it."""
    return f"{value_s * 1000:.4g}ms" if 0 < abs(value_s) < 1 else f"{value_s:.6g}s"


def shown(kind: str, value: float) -> str:
    """A value of one of these kinds as a person would write it; the parser of the kind reads it back."""
    match kind:
        case "share":
            return f"{value * 100:.6g}%"
        case "duration":
            return shown_seconds(value)
        case "size" | "rate":
            unit = "/s" if kind == "rate" else ""
            for prefix, factor in (("M", 10**6), ("K", 10**3)):
                if value >= factor and (value / (factor / 1000)) % 1 == 0:
                    return f"{value / factor:.6g}{prefix}B{unit}"
            return f"{value:.6g}B{unit}"
        case "cpus" if value % 1:
            return f"{value * 1000:.6g}m"
    return f"{value:.6g}"


def _float(text: str, rule: str) -> float:
    if not re.fullmatch(_NUMBER, text.lower()):
        raise ValueError(rule)
    return float(text)


def _finite(found: re.Match[str], factor: float, rule: str) -> float:
    value = float(found[1]) * 10.0 ** int(found[2] or 0) * factor
    if not math.isfinite(value) or value > LARGEST:
        raise ValueError(rule)
    return value
