"""An arm of a gate in one word of the shell."""

from __future__ import annotations

import pytest

from contextlab.lab.gate.words import parse_arm
from contextlab.model import UsageError


def test_a_target_with_its_settings() -> None:
    found = parse_arm("fake:caps --set slots=3 --set=window=128", "--base")
    assert (found.scheme, found.settings["slots"], found.settings["window"]) == ("fake", 3, 128)


def test_a_command_with_its_address() -> None:
    found = parse_arm("run:'python x.py --port 1' --at http://127.0.0.1:1", "--base")
    assert (found.address, found.url) == ("python x.py --port 1", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("", "must be a target"),
        ("fake:caps --set", "--set lacks its value"),
        ("fake:caps slots=3", "is neither --set"),
        ("fake:caps 'x", "quotes must be closed"),
        ("fake:caps --set slots=none", "must be a whole number"),
        ("fak:caps", "did you mean"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: str, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arm(words, "--base")
    assert rule in f"{caught.value.message} {caught.value.next_step}"
