"""`contextlab report --as FORMAT`: every format of every kind of run, from a record on disk, as a user gets it."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow.parquet
import pytest

from contextlab import registry
from contextlab.cli import main
from contextlab.cli.report import FORMATS
from contextlab.reports import schema
from tests.cli.inspecting import CONFIG, Command
from tests.reports.every import made
from tests.reports.history_sample import recorded
from tests.reports.test_sarif import validator


def told(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """(exit code, standard output) of `contextlab WORDS`."""
    monkeypatch.setattr(sys, "argv", ["contextlab", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().out


def test_the_help_names_every_format_that_there_is() -> None:
    assert set(FORMATS.split(", ")) == set(registry.writers())


@pytest.mark.parametrize("form", [name for name in FORMATS.split(", ") if name != "parquet"])
@pytest.mark.parametrize("name", ["overflow-failing", "chaos-loss", "pareto-decided"])
def test_every_format_of_a_record_on_disk(
    form: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded(tmp_path, made(name), 3)
    code, out = told(("report", str(folder), "--as", form), monkeypatch, capsys)
    assert code == 0
    assert out.strip()
    if form in ("json", "sarif", "schema"):
        json.loads(out)
    elif form == "junit":
        ET.fromstring(out)


@pytest.mark.process
def test_parquet_goes_through_a_pipe(tmp_path: Path) -> None:
    folder = recorded(tmp_path, made("pareto-decided"), 3)
    code = f"import sys; sys.argv = ['contextlab', 'report', {str(folder)!r}, '--as', 'parquet']\n"
    with (tmp_path / "out.parquet").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-c", f"{code}from contextlab.cli import main; main()"],
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").num_rows > 10


@pytest.mark.parametrize("command", schema.names())
def test_a_schema_is_printed_without_a_run(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = told(("report", "--schema", command), monkeypatch, capsys)
    assert (code, json.loads(out)["$id"]) == (0, f"urn:contextlab:schema:{command}:1")


def test_a_schema_that_is_none_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(("report", "--schema", "papyrus"), monkeypatch, capsys) == (2, "")


def test_what_contradicts_what_in_a_models_files_is_sarif(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 4096}), encoding="utf-8")
    code, out, _ = Command(monkeypatch, capsys)(tmp_path, "--sarif")
    assert code == 1
    document = json.loads(out)
    validator().validate(document)
    places = [
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in document["runs"][0]["results"]
    ]
    assert places
    assert set(places) == {f"file://{tmp_path}/config.json"}
