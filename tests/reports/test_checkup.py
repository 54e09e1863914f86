"""How a check-up is shown: golden pages, and that nothing a target says upsets them."""

from __future__ import annotations

import io

import pytest

from contextlab.analysis.checkup import Check, Grade
from contextlab.reports import checkup
from tests.reports.streams import Terminal, surroundings
from tests.reports.test_terminal import compare as compare_golden

WELL = (
    Check(section="environment", name="python", grade=Grade.OK, detail="3.11.7, contextlab 0.1.0"),
    Check(section="gpu", name="GPU", grade=Grade.SKIP, detail="NVML is not installed; nothing here needs one"),
)
ILL = (
    *WELL[:1],
    Check(
        section="environment",
        name="undone",
        grade=Grade.FAIL,
        detail="run 20261129-101112-chaos-smollm2 was killed and is not undone: process 4711 stands still",
        fix="contextlab recover",
    ),
    Check(
        section="noise",
        name="steal",
        grade=Grade.WARN,
        detail="the hypervisor took 4.8% of the CPU time",
        fix="this is a shared host: measure at another time, or with more blocks",
    ),
    Check(
        section="target", name="a name that is longer than its column", grade=Grade.OK, detail="and \x1b[31mhostile\x07"
    ),
)
ALL = {"well": WELL, "ill": ILL}


@pytest.mark.parametrize("name", ALL)
def test_piped_it_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    out = io.StringIO()
    checkup.write_text(ALL[name], out)
    compare_golden(f"checkup-{name}-piped", out.getvalue(), pytestconfig)
    assert len(out.getvalue().splitlines()) == len(ALL[name]) + 1


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", ALL)
def test_on_a_terminal_it_is_the_golden_one(
    name: str, columns: int, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings(monkeypatch, columns=columns, NO_COLOR="1")
    out = Terminal()
    checkup.write_text(ALL[name], out)
    compare_golden(f"checkup-{name}-{columns}", out.getvalue(), pytestconfig)
    assert all(len(line) <= columns for line in out.getvalue().splitlines())
