"""The axes of a sweep: what the user writes, the grid of settings, and the orders in which it is measured; pure.

    `slots=1,2,4` ─▶ Axis ─▶ grid ─▶ screening (few points that cover it) ─▶ restarting_rarely (one block of them)

A range `LOW..HIGH` counts in ones, `LOW..HIGH+STEP` adds and `LOW..HIGHxFACTOR` multiplies; its end belongs to it where
it is met. What a single value means is said by the setting that the target declares.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from random import Random
from typing import TypeVar

from contextlab.model import Setting, Settings, UsageError

T = TypeVar("T")
Value = int | float | str | bool
Convert = Callable[[Setting, str], int | bool | float | str | None]
"""How a text becomes the value of a setting (`registry.parse_setting`); raises UsageError."""

MAX_VALUES = 1024
MAX_CONFIGS = 20_000
FORMS = "NAME=1,2,4 or NAME=1..8 or NAME=512..4096x2 or NAME=100..500+100"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A setting that can be an axis. `restarts`: another value of it needs another server."""

    setting: Setting
    restarts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of a sweep: its values in the order in which they were written, none of them twice."""

    name: str
    values: tuple[Value, ...]
    restarts: bool = False
    unit: str = ""


# ── what the user writes ─────────────────────────────────────────────────────────────────────────


def parse_axes(texts: Iterable[str], declared: Mapping[str, Declared], convert: Convert) -> tuple[Axis, ...]:
    """The axes of several `--sweep` texts, those that restart a server first, else in the order given.

    Raises UsageError naming the text, the rule and the choices; also where the grid would have too many points.
    """
    axes: dict[str, Axis] = {}
    for text in texts:
        axis = parse_axis(text, declared, convert)
        if axis.name in axes:
            raise UsageError(f"--sweep {text!r}: {axis.name} is given twice", "give all of its values in one list")
        axes[axis.name] = axis
    size = math.prod(len(axis.values) for axis in axes.values())
    if size > MAX_CONFIGS:
        factors = " × ".join(f"{len(axis.values)} {axis.name}" for axis in axes.values())
        raise UsageError(f"--sweep: {factors} are {size} settings, more than {MAX_CONFIGS}", "give fewer values")
    return tuple(sorted(axes.values(), key=lambda axis: not axis.restarts))


def parse_axis(text: str, declared: Mapping[str, Declared], convert: Convert) -> Axis:
    """`context=512,1024`, `concurrency=1..8`, `rate=2..16x2`, `batch=64..256+64`. Raises UsageError."""
    name, equals, words = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise UsageError(f"--sweep {text!r}: not of the form name=values", FORMS)
    if name not in declared:
        close = get_close_matches(name, list(declared), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"--sweep {text!r}: this target has no axis {name!r}", f"{hint}it has: {', '.join(declared) or 'none'}"
        )
    one = declared[name]
    values: list[Value] = []
    for word in words.split(","):
        if not word.strip():
            raise UsageError(f"--sweep {text!r}: there is an empty value", FORMS)
        for value in (
            _range(text, word.strip(), one.setting, convert) if ".." in word else [convert(one.setting, word.strip())]
        ):
            if value is None:
                raise UsageError(f"--sweep {text!r}: {word.strip()!r} is no value", FORMS)
            if any(value == other and type(value) is type(other) for other in values):
                raise UsageError(f"--sweep {text!r}: {value} is given twice", FORMS)
            values.append(value)
    if len(values) > MAX_VALUES:
        raise UsageError(f"--sweep {text!r}: {len(values)} values, more than {MAX_VALUES}", "take a larger step")
    return Axis(name=name, values=tuple(values), restarts=one.restarts, unit=one.setting.unit)


def _range(text: str, word: str, setting: Setting, convert: Convert) -> list[int | float]:
    """The values of `LOW..HIGH`, `LOW..HIGH+STEP` or `LOW..HIGHxFACTOR`; whole where the ends are whole."""
    low_text, _, rest = word.partition("..")
    high_text, plus, step_text = rest.partition("+")
    times = ""
    if not plus:
        high_text, times, step_text = rest.partition("x")
    low, high = (_number(text, word, convert(setting, part.strip())) for part in (low_text, high_text))
    if low > high:
        raise UsageError(
            f"--sweep {text!r}: the range {word} is crossed", f"its lower end goes first: {high:g}..{low:g}"
        )
    if times:
        try:
            factor = float(step_text)
        except ValueError:
            factor = math.nan
        if not (1 < factor < math.inf and low > 0):
            rule = "a factor above 1 and a lower end above 0"
            raise UsageError(f"--sweep {text!r}: {word} needs {rule}", "for example 512..4096x2")
        count = math.floor(math.log(high / low) / math.log(factor) + 1e-9) + 1
        found: list[int | float] = [low * factor**index for index in range(min(count, MAX_VALUES + 1))]
    else:
        step = _number(text, word, _unbounded(setting, step_text, convert)) if plus else 1
        if not step > 0:
            raise UsageError(f"--sweep {text!r}: {word} needs a step above 0", "for example 64..256+64")
        count = math.floor((high - low) / step + 1e-9) + 1
        found = [low + step * index for index in range(min(count, MAX_VALUES + 1))]
    if isinstance(low, int) and isinstance(high, int) and setting.kind != "float":
        return list(dict.fromkeys(round(value) for value in found))
    return [float(f"{value:.12g}") for value in found]


def _unbounded(setting: Setting, text: str, convert: Convert) -> object:
    """A step, which is of the setting's kind but need not lie in its range."""
    free = Setting(name=setting.name, kind=setting.kind, default=setting.default, help=setting.help, unit=setting.unit)
    return convert(free, text.strip())


