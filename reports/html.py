"""A run, or two side by side, as one HTML file that needs no network and no script.

    Run ─▶ page.top, page.limits, … ─▶ Section … ─▶ page.rendering (templates/) ─▶ one text

A section is a pure function of the record and a template; another one becomes a part of the page by one more name in
`SECTIONS`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TextIO

from contextlab.model import Run
from contextlab.reports.page import comparison, experiments, findings, gate, limits, outcomes, provenance, sweep, top
from contextlab.reports.page.rendering import rendered
from contextlab.reports.page.section import Section
from contextlab.reports.parts import summary

MOST_BYTES = 2_000_000
"""A page that would be larger leaves out the record, which is in the run's folder anyhow."""

Make = Callable[[Run], Section]
_PROBING: tuple[Make, ...] = (top.section, limits.section, outcomes.section, findings.section, provenance.section)
SECTIONS: dict[str, tuple[Make, ...]] = {
    "gate": (top.section, gate.section, provenance.section),
    "chaos": (top.section, experiments.section, findings.section, limits.section, provenance.section),
    "pareto": (top.section, sweep.section, findings.section, provenance.section),
}
"""The sections of each command's page, from top to bottom; other commands probe."""


def write(run: Run, out: TextIO) -> None:
    """Write the page of a run; what the stream cannot encode becomes a character reference."""
    _put(page(run), out)


def write_pair(runs: tuple[Run, Run], out: TextIO) -> None:
    """Write the page that shows two runs side by side."""
    _put(rendered(comparison.title(runs), comparison.sections(runs)), out)


def page(run: Run) -> str:
    """The page of a run, whatever its record holds."""
    with _uncollected():
        return _page(run)


def _page(run: Run) -> str:
    sections = [make(run) for make in SECTIONS.get(summary.command(run), _PROBING)]
    text = rendered(top.title(run), sections)
    if len(text.encode()) > MOST_BYTES:
        text = rendered(top.title(run), [_lighter(section) for section in sections])
    return text


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cycles meanwhile: among the objects of a large record it takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _lighter(section: Section) -> Section:
    record = section.facts.get("record")
    if record is None:
        return section
    return replace(section, facts={**section.facts, "record": replace(record, address="")})


def _put(text: str, out: TextIO) -> None:
    encoding = getattr(out, "encoding", None) or "utf-8"
    if not encoding.lower().replace("-", "").startswith("utf"):
        text = text.encode(encoding, "xmlcharrefreplace").decode(encoding)
    out.write(text)
