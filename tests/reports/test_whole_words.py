"""No report cuts a word off: no ellipsis of its own, every verdict and metric whole, rows where there are no columns.

Held over every record that has a golden page, of every command, in 80 columns and in a pipe.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

import pytest
from rich.cells import cell_len

from contextlab.model import Outcome, Run
from contextlab.reports import inspection
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.gate import facts as gate_facts
from contextlab.reports.history import text as history
from contextlab.reports.pareto import figures as pareto_figures
from contextlab.reports.parts import headline, summary
from tests.reports.every import MAKERS, made
from tests.reports.history_sample import HISTORIES
from tests.reports.streams import Terminal, surroundings
from tests.reports.test_inspection import LOOKS
from tests.reports.test_terminal import ANSI, piped, shown

Writes = Callable[[io.StringIO], None]


def _looks(name: str) -> Writes:
    return lambda out: inspection.write_text(LOOKS[name](), out)


def _histories(name: str) -> Writes:
    return lambda out: history.write_text(HISTORIES[name](), out)


OTHERS: dict[str, Writes] = {
    **{f"inspect-{name}": _looks(name) for name in LOOKS},
    **{f"history-{name}": _histories(name) for name in HISTORIES},
}


def of_others(name: str) -> tuple[str, str]:
    """What `inspect` or `history` writes in 80 columns, and piped."""
    plain = io.StringIO()
    OTHERS[name](plain)
    with pytest.MonkeyPatch.context() as patch:
        surroundings(patch, columns=80, NO_COLOR="1")
        wide = Terminal()
        OTHERS[name](wide)
    return wide.getvalue(), plain.getvalue()


def compared(run: Run) -> Sequence[gate_facts.Row]:
    """The rows that the report of a gate has."""
    one, _ = gate_facts.shown(run)
    if one is None:
        return ()
    if one.stored.begins.calibrates:
        return gate_facts.noises(one)
    return (*one.counted, *one.metrics, *one.budgets)


@pytest.mark.parametrize("name", MAKERS)
def test_no_run_is_cut_off(name: str) -> None:
    run = made(name)
    wide, plain = ANSI.sub("", shown(run, 80)), piped(run)
    for text in (wide, plain):
        assert "…" not in text
    assert all(cell_len(line) <= 80 for line in wide.split("next:")[0].splitlines())
    verdicts = {finding.outcome.name for finding in run.findings}
    if summary.command(run) == "gate":  # which has verdicts of its own in place of outcomes
        verdicts = {row.word for row in compared(run)}
    for text in (" ".join(wide.split()), plain):
        assert [word for word in (headline.word(run), *verdicts) if word not in text] == []


@pytest.mark.parametrize("name", OTHERS)
def test_no_inspection_and_no_history_is_cut_off(name: str) -> None:
    wide, plain = of_others(name)
    assert "…" not in (wide + plain).replace("llama-server … -c", "")  # (there it stands for other options)
    assert all(cell_len(line) <= 80 for line in wide.split("next:")[0].splitlines())


@pytest.mark.parametrize("name", [name for name in MAKERS if name.startswith("chaos-")])
def test_every_metric_of_an_experiment_is_whole_in_80_columns_and_a_row_of_its_own_in_a_pipe(name: str) -> None:
    found, _ = chaos_figures.shown(made(name))
    wide, plain = shown(made(name), 80, NO_COLOR="1"), piped(made(name))
    for one in found:
        for row in chaos_figures.rows(one):
            assert re.search(rf"^ +{re.escape(row.name)}(?= |$)", wide, re.MULTILINE), row.name
            assert re.search(rf"^ +{re.escape(row.name)}: ", plain, re.MULTILINE), row.name


@pytest.mark.parametrize("name", [name for name in MAKERS if name.startswith("pareto-")])
def test_every_standing_of_a_sweep_is_whole(name: str) -> None:
    one, _ = pareto_figures.shown(made(name))
    for text in (shown(made(name), 80, NO_COLOR="1"), piped(made(name))):
        words = set(re.findall(r"\w+", text))
        assert {str(row.membership).upper() for row in (one.rows if one else ())} <= words


def test_names_of_outcomes_have_no_room_to_break() -> None:
    """`layout` folds only words that are longer than a line: none of these is, at 40 columns beside its mark."""
    assert max(len(outcome.name) for outcome in Outcome) <= 36
