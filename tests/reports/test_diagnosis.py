"""How a diagnosis is shown: golden pages, and that a hostile log upsets nothing."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from contextlab.analysis.diagnosis import Diagnosis, diagnose
from contextlab.reports import diagnosis
from tests.reports.streams import Terminal, surroundings
from tests.reports.test_terminal import compare as compare_golden

REFUSED = "request (700 tokens) exceeds the available context size (512 tokens), try increasing it"
SHIFT = "slot context shift, n_keep = 0, n_left = 511, n_discard = 255"
POOL = "failed to find free space in the KV cache, retrying with smaller batch size"
HOSTILE = f"\x1b[31m{REFUSED}\x07‮"

READ: dict[str, Callable[[], Diagnosis]] = {
    "bad": lambda: diagnose(["srv: started", REFUSED, *[SHIFT] * 3, POOL, REFUSED]),
    "harmless": lambda: diagnose([REFUSED]),
    "unknown": lambda: diagnose(["listening on 8080", "done"]),
    "empty": lambda: diagnose([]),
    "hostile": lambda: diagnose([HOSTILE]),
}
CODES = {"bad": 1, "harmless": 0, "unknown": 3, "empty": 5, "hostile": 0}


def piped(found: Diagnosis) -> str:
    out = io.StringIO()
    diagnosis.write_text("server.log", found, out)
    return out.getvalue()


@pytest.mark.parametrize("name", READ)
def test_piped_it_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare_golden(f"diagnosis-{name}-piped", piped(READ[name]()), pytestconfig)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", READ)
def test_on_a_terminal_it_is_the_golden_one(
    name: str, columns: int, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings(monkeypatch, columns=columns, NO_COLOR="1")
    out = Terminal()
    diagnosis.write_text("server.log", READ[name](), out)
    text = out.getvalue()
    compare_golden(f"diagnosis-{name}-{columns}", text, pytestconfig)
    assert all(len(line) <= columns for line in text.splitlines())


@pytest.mark.parametrize("name", READ)
def test_the_exit_code(name: str) -> None:
    assert diagnosis.exit_code(READ[name]()) == CODES[name]
    assert f"exit {CODES[name]}: " in piped(READ[name]())


def test_what_a_log_says_cannot_move_the_cursor() -> None:
    text = piped(READ["hostile"]())
    assert all(char.isprintable() or char == "\n" for char in text)
