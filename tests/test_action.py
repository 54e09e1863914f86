"""The GitHub Action: its own steps, from action.yml, in a clean copy of the repository.

One installation serves all tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.composite import Job, Uploaded

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.process, pytest.mark.timeout(290)]
FAST = "--set token_delay_s=0.001"
ARGS = "--blocks 7 --max-blocks 7 --requests 5 --load warmup=1 --load 'reply_tokens=8' --trust-host"


def files() -> list[Path]:
    """What a commit of this tree would hold."""
    words = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return [Path(name) for name in listed if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as a runner checks it out."""
    folder = tmp_path_factory.mktemp("action") / "contextlab"
    for name in files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def installed(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A first use of the action, whose candidate is named as no target is: all is installed, nothing is measured."""
    job = Job(clone, tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("repository"))
    job.run(base="fake:rejects", candidate="fake:rejcts", extras="", models="")
    if "No matching distribution" in job.log:
        pytest.skip("no package index is reachable from here")
    return job


@pytest.fixture
def use(installed: Job, tmp_path: Path) -> Callable[..., Job]:
    """Use the action in a repository of one's own, with the installation that stands."""

    def used(*, code_of_gate: int | None = None, **inputs: str) -> Job:
        job = Job(installed.action, tmp_path, tmp_path / "repository")
        job.workspace.mkdir()
        job.temp.mkdir()
        venv = job.temp / "contextlab"
        (venv / "bin").mkdir(parents=True)
        inside = installed.temp / "contextlab" / "bin"
        (venv / "bin" / "python").symlink_to(inside / "python")
        gate = f'case "$1" in gate) exit {code_of_gate} ;; esac\n' if code_of_gate is not None else ""
        (venv / "bin" / "contextlab").write_text(f'#!/bin/bash\n{gate}exec {inside / "contextlab"} "$@"\n')
        (venv / "bin" / "contextlab").chmod(0o755)
        return job.run(skip=("Install contextlab",), **inputs)

    return used


def test_wrong_usage_fails_the_step_and_the_page_says_that_nothing_was_measured(installed: Job) -> None:
    assert installed.code == 2
    assert "did you mean rejects" in installed.log.lower()
    assert installed.outputs["exit-code"] == "2"
    assert installed.outputs["verdict"] == ""
    assert installed.summary.startswith("### contextlab gate: nothing was measured (exit 2)")
    assert [one.files for one in installed.uploads] == [(), ()]


def test_what_is_installed_stands_by_the_constraints_and_apart_from_the_caller(installed: Job) -> None:
    python = installed.temp / "contextlab" / "bin" / "python"
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True, cwd="/"
    ).stdout.lower()
    exact = {line for line in (ROOT / "constraints.txt").read_text().lower().splitlines() if "==" in line}
    ours = {line for line in listed.splitlines() if not line.startswith(("contextlab==", "pip==", "setuptools=="))}
    assert ours <= {line.replace("_", "-") for line in exact} | exact
    assert not list(installed.workspace.iterdir())


def test_a_target_against_itself_never_fails_as_worse(use: Callable[..., Job]) -> None:
    job = use(target="fake:rejects", base=FAST, candidate=FAST, args=ARGS, fail_on="regressed, died, not-measured")
    assert job.code == 0, job.log
    assert job.outputs["exit-code"] in ("0", "3")
    assert job.outputs["verdict"] not in ("", "regressed", "died", "over budget", "not comparable"), job.log
    assert ("::warning title=contextlab gate::inconclusive" in job.log) is (job.outputs["exit-code"] == "3")
    assert "fake&#58;rejects" in job.summary
    kept = {"run.jsonl", "summary.md", "comment.md", "junit.xml", "report.json", "contextlab-gate.html"}
    [record, page] = job.uploads
    assert record.name == "contextlab-gate"
    assert kept <= set(record.files)
    assert page == Uploaded(name="", files=("contextlab-gate.html",))


def test_a_candidate_that_drops_the_head_in_silence_fails_with_the_gates_own_code(use: Callable[..., Job]) -> None:
    job = use(base=f"fake:rejects {FAST}", candidate=f"fake:drops-head {FAST}", args=ARGS, artifact="edge")
    assert job.code == 1, job.log
    assert job.outputs["exit-code"] == "1"
    assert job.outputs["verdict"] == "regressed"
    assert "::error " in job.log
    assert job.uploads[1].files == ("edge.html",)


@pytest.mark.parametrize(
    ("code", "fail_on", "expected"),
    [
        (0, "any", 0),
        (1, "any", 1),
        (3, "any", 3),
        (3, "regressed,died", 0),
        (3, "regressed inconclusive", 3),
        (4, "regressed", 0),
        (5, "not-measured", 5),
        (2, "regressed", 2),
        (70, "regressed", 70),
        (1, "regresed", 2),
    ],
)
def test_what_fails_the_step(use: Callable[..., Job], code: int, fail_on: str, expected: int) -> None:
    job = use(base="fake:rejects", candidate="fake:rejects", fail_on=fail_on, code_of_gate=code)
    assert job.code == expected, job.log
    assert ("::warning" in job.log) is (expected == 0 != code)


@pytest.mark.parametrize("args", ["--blocks 'seven", "--blocks seven"])
def test_arguments_that_are_none_are_not_dropped(use: Callable[..., Job], args: str) -> None:
    job = use(base="fake:rejects", candidate="fake:rejects", args=args)
    assert job.code != 0
    assert not (job.temp / "contextlab-gate").exists()


def test_an_input_is_never_read_as_a_command(use: Callable[..., Job], tmp_path: Path) -> None:
    hostile = f'fake:rejects"; touch {tmp_path}/hostile; $(touch {tmp_path}/hostile) `touch {tmp_path}/hostile`'
    job = use(target=hostile, base=hostile, candidate=hostile, args=f"'$(touch {tmp_path}/hostile)'", fail_on="any")
    assert job.code == 2
    assert not (tmp_path / "hostile").exists()


def test_the_documentation_names_every_input_and_output() -> None:
    table: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for name, one in {**table["inputs"], **table["outputs"]}.items():
        assert one["description"]
        assert f"| `{name}` |" in page


@pytest.mark.parametrize("page", ["README.md", "docs/ci.md"])
def test_the_workflows_that_are_shown_use_inputs_that_exist(page: str) -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    shown = [part.partition("```")[0] for part in (ROOT / page).read_text(encoding="utf-8").split("```yaml\n")[1:]]
    steps = [step for text in shown for job in (yaml.safe_load(text) or {})["jobs"].values() for step in job["steps"]]
    ours = [step for step in steps if "/contextlab@" in step.get("uses", "")]
    assert ours
    for step in ours:
        assert step["with"].keys() <= inputs.keys()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