def _number(text: str, word: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(
            f"--sweep {text!r}: {word} is a range, and a range is of numbers", "give the values one by one"
        )
    return value


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


def grid(axes: Sequence[Axis]) -> list[dict[str, Value]]:
    """Every combination; the last axis changes fastest. Of no axes: one combination of nothing."""
    return [
        dict(zip((axis.name for axis in axes), values, strict=True)) for values in product(*(a.values for a in axes))
    ]


def config_hash(settings: Mapping[str, object]) -> str:
    """sha256 (hex) of the canonical JSON: keys in order, no spaces, whole floats as integers.

    Equal settings have equal hashes in every process. Raises ValueError for a number that is not finite.
    """
    plain = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in settings.items()
    }
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Lattice:
    """Where settings lie to each other: each has one coordinate an axis, the rank of its value.

    Ranks are of the values that occur, numbers by size, words as they come; so a geometric ladder is even.
    The settings need not fill the grid.
    """

    def __init__(self, configs: Sequence[Settings]) -> None:
        seen: dict[str, list[object]] = {}
        for config in configs:
            for name, value in config.items():
                values = seen.setdefault(name, [])
                if value not in values:
                    values.append(value)
        self.names = [name for name, values in seen.items() if len(values) > 1]
        self._ordered = {name: all(_is_number(value) for value in seen[name]) for name in self.names}
        ranks: dict[str, dict[object, int]] = {}
        for name in self.names:
            values = sorted(seen[name], key=lambda value: float(str(value))) if self._ordered[name] else seen[name]
            ranks[name] = {value: rank for rank, value in enumerate(values)}
        self.levels = [len(ranks[name]) for name in self.names]
        self.places = [
            tuple(ranks[name][config[name]] if name in config else 0 for name in self.names) for config in configs
        ]
        self.spots = [
            tuple(rank / (levels - 1) for rank, levels in zip(place, self.levels, strict=True)) for place in self.places
        ]
        self._at = {place: index for index, place in enumerate(self.places)}

    def neighbours(self, index: int) -> list[int]:
        """The settings one step away along one axis; along an axis of words every other value is one step away."""
        place, found = self.places[index], []
        for axis, name in enumerate(self.names):
            own = place[axis]
            ranks = (own - 1, own + 1) if self._ordered[name] else range(self.levels[axis])
            found += [
                self._at[other]
                for rank in ranks
                if rank != own and (other := (*place[:axis], rank, *place[axis + 1 :])) in self._at
            ]
        return found

    def trust(self, index: int, failed: Sequence[int]) -> float:
        """From 0 to 1: how little the failure of other settings, refused or crashed, speaks against this one."""
        trust = 1.0
        for other in failed:
            apart = sum(abs(a - b) for a, b in zip(self.spots[index], self.spots[other], strict=True))
            trust *= 1 - 0.7 * math.exp(-3 * apart)
        return trust

    def screening(self, rng: Random) -> list[int]:
        """All settings, in an order of which every beginning covers the grid evenly.

        The additive recurrence of the generalised golden ratio (Roberts 2018: φ^(d+1) = φ + 1, steps φ^-1 … φ^-d), a
        low-discrepancy sequence as Sobol's, from a random start; each of its points takes the nearest setting left.
        """
        depth, count = len(self.names), len(self.places)
        phi = 2.0
        for _ in range(64):
            phi = (1 + phi) ** (1 / (depth + 1))
        shift = [rng.random() for _ in range(depth)]
        left = dict.fromkeys(range(count))
        spots = [
            tuple((rank + 0.5) / levels for rank, levels in zip(place, self.levels, strict=True))
            for place in self.places
        ]
        order = []
        for step in range(1, count + 1):
            aim = [(start + step * phi ** -(axis + 1)) % 1.0 for axis, start in enumerate(shift)]
            nearest = min(left, key=lambda index: sum((a - b) ** 2 for a, b in zip(aim, spots[index], strict=True)))
            del left[nearest]
            order.append(nearest)
        return order


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def server_part(settings: Settings, restarts: Collection[str]) -> tuple[tuple[str, object], ...]:
    """The part of the settings for which a server must be started anew."""
    return tuple(sorted((name, value) for name, value in settings.items() if name in restarts))


def restarting_rarely(
    tasks: Sequence[T], server_of: Callable[[T], object], rng: Random, running: object = None
) -> list[T]:
    """The tasks of one block in random order, but those of one server together; first those of the one that runs.

    Random within the block, so that no setting is always measured after the same other one.
    """
    groups: dict[object, list[T]] = {}
    for task in tasks:
        groups.setdefault(server_of(task), []).append(task)
    servers = list(groups)
    rng.shuffle(servers)
    servers.sort(key=lambda server: server != running)
    ordered = []
    for server in servers:
        members = groups[server]
        rng.shuffle(members)
        ordered += members
    return ordered
