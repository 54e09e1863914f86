"""CSV and Parquet of what was measured: numbers stay numbers, and nothing is computed by a spreadsheet."""

from __future__ import annotations

import csv as standard_csv
import io
import sys
from dataclasses import replace
from typing import Any

import pyarrow.parquet
import pytest

from contextlab.analysis.gate.nouns import Block, Host, Measure
from contextlab.analysis.gate.stored import GateBegins
from contextlab.lab.journal import plain
from contextlab.model import (
    Exchange,
    Failure,
    Message,
    NothingMeasured,
    Request,
    Run,
    UnableError,
    Usage,
    UsageError,
)
from contextlab.reports import csv, parquet
from contextlab.reports.parts.rows import rows
from tests.reports import chaos_sample, sample
from tests.reports.every import MAKERS, made, written
from tests.reports.streams import Terminal

REQUEST = Request(name="chat-511", messages=(Message(role="prompt", parts=("x",)),))


def overflow() -> Run:
    whole = Exchange(
        request=REQUEST,
        prompt_tokens=511,
        due_s=1.0,
        sent_s=1.0,
        opened_s=1.1,
        token_s=(1.25, 1.5),
        ended_s=1.75,
        status=200,
        finish_reason="length",
        usage=Usage(completion_tokens=2, truncated=False),
        done=True,
        num_bytes=2**40,
    )
    refused = Exchange(
        request=REQUEST,
        sent_s=2.0,
        ended_s=2.5,
        status=400,
        failure=Failure(where="http", message='=HYPERLINK("http://evil")\n,"x"', status=400),
    )
    return replace(sample.held(), exchanges={("prompt-too-long", "chat-511"): (whole, refused)})


def gate() -> Run:
    blocks = [
        Block(
            number=number,
            base=Measure(metrics={"ttft_p50_s": 0.1}, num_requests=8, exact={"status": 200}),
            candidate=Measure(metrics={"ttft_p50_s": 0.2, "itl_p50_s": 0.01}, num_requests=8, host=Host(steal=0.1)),
        )
        for number in (1, 2)
    ]
    header = {**sample.HEADER, "command": "gate"}
    records = [
        header,
        {"kind": "gate", "at_s": 0.0, "gate": plain(GateBegins(base="a", candidate="b"))},
        *({"kind": "block", "at_s": 1.0, "block": plain(block)} for block in blocks),
    ]
    return Run(path=sample.PATH, header=header, records=tuple(records))


def table(run: Run) -> list[dict[str, str]]:
    return list(standard_csv.DictReader(io.StringIO(written(csv.write, run))))


def framed(run: Run) -> Any:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8")
    parquet.write(run, out)
    out.flush()
    return pyarrow.parquet.read_table(io.BytesIO(raw.getvalue()))


@pytest.mark.parametrize("name", [name for name in MAKERS if not name.endswith("-damaged") or "chaos" in name])
def test_every_run_has_its_table_in_both_formats(name: str) -> None:
    run = made(name)
    found = rows(run)
    assert all(len(row) == len(found.columns) for row in found.rows)
    assert len(table(run)) == len(found.rows)
    frame = framed(run)
    assert (frame.num_rows, frame.column_names) == (len(found.rows), list(found.columns))


def test_an_exchange_is_a_row_with_its_times() -> None:
    first, second = table(overflow())
    assert (first["scenario"], first["probe"], first["request"], first["index"]) == (
        *("prompt-too-long", "chat-511", "chat-511"),
        "0",
    )
    assert [first[name] for name in ("ttft_s", "e2e_s", "num_events", "prompt_tokens")] == ["0.25", "0.75", "2", "511"]
    assert (first["ending"], first["truncated"], first["counts"]) == ("done", "false", "true")
    assert (second["ending"], second["failed_where"], second["ttft_s"], second["prompt_tokens"]) == (
        *("failed", "http", ""),
        "",
    )


def test_a_formula_stays_text_and_a_cell_stays_on_its_line() -> None:
    assert table(overflow())[1]["failure"] == '\'=HYPERLINK("http://evil")\\n,"x"'
    assert len(written(csv.write, overflow()).splitlines()) == 3


def test_numbers_stay_numbers() -> None:
    frame = framed(overflow())
    kinds = {name: str(frame.schema.field(name).type) for name in frame.column_names}
    assert (kinds["ttft_s"], kinds["status"], kinds["truncated"], kinds["probe"]) == (
        *("double", "int64", "bool"),
        "string",
    )
    assert frame.column("num_bytes").to_pylist() == [2**40, 0]
    assert frame.column("ttft_s").to_pylist() == [0.25, None]
    assert frame.schema.metadata == {b"contextlab.command": b"overflow", b"contextlab.target": b"smollm2"}


def test_every_sample_of_both_arms_is_a_row() -> None:
    found = table(chaos_sample.loss())
    assert {row["arm"] for row in found} == {"control", "fault"}
    samples = [record for record in chaos_sample.loss().records if record.get("kind") == "sample"]
    assert len(found) == sum(record["arm"] != "reference" for record in samples)
    assert all(float(row["ttft_s"]) > 0 for row in found if row["ttft_s"])


def test_settings_and_values_of_a_sweep_are_columns() -> None:
    found = table(made("pareto-whole"))
    assert {"set_slots", "set_concurrency", "tokens_per_s", "p99 ttft"} <= set(found[0])
    assert {row["status"] for row in found} > {"ok"}


def test_each_arm_of_a_block_is_a_row() -> None:
    found = table(gate())
    assert [(row["block"], row["arm"], row["first"]) for row in found] == [
        ("1", "base", "true"),
        ("1", "candidate", "false"),
        ("2", "base", "true"),
        ("2", "candidate", "false"),
    ]
    assert (found[0]["itl_p50_s"], found[1]["itl_p50_s"], found[1]["steal"]) == ("", "0.01", "0.1")
    assert found[0]["exact_status"] == "200"


def test_a_run_without_measurements_has_a_head() -> None:
    assert written(csv.write, sample.empty()).startswith("scenario,probe,arm,request,")
    assert table(sample.empty()) == []


def test_a_damaged_record_is_told() -> None:
    run = chaos_sample.loss()
    run = replace(run, records=(*run.records, {"kind": "experiment", "scenario": "s", "probe": "p", "experiment": 7}))
    for write in (csv.write, parquet.write):
        with pytest.raises(NothingMeasured, match="the record is damaged"):
            write(run, io.TextIOWrapper(io.BytesIO()))


def test_parquet_goes_to_no_terminal() -> None:
    for out in (Terminal(), io.StringIO()):
        with pytest.raises(UsageError) as told:
            parquet.write(overflow(), out)
        assert "> FILE.parquet" in told.value.next_step


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnableError) as told:
        parquet.write(overflow(), io.TextIOWrapper(io.BytesIO()))
    assert "contextlab[parquet]" in told.value.next_step
