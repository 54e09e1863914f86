"""The pytest plugin, used as a project uses it: in a pytest of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from contextlab.lab.journal import RECORD, read_run
from tests.command import MARK, orphans
from tests.test_imports import HEAVY

pytest_plugins = ("pytester",)
QUICK = ("--contextlab-set", "token_delay_s=0.001", "--contextlab-record", "records")
ASSERTIONS = """
    def test_silent(contextlab):
        contextlab.assert_no_silent_truncation()

    def test_refuses(contextlab):
        contextlab.assert_refuses_overflow()

    def test_held(contextlab):
        assert contextlab.assert_held("prompt-too-long")
"""

UNANSWERED = """
    def test_inside(contextlab):
        contextlab.assert_held("position-out-of-range")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty project whose pytest is a process of its own, and no worker of ours."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "COLUMNS"))]:
        monkeypatch.delenv(name)
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers -p no:cacheprovider")
    return pytester


def records(project: pytest.Pytester) -> list[Path]:
    """The records that a run of pytest has kept."""
    return sorted((project.path / "records").rglob(RECORD))


# ── light ────────────────────────────────────────────────────────────────────────────────────────


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    [found] = entry_points(group="pytest11", name="contextlab")
    assert found.value == "contextlab.pytest_plugin"


def test_help_shows_the_options_and_imports_nothing_but_the_plugin(tmp_path: Path) -> None:
    script = """
import json, sys, pytest
code = pytest.main(["--help", "-p", "no:cacheprovider"])
print("MODULES " + json.dumps([int(code), *sorted(sys.modules)]))
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    code, *modules = json.loads(ran.stdout.rpartition("MODULES ")[2])
    assert code == 0
    assert "--contextlab-target=TARGET" in ran.stdout
    assert [name for name in modules if name.split(".")[0] == "contextlab"] == [
        "contextlab",
        "contextlab.pytest_plugin",
    ]
    assert not {name.split(".")[0] for name in modules} & (HEAVY | {"msgspec", "rich", "typer", "jinja2"})


# ── what a project sees ──────────────────────────────────────────────────────────────────────────


@pytest.mark.process
def test_a_target_that_refuses_passes_and_is_opened_once(project: pytest.Pytester) -> None:
    project.makepyfile(ASSERTIONS + UNANSWERED)
    ran = project.runpytest_subprocess(
        "--contextlab-target", "fake:rejects", "--contextlab-seed", "7", *QUICK, "--junit-xml", "junit.xml"
    )
    ran.assert_outcomes(passed=3, failed=1)
    ran.stdout.fnmatch_lines(
        [
            "contextlab: target fake:rejects, seed 7",
            "fake:rejects: not told: no probe was run: needs a target that runs inside *",
            "*= contextlab =*",
            "fake:rejects: every *",
        ]
    )
    [path] = records(project)
    run = read_run(path)
    kinds = [record["kind"] for record in run.records]
    assert (kinds.count("server"), kinds.count("scenario"), kinds[-1]) == (1, 1, "end")
    assert run.header["seed"] == 7
    assert run.end is not None
    assert run.end["exit"]["code"] == 0
    properties = {one.get("name"): one.get("value") for one in ET.parse(project.path / "junit.xml").iter("property")}
    assert properties == {
        "contextlab.target": "fake:rejects",
        "contextlab.record": str(path.parent),
        "contextlab.model": "fake",
    }


@pytest.mark.process
def test_a_target_that_drops_the_head_fails_each_with_what_was_found(project: pytest.Pytester) -> None:
    project.makeini(
        "[pytest]\ncontextlab_target = fake:drops-head\ncontextlab_record = records\n"
        "contextlab_settings =\n    token_delay_s=0.001\n    window=128"
    )
    project.makepyfile(
        ASSERTIONS
        + """
    def test_allowed_by_name(contextlab):
        assert contextlab.knowledge.limits.context_tokens == 128
        assert contextlab.url.startswith("http://127.0.0.1:")
        contextlab.assert_held("prompt-too-long", allow=("truncated_head",))
