"""From what the user wrote to a sweep: which axes the target has, the goals, the SLOs, the settings that stay fixed.

settings of the target (a server of ours starts anew) ─┐
settings of the load (concurrency, rate, lengths)      ├─▶ Declared axes ─▶ Sweep
{placeholders} of a run: command, tasks of hf:         ─┘
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import cast

from contextlab import registry
from contextlab.analysis.axes import Axis, Declared, Value, grid, parse_axes
from contextlab.analysis.bounds import METRICS, RATES, SHARES, parse_bound, subject_of
from contextlab.analysis.frontier import Direction
from contextlab.analysis.levels import QUANTILES
from contextlab.analysis.replies import TIMES
from contextlab.analysis.sweeps import Goal, Sweep
from contextlab.analysis.tradeoffs import Slo
from contextlab.experiment import Bound
from contextlab.lab.sweep import batches
from contextlab.model import Setting, Settings, TargetSpec, UsageError

CONCURRENCY, RATE, PROMPT_TOKENS, REPLY_TOKENS = "concurrency", "rate", "prompt_tokens", "reply_tokens"
DEFAULTS: Mapping[str, int] = {PROMPT_TOKENS: 32, REPLY_TOKENS: 16}
LOAD_AXES: tuple[Setting, ...] = (
    Setting(
        name=CONCURRENCY,
        kind="int",
        default=None,
        low=1,
        high=4096,
        unit="requests",
        help="requests at any time (closed loop); by default the target's slots",
    ),
    Setting(
        name=RATE, kind="float", default=None, low=0.01, high=100_000, unit="1/s", help="requests a second (open loop)"
    ),
    Setting(
        name=PROMPT_TOKENS,
        kind="int",
        default=DEFAULTS[PROMPT_TOKENS],
        low=4,
        high=1 << 20,
        unit="tokens",
        help="length of each prompt",
    ),
    Setting(
        name=REPLY_TOKENS,
        kind="int",
        default=DEFAULTS[REPLY_TOKENS],
        low=1,
        high=1 << 20,
        unit="tokens",
        help="length of each reply",
    ),
)
MEMORY = "memory_bytes"
COUNTED = ("tokens_per_s", "throughput", "errors")
STATISTICS = (*(f"p{share * 100:g}" for share in QUANTILES), "mean")
SAME_PROMPTS = "the same prompt each time: a prefix cache flatters every point after the first"
MOST_GOALS = 3
GOAL_UP, GOAL_DOWN = "up:tokens_per_s", "down:p99 ttft"
"""The goals where nobody says otherwise; an SLO on a time takes the place of the second."""
CHUNKS = ("batch", "ubatch")
"""Settings that cut the reading of a prompt into pieces; a prompt no longer than a piece shows nothing of them."""
AROUND_TOKENS = 16
"""What a chat template puts around a prompt, about."""
NOT_AXES = frozenset({"port", "model", "api_key_env", "ready_timeout_s", "ready_path", "connect_timeout_s"})
"""Settings that have nothing to do with speed."""
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A checked sweep and its grid; `restarts` names the settings for which a server starts anew."""

    sweep: Sweep
    configs: tuple[Settings, ...]
    restarts: frozenset[str]


def declared(spec: TargetSpec) -> dict[str, Declared]:
    """The axes that a target has: its own settings where the tool starts it, its placeholders, and the load's."""
    module = registry.targets()[spec.scheme]
    if registry.runs_in_child(spec):
        axes = cast("tuple[Setting, ...]", getattr(module, "AXES", ()))
        own = [setting for setting in registry.settings_of(spec.scheme).values() if setting.name not in NOT_AXES]
        found = {setting.name: Declared(setting=setting, restarts=True) for setting in own}
        return found | {setting.name: Declared(setting=setting) for setting in axes}
    found = {}
    if spec.scheme == "run":
        for name in PLACEHOLDER.findall(spec.address):
            setting = Setting(name=name, kind="text", default=None, help=f"{{{name}}} in the command")
            found[name] = Declared(setting=setting, restarts=True)
    elif spec.scheme not in ("http", "https"):
        for setting in registry.settings_of(spec.scheme).values():
            if setting.name not in NOT_AXES:
                found[setting.name] = Declared(setting=setting, restarts=True)
    return found | {setting.name: Declared(setting=setting) for setting in LOAD_AXES}


