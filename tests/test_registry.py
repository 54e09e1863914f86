"""What can be chosen by name, what is said to a wrong one, and extensions from outside the tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextlab import registry
from contextlab.model import Scenario, Setting, TargetSpec, UnableError, UsageError
from contextlab.registry import parse_setting, parse_target

AT = "http://127.0.0.1:8000"


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    """What is wrong, and what to do."""
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.exit_code == 2
    return caught.value.message, caught.value.next_step


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


def test_every_scheme_and_the_preset_are_there() -> None:
    assert {"fake", "gguf", "http", "https", "run"} <= set(registry.targets())
    assert registry.presets()["smollm2"].scheme == "gguf"
    assert registry.targets()["https"] is registry.targets()["http"]


def test_a_target_has_its_settings_defaults_included() -> None:
    spec = parse_target("fake:rejects", ["window=128", "token_delay_s=0.5"])
    assert spec == TargetSpec(
        name="fake:rejects",
        scheme="fake",
        address="rejects",
        settings={"window": 128, "slots": 2, "token_delay_s": 0.5},
    )


def test_a_preset_brings_settings_of_its_own() -> None:
    spec = parse_target("smollm2", ["slots=1", "context_shift=true", "context_shift=false"])
    assert (spec.name, spec.scheme) == ("smollm2", "gguf")
    preset = registry.presets()["smollm2"].settings
    assert spec.settings["context"] == preset["context"] != registry.settings_of("gguf")["context"].default
    assert (spec.settings["slots"], spec.settings["context_shift"]) == (1, False), "the last word counts"


@pytest.mark.parametrize(
    ("text", "scheme", "address"),
    [
        ("http://127.0.0.1:8000/v1", "http", "http://127.0.0.1:8000/v1"),
        ("https://127.0.0.1", "https", "https://127.0.0.1"),
        ("http:127.0.0.1:8000", "http", "127.0.0.1:8000"),
        ("gguf:/models/a:b.gguf", "gguf", "/models/a:b.gguf"),
        ("fake:", "fake", ""),
    ],
)
def test_addresses(text: str, scheme: str, address: str) -> None:
    spec = parse_target(text)
    assert (spec.name, spec.scheme, spec.address, spec.url) == (text, scheme, address, None)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("smolm2", "did you mean smollm2"),
        ("fke:rejects", "did you mean fake? "),
        ("htp://127.0.0.1:8000", "did you mean http"),
        ("/models/tiny.gguf", "did you mean gguf:/models/tiny.gguf? "),
        ("localhost:8000", "did you mean http://localhost:8000? "),
        ("127.0.0.1:8080/v1", "did you mean http://127.0.0.1:8080/v1? "),
        ("127.0.0.1:8000", ""),
        ("", ""),
        ("qqqq:x", ""),
        ("fake", "did you mean fake? "),
    ],
)
def test_a_target_that_is_none(text: str, hint: str) -> None:
    message, next_step = refusal(lambda: parse_target(text))
    assert message == f"target={text!r}: not a preset and not SCHEME:ADDRESS"
    assert next_step.startswith(f"{hint}choose from: " if hint.endswith("? ") else hint)
    assert all(choice in next_step for choice in ("smollm2", "fake:…", "gguf:…", "http:…", "run:…"))


def test_where_a_command_will_answer() -> None:
    spec = parse_target("run:vllm serve M --port 8000", at=AT)
    assert (spec.scheme, spec.address, spec.url) == ("run", "vllm serve M --port 8000", AT)
    message, next_step = refusal(lambda: parse_target("run:vllm serve M"))
    assert message == "target='run:vllm serve M': where will the command answer?"
    assert "--at http" in next_step


@pytest.mark.parametrize("text", ["smollm2", "fake:rejects", "http://127.0.0.1:8000"])
def test_nothing_else_is_started_at_a_url(text: str) -> None:
    message, next_step = refusal(lambda: parse_target(text, at=AT))
    assert message == f"--at={AT!r}: only a run: target is started at a URL"
    assert next_step == "leave --at out"


@pytest.mark.parametrize(
    ("assignment", "message", "next_step"),
    [
        ("window", "--set 'window': not of the form name=value", "names: window, slots, token_delay_s"),
        ("windw=1", "setting='windw': there is no such setting", "did you mean window? choose from: slots, token"),
        ("=1", "setting='': there is no such setting", "choose from: "),
        ("window=", "window='': must be a whole number", "context window"),
        ("window=256.0", "window='256.0': must be a whole number", "context window"),
        ("window=many", "window='many': must be a whole number", "context window"),
        ("window=63", "window=63: must be between 64 and 8192", "context window"),
        ("window=8193", "window=8193: must be between 64 and 8192", "context window"),
        ("window=-256", "window=-256: must be between 64 and 8192", "context window"),
        ("token_delay_s=soon", "token_delay_s='soon': must be a number", "pause"),
        ("token_delay_s=nan", "token_delay_s=nan: must be between 0 and 10", "pause"),
        ("token_delay_s=inf", "token_delay_s=inf: must be between 0 and 10", "pause"),
    ],
)
def test_settings_that_cannot_be_meant(assignment: str, message: str, next_step: str) -> None:
    told = refusal(lambda: parse_target("fake:rejects", [assignment]))
    assert told[0] == message
    assert told[1].startswith(next_step)


INT = Setting(name="n", kind="int", default=1, low=1, high=1 << 20, help="how many")
KINDS: Mapping[str, Setting] = {
    "int": INT,
    "low": replace(INT, high=None),
    "high": replace(INT, low=None),
    "free": replace(INT, low=None, high=None),
    "float": Setting(name="n", kind="float", default=0.5, low=0.25, help="how long"),
    "bool": Setting(name="n", kind="bool", default=False, help="whether"),
    "text": Setting(name="n", kind="text", default=None, help="what"),
    "choice": Setting(name="n", kind="text", default="a", choices=("a", "b"), help="which"),
}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "1048576", 1 << 20),
        ("low", "999999999999", 999999999999),
        ("high", "-5", -5),
        ("free", "0", 0),
        ("float", "1e3", 1000.0),
        ("float", "7", 7.0),
        ("bool", "true", True),
        ("bool", "FALSE", False),
        ("bool", "1", True),
        ("bool", "0", False),
        ("text", "a=b, c", "a=b, c"),
        ("text", "", ""),
        ("choice", "b", "b"),
    ],
)
def test_values_of_every_kind(kind: str, text: str, value: object) -> None:
    parsed = parse_setting(KINDS[kind], text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("int", "0", "n=0: must be between 1 and 1048576"),
        ("low", "0", "n=0: must be 1 or more"),
        ("high", "1048577", "n=1048577: must be 1048576 or less"),
        ("float", "0.2", "n=0.2: must be 0.25 or more"),
        ("bool", "yes", "n='yes': must be true or false"),
        ("bool", "2", "n='2': must be true or false"),
        ("choice", "c", "n='c': must be one of a, b"),
        ("choice", "", "n='': must be one of a, b"),
    ],
)
def test_values_outside_the_rule(kind: str, text: str, message: str) -> None:
    assert refusal(lambda: parse_setting(KINDS[kind], text)) == (message, KINDS[kind].help)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(KINDS)), st.text(max_size=8))
def test_any_text_is_a_value_or_a_usage_error(kind: str, text: str) -> None:
    setting = KINDS[kind]
    try:
        value = parse_setting(setting, text)
    except UsageError as error:
        told = "n=" in error.message
    else:
        told = isinstance(value, str if setting.kind == "text" else int | float)
    assert told


def test_settings_as_a_user_would_write_them() -> None:
    settings = {"a": True, "b": None, "c": 5, "d": "x", "e": 0.5, "f": 0}
    assert registry.shown_settings(settings) == "a=true c=5 d=x e=0.5 f=0"


@pytest.mark.parametrize("scheme", sorted(registry.targets()))
def test_every_declared_setting_takes_its_own_default(scheme: str) -> None:
    for setting in registry.settings_of(scheme).values():
        assert setting.help
        if setting.default is not None:
            assert parse_setting(setting, str(setting.default)) == setting.default


# ── scenarios and writers ────────────────────────────────────────────────────────────────────────


def test_scenarios_in_the_order_in_which_they_run() -> None:
    found = registry.scenarios("overflow")
    assert [scenario.order for scenario in found.values()] == sorted(scenario.order for scenario in found.values())
    assert next(iter(found)) == "find-limit"
    assert {"prompt-too-long", "reply-past-window", "conversation-growth", "token-blowup", "kv-exhaustion"} <= set(
        found
    )
    assert all(name == scenario.name and scenario.summary for name, scenario in found.items())


def test_choosing_scenarios() -> None:
    everything = list(registry.scenarios("overflow").values())
    assert registry.choose_scenarios("overflow", []) == everything
    two = registry.choose_scenarios("overflow", ["token-blowup", "find-limit", "find-limit"])
    assert [scenario.name for scenario in two] == ["find-limit", "token-blowup"]
    message, next_step = refusal(lambda: registry.choose_scenarios("overflow", ["find-limits"]))
    assert message == "scenario='find-limits': there is no such scenario"
    assert next_step.startswith("did you mean find-limit")
    assert "? choose from: " in next_step


def test_choosing_writers() -> None:
    assert {"terminal", "json", "jsonl"} <= set(registry.writers())
    assert callable(registry.choose_writer("jsonl"))
    message, next_step = refusal(lambda: registry.choose_writer("jsn"))
    assert message == "format='jsn': there is no such format"
    assert next_step.startswith("did you mean json")


# ── extensions outside the tree ──────────────────────────────────────────────────────────────────

SCENARIO = '''
"""A scenario of a package of its own."""
from contextlab.model import FITS, Judgement, Outcome, Probe, Scenario

def plan(known, rng):
    yield Probe(name="calm", allowed=FITS)

def judge(probe, seen):
    yield Judgement(outcome=Outcome.OK, why="calm")

SCENARIO = Scenario(name="{name}", summary="brought by another package", plan=plan, judge=judge)
'''
TARGET = """
from contextlab.model import Setting, TargetSpec
SCHEME = "{name}"
SETTINGS = (Setting(name="speed", kind="int", default=3, help="how fast"),)
PRESETS = {presets}
"""
WRITER = """
def write(run, out):
    out.write("of another package\\n")
