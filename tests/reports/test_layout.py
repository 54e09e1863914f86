"""Lines within a width: parts that flow keep their order and their words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from contextlab.reports.parts.layout import flowing


def flown(*parts: str, width: int) -> list[str]:
    return [line.plain for line in flowing([Text(part) for part in parts], width)]


def test_lines_break_between_parts() -> None:
    assert flown("status 200", "max_tokens 24", "seconds 7.1", width=28) == [
        "status 200 · max_tokens 24 ·",
        "seconds 7.1",
    ]


def test_a_part_longer_than_a_line_breaks_at_its_blanks() -> None:
    assert flown("error it is too long", "a", width=12) == ["error it is", "too long · a"]


def test_nothing_flows_from_nothing() -> None:
    assert flown(width=10) == []


@given(st.lists(st.text("ab c", min_size=1).map(str.strip).filter(bool), max_size=8), st.integers(4, 40))
def test_nothing_is_lost_or_too_wide(parts: list[str], width: int) -> None:
    lines = flown(*parts, width=width)
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    assert "".join("".join(lines).split()) == "".join("·".join(parts).split())
