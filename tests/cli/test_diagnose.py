"""`contextlab diagnose` as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import contextlab

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

REFUSED = "request (700 tokens) exceeds the available context size (512 tokens), try increasing it\n"
SHIFT = "slot context shift, n_keep = 0, n_left = 511, n_discard = 255\n"


def log(folder: Path, text: str) -> None:
    (folder / "server.log").write_text(text)


def test_a_log_with_a_slid_window_is_a_finding(tmp_path: Path) -> None:
    log(tmp_path, "started\n" + REFUSED + SHIFT)
    ran = contextlab("diagnose", "server.log", cwd=tmp_path)
    assert ran.code == 1, ran.out + ran.err
    assert "✗ SHIFTED" in ran.out
    assert "  numbers: prompt_tokens 700 · limit_tokens 512\n" in ran.out
    document = contextlab("diagnose", "server.log", "--json", cwd=tmp_path).document
    assert [(one["id"], one["first_line"]) for one in document["sightings"]] == [
        ("llama-shift", 3),
        ("llama-prompt-too-long", 2),
    ]


def test_what_is_allowed_passes_by_flag_and_by_project(tmp_path: Path) -> None:
    log(tmp_path, SHIFT)
    assert contextlab("diagnose", "server.log", "--allow", "SHIFTED", cwd=tmp_path).code == 0
    (tmp_path / "pyproject.toml").write_text('[tool.contextlab]\nallow = ["SHIFTED"]\n')
    assert contextlab("diagnose", "server.log", cwd=tmp_path).code == 0


def test_from_standard_input_and_whatever_its_bytes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "contextlab", "diagnose", "-"],
        input=b"\xff\xfe\x00 noise\r\n" + REFUSED.encode(),
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "standard input: 1 kind of message" in done.stdout.decode()


def test_nothing_known_is_three_and_nothing_at_all_is_five(tmp_path: Path) -> None:
    log(tmp_path, "started\n")
    ran = contextlab("diagnose", "server.log", cwd=tmp_path)
    assert ran.code == 3
    assert "contextlab overflow TARGET probes it" in ran.out
    log(tmp_path, "")
    assert contextlab("diagnose", "server.log", cwd=tmp_path).code == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere.log",), 2, "FILE='nowhere.log': there is no such file"),
        (("server.log", "--engine", "vlm"), 2, "did you mean vllm?"),
        (("server.log", "--allow", "SHIFTD"), 2, "did you mean SHIFTED?"),
        ((".",), 4, "Is a directory"),
    ],
)
def test_words_that_cannot_be_meant(words: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    log(tmp_path, SHIFT)
    ran = contextlab("diagnose", *words, cwd=tmp_path)
    assert ran.code == code, ran.out + ran.err
    assert said in ran.err
    assert "Traceback" not in ran.err
    document = contextlab("diagnose", *words, "--json", cwd=tmp_path).document
    assert document["exit"]["code"] == code
    assert document["sightings"] == []
