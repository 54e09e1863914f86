"""Text as GitHub's Markdown shows it and nothing else: no word of a target becomes markup, a link or a mention.

Punctuation goes out as character references, which Markdown cannot read as its own; an invisible space after @ and #
keeps the page from calling a person or a ticket. Control characters are shown as escapes (`wording.clean`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TextIO

from contextlab.reports.parts.wording import clean, encodable

_MARKUP = re.compile(
    r"[&<>`*\[\]\\|~@#!${}^]"
    r"|(?<=www)\.|:(?=[/A-Za-z_+-])"  # where GitHub would begin a link or an emoji: `www.`, `http://`, `:smile:`
    r"|(?<![^\W_])_|_(?![^\W_])",  # one inside a word is no emphasis, and stays readable in the source
    re.IGNORECASE,
)
_UNLINKED = "&#8203;"
"""A space of no width: nobody sees it, and a mention ends at it."""


def prose(text: str) -> str:
    """`text` on one line, as words of a sentence or a cell of a table."""
    return _MARKUP.sub(_reference, clean(text))


def code(text: str) -> str:
    """`text` on one line, set as code."""
    return f"<code>{prose(text)}</code>" if text else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; cells are Markdown already. No rows: no lines."""
    body = [_row(row) for row in rows]
    return [_row(heads), _row(["---"] * len(heads)), *body] if body else []


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that open under a summary, which is Markdown already."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def put(lines: Iterable[str], out: TextIO) -> None:
    """Write the lines as `out` can take them."""
    out.write(encodable("".join(f"{line}\n" for line in lines), getattr(out, "encoding", None)))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _reference(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};{_UNLINKED if found[0] in '@#' else ''}"
