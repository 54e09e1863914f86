"""Runs a composite GitHub Action here: its own steps, read from its file, as a runner would run them.

What a runner brings is small and faked: the files behind GITHUB_OUTPUT and GITHUB_STEP_SUMMARY, RUNNER_TEMP, and the
two actions of others that ours uses. An expression, a key or an action that this does not know fails the test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

STEP_KEYS = {"name", "id", "if", "shell", "env", "run", "uses", "with"}
NOT_OURS = re.compile(r"^(GITHUB_|RUNNER_|CONTEXTLAB_|PYTEST_)|^(PYTHONPATH|VIRTUAL_ENV)$")
CONDITION = re.compile(r"(always\(\))|(\$?[\w.-]+) != ''")
TIMEOUT_S = 250.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """What was to be kept: the artefact's name ("" for a file as it is), and the files there at that moment."""

    name: str
    files: tuple[str, ...]


@dataclass(slots=True)
class Job:
    """One use of an action. `folder` holds the runner's files, `workspace` is the caller's repository."""

    action: Path
    folder: Path
    workspace: Path
    path: str = str(Path(sys.executable).parent)
    code: int = 0
    log: str = ""
    uploads: list[Uploaded] = field(default_factory=list)
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def temp(self) -> Path:
        """RUNNER_TEMP."""
        return self.folder / "temp"

    @property
    def summary(self) -> str:
        """What the job's page shows."""
        path = self.folder / "summary"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def run(self, skip: Collection[str] = (), **given: str) -> Job:
        """Run the steps with these inputs (`_` for `-` in their names); the first failure is the job's code.

        `skip`: names of steps whose work is done.
        """
        table = yaml.safe_load((self.action / "action.yml").read_text(encoding="utf-8"))
        assert table["runs"]["using"] == "composite"
        inputs = {name: str(one.get("default", "")) for name, one in table["inputs"].items()}
        given = {name.replace("_", "-"): value for name, value in given.items()}
        assert given.keys() <= inputs.keys()
        inputs |= given
        self.temp.mkdir(parents=True, exist_ok=True)
        for step in table["runs"]["steps"]:
            assert step.keys() <= STEP_KEYS, step
            if step["name"] not in skip and self._wanted(step.get("if", ""), inputs):
                self._step(step, inputs)
        self.outputs = {name: self._filled(one["value"], inputs) for name, one in table["outputs"].items()}
        return self

    def _wanted(self, condition: str, inputs: Mapping[str, str]) -> bool:
        if not condition:
            return self.code == 0
        found = [CONDITION.fullmatch(term) for term in condition.split(" && ")]
        assert all(found), condition
        always = any(one[1] for one in found if one)
        return (always or self.code == 0) and all(self._value(one[2], inputs) for one in found if one and one[2])

    def _value(self, name: str, inputs: Mapping[str, str]) -> str:
        match name.split("."):
            case ["inputs", key]:
                return inputs[key]
            case ["steps", step, "outputs", key]:
                return self.steps.get(step, {}).get(key, "")
        raise AssertionError(f"an expression that this runner does not know: {name}")

    def _filled(self, text: str, inputs: Mapping[str, str]) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: self._value(found[1], inputs), str(text))

    def _step(self, step: Mapping[str, Any], inputs: Mapping[str, str]) -> None:
        if "uses" in step:
            self._used(step["uses"], {name: self._filled(value, inputs) for name, value in step["with"].items()})
            return
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input in the text of a script is read as commands"
        output, script = self.folder / f"output-{len(self.steps)}", self.folder / "script.sh"
        output.touch()
        script.write_text(step["run"], encoding="utf-8")
        env = {name: value for name, value in os.environ.items() if not NOT_OURS.search(name)}
        env |= {
            "PATH": f"{self.path}:{env['PATH']}",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.action),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
        }
        env |= {name: self._filled(value, inputs) for name, value in step.get("env", {}).items()}
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        self.log += f"--- {step['name']}\n{ran.stdout}"
        pairs = (line.partition("=") for line in output.read_text(encoding="utf-8").splitlines())
        self.steps[step.get("id", step["name"])] = {name: value for name, _, value in pairs}
        self.code = self.code or ran.returncode

    def _used(self, action: str, given: Mapping[str, str]) -> None:
        name, _, _ = action.partition("@")
        if name == "actions/upload-artifact":
            path = Path(given["path"])
            found = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
            single = given.get("archive") == "False"
            assert not single or (path.is_file() or not found)
            self.uploads.append(Uploaded(name="" if single else given["name"], files=tuple(one.name for one in found)))
            return
        assert name == "actions/setup-python", f"an action that this runner does not know: {action}"
