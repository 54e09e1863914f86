"""The records of a run, one a line."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from contextlab.reports import jsonl
from tests.reports import sample


def test_one_record_a_line_and_back() -> None:
    run = sample.killed()
    out = io.StringIO()
    jsonl.write(run, out)
    lines = out.getvalue().splitlines()
    assert [json.loads(line) for line in lines] == list(run.records)
    assert lines[0].startswith('{"kind":"header","at_s":0.0,')


def test_hostile_text_stays_on_its_line_and_numbers_are_finite() -> None:
    run = replace(sample.bare(), records=({"kind": "note", "at_s": float("nan"), "text": sample.HOSTILE},))
    out = io.StringIO()
    jsonl.write(run, out)
    assert all(" " <= char <= "~" for char in out.getvalue().removesuffix("\n"))
    assert json.loads(out.getvalue()) == {"kind": "note", "at_s": None, "text": sample.HOSTILE}


def test_empty_record() -> None:
    out = io.StringIO()
    jsonl.write(sample.bare(), out)
    assert out.getvalue() == ""
