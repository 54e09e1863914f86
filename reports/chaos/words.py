"""How the loads, faults and figures of chaos experiments are put into words; pure, and the same for every writer."""

from __future__ import annotations

import math

from contextlab.analysis import loads, quantities
from contextlab.experiment import Load, Pace, Placed
from contextlab.reports.parts.wording import clean, value

EMULATED = "EMULATED"
"""Stands wherever something is reported that no packet went through."""
NONE = "–"
"""What was not measured."""
NEVER = "never"
"""A time that so many requests never reached."""
_SHARES = frozenset({"rate", "share", "events"})
"""Options of faults that are parts of a whole; a rate in bytes says so in its name."""
_KINDS = {"_bytes_per_s": "rate", "_bytes": "size", "_s": "duration"}


def load_words(load: Load, seed: object = None) -> str:
    """`Poisson 8/s for 30s, seed 0`; a closed loop says what that means."""
    words = loads.words_of(load)
    closed = " (each request waits until another ends)" if load.arrivals.pace is Pace.CLOSED else ""
    return clean(f"{words[:1].upper()}{words[1:]}{closed}" + (f", seed {seed}" if seed is not None else ""))


def fault_words(fault: Placed, most: int | None = None) -> str:
    """`loss 15%`, `delay 200ms, direction down`, `cut at event:5, share 25%`; at most so many options."""
    said = []
    for place, (field, given) in enumerate(list(fault.options.items())[:most]):
        name, words = _option(field, given)
        plain_number = place == 0 and isinstance(given, int | float) and not isinstance(given, bool)
        said.append(words if plain_number else f"{name} {words}")
    return clean(f"{fault.name} {', '.join(said)}".strip())


def is_emulated(engine: str) -> bool:
    """Whether an engine, or a path that names one, is no real link but what the relay does in its place."""
    return EMULATED.lower() in engine.lower()


def window_words(fault: Placed) -> str:
    """`10–40 s`."""
    return f"{short(fault.start_s)}–{short(fault.end_s)} s"


def _option(field: str, given: object) -> tuple[str, str]:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return field, value(given)
    for unit, kind in _KINDS.items():
        if field.endswith(unit):
            return field.removesuffix(unit), quantities.shown(kind, given)
    return field, quantities.shown("share", given) if field in _SHARES and given <= 1 else short(given)


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


def number(amount: float) -> str:
    """Three digits that count, and no exponent: `0.412`, `41.0`, `1404`."""
    if not math.isfinite(amount):
        return "∞" if amount > 0 else "−∞" if amount < 0 else NONE
    if amount == 0 or abs(amount) >= 100:
        return f"{amount:.0f}"
    return f"{amount:#.3g}" if abs(amount) >= 0.001 else f"{amount:.6f}".rstrip("0")


def times(factor: float | None) -> str:
    """A factor: `0.82`, `19.4`, `∞`."""
    if factor is None or not math.isfinite(factor):
        return "∞"
    return f"{factor:.2f}" if abs(factor) < 9.995 else number(factor)


def short(amount: float) -> str:
    """The same without zeros at the end, for what somebody chose: `10`, `0.5`."""
    words = number(amount)
    return words.rstrip("0").rstrip(".") if "." in words else words


def seconds(time_s: float) -> str:
    """`41.2 ms`, `1.25 s`; `never` where it is infinite."""
    if math.isinf(time_s):
        return NEVER
    unit, name = unit_of(time_s)
    return f"{number(time_s / unit)} {name}"


def unit_of(time_s: float) -> tuple[float, str]:
    """The unit, in seconds and by name, in which a time is written: milliseconds below one second."""
    return (1.0, "s") if not abs(time_s) < 0.9995 else (0.001, "ms")


def percent(share: float) -> str:
    """`2.5%`; what is not all, or not nothing, never looks like it."""
    words = f"{share * 100:.3g}"
    for digits in (4, 5, 6):
        if words == "100" and share < 1:
            words = f"{share * 100:.{digits}g}"
    if words == "100" and share < 1:
        words = "99.9999"
    return "<0.001%" if 0 < share < 1e-5 else f"{float(words):.10g}%"


def between(low: float | None, high: float | None, unit: float = 1.0) -> str:
    """`40.1–43.2`: the ends of an interval in a unit; an open end is `∞`."""
    return f"{_end(low, unit, '0')}–{_end(high, unit, '∞')}"


def _end(end: float | None, unit: float, unknown: str) -> str:
    return unknown if end is None else number(end / unit)
