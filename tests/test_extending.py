"""The examples of docs/extending.md are real: each is taken from the page, installed outside the tree, and used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command import contextlab

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A package outside the tree with everything the page shows, as an installer would lay it out."""
    text = PAGE.read_text(encoding="utf-8")
    package = tmp_path / "site" / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for path, code in re.findall(r"```python\n# (\S+)\n(.*?)```", text, re.DOTALL):
        (package / Path(path).name).write_text(code, encoding="utf-8")
    info = tmp_path / "site" / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    [toml] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    groups = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", toml).replace('"', "")
    (info / "entry_points.txt").write_text(groups)
    return tmp_path / "site"


@pytest.mark.process
def test_every_example_of_the_page_is_found_and_works(plugin: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(plugin)}
    listed = contextlab("scenarios", "list", cwd=tmp_path, env=env)
    assert "empty-prompt" in listed.out
    ran = contextlab("overflow", "shout:", "--scenario", "empty-prompt", "--json", cwd=tmp_path, env=env)
    assert [one["scenario"] for one in ran.document["findings"]] == ["empty-prompt"]
    written = contextlab("report", ran.document["run"], "--as", "oneline", cwd=tmp_path, env=env)
    assert written.out.startswith(f"{ran.document['findings'][0]['verdict']} ")


@pytest.mark.process
def test_the_fault_and_the_chaos_scenario_of_the_page_work(plugin: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(plugin)}
    assert "often" in contextlab("faults", "show", "hiccup", cwd=tmp_path, env=env).out
    words = ("--scenario", "hiccups", "--duration", "2s", "--rate", "10", "--json")
    ran = contextlab("chaos", "fake:caps", *words, cwd=tmp_path, env=env)
    [experiment] = ran.document["experiments"]
    assert experiment["evidence"][0]["landed"] is True, ran.document
    assert ran.code in (0, 3)  # 3: on a busy machine the client itself may be late


def test_a_name_taken_twice_names_both_places(plugin: Path, tmp_path: Path) -> None:
    twin = plugin / "my_package" / "empty_prompt.py"
    twin.write_text(twin.read_text().replace("empty-prompt", "find-limit"))
    ran = contextlab("scenarios", "list", cwd=tmp_path, env={"PYTHONPATH": str(plugin)})
    assert ran.code == 2
    assert "find_limit.py" in ran.err
    assert "empty_prompt.py" in ran.err
