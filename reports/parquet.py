"""The raw rows of a run as Parquet, for data frames (see `rows`): numbers stay numbers, what is not known is null.

Needs the extra `parquet` (pyarrow). It is binary: standard output has to go to a file or a pipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from contextlab.model import NothingMeasured, Run, UnableError, UsageError
from contextlab.reports.parts import summary
from contextlab.reports.parts.rows import Cell, rows
from contextlab.reports.parts.wording import clean

_NEXT = "contextlab report RUN --as parquet > FILE.parquet"


def write(run: Run, out: TextIO) -> None:
    """Write the file to the bytes beneath `out`.

    Raises UsageError where those are a terminal, or not there; UnableError without pyarrow; NothingMeasured for a
    damaged record.
    """
    if out.isatty() or not hasattr(out, "buffer"):
        raise UsageError("format='parquet': is binary, and standard output is a terminal or takes text alone", _NEXT)
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UnableError(
            "format='parquet': needs pyarrow, which is not installed",
            "pip install 'contextlab[parquet]', or take --as csv",
        ) from None
    found = rows(run)
    if found.damage:
        raise NothingMeasured(found.damage, "contextlab report RUN --as jsonl still shows its lines")
    columns = list(zip(*found.rows, strict=True)) or [()] * len(found.columns)
    arrays = {name: _array(column) for name, column in zip(found.columns, columns, strict=True)}
    about = {"contextlab.command": summary.command(run), "contextlab.target": summary.target(run)}
    made = pa.table(arrays).replace_schema_metadata({name: clean(text) for name, text in about.items()})
    out.flush()
    parquet.write_table(made, out.buffer)


def _array(column: Sequence[Cell]) -> Any:
    """One column of one type: the narrowest that holds all of its values; text where they have nothing in common."""
    import pyarrow as pa

    kinds = {type(each) for each in column if each is not None}
    if not kinds:
        return pa.nulls(len(column), pa.float64())
    if kinds == {bool}:
        return pa.array(column, pa.bool_())
    if kinds == {int}:
        if all(each is None or -(2**63) <= int(each) < 2**63 for each in column):
            return pa.array(column, pa.int64())
        return pa.array([None if each is None else float(each) for each in column], pa.float64())
    if kinds <= {int, float}:
        return pa.array([None if each is None else float(each) for each in column], pa.float64())
    return pa.array([None if each is None else clean(str(each)) for each in column], pa.string())