def planned(
    spec: TargetSpec,
    *,
    axes: Sequence[str],
    fixed: Sequence[str] = (),
    goals: Sequence[str] = (),
    slos: Sequence[str] = (),
    baseline: Sequence[str] = (),
    budget_s: float,
    seed: int = 0,
    confidence: float = 0.95,
    same_prompts: bool = False,
) -> Planned:
    """The sweep that was asked for. `fixed` are load settings "name=value" that stay; `baseline` names one point.

    Raises UsageError naming the value, the rule and the choices.
    """
    known = declared(spec)
    if not axes:
        raise UsageError(
            "no axis is named: there is nothing to sweep", f"add --sweep NAME=VALUES; axes here: {', '.join(known)}"
        )
    found = parse_axes(axes, known, _converted)
    kept = _assigned(fixed, known, "--load")
    for axis in found:
        if axis.name in kept:
            raise UsageError(f"{axis.name}: both swept and fixed", "leave one of them out")
    for name in kept:
        if known[name].restarts and spec.scheme != "run":
            message = f"--load {name}: is a setting of the target and not of its load"
            raise UsageError(message, f"--set {name}={kept[name]} makes the target so")
    names = {axis.name for axis in found} | kept.keys()
    if {CONCURRENCY, RATE} <= names:
        raise UsageError("concurrency and rate: a load is a closed loop or an open one", "choose one of them")
    if missing := [name for name in PLACEHOLDER.findall(spec.address) if spec.scheme == "run" and name not in names]:
        raise UsageError(
            f"{{{missing[0]}}} is in the command, and nothing gives it a value",
            f"add --sweep {missing[0]}=… or --load {missing[0]}=VALUE",
        )
    configs = tuple(cast("list[Settings]", grid(found)))
    told = measured(spec)
    bounds = tuple(_slo(text, told) for text in slos)
    chosen = _baseline(found, configs, baseline, known)
    sweep = Sweep(
        axes=found,
        goals=tuple(_goal(text, told) for text in goals or (GOAL_UP, _goal_down(bounds))),
        slos=bounds,
        fixed={**_shown_fixed(spec, found), **_long_prompts(spec, found, names), **kept},
        baseline=chosen,
        budget_s=budget_s,
        num_configs=len(configs),
        seed=seed,
        confidence=confidence,
        how=SAME_PROMPTS if same_prompts else "",
    )
    if len({goal.text for goal in sweep.goals}) < len(sweep.goals) or not 2 <= len(sweep.goals) <= MOST_GOALS:
        raise UsageError(
            f"goals: at least two different ones make a trade-off, and at most {MOST_GOALS} can be drawn",
            "for example --objective up:tokens_per_s --objective 'down:p99 ttft'",
        )
    return Planned(sweep=sweep, configs=configs, restarts=frozenset(axis.name for axis in found if axis.restarts))


def _converted(setting: Setting, text: str) -> int | bool | float | str | None:
    """The value of an axis; what stands for a placeholder is a number where it looks like one."""
    if setting.kind == "text" and not setting.choices and re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    return registry.parse_setting(setting, text)


