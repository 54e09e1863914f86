"""The record inside the page, compressed, as an address that can be saved without a network or a script; pure."""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass

import msgspec

from contextlab.model import Record, Run
from contextlab.reports.json import encoded

MOST_BYTES = 1_200_000
"""Of base64; a larger record stays in its folder, and the page says so."""
MOST_RAW_BYTES = 24_000_000
"""A record that is larger than this does not get below `MOST_BYTES`; it is not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """`address` is "" where the record is too large; sizes are bytes, `packed` None where it was not compressed."""

    address: str
    num_records: int
    raw_bytes: int
    packed_bytes: int | None

    @property
    def words(self) -> str:
        """`852 KiB, 58 KiB compressed`."""
        packed = f", {self.packed_bytes / 1024:.0f} KiB compressed" if self.packed_bytes is not None else ""
        return f"{self.num_records} records, {self.raw_bytes / 1024:.0f} KiB{packed}"


def embedded(run: Run) -> Embedded:
    """The record's lines as gzip in a data: address; equal records give equal bytes."""
    lines, raw_bytes = [], 0
    for record in run.records:
        line = _line(record)
        raw_bytes += len(line)
        if raw_bytes <= MOST_RAW_BYTES:
            lines.append(line)
    if raw_bytes > MOST_RAW_BYTES:
        return Embedded(address="", num_records=len(run.records), raw_bytes=raw_bytes, packed_bytes=None)
    packed = gzip.compress(b"".join(lines), compresslevel=6, mtime=0)
    text = base64.b64encode(packed).decode("ascii")
    return Embedded(
        address=f"data:application/gzip;base64,{text}" if len(text) <= MOST_BYTES else "",
        num_records=len(run.records),
        raw_bytes=raw_bytes,
        packed_bytes=len(packed),
    )


def _line(record: Record) -> bytes:
    try:
        return msgspec.json.encode(record) + b"\n"
    except (TypeError, ValueError):  # half a character, which no journal writes
        return encoded(record).encode("ascii") + b"\n"
