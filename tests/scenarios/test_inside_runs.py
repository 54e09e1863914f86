"""The scenarios that look inside a model, as a user runs them on a random one: isolated processes, real exceptions."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.command import contextlab

pytestmark = [
    pytest.mark.hf,
    pytest.mark.process,
    pytest.mark.timeout(280),
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra hf"),
]


def overflow(target: str, folder: Path, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code and the findings by scenario and probe; every probe here has one."""
    ran = contextlab("overflow", target, "--json", *words, cwd=folder, timeout_s=270.0)
    return ran.code, {f"{one['scenario']}/{one['probe']}": one for one in ran.document["findings"]}


def test_learned_positions_end_at_exactly_the_configured_limit(tmp_path: Path) -> None:
    code, found = overflow("hf:random/gpt2", tmp_path, "--set", "window=100", "-s", "position-out-of-range")
    assert code == 1
    edge = found["position-out-of-range/past-the-range"]
    assert (edge["outcome"], edge["verdict"], edge["layer"]) == ("REJECTED_BADLY", "FAIL", "positions")
    assert (edge["evidence"]["ok_tokens"], edge["evidence"]["error_tokens"]) == (100, 101)
    assert edge["evidence"]["error_type"] == "IndexError"
    assert "n_positions" in edge["remedy"]
    assert found["position-out-of-range/resized-table"]["outcome"] == "DEGRADED"


def test_rope_passes_the_same_length_and_is_never_ok_there(tmp_path: Path) -> None:
    words = ("--set", "window=100", "-s", "find-limit", "-s", "position-out-of-range")
    code, found = overflow("hf:random/llama", tmp_path, *words)
    assert code == 3
    outcomes = {name: one["outcome"] for name, one in found.items()}
    assert outcomes == {
        "find-limit/control-62": "OK",
        "find-limit/prompt-99": "OK",
        "find-limit/prompt-100": "OK",
        "find-limit/prompt-101": "UNKNOWN",
        "find-limit/edge-100": "OK",
        "position-out-of-range/past-the-range": "UNKNOWN",
    }
    silent = found["position-out-of-range/past-the-range"]
    assert "no error at 200 tokens" in silent["why"]
    assert silent["evidence"]["past_finite"] is True
    assert "nll_by_position" in silent["evidence"]


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("hf:random/lama", 2, ("architecture='lama'", "did you mean llama")),
        ("hf:nowhere", 4, ("nowhere: there is no such folder",)),
        ("hf:broken", 4, ("config.json: not JSON",)),
    ],
)
def test_a_model_that_cannot_be_opened_is_told(target: str, code: int, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{", encoding="utf-8")
    ran = contextlab("overflow", target, cwd=tmp_path)
    assert ran.code == code
    for word in words:
        assert word in ran.err
