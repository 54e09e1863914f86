"""How a gate is shown: golden pages, and what must hold whatever was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from rich.cells import cell_len

from contextlab.analysis.gate import nouns
from contextlab.analysis.gate.settings import Settings
from contextlab.lab.journal import RECORD, read_run
from contextlab.model import NothingMeasured, Run
from contextlab.reports import schema
from contextlab.reports.gate import facts as gate_facts
from contextlab.reports.gate import json as gate_json
from contextlab.reports.gate import live as gate_live
from contextlab.reports.json import document, encoded, failure_document
from contextlab.reports.parts import headline, summary
from tests.reports import gate_sample as sample
from tests.reports.test_terminal import ANSI, piped, shown
from tests.reports.test_terminal import compare as compare_golden

RUNS = (
    "regressed",
    "ok",
    "improved",
    "inconclusive",
    "contaminated",
    "died",
    "stored",
    "not_comparable",
    "killed",
    "calibrated",
    "hostile",
    "empty",
    "damaged",
    "bare",
)
WORDS = {
    "regressed": "REGRESSED",
    "ok": "OK",
    "improved": "IMPROVED",
    "inconclusive": "INCONCLUSIVE",
    "contaminated": "CONTAMINATED",
    "died": "DIED",
    "stored": "OK",
    "not_comparable": "NOT COMPARABLE",
    "killed": "UNKNOWN",
    "calibrated": "CALIBRATED",
}


@cache
def made(name: str) -> Run:
    run = getattr(sample, name)()
    assert isinstance(run, Run)
    return run


@pytest.mark.parametrize("name", RUNS)
def test_piped_report_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    compare_golden(f"gate-{name}-piped", piped(made(name)), pytestconfig)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("name", RUNS)
def test_terminal_report_is_the_golden_one(name: str, columns: int, pytestconfig: pytest.Config) -> None:
    text = shown(made(name), columns, NO_COLOR="1")
    compare_golden(f"gate-{name}-{columns}", text, pytestconfig)
    assert all(fits(line, columns) for line in text.split("next:")[0].splitlines())


def fits(line: str, columns: int) -> bool:
    return cell_len(line) <= columns and line == line.rstrip() and "…" not in line


@pytest.mark.parametrize("columns", [40, 61, 100])
@pytest.mark.parametrize("name", ["regressed", "hostile", "calibrated", "not_comparable"])
def test_every_line_fits_and_nothing_is_shortened(name: str, columns: int) -> None:
    text = ANSI.sub("", shown(made(name), columns)).split("command")[0]
    assert all(fits(line, columns) for line in text.splitlines())
    assert "REGRESS" not in text.replace("REGRESSED", "")


@pytest.mark.parametrize(("name", "word"), WORDS.items())
def test_the_verdict_comes_first(name: str, word: str) -> None:
    assert headline.word(made(name)) == word
    assert piped(made(name)).startswith(f"{word}  ")


def test_the_sentence_says_what_is_worse_and_by_how_much() -> None:
    said = headline.sentence(made("regressed"))
    assert said.startswith(
        "smollm2 --set threads=2 against smollm2: over.outcome differs, over.status differs, ttft_p50 +15.1%"
    )
    assert "(margin 5%, confirmed)" in said


def test_the_smallest_effect_is_told_every_time() -> None:
    for name in ("regressed", "ok", "improved", "inconclusive", "stored"):
        assert "could see ≥ " in piped(made(name)), name


@pytest.mark.parametrize("name", RUNS)
def test_the_document_has_its_keys_whatever_there_is(name: str) -> None:
    found = document(made(name))
    assert set(gate_json.NOTHING) <= set(found)
    json.dumps(found, allow_nan=False)
    if name in WORDS:
        assert found["gate_verdict"] == WORDS[name].lower()


def test_the_document_holds_raw_blocks() -> None:
    found = document(made("regressed"))
    assert len(found["blocks"]) == 21
    assert found["blocks"][0]["base"]["metrics"]["ttft_p50_s"] == pytest.approx(0.123 * 0.99)
    assert found["exact"][0]["name"] == "over.outcome"
    assert found["left_out"]["3"].startswith("beside the base others used")
    assert found["schema"] == "contextlab.gate/1"


def test_a_recorded_gate_is_reported_as_it_was(tmp_path: Path) -> None:
    run = made("regressed")
    (tmp_path / RECORD).write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in run.records))
    read = read_run(tmp_path / RECORD)
    assert piped(replace(read, path=run.path)) == piped(run)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("killed", "--resume"),
        ("contaminated", "gate run --base"),
        ("ok", "gate accept"),
        ("regressed", "report"),
        ("stored", "report"),
    ],
)
def test_the_next_step_fits_the_verdict(name: str, words: str) -> None:
    assert words in " ".join(summary.next_command(made(name)))


def test_a_calibration_takes_one_look_and_says_of_what_its_effects_are() -> None:
    plans = [line for line in piped(made("calibrated")).splitlines() if line.startswith("plan: ")]
    assert plans == [
        "plan: 10 blocks, side by side, ABBA",
        "plan: effects: of a gate of 10 blocks, up to 20, 2 looks at 3%",
    ]


def test_what_a_target_says_moves_nothing() -> None:
    for text in (piped(made("hostile")), shown(made("hostile"), 80, NO_COLOR="1")):
        assert not any(char in text for char in "\x1b\x07\u202e")


def test_a_gate_is_read_once() -> None:
    run = made("regressed")
    assert gate_facts.shown(run) is gate_facts.shown(run)
    assert gate_facts.shown(run) is not gate_facts.shown(replace(run))


# ── the schema ───────────────────────────────────────────────────────────────────────────────────

SCHEMA = Path(schema.__file__).parent / "schemas" / "gate.json"
NOUNS = {
    "metrics": nouns.MetricResult,
    "exact": nouns.ExactDifference,
    "rates": nouns.RateResult,
    "budgets": nouns.BudgetResult,
    "waived": nouns.Waiver,
    "blocks": nouns.Block,
}
SINGLE = {"likeness": nouns.Likeness, "calibration": nouns.Calibration, "settings_of_gate": Settings}


def schema_of_the_nouns() -> str:
    """The published schema, made of the nouns themselves."""
    kinds = [*NOUNS.values(), *SINGLE.values(), nouns.Fingerprint]
    refs, defs = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    named = dict(zip((*NOUNS, *SINGLE, "fingerprint"), refs, strict=True))
    words = [*(str(one) for one in nouns.GateVerdict), "calibrated", "unknown"]
    text: dict[str, Any] = {"type": ["string", "null"]}
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:contextlab:schema:gate:1",
        "title": "contextlab gate, --json or report --as json",
        "$ref": "urn:contextlab:schema:envelope:1",
        "type": "object",
        "properties": {
            "schema": {"const": "contextlab.gate/1"},
            "command": {"const": "gate"},
            "gate_verdict": {"enum": [*words, None]},
            "base": text,
            "candidate": text,
            **{name: {"type": "array", "items": named[name]} for name in NOUNS},
            "contaminated": text,
            "left_out": {"type": "object", "additionalProperties": {"type": "string"}},
            "advice": text,
            **{name: {"anyOf": [named[name], {"type": "null"}]} for name in SINGLE},
            "attempts": {"type": "integer", "minimum": 0},
            "fingerprints": {"type": "object", "additionalProperties": named["fingerprint"]},
        },
        "$defs": defs,
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def strict(thing: Any) -> Any:
    """The same schema, in which a key that it does not name is an error."""
    if isinstance(thing, Mapping):
        found = {name: strict(part) for name, part in thing.items()}
        if isinstance(thing.get("properties"), Mapping) and "additionalProperties" not in thing:
            found["unevaluatedProperties"] = False
        return found
    return [strict(part) for part in thing] if isinstance(thing, list) else thing


def test_the_published_schema_is_what_the_nouns_say(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--update-golden"):
        SCHEMA.write_text(schema_of_the_nouns(), encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == schema_of_the_nouns()


def validator() -> Draft202012Validator:
    whole = strict(schema.schema("gate"))
    del whole["$defs"][schema.ENVELOPE]["unevaluatedProperties"]  # the schema around it adds keys of its own
    return Draft202012Validator(whole)


@pytest.mark.parametrize("name", RUNS)
def test_every_document_validates(name: str) -> None:
    validator().validate(json.loads(encoded(document(made(name)))))


def test_a_gate_that_could_not_begin_validates() -> None:
    found = failure_document("gate", "smollm2", NothingMeasured("there is no baseline", "accept one"))
    validator().validate(json.loads(encoded(found)))


# ── while it runs ────────────────────────────────────────────────────────────────────────────────


def test_the_display_tells_blocks_and_the_time_left() -> None:
    records: list[Any] = list(made("killed").records)
    scope = gate_live.Scope(next(one for one in records if one["kind"] == "gate"))
    assert scope.begins() == "smollm2 --set threads=2 against smollm2: 10 blocks, at most 20"
    said = [scope.take(one) for one in records if one["kind"] == "block"]
    assert said[0].startswith("block 1: base ttft_p50 122 ms, itl_p50 18.2 ms, tokens_per_s 41.4/s; candidate ")
    assert scope.take({"kind": "progress", "text": "block 5, 6 blocks to go (as planned)"}) == ""
    assert (
        scope.heartbeat(40.0) == "block 5, 6 blocks to go (as planned), 4 blocks done, about 0:54 left, if they decide"
    )
    assert all(cell_len(line.plain) <= 60 for line in scope.view(40.0, 60))


def test_the_display_survives_records_that_are_none() -> None:
    scope = gate_live.Scope({"kind": "gate", "gate": 3})
    assert scope.begins() == "the gate begins"
    assert scope.take({"kind": "block", "block": {"number": "x"}}) == ""
    assert scope.take({"kind": "block", "block": {"number": 1, "base": {"died": "it ended\x1b"}}}) != ""
    assert "\x1b" not in scope.heartbeat(1.0)


def test_every_sample_is_tried() -> None:
    made_by_hand = {
        name for name, thing in vars(sample).items() if callable(thing) and thing.__module__ == sample.__name__
    }
    assert made_by_hand - {"measure", "blocks", "run"} == set(RUNS)
