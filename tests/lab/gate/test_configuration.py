"""Where a gate's settings stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextlab.lab.gate.configuration import gate_settings
from contextlab.model import UsageError


def test_nothing_there_is_the_usual(tmp_path: Path) -> None:
    assert gate_settings(tmp_path).plan.blocks == 10


def test_either_file_may_speak(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.contextlab]\nallow = []\n[tool.contextlab.gate]\nblocks = 8\n")
    assert gate_settings(tmp_path).plan.blocks == 8
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    (tmp_path / "contextlab.toml").write_text('[gate]\nblocks = 9\n[[gate.budgets]]\nexpr = "ttft_p99 < 2s"\n')
    found = gate_settings(tmp_path)
    assert (found.plan.blocks, found.budgets[0].limit) == (9, 2.0)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("contextlab.toml", "[gates]\n", "did you mean gate?"),
        ("contextlab.toml", "[gate]\nblocs = 9\n", "did you mean blocks?"),
        ("contextlab.toml", "gate = 3\n", "must be a table"),
        ("contextlab.toml", "[gate\n", "cannot be read"),
        ("pyproject.toml", "[tool.contextlab.gate]\nblocs = 9\n", "did you mean blocks?"),
        (
            "pyproject.toml",
            '[[tool.contextlab.gate.waivers]]\nmetric = "itl_p50"\nreason = "x"\nexpires = 2020-01-01\n',
            "that day is over",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        gate_settings(tmp_path)
    assert words in f"{caught.value.message} {caught.value.next_step}"


def test_both_files_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.contextlab.gate]\nblocks = 8\n")
    (tmp_path / "contextlab.toml").write_text("[gate]\nblocks = 9\n")
    with pytest.raises(UsageError, match="both hold"):
        gate_settings(tmp_path)
