"""What people write becomes seconds, bytes and shares, and nothing else becomes anything."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis import quantities


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("share", "15%", 0.15),
        ("share", "0.15", 0.15),
        ("share", "100%", 1.0),
        ("share", "0", 0.0),
        ("duration", "200ms", 0.2),
        ("duration", "1.5s", 1.5),
        ("duration", "2min", 120.0),
        ("duration", "3", 3.0),
        ("duration", "50us", 5e-5),
        ("size", "64KB", 64000),
        ("size", "64KiB", 65536),
        ("size", "17", 17),
        ("rate", "1MB/s", 1e6),
        ("rate", "64kbit/s", 8000.0),
        ("rate", "10mbit", 1.25e6),
        ("cpus", "200m", 0.2),
        ("cpus", "1.5", 1.5),
    ],
)
def test_what_is_written_is_what_is_meant(kind: str, text: str, value: float) -> None:
    assert quantities.PARSERS[kind](text) == pytest.approx(value)


@pytest.mark.parametrize("kind", sorted(quantities.PARSERS))
@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "1e99", "ten", "1 2", "١٥", "5%%", "1ss", "0x10", "9" * 400])
def test_nonsense_is_told_the_rule(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        quantities.PARSERS[kind](text)


def test_a_share_is_at_most_the_whole() -> None:
    for text in ("101%", "1.5"):
        with pytest.raises(ValueError, match="from 0 to 1"):
            quantities.share(text)


@given(st.sampled_from(sorted(quantities.PARSERS)), st.floats(0, 1, allow_subnormal=False))
def test_what_is_shown_can_be_read_back(kind: str, value: float) -> None:
    value = round(value, 4) if kind in ("share", "duration") else round(value * 1e7)
    read = quantities.PARSERS[kind](quantities.shown(kind, value))
    assert math.isclose(read, value, rel_tol=1e-4, abs_tol=1e-6)


@given(st.sampled_from(sorted(quantities.PARSERS)), st.text(max_size=12))
def test_no_text_raises_anything_but_a_rule(kind: str, text: str) -> None:
    try:
        value = quantities.PARSERS[kind](text)
    except ValueError:
        return
    assert math.isfinite(value)
    assert value >= 0


def test_a_count_and_its_noun() -> None:
    shown = [quantities.num_of(count, "replies cut, so many") for count in (0, 0.6, 1.0, 2)]
    assert shown == ["0 replies cut, so many", "1 reply cut, so many", "1 reply cut, so many", "2 replies cut, so many"]
    assert quantities.num_of(1, "times") == "1 time"
