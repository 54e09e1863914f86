"""The raw rows of a run as CSV (RFC 4180, with a head): see `rows` for what a row is.

A spreadsheet would compute a text that begins like a formula; such a cell of text gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import math
from typing import TextIO

from contextlab.model import NothingMeasured, Run
from contextlab.reports.parts.rows import Cell, rows
from contextlab.reports.parts.wording import clean, encodable

_FORMULAS = ("=", "+", "-", "@")


def write(run: Run, out: TextIO) -> None:
    """Write head and rows; only the head where nothing was measured. Raises NothingMeasured for a damaged record."""
    found = rows(run)
    if found.damage:
        raise NothingMeasured(found.damage, "contextlab report RUN --as jsonl still shows its lines")
    encoding = getattr(out, "encoding", None)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([encodable(cell(name), encoding) for name in found.columns])
    writer.writerows([encodable(cell(each), encoding) for each in row] for row in found.rows)


def cell(thing: Cell) -> str:
    """One cell: empty where nothing is known, a whole number or a shortest fraction, or text on one line."""
    match thing:
        case None:
            return ""
        case bool():
            return "true" if thing else "false"
        case float():
            return repr(thing) if math.isfinite(thing) else ""
        case int():
            return str(thing)
    text = clean(thing)
    return f"'{text}" if text.startswith(_FORMULAS) else text
