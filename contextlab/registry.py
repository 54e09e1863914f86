"""Finds what can be chosen by name: scenarios, targets, faults, writers. A folder scan, then entry points.

One value in one file is all that an extension needs; a package of its own can add more under the entry-point
groups `contextlab.scenarios.<command>`, `contextlab.targets`, `contextlab.faults` and `contextlab.reports`.
A name that is taken twice is an error that names both places.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Literal, TextIO, cast, overload

from contextlab.analysis import quantities
from contextlab.experiment import ChaosScenario, Fault, Placed, Plane, WireFault
from contextlab.model import (
    Knowledge,
    Run,
    Scenario,
    ServerCommand,
    Setting,
    Settings,
    Target,
    TargetSpec,
    UnableError,
    UsageError,
)

COMMANDS = ("overflow", "chaos")
"""The commands that have scenarios, each a folder below `scenarios/`."""

Writer = Callable[[Run, TextIO], None]


def _modules(package: str, group: str, name: str | None = None) -> Iterator[ModuleType]:
    """Every module of a package folder, then every module that an entry point of the group names; or only those of
    this name, so that the others need not be imported."""
    folder = importlib.import_module(package)
    for info in pkgutil.iter_modules(folder.__path__):
        if name in (None, info.name):
            yield importlib.import_module(f"{package}.{info.name}")
    for entry in _entry_points(tuple(sys.path)).select(group=group):
        if name not in (None, entry.module.rpartition(".")[2]):
            continue
        try:
            yield importlib.import_module(entry.module)
        except Exception as error:  # somebody else's code: whatever it raises, say whose it is
            raise UnableError(
                f"the extension {entry.value} ({group}) cannot be loaded: {type(error).__name__}: {error}",
                "mend it, or uninstall the package that brings it",
            ) from error


@cache
def _entry_points(path: tuple[str, ...]) -> Any:
    """Those of everything installed on this path: reading them takes a while, and what a nursery forks need not.

    To be asked by `select`; the type has that in each version of Python, but not one name.
    """
    return entry_points()


def _claim(found: dict[str, ModuleType], name: str, module: ModuleType, kind: str) -> None:
    if name in found and found[name] is not module:
        raise UsageError(
            f"{kind} {name!r} is defined twice: in {found[name].__file__} and in {module.__file__}",
            "rename one of them, or uninstall the package that brings it",
        )
    found[name] = module


def choose(kind: str, name: str, names: Sequence[str]) -> str:
    """The name itself if it is one of `names`; else a UsageError with the likely and the possible ones."""
    if name in names:
        return name
    close = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(f"{kind}={name!r}: there is no such {kind}", f"{hint}choose from: {', '.join(sorted(names))}")


# ── scenarios ────────────────────────────────────────────────────────────────────────────────────


@overload
def scenarios(command: Literal["overflow"]) -> dict[str, Scenario]: ...
@overload
def scenarios(command: Literal["chaos"]) -> dict[str, ChaosScenario]: ...
@overload
def scenarios(command: str) -> dict[str, Scenario] | dict[str, ChaosScenario]: ...
def scenarios(command: str) -> Any:
    """The scenarios of a command by name, in the order in which they run; `chaos` has ChaosScenarios."""
    package = f"contextlab.scenarios.{command}"
    modules: dict[str, ModuleType] = {}
    for module in _modules(package, package):
        if isinstance(scenario := getattr(module, "SCENARIO", None), Scenario | ChaosScenario):
            _claim(modules, scenario.name, module, "scenario")
    found: list[Scenario | ChaosScenario] = [module.SCENARIO for module in modules.values()]
    return {scenario.name: scenario for scenario in sorted(found, key=lambda scenario: (scenario.order, scenario.name))}


@overload
def choose_scenarios(command: Literal["overflow"], names: Sequence[str]) -> list[Scenario]: ...
@overload
def choose_scenarios(command: Literal["chaos"], names: Sequence[str]) -> list[ChaosScenario]: ...
@overload
def choose_scenarios(command: str, names: Sequence[str]) -> list[Scenario] | list[ChaosScenario]: ...
def choose_scenarios(command: str, names: Sequence[str]) -> Any:
    """The scenarios asked for, in running order; all of them where no name is given."""
    known = scenarios(command)
    for name in names:
        choose("scenario", name, list(known))
    return [scenario for name, scenario in known.items() if not names or name in names]


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


def faults() -> dict[str, type[Fault]]:
    """The faults by name, each the class that its module calls FAULT."""
    modules: dict[str, ModuleType] = {}
    for module in _modules("contextlab.faults", "contextlab.faults"):
        if isinstance(fault := getattr(module, "FAULT", None), type):
            _claim(modules, cast("type[Fault]", fault).NAME, module, "fault")
    return {name: modules[name].FAULT for name in sorted(modules)}


def choose_fault(name: str) -> type[Fault]:
    """The fault of that name."""
    known = faults()
    return known[choose("fault", name, list(known))]


def fault_options(fault: type[Fault]) -> dict[str, Setting]:
    """The options of a fault by field name; each setting has the name that the user writes (`delay_s` is `delay`)."""
    return {
        one.name: replace(cast("Setting", one.metadata["setting"]), name=_without_unit(one.name))
        for one in fields(cast("Any", fault))
        if "setting" in one.metadata
    }


def make_fault(placed: Placed) -> Fault:
    """The fault itself, with its options. Raises UsageError where they contradict each other."""
    make = cast("Callable[..., Fault]", choose_fault(placed.name))
    return make(**placed.options)


def wire_fault(placed: Placed) -> WireFault:
    """The same, where it is known to act on the wire."""
    return cast("WireFault", make_fault(placed))


def plane_of(placed: Placed) -> Plane:
    """What a placed fault acts on."""
    return choose_fault(placed.name).PLANE


def ends_processes(placed: Placed) -> bool:
    """Whether a placed fault ends processes of the target."""
    return bool(getattr(choose_fault(placed.name), "ENDS_PROCESSES", False))


def parse_fault(text: str, *, start_s: float, length_s: float) -> Placed:
    """A fault as the user writes it: `NAME[:OPTION=VALUE,…][@START[+LENGTH]]`, such as `loss:rate=15%@10s+30s`.

    `start_s` and `length_s` stand where the text names none. Raises UsageError naming the value, the rule and the
    choices; the options are checked as the settings of a target are.
    """
    what, at, when = text.partition("@")
    name, _, words = what.strip().partition(":")
    options = fault_options(choose_fault(name.strip()))
    given: dict[str, Any] = {}
    for word in (part.strip() for part in words.split(",") if part.strip()):
        key, equals, value = word.partition("=")
        by_name = {setting.name: field for field, setting in options.items()} | {field: field for field in options}
        if not equals:
            raise UsageError(
                f"fault {text!r}: {word!r} is not of the form option=value",
                f"{name} has: {', '.join(setting.name for setting in options.values()) or 'no options'}",
            )
        if key.strip() not in by_name:
            close = get_close_matches(key.strip(), list(by_name), n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            named = ", ".join(setting.name for setting in options.values()) or "no options"
            raise UsageError(f"fault {text!r}: {name} has no option {key.strip()!r}", f"{hint}it has: {named}")
        field = by_name[key.strip()]
        if field in given:
            raise UsageError(f"fault {text!r}: {key.strip()} is given twice", "give it once")
        given[field] = parse_setting(options[field], value.strip())
    if at:
        begin, plus, length = when.partition("+")
        start_s = _seconds(text, "start", begin)
        length_s = _seconds(text, "length", length) if plus else length_s
    if length_s <= 0:
        raise UsageError(f"fault {text!r}: a length of {length_s:g} s does nothing", "for example @10s+30s")
    placed = Placed(name=name.strip(), start_s=start_s, length_s=length_s, options=given)
    make_fault(placed)
    return placed


def shown_fault(placed: Placed) -> str:
    """A placed fault as `parse_fault` reads it."""
    known = faults()
    options = fault_options(known[placed.name]) if placed.name in known else {}
    words = [
        f"{options[field].name if field in options else field}={_shown_option(options.get(field), value)}"
        for field, value in placed.options.items()
    ]
    when = f"@{quantities.shown_seconds(placed.start_s)}+{quantities.shown_seconds(placed.length_s)}"
    return placed.name + (f":{','.join(words)}" if words else "") + when


def _shown_option(setting: Setting | None, value: object) -> str:
    if setting is not None and setting.kind in quantities.PARSERS and isinstance(value, int | float):
        return quantities.shown(setting.kind, value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seconds(text: str, what: str, words: str) -> float:
    try:
        return quantities.duration(words)
    except ValueError as error:
        raise UsageError(f"fault {text!r}: its {what} {words!r} must be {error}", "for example @10s+30s") from None


def _without_unit(field: str) -> str:
    """The name by which a user calls a field."""
    for unit in ("_bytes_per_s", "_per_s", "_bytes", "_s"):
        if field.endswith(unit):
            return field.removesuffix(unit)
    return field


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


def targets() -> dict[str, ModuleType]:
    """The target modules by scheme; a module may answer to several (`ALSO`)."""
    found: dict[str, ModuleType] = {}
    for module in _modules("contextlab.targets", "contextlab.targets"):
        if isinstance(scheme := getattr(module, "SCHEME", None), str):
            for name in (scheme, *getattr(module, "ALSO", ())):
                _claim(found, name, module, "target scheme")
    return found


def presets() -> dict[str, TargetSpec]:
    """Targets with a name of their own, such as the default one."""
    found: dict[str, TargetSpec] = {}
    owners: dict[str, ModuleType] = {}
    for module in targets().values():
        for name, spec in getattr(module, "PRESETS", {}).items():
            _claim(owners, name, module, "preset")
            found[name] = spec
    return found


def settings_of(scheme: str) -> dict[str, Setting]:
    """The settings that targets of a scheme declare, by name."""
    return {setting.name: setting for setting in cast("tuple[Setting, ...]", targets()[scheme].SETTINGS)}


def parse_target(text: str, assignments: Sequence[str] = (), *, at: str | None = None) -> TargetSpec:
    """The target that the user named, with its settings checked.

    `text` is a preset's name or SCHEME:ADDRESS; `assignments` are "name=value" (`--set`); `at` is the URL where
    a `run:` command will answer. Raises UsageError naming the value, the rule and the choices.
    """
    known = targets()
    preset = presets().get(text)
    if preset is None:
        scheme, colon, address = text.partition(":")
        if not colon or scheme not in known:
            names = [*presets(), *(f"{name}:…" for name in known)]
            close = get_close_matches(scheme, [*presets(), *known], n=2)
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            if text.endswith(".gguf"):
                hint = f"did you mean gguf:{text}? "
            elif not close and re.fullmatch(r"[\w.-]+:\d+(/.*)?", text):
                hint = f"did you mean http://{text}? "
            raise UsageError(
                f"target={text!r}: not a preset and not SCHEME:ADDRESS", f"{hint}choose from: {', '.join(names)}"
            )
        if address.startswith("//"):
            address = text
        preset = TargetSpec(name=text, scheme=scheme, address=address)
    if (at is not None) != hasattr(known[preset.scheme], "NEEDS_AT"):
        if at is None:
            raise UsageError(
                f"target={text!r}: where will the command answer?",
                "add --at URL, for example --at http://127.0.0.1:8000",
            )
        raise UsageError(f"--at={at!r}: only a run: target is started at a URL", "leave --at out")
    declared = settings_of(preset.scheme)
    values = {name: setting.default for name, setting in declared.items()} | dict(preset.settings)
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment!r}: not of the form name=value", f"names: {', '.join(declared)}")
        setting = declared[choose("setting", name, list(declared))]
        values[setting.name] = parse_setting(setting, value)
    return replace(preset, settings=values, url=at)


def parse_setting(setting: Setting, text: str) -> int | bool | float | str | None:
    """The value that a text gives a setting. Raises UsageError naming the value and the rule."""
    rule = setting.kind
    try:
        if setting.kind == "bool":
            rule = "true or false"
            value: int | bool | float | str = {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        elif setting.kind == "int":
            rule = "a whole number"
            value = int(text)
        elif setting.kind == "float":
            rule = "a number"
            value = float(text)
        elif setting.kind in quantities.PARSERS:
            rule = _rule_of(setting.kind)
            value = quantities.PARSERS[setting.kind](text)
        else:
            value = text
    except (ValueError, KeyError):
        raise UsageError(f"{setting.name}={text!r}: must be {rule}", setting.help) from None
    if isinstance(value, int | float) and not isinstance(value, bool):
        low = float("-inf") if setting.low is None else setting.low
        high = float("inf") if setting.high is None else setting.high
        if not low <= value <= high:
            raise UsageError(f"{setting.name}={text}: must be {_range(setting)}", setting.help)
    if setting.choices and value not in setting.choices:
        raise UsageError(f"{setting.name}={text!r}: must be one of {', '.join(setting.choices)}", setting.help)
    return value


def _rule_of(kind: str) -> str:
    """What a quantity of this kind looks like, in the words of its parser."""
    try:
        quantities.PARSERS[kind]("")
    except ValueError as error:
        return str(error)
    return kind


def _range(setting: Setting) -> str:
    """The numbers that a setting allows, in words."""
    low, high = (
        None if bound is None else int(bound) if float(bound).is_integer() else bound
        for bound in (setting.low, setting.high)
    )
    if low is None and high is None:
        return "a finite number"
    if high is None:
        return f"{low} or more"
    return f"{high} or less" if low is None else f"between {low} and {high}"


def server_command(spec: TargetSpec) -> ServerCommand | None:
    """How to start the server of this target; None where there is none of ours to start."""
    start: Callable[[TargetSpec], ServerCommand] | None = getattr(targets()[spec.scheme], "server", None)
    return None if start is None else start(spec)


def runs_in_child(spec: TargetSpec) -> bool:
    """Whether a target of this scheme lives inside the process that opens it (its module says IN_PROCESS)."""
    return bool(getattr(targets()[spec.scheme], "IN_PROCESS", False))


def warms_up(spec: TargetSpec) -> bool:
    """Whether a target that lives inside a process can be loaded before that is forked (its module has `warm_up`)."""
    return hasattr(targets()[spec.scheme], "warm_up")


def warm_up(spec: TargetSpec) -> bool:
    """Load what every probe of this target needs, to be forked; False where each process must load it itself."""
    warm: Callable[[TargetSpec], bool] = targets()[spec.scheme].warm_up
    return warm(spec)


def starts_clean(spec: TargetSpec, task: str) -> bool:
    """Whether a task wants a process in which nothing is loaded yet (its target's CLEAN_TASKS)."""
    return task in getattr(targets()[spec.scheme], "CLEAN_TASKS", ())


def open_target(spec: TargetSpec, knowledge: Knowledge | None = None) -> AbstractAsyncContextManager[Target]:
    """Open a target. A server of ours that has no opener of its own is opened as any other HTTP server, at its URL."""
    module = targets()[spec.scheme]
    if not hasattr(module, "open_target"):
        module = targets()["http"]
        spec = replace(spec, address=spec.url or spec.address)
    opener: Callable[[TargetSpec, Knowledge | None], AbstractAsyncContextManager[Target]] = module.open_target
    return opener(spec, knowledge)


# ── writers ──────────────────────────────────────────────────────────────────────────────────────


def writers(name: str | None = None) -> dict[str, Writer]:
    """The report writers by the name of their file; or only that of this name, if it is one."""
    modules: dict[str, ModuleType] = {}
    for module in _modules("contextlab.reports", "contextlab.reports", name):
        if callable(getattr(module, "write", None)):
            _claim(modules, module.__name__.rpartition(".")[2], module, "writer")
    return {name: module.write for name, module in modules.items()}


def choose_writer(name: str) -> Writer:
    """The writer of that name."""
    known = writers(name) or writers()
    return known[choose("format", name, list(known))]


def shown_settings(settings: Settings) -> str:
    """Settings as a user would write them, the unset ones left out."""
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in settings.items()
        if value is not None
    )