def _assigned(texts: Sequence[str], known: Mapping[str, Declared], option: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{option} {text!r}: not of the form name=value", f"names: {', '.join(known)}")
        one = known[registry.choose("setting", name.strip(), list(known))]
        found[name.strip()] = cast("Value", _converted(one.setting, value.strip()))
    return found


def _baseline(
    axes: Sequence[Axis], configs: Sequence[Settings], texts: Sequence[str], known: Mapping[str, Declared]
) -> Settings:
    """The point that every block repeats: the one named, else the middle of each axis."""
    chosen: dict[str, Value] = {axis.name: axis.values[len(axis.values) // 2] for axis in axes}
    for name, value in _assigned(texts, known, "--baseline").items():
        if name not in chosen:
            raise UsageError(f"--baseline {name}: is not swept", f"swept are: {', '.join(chosen)}")
        chosen[name] = value
    if chosen not in configs:
        shown = registry.shown_settings(cast("Settings", chosen))
        swept = "; ".join(f"{axis.name}={','.join(map(str, axis.values))}" for axis in axes)
        raise UsageError(f"--baseline {shown}: is no point of this sweep", f"choose values of the axes: {swept}")
    return cast("Settings", chosen)


def _shown_fixed(spec: TargetSpec, axes: Sequence[Axis]) -> dict[str, int | bool | float | str | None]:
    swept = {axis.name for axis in axes}
    return {name: value for name, value in spec.settings.items() if name not in swept and name not in NOT_AXES}


def _long_prompts(spec: TargetSpec, axes: Sequence[Axis], names: Collection[str]) -> dict[str, int]:
    """Prompts of two pieces, where a setting that cuts them is swept and nobody says how long they are: as far as they,
    and their replies, fit into each slot's part of the smallest window. No entry where the usual ones are as long."""
    swept = {axis.name: [value for value in axis.values if isinstance(value, int)] for axis in axes}

    def values(name: str, default: int) -> list[int]:
        own = spec.settings.get(name)
        return swept.get(name) or [own if isinstance(own, int) else default]

    pieces = [value for name in CHUNKS for value in swept.get(name, []) if value > 0]
    if not pieces or PROMPT_TOKENS in names:
        return {}
    wanted, window = 2 * min(pieces), min(values("context", 0))
    if window > 0:
        replies = max(values(REPLY_TOKENS, DEFAULTS[REPLY_TOKENS]))
        wanted = min(wanted, window // max(1, *values("slots", 1)) - AROUND_TOKENS - replies)
    return {PROMPT_TOKENS: wanted} if wanted > DEFAULTS[PROMPT_TOKENS] else {}


def _goal_down(slos: Sequence[Slo]) -> str:
    """The second goal where none is given: the first time that the user bounds, else the usual one."""
    times = (slo.objective for slo in slos if slo.op.startswith("<") and slo.objective.split()[-1] in TIMES)
    return next((f"down:{time}" for time in times), GOAL_DOWN)


def measured(spec: TargetSpec) -> tuple[str, ...]:
    """What an evaluation of this target can tell, by name: what a goal, or an SLO, may be about."""
    if registry.runs_in_child(spec):
        return tuple(batches.VALUES)
    times = tuple(f"{which} {time}" for time in TIMES if time in METRICS for which in STATISTICS)
    return (*COUNTED, *((MEMORY,) if spec.scheme not in ("http", "https") else ()), *times)


def _goal(text: str, told: Collection[str]) -> Goal:
    """`up:tokens_per_s` or `down:p99 ttft`. Raises UsageError."""
    way, colon, subject = text.strip().partition(":")
    ways = [one.value for one in Direction]
    if not colon or way not in ways:
        raise UsageError(f"--objective {text!r}: must begin with up: or down:", "for example down:p99 ttft")
    if subject.strip() == MEMORY and MEMORY in told:
        return Goal(text=MEMORY, metric=MEMORY, quantile=None, direction=Direction(way), unit="bytes")
    _check_metric(subject, f"--objective {text!r}", told)
    bound = parse_bound(f"{subject.strip()} < {_filler(subject)}")
    _check_told(bound, f"--objective {text!r}", told)
    unit = "s" if bound.metric in TIMES else "" if bound.metric in SHARES else "1/s" if bound.metric in RATES else ""
    return Goal(
        text=subject_of(bound), metric=bound.metric, quantile=bound.quantile, direction=Direction(way), unit=unit
    )


def _filler(subject: str) -> str:
    """A value that the bound of a subject can take; only the subject is wanted."""
    word = subject.split()[-1] if subject.split() else ""
    return "1s" if word in TIMES else "1%" if word in SHARES else "1"


def _slo(text: str, told: Collection[str]) -> Slo:
    """`p99 ttft < 200ms`. Raises UsageError."""
    if subject := re.match(r"[^<>=!~]+(?=[<>=!~])", text):
        _check_metric(subject[0], f"--slo {text!r}", [name for name in told if name != MEMORY])
    bound = parse_bound(text)
    if bound.against is not None:
        message = f"--slo {text!r}: compares with a phase, which is not measured in a sweep"
        raise UsageError(message, "give it a plain value, for example 'p99 ttft < 200ms'")
    if bound.op == "=":
        raise UsageError(f"--slo {text!r}: '=' is no limit that a setting can keep", "compare with < <= > or >=")
    _check_told(bound, f"--slo {text!r}", [name for name in told if name != MEMORY])
    return Slo(objective=subject_of(bound), op=bound.op, limit=bound.value, text=" ".join(text.split()))


def _check_metric(subject: str, where: str, told: Collection[str]) -> None:
    """Raises UsageError where what a subject is about is nothing that is measured here."""
    metrics = list(dict.fromkeys(name.split()[-1] for name in told))
    word = (subject.lower().replace("-", "_").split() or [""])[-1]
    if word not in metrics:
        close = get_close_matches(word, metrics, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"{where}: {word!r} is not measured in a sweep of this target", f"{hint}choose from: {_choices(told)}"
        )


def _check_told(bound: Bound, where: str, told: Collection[str]) -> None:
    if subject_of(bound) not in told:
        raise UsageError(
            f"{where}: {subject_of(bound)} is not measured in a sweep of this target", f"choose from: {_choices(told)}"
        )


def _choices(told: Collection[str]) -> str:
    """`tokens_per_s, errors, or p50, p90, p99 or mean of ttft, itl`: what is measured, in short where that is all."""
    single = [name for name in told if " " not in name]
    times = list(dict.fromkeys(name.split()[-1] for name in told if " " in name))
    if all(f"{which} {time}" in told for time in times for which in STATISTICS):
        return f"{', '.join(single)}, or {', '.join(STATISTICS[:-1])} or {STATISTICS[-1]} of {', '.join(times)}"
    return ", ".join(told)


def spec_for(spec: TargetSpec, settings: Settings, restarts: frozenset[str]) -> TargetSpec:
    """The target with the server settings of one point: as settings of its own, or put into its command."""
    if spec.scheme == "run":
        address = PLACEHOLDER.sub(lambda found: str(settings.get(found[1], found[0])), spec.address)
        return replace(spec, address=address)
    own = {name: value for name, value in settings.items() if name in restarts}
    return replace(spec, settings={**spec.settings, **own})
