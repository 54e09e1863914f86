"""Sentences with labels, as the blocks of chaos and of pareto say what was done and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from contextlab.model import Verdict
from contextlab.reports.parts.layout import labelled, wrapped
from contextlab.reports.parts.wording import COLOURS, MARKS, clean

INDENT, LABEL = 4, 11
"""Blank cells before a label, and the cells that it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One sentence, what it is about, and the mark it gets, if any."""

    label: str
    text: str
    verdict: Verdict | None = None


def painted(facts: Sequence[Fact], width: int) -> list[Text]:
    """Sentences with their labels, each label once."""
    found: list[Text] = []
    room = width - INDENT - LABEL
    for label, alike in groupby(facts, key=lambda fact: fact.label):
        body: list[Text] = []
        for fact in alike:
            if fact.verdict is None:
                body += wrapped(Text(clean(fact.text)), room)
            else:
                sign = Text(MARKS[fact.verdict], COLOURS[fact.verdict])
                body += labelled(sign, wrapped(Text(clean(fact.text)), room - 2), 2)
        found += labelled(Text(f"{'':{INDENT}}{label}", "dim"), body, INDENT + LABEL)
    return found