"""


def package(folder: Path, name: str, group: str, source: str) -> Path:
    """A package as pip would install it, with one entry point that names its one module."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()
    (folder / name / "extension.py").write_text(source, encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\nany = {name}.extension\n", encoding="utf-8")
    return folder / name / "extension.py"


Install = Callable[[str, str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install packages for this process, until the end of the test."""
    before = set(sys.modules)

    def installed(name: str, group: str, source: str) -> Path:
        path = package(tmp_path / "site", name, group, source)
        monkeypatch.syspath_prepend(tmp_path / "site")
        for loaded in [name, f"{name}.extension"]:
            assert loaded not in before
            monkeypatch.setitem(sys.modules, loaded, ModuleType(loaded))  # so that it is forgotten again
            del sys.modules[loaded]
        return path

    return installed


@pytest.mark.process
def test_a_scenario_from_outside_is_listed_and_shown(tmp_path: Path) -> None:
    path = package(tmp_path, "contextlab_extra", "contextlab.scenarios.overflow", SCENARIO.format(name="extra-calm"))

    def contextlab(*words: str) -> str:
        code = "import sys; sys.argv[0] = 'contextlab'; from contextlab.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    assert "overflow  extra-calm            brought by another package\n" in contextlab("scenarios", "list")
    shown = contextlab("scenarios", "show", "extra-calm")
    assert "A scenario of a package of its own." in shown
    assert str(path) in shown


def test_a_scenario_from_outside_runs_in_its_place(install: Install) -> None:
    install("outside_one", "contextlab.scenarios.overflow", SCENARIO.format(name="a-calm"))
    found = registry.scenarios("overflow")
    assert isinstance(found["a-calm"], Scenario)
    assert found["a-calm"].order == 100, "after ours, where it says nothing"
    assert list(found).index("a-calm") > list(found).index("token-blowup")
    assert registry.choose_scenarios("overflow", ["a-calm"]) == [found["a-calm"]]


def test_a_target_from_outside(install: Install) -> None:
    presets = '{"mine": TargetSpec(name="mine", scheme="outside", address="x", settings={"speed": 9})}'
    install("outside_two", "contextlab.targets", TARGET.format(name="outside", presets=presets))
    assert parse_target("outside:there", ["speed=5"]).settings == {"speed": 5}
    assert parse_target("mine").settings == {"speed": 9}


def test_a_writer_from_outside_has_the_name_of_its_module(install: Install) -> None:
    install("outside_three", "contextlab.reports", WRITER)
    assert "extension" in registry.writers()


@pytest.mark.parametrize(
    ("group", "source", "ask", "what", "ours"),
    [
        (
            "contextlab.scenarios.overflow",
            SCENARIO.format(name="find-limit"),
            lambda: registry.scenarios("overflow"),
            "scenario 'find-limit'",
            "scenarios/overflow/find_limit.py",
        ),
        (
            "contextlab.targets",
            TARGET.format(name="https", presets={}),
            registry.targets,
            "target scheme 'https'",
            "contextlab/targets/http.py",
        ),
        (
            "contextlab.targets",
            TARGET.format(name="new", presets='{"smollm2": TargetSpec(name="smollm2", scheme="new", address="")}'),
            registry.presets,
            "preset 'smollm2'",
            "contextlab/targets/gguf.py",
        ),
    ],
    ids=["scenario", "scheme", "preset"],
)
def test_a_name_taken_twice_names_both_places(
    install: Install, group: str, source: str, ask: Callable[[], object], what: str, ours: str
) -> None:
    theirs = install("outside_four", group, source)
    message, next_step = refusal(ask)
    assert message.startswith(f"{what} is defined twice: in ")
    assert ours in message
    assert str(theirs) in message
    assert "uninstall the package" in next_step


def test_two_packages_that_bring_the_same_name(install: Install) -> None:
    paths = [install(f"outside_{n}", "contextlab.scenarios.overflow", SCENARIO.format(name="twin")) for n in (5, 6)]
    message, _ = refusal(lambda: registry.scenarios("overflow"))
    assert all(str(path) in message for path in paths)


def test_an_extension_that_cannot_be_loaded_is_named(install: Install) -> None:
    install("outside_seven", "contextlab.targets", "import no_such_package_at_all")
    with pytest.raises(UnableError) as caught:
        registry.targets()
    assert "outside_seven.extension (contextlab.targets) cannot be loaded: ModuleNotFoundError" in caught.value.message
    assert "uninstall" in caught.value.next_step
