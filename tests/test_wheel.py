"""The built wheel works in an environment of its own, and installs nothing at the top level but the package."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.process, pytest.mark.timeout(280)]


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command outside the checkout; its output is in the failure, if it fails."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy: a build must not leave anything in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = run("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", cwd=folder).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    built = run(sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--wheel-dir", folder, cwd=folder)
    assert built.returncode == 0, built.stderr
    [found] = folder.glob("contextlab-*.whl")
    return found


def test_the_wheel_has_one_top_level_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"contextlab"}
    for needed in ("scenarios/overflow/find_limit.py", "reports/terminal.py", "analysis/signatures.toml", "py.typed"):
        assert f"contextlab/{needed}" in names
    sources = {
        path.relative_to(ROOT) for top in ("contextlab", "scenarios", "reports") for path in (ROOT / top).rglob("*.py")
    }
    packed = {name for name in names if name.endswith(".py")}
    for source in sources:
        inside = str(source) if source.parts[0] == "contextlab" else f"contextlab/{source}"
        assert inside in packed, f"{source} is not in the wheel: name its folder in [tool.setuptools] packages"


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    pip = (sys.executable, "-m", "pip", "--python", tmp_path / "env" / "bin" / "python")
    installed = run(*pip, "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    if installed.returncode != 0 and "No matching distribution" in installed.stderr:
        pytest.skip("no package index is reachable from here")
    assert installed.returncode == 0, installed.stderr
    command = tmp_path / "env" / "bin" / "contextlab"
    ran = run(command, "overflow", "fake:rejects", "--set", "token_delay_s=0.001", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "HELD" in ran.stdout
    missing = run(command, "overflow", "smollm2", cwd=tmp_path)
    assert missing.returncode == 4
    assert "contextlab[llama]" in missing.stderr
