"""Histories made by hand: runs of one target over weeks, as records in folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from contextlab.analysis.history import Entry, Value, groups
from contextlab.lab.journal import RECORD, plain
from contextlab.model import Run, Verdict
from contextlab.reports.history.text import History, LeftOut
from tests.reports import sample

LONGEST = (503, 503, 503, 503, 503, 503, 503, 503, 255, 255, 255, 255, 255, 255)
"""A server that reads less from the ninth run on."""
NOISE = (0.3, -1.1, 0.8, -0.2, 1.2, -0.9, 0.1, -0.5, 0.9, -0.6, 0.4, -1.0, 0.7, 0.0)
"""Independent of each other, as far as fourteen numbers can be."""


def entry(day: int, *values: Value, **more: Any) -> Entry:
    """A run on that day of November."""
    fields: dict[str, Any] = {
        "run": f"202611{day:02}-030000-overflow-smollm2",
        "began_at": f"2026-11-{day:02}T03:00:00+00:00",
        "command": "overflow",
        "target": "smollm2",
        "asked": "overflow smollm2 --set context=512",
        "machine": "Linux x86_64, 2 cores, 24 GiB",
        "verdict": Verdict.PASS,
        "exit_code": 0,
        **more,
    }
    return Entry(values=values, **fields)


def stepped() -> History:
    """Two metrics, one of which fell; another group of one run; two folders that are none."""
    runs = [
        entry(
            day,
            Value(scenario="find-limit", metric="longest prompt read", value=longest, unit="tokens", better="more"),
            Value(scenario="", metric="decode", value=40 + noise, unit="tokens/s", better="more"),
            verdict=Verdict.PASS if longest > 500 else Verdict.FAIL,
            exit_code=0 if longest > 500 else 1,
        )
        for day, (longest, noise) in enumerate(zip(LONGEST, NOISE, strict=True), 1)
    ]
    other = entry(20, Value(scenario="", metric="decode", value=38.0, unit="tokens/s", better="more"), machine="arm64")
    left = (LeftOut(run="notes", why="not a run record"), LeftOut(run="cut", why="it did not come to its end"))
    return History(folder="runs", groups=groups([*runs, other]), left_out=left)


def short() -> History:
    """Three runs, too few to say anything about."""
    made = [entry(day, Value(scenario="", metric="decode", value=40.0 + day, unit="tokens/s")) for day in (1, 2, 3)]
    return History(folder="runs", groups=groups(made))


def drifting() -> History:
    """A metric that creeps: each run resembles the one before it."""
    levels = [0.2, 0.21, 0.23, 0.24, 0.26, 0.25, 0.27, 0.29, 0.28, 0.26, 0.25, 0.23, 0.22, 0.21, 0.2, 0.21, 0.23, 0.25]
    made = [
        entry(day, Value(scenario="s/x", metric="TTFT p50 undisturbed", value=level, unit="s"))
        for day, level in enumerate(levels, 1)
    ]
    return History(folder="runs", groups=groups(made))


def hostile(text: str = sample.HOSTILE) -> History:
    """Everything that comes from outside is `text`."""
    value = Value(scenario=text, metric=text, value=1.0, unit=text)
    runs = [entry(day, value, run=text, target=text, asked=text, machine=text) for day in range(1, 12)]
    return History(folder=text, groups=groups(runs), left_out=(LeftOut(run=text, why=text),))


HISTORIES = {"stepped": stepped, "short": short, "drifting": drifting, "hostile": hostile}


def recorded(folder: Path, run: Run, day: int, **more: Any) -> Path:
    """The run as a record in a folder of its own, begun on that day of November."""
    header = {**run.header, "started_at": f"2026-11-{day:02}T03:00:00+00:00", **more}
    lines = [header, *(record for record in run.records if record.get("kind") not in ("header", "end"))]
    if run.knowledge is not None and not any(line.get("kind") == "knowledge" for line in lines):
        lines.append({"kind": "knowledge", "at_s": 0.5, "knowledge": plain(run.knowledge)})
    if not any(line.get("kind") == "finding" for line in lines):
        lines += [{"kind": "finding", "at_s": 1.0, **plain(each)} for each in run.findings]
    lines += [run.end] if run.end is not None else []
    place = folder / f"202611{day:02}-{header['command']}"
    place.mkdir(parents=True)
    (place / RECORD).write_bytes(b"".join(msgspec.json.encode(plain(line)) + b"\n" for line in lines))
    return place


def with_speed(decode_tokens_per_s: float) -> Run:
    """A run that held, on a target of that speed."""
    run = sample.held()
    assert run.knowledge is not None
    return replace(run, knowledge=replace(run.knowledge, decode_tokens_per_s=decode_tokens_per_s))
