"""Every run that has a golden page, by name: what holds of a format has to hold for all of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import TextIO

from contextlab.model import Run
from tests.reports import chaos_sample, gate_sample, pareto_sample, sample
from tests.reports.test_chaos import RUNS as CHAOS_RUNS
from tests.reports.test_gate import RUNS as GATE_RUNS
from tests.reports.test_pareto import RUNS as PARETO_RUNS
from tests.reports.test_terminal import RUNS

MAKERS: dict[str, Callable[[], Run]] = {
    **{f"overflow-{name}": getattr(sample, name) for name in RUNS},
    **{f"chaos-{name}": getattr(chaos_sample, name) for name in CHAOS_RUNS},
    **{f"pareto-{name}": getattr(pareto_sample, name) for name in PARETO_RUNS},
    **{f"gate-{name}": getattr(gate_sample, name) for name in GATE_RUNS},
}


@cache
def made(name: str) -> Run:
    """The run of that name, made once."""
    return MAKERS[name]()


def written(write: Callable[[Run, TextIO], None], run: Run) -> str:
    """What a writer writes of a run."""
    out = io.StringIO()
    write(run, out)
    return out.getvalue()
