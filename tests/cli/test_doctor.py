"""`contextlab doctor` as a user runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import contextlab

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def test_it_looks_changes_nothing_and_says_what_it_saw(tmp_path: Path) -> None:
    ran = contextlab("doctor", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    assert "environment: ✓ python: " in ran.out
    assert ran.out.splitlines()[-1].startswith("exit 0: ")
    assert os.listdir(tmp_path) == []


def test_a_target_is_opened_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    document = contextlab("doctor", "fake:rejects", "--json", cwd=tmp_path).document
    assert document["target"] == "fake:rejects"
    assert document["exit"]["code"] == 0
    by_name = {one["name"]: one for one in document["checks"] if one["section"] == "target"}
    assert by_name["window"]["detail"] == "256 tokens for each request"
    assert sum(document["counts"].values()) == len(document["checks"])
    assert os.listdir(tmp_path) == []


def test_a_target_that_is_not_there_is_four(tmp_path: Path) -> None:
    ran = contextlab("doctor", "http://127.0.0.1:9", cwd=tmp_path)
    assert ran.code == 4
    assert "target: ✗ open: " in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fake:nobody",), "there is no such fake"),
        (("--set", "slots=1"), "belong to a target"),
        (("http://192.0.2.1",), "is not this machine"),
        (("fake:rejects", "--set", "slot=1"), "did you mean"),
    ],
)
def test_words_that_cannot_be_meant_are_two(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ran = contextlab("doctor", *words, cwd=tmp_path)
    assert ran.code == 2, ran.out + ran.err
    assert said in ran.err
    document = contextlab("doctor", *words, "--json", cwd=tmp_path).document
    assert document["exit"]["code"] == 2
    assert document["checks"] == []
