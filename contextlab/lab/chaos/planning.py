"""From what the user wrote, on the command line or in a TOML plan, to what is asked of chaos; nothing runs here.

[plan.toml] ─┐
             ├─▶ Asked, checked as a whole: times inside the run, faults that do not contradict each other
--options ───┘   (options win over the plan)
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from contextlab import registry
from contextlab.analysis import loads
from contextlab.analysis.bounds import parse_bound, parse_stop
from contextlab.analysis.caching import ENTRIES, cache
from contextlab.analysis.popularity import popular_mix
from contextlab.analysis.quantities import LONGEST_S, quantity
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Mixed, Pace, Placed, Plane
from contextlab.model import Api, Knowledge, Message, Request, UsageError

PLAN_KEYS = (
    "target",
    "settings",
    "seed",
    "duration",
    "rate",
    "arrivals",
    "timeout",
    "warmup",
    "reply_tokens",
    "hypothesis",
    "stop",
    "recovery_within",
    "faults",
    "request",
    "control",
)
REQUEST_KEYS = ("name", "prompt", "api", "reply_tokens", "size_tokens", "weight")
MOST_PER_S = 100_000.0
MAX_PLAN_BYTES = 1 << 20
MAX_TRACE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the user wrote, each None (or empty) where nothing was written. Every value is text, as typed."""

    faults: Sequence[str] = ()
    rate: str | None = None
    duration: str | None = None
    arrivals: str | None = None
    hypothesis: Sequence[str] = ()
    stop: Sequence[str] = ()
    timeout: str | None = None
    warmup: str | None = None
    recovery_within: str | None = None
    reply_tokens: int | None = None
    control: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A checked plan: what is asked, and what a plan file says besides (None and empty where it does not)."""

    asked: Asked
    target: str | None = None
    settings: tuple[str, ...] = ()
    seed: int | None = None
    is_written: bool = field(default=False)


def planned(words: Words, plan: Path | None = None) -> Planned:
    """What is asked, from the options and the plan file. Raises UsageError naming the value, the rule, the next step.

    `is_written`: the user wrote an experiment (faults, or a plan); else the scenarios are run.
    """
    table = _read(plan) if plan is not None else {}
    written = _with_plan(words, table, plan)
    duration_s = quantity("duration", written.duration or "30s", "duration", low=0.5, high=LONGEST_S)
    arrivals = None
    if written.arrivals is not None:
        trace_s = _trace(written.arrivals, duration_s)
        arrivals = loads.parse_arrivals(written.arrivals, duration_s, trace_s)
    asked = Asked(
        rate_per_s=None if written.rate is None else _rate(written.rate),
        duration_s=duration_s,
        arrivals=arrivals,
        mix=_mix(table, plan, written.reply_tokens),
        reply_tokens=written.reply_tokens or Asked().reply_tokens,
        timeout_s=_maybe("timeout", written.timeout, low=0.05),
        warmup_s=_maybe("warmup", written.warmup, low=0.0),
        hypothesis=tuple(parse_bound(text) for text in written.hypothesis) or None,
        stop=tuple(parse_stop(text) for text in written.stop),
        recovery_within_s=_maybe("recovery_within", written.recovery_within, low=0.0),
        faults=_faults(written.faults, duration_s),
        control=True if written.control is None else written.control,
    )
    _check(asked)
    return Planned(
        asked=asked,
        target=_text(table, "target", plan),
        settings=_settings(table, plan),
        seed=_whole(table, "seed", plan),
        is_written=bool(asked.faults) or plan is not None,
    )


def _check(asked: Asked) -> None:
    """What no single value can say: times inside the run, faults that act at once and contradict each other."""
    arrivals = asked.arrivals
    if arrivals is not None and arrivals.pace is Pace.CLOSED and asked.rate_per_s is not None:
        raise UsageError("rate and arrivals=closed: a closed loop has no rate", "give one of them")
    if asked.warmup_s is not None and asked.warmup_s >= asked.duration_s:
        message = f"warmup={asked.warmup_s:g}s: not shorter than the run of {asked.duration_s:g} s"
        raise UsageError(message, "make the run longer: --duration")
    for placed in asked.faults:
        if placed.end_s > asked.duration_s + 1e-9:
            raise UsageError(
                f"fault {registry.shown_fault(placed)!r}: it ends at {placed.end_s:g} s, after the run of "
                f"{asked.duration_s:g} s",
                "make the run longer (--duration), or the fault shorter (@START+LENGTH)",
            )
    for one, other in combinations(asked.faults, 2):
        together = one.start_s < other.end_s and other.start_s < one.end_s
        if together and (other.name in _excludes(one) or one.name in _excludes(other)):
            raise UsageError(
                f"faults {registry.shown_fault(one)!r} and {registry.shown_fault(other)!r}: they contradict each other",
                "leave one of them out, or place them one after the other (@START+LENGTH)",
            )


def _excludes(placed: Placed) -> frozenset[str]:
    return registry.faults()[placed.name].EXCLUDES


def _faults(texts: Sequence[str], duration_s: float) -> tuple[Placed, ...]:
    start_s, length_s = loads.middle_third(duration_s)
    found = []
    for text in texts:
        placed = registry.parse_fault(text, start_s=start_s, length_s=length_s)
        if "@" in text and "+" not in text.partition("@")[2]:  # a start alone: until the same time is left after it
            left_s = max(0.0, duration_s - placed.start_s)
            placed = replace(placed, length_s=round(min(length_s, left_s), 3) or length_s)
        found.append(placed)
    return tuple(found)


def _maybe(name: str, text: str | None, *, low: float) -> float | None:
    return None if text is None else quantity(name, text, "duration", low=low)


def _rate(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("/s"))
    except ValueError:
        value = float("nan")
    if not 0 < value <= MOST_PER_S:
        message = f"rate={text!r}: must be a number of requests a second, above 0 and up to {MOST_PER_S:,.0f}"
        raise UsageError(message, "for example --rate 8")
    return value


def _trace(arrivals: str, duration_s: float) -> tuple[float, ...]:
    """The due times in the file that `replay:FILE` names: seconds, one a line, inside the run."""
    word, _, name = arrivals.partition(":")
    if word.strip() != Pace.REPLAY.value or not name:
        return ()
    try:
        text = Path(name).read_text(encoding="utf-8")
        times = [float(line) for line in text.split()]
    except OSError as error:
        raise UsageError(f"arrivals={arrivals!r}: cannot be read: {error.strerror}", "name a file of times") from None
    except ValueError as error:
        raise UsageError(f"arrivals={arrivals!r}: {error}", "one time in seconds a line, and nothing else") from None
    if not times or len(times) > MAX_TRACE or min(times) < 0 or not max(times) < duration_s:
        rule = f"must hold 1 to {MAX_TRACE:,} times from 0 to less than the run's {duration_s:g} s"
        raise UsageError(f"arrivals={arrivals!r}: {rule}", "make the run longer (--duration), or cut the file")
    return tuple(sorted(times))


# ── the plan file ────────────────────────────────────────────────────────────────────────────────


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = path.read_bytes()[: MAX_PLAN_BYTES + 1]
        if len(data) > MAX_PLAN_BYTES:
            raise UsageError(f"{path}: larger than {MAX_PLAN_BYTES} bytes", "is it a plan?")
        table = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", "name a plan in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}", "mend the file") from None
    _known(table, PLAN_KEYS, f"{path}")
    return table


def _known(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            close = get_close_matches(key, keys, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"{where}: there is no key {key!r} here", f"{hint}the keys are {', '.join(keys)}")


def _with_plan(words: Words, table: Mapping[str, Any], plan: Path | None) -> Words:
    """The options over what the plan says."""

    def text(key: str, given: str | None) -> str | None:
        value = table.get(key)
        if given is not None or value is None:
            return given
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(f"{plan}: {key}={value!r}: must be a text or a number", 'for example duration = "30s"')
        return str(value)

    def texts(key: str, given: Sequence[str]) -> Sequence[str]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise UsageError(f"{plan}: {key}={value!r}: must be a list of texts", f'for example {key} = ["…"]')
        return given or value

    control = table.get("control")
    if control is not None and not isinstance(control, bool):
        raise UsageError(f"{plan}: control={control!r}: must be true or false", "leave it out for a control arm")
    return Words(
        faults=texts("faults", words.faults),
        rate=text("rate", words.rate),
        duration=text("duration", words.duration),
        arrivals=text("arrivals", words.arrivals),
        hypothesis=texts("hypothesis", words.hypothesis),
        stop=texts("stop", words.stop),
        timeout=text("timeout", words.timeout),
        warmup=text("warmup", words.warmup),
        recovery_within=text("recovery_within", words.recovery_within),
        reply_tokens=words.reply_tokens or _whole(table, "reply_tokens", plan, low=1),
        control=words.control if words.control is not None else control,
    )


def _mix(table: Mapping[str, Any], plan: Path | None, reply_tokens: int | None) -> tuple[Mixed, ...]:
    """The requests that a plan writes out, as `[[request]]` tables."""
    rows = table.get("request", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{plan}: request={rows!r}: must be tables", 'for example [[request]] and prompt = "…"')
    return tuple(_mixed(row, f"{plan}: request {number}", number, reply_tokens) for number, row in enumerate(rows, 1))


def _mixed(row: Mapping[str, Any], where: str, number: int, reply_tokens: int | None) -> Mixed:
    _known(row, REQUEST_KEYS, where)
    prompt, weight = row.get("prompt"), row.get("weight", 1.0)
    if not isinstance(prompt, str) or not prompt:
        raise UsageError(
            f"{where}: prompt={prompt!r}: must be a text", 'for example prompt = "The capital of France is"'
        )
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise UsageError(f"{where}: weight={weight!r}: must be a number above 0", "leave it out for equal shares")
    api = row.get("api", Api.COMPLETIONS.value)
    if api not in [one.value for one in Api]:
        raise UsageError(f"{where}: api={api!r}: must be chat or completions", "leave it out for completions")
    api = Api(api)
    request = Request(
        name=str(row.get("name", f"request-{number}")),
        messages=(Message(role="user" if api is Api.CHAT else "prompt", parts=(prompt,)),),
        api=api,
        reply_tokens=_whole(row, "reply_tokens", None, where=where, low=1) or reply_tokens or Asked().reply_tokens,
    )
    return Mixed(request=request, weight=float(weight))


def _text(table: Mapping[str, Any], key: str, plan: Path | None) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{plan}: {key}={value!r}: must be a text", "for example smollm2")
    return value


def _settings(table: Mapping[str, Any], plan: Path | None) -> tuple[str, ...]:
    value = table.get("settings", {})
    if not isinstance(value, dict):
        raise UsageError(f"{plan}: settings={value!r}: must be a table", "for example [settings] and slots = 4")
    words = {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}
    return tuple(f"{name}={one}" for name, one in words.items())


def _whole(
    table: Mapping[str, Any], key: str, plan: Path | None, *, where: str = "", low: int | None = None
) -> int | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or (low is not None and value < low):
        rule = "a whole number" if low is None else f"a whole number of at least {low}"
        raise UsageError(f"{where or plan}: {key}={value!r}: must be {rule}", "for example 8")
    return value


# ── which experiments ────────────────────────────────────────────────────────────────────────────

ASKED = "asked"
"""The name of the scenario that the user wrote."""


def chosen(written: Planned, names: Sequence[str]) -> list[ChaosScenario]:
    """The experiment that was written, or the scenarios named, or all of them. Raises UsageError where both are."""
    if written.is_written and names:
        raise UsageError(
            "--scenario beside --fault or --plan: a scenario brings its own faults", "run them one after the other"
        )
    if not written.is_written:
        return registry.choose_scenarios("chaos", names)
    return [ChaosScenario(name=ASKED, summary="the experiment that was asked for", plan=_as_asked, order=0)]


def _as_asked(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment: the load, the faults and the bounds that the user wrote.

    In front of a fault on Redis stands a cache whose local tier holds a part of the requests, so that Redis is asked.
    """
    name = "+".join(dict.fromkeys(placed.name for placed in asked.faults)) or "no-fault"
    if not any(registry.plane_of(placed) is Plane.TIER for placed in asked.faults):
        yield loads.experiment(name, known, asked, *asked.faults)
        return
    mix = asked.mix or popular_mix(known, asked.reply_tokens, rng)
    local_entries = min(ENTRIES, max(1, len(mix) // 3))
    tier = replace(cache(), local_entries=local_entries)
    yield loads.experiment(name, known, replace(asked, mix=mix), *asked.faults, tier=tier)