"""
    )
    ran = project.runpytest_subprocess()
    ran.assert_outcomes(passed=1, failed=3)
    [path] = records(project)
    ran.stdout.fnmatch_lines(
        [
            "fake:drops-head: broken: 12 of 18 probes lost a part of the prompt in silence",
            "  TRUNCATED_HEAD  prompt-too-long · chat-*",
            "    change: *",
            f"  next: contextlab report {path.parent}",
            "fake:drops-head: broken: 8 of 8 prompts longer than the window were not refused clearly",
            "fake:drops-head: broken: 12 of 18 probes ended in a way that is not allowed",
            "fake:drops-head: TRUNCATED_HEAD x12; contextlab report *",
        ]
    )
    ran.stdout.no_fnmatch_line("*Traceback*")
    assert read_run(path).end is not None


@pytest.mark.process
def test_a_question_without_an_answer_is_skipped_where_wanted_and_the_projects_policy_counts(
    project: pytest.Pytester,
) -> None:
    project.makepyprojecttoml('[tool.contextlab]\nallow = ["TRUNCATED_HEAD"]')
    project.makepyfile(UNANSWERED + ASSERTIONS)
    ran = project.runpytest_subprocess("--contextlab-target", "fake:drops-head", *QUICK, "--contextlab-unknown", "skip")
    ran.assert_outcomes(skipped=1, passed=2, failed=1)  # what the project allows is no loss, but no refusal either


@pytest.mark.process
def test_a_server_of_the_project_is_named_by_overriding_a_fixture(project: pytest.Pytester) -> None:
    project.makeconftest("""
    import re, subprocess, sys
    import pytest

    @pytest.fixture(scope="session")
    def contextlab_target():
        words = [sys.executable, "-m", "contextlab.targets.servers.fake_server", "rejects", "--token-delay-s", "0.001"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            yield server.stdout.readline().split()[1]
            server.terminate()
    """)
    project.makepyfile(ASSERTIONS)
    ran = project.runpytest_subprocess("--contextlab-record", "records", "-n", "1")
    ran.assert_outcomes(passed=3)
    ran.stdout.fnmatch_lines(["*= contextlab =*", "http://127.0.0.1:*: every outcome is allowed; contextlab report *"])
    [path] = records(project)
    assert path.parent.parent.name == "gw0"


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no target is named"),
        (("--contextlab-target", "smollm"), "target='smollm': not a preset*"),
        (("--contextlab-target", "http://192.0.2.1:8000"), "*is not this machine*"),
    ],
)
def test_a_target_that_cannot_be_opened_is_an_error_with_the_next_step(
    project: pytest.Pytester, words: tuple[str, ...], told: str
) -> None:
    project.makepyfile("def test_it(contextlab): pass")
    ran = project.runpytest_subprocess(*words)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines([told, "next: *"])
    ran.stdout.no_fnmatch_line("*During handling*")


@pytest.mark.process
def test_names_that_are_none_and_a_scenario_of_chaos_are_said_to_be(project: pytest.Pytester) -> None:
    project.makepyfile("""
    def test_none(contextlab):
        contextlab.assert_held("prompt-too-lon")

    def test_chaos(contextlab):
        contextlab.assert_held("client-storm")

    def test_outcome(contextlab):
        contextlab.assert_held("prompt-too-long", allow=("SHIFT",))
    """)
    from contextlab import registry

    chaos = next(iter(registry.scenarios("chaos")))
    path = project.path / "test_names_that_are_none_and_a_scenario_of_chaos_are_said_to_be.py"
    path.write_text(path.read_text().replace("client-storm", chaos))
    ran = project.runpytest_subprocess("--contextlab-target", "fake:rejects", *QUICK)
    ran.assert_outcomes(failed=3)
    ran.stdout.fnmatch_lines(
        [
            "scenario='prompt-too-lon': there is no such scenario",
            "next: did you mean prompt-too-long?*",
            f"scenario='{chaos}': is one of chaos*",
            "allow='SHIFT': there is no such outcome",
        ]
    )


@pytest.mark.parametrize("text", ["nan", "soon", "0"])
def test_a_time_that_is_none_is_a_usage_error(project: pytest.Pytester, text: str) -> None:
    ran = project.runpytest_subprocess("--contextlab-timeout", text)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    rule = "must be a number of seconds between 0.1 and 86400"
    ran.stderr.fnmatch_lines([f"*--contextlab-timeout: '{text}': {rule}"])


def test_records_that_cannot_be_kept_name_the_plugins_own_option(project: pytest.Pytester) -> None:
    project.makepyfile(ASSERTIONS)
    (project.path / "full").touch()
    ran = project.runpytest_subprocess("--contextlab-target", "fake:caps", "--contextlab-record", "full")
    ran.assert_outcomes(errors=3)
    ran.stdout.fnmatch_lines(
        [
            f"--contextlab-record={project.path / 'full'}: records cannot be written there: File exists",
            "next: name a folder that can be written, or leave it out",
        ]
    )
    ran.stdout.no_fnmatch_line("*--output*")


@pytest.mark.process
@pytest.mark.parametrize("number", ["SIGKILL", "SIGINT"])
def test_nothing_is_left_of_a_session_that_is_ended(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setenv(MARK, mark := f"plugin-{os.getpid()}-{number}")
    project.makepyfile(f"""
    import os, signal

    def test_it(contextlab):
        os.kill(os.getpid(), signal.{number})
        contextlab.assert_no_silent_truncation()
    """)
    project.runpytest_subprocess("--contextlab-target", "fake:rejects", *QUICK)
    assert orphans(mark) == []
    ended = read_run(records(project)[0]).end is not None
    assert ended is (number == "SIGINT")
