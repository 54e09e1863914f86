"""The published schemas: every document validates, they describe every key that there is, and each stands alone."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from contextlab.model import UnableError, UsageError
from contextlab.reports import checkup, diagnosis, inspection, schema
from contextlab.reports import json as report
from tests.reports import chaos_sample, sample, test_checkup, test_diagnosis, test_inspection
from tests.reports.every import MAKERS, made


def strict(thing: Any) -> Any:
    """The same schema, in which a key that it does not name is an error."""
    if isinstance(thing, dict):
        made = {name: strict(part) for name, part in thing.items()}
        if isinstance(thing.get("properties"), dict) and "additionalProperties" not in thing:
            made["unevaluatedProperties"] = False
        return made
    return [strict(part) for part in thing] if isinstance(thing, list) else thing


def strictly(name: str) -> Draft202012Validator:
    found = strict(schema.schema(name))
    if "$defs" in found and schema.ENVELOPE in found["$defs"]:
        del found["$defs"][schema.ENVELOPE]["unevaluatedProperties"]  # the schema around it adds keys of its own
    return Draft202012Validator(found)


@pytest.mark.parametrize("name", MAKERS)
def test_every_document_validates_and_has_no_key_that_the_schema_does_not_name(name: str) -> None:
    document = json.loads(report.encoded(report.document(made(name))))
    strictly(document["command"]).validate(document)


@pytest.mark.parametrize("name", test_inspection.LOOKS)
def test_every_inspection_validates(name: str) -> None:
    strictly("inspect").validate(json.loads(report.encoded(inspection.document(test_inspection.LOOKS[name]()))))


@pytest.mark.parametrize("command", ["overflow", "replay", "chaos", "pareto"])
def test_a_run_that_could_not_begin_validates(command: str) -> None:
    document = report.failure_document(command, "gguf:x", UnableError("x is no GGUF file", "check the path"))
    strictly(command).validate(json.loads(report.encoded(document)))


def test_an_inspection_that_could_not_be_made_validates() -> None:
    document = inspection.failure_document("x", UnableError("no", "look"))
    strictly("inspect").validate(json.loads(report.encoded(document)))


@pytest.mark.parametrize("name", test_diagnosis.READ)
def test_every_diagnosis_validates(name: str) -> None:
    document = diagnosis.document("server.log", test_diagnosis.READ[name]())
    strictly("diagnose").validate(json.loads(report.encoded(document)))


def test_a_diagnosis_that_could_not_be_made_validates() -> None:
    document = diagnosis.failure_document("x", UnableError("no", "look"))
    strictly("diagnose").validate(json.loads(report.encoded(document)))


@pytest.mark.parametrize("name", test_checkup.ALL)
def test_every_check_up_validates(name: str) -> None:
    strictly("doctor").validate(json.loads(report.encoded(checkup.document(None, test_checkup.ALL[name]))))


def test_a_check_up_that_could_not_be_made_validates() -> None:
    document = checkup.failure_document("x", UnableError("no", "look"))
    strictly("doctor").validate(json.loads(report.encoded(document)))


@pytest.mark.parametrize("name", schema.names())
def test_a_schema_is_one_and_stands_alone(name: str) -> None:
    found = json.loads(schema.text(name))
    Draft202012Validator.check_schema(found)
    assert found["$id"] == f"urn:contextlab:schema:{name}:1"
    assert found["properties"]["schema"] == {"const": f"contextlab.{name}/1"}
    inside = json.dumps(found)
    references = {part.split('"')[0] for part in inside.split('"$ref": "')[1:]}
    known = {f"#/$defs/{part}" for part in found.get("$defs", {})} | {
        part["$id"] for part in found.get("$defs", {}).values() if "$id" in part
    }
    assert references <= known


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"verdict": "MAYBE"}, "verdict"),
        ({"exit": {"code": "1", "reason": "", "all": []}}, "exit"),
        ({"findings": [{}]}, "findings"),
        ({"command": "chaos"}, "command"),
    ],
)
def test_a_document_that_is_wrong_does_not_validate(change: dict[str, Any], where: str) -> None:
    document = json.loads(report.encoded(report.document(sample.failing()))) | change
    with pytest.raises(ValidationError) as told:
        Draft202012Validator(schema.schema("overflow")).validate(document)
    assert told.value.absolute_path[0] == where


def test_the_format_writes_the_schema_of_its_run() -> None:
    out = io.StringIO()
    schema.write(chaos_sample.empty(), out)
    assert json.loads(out.getvalue())["$id"] == "urn:contextlab:schema:chaos:1"


def test_a_name_that_is_none_is_told_with_the_likely_one() -> None:
    with pytest.raises(UsageError) as told:
        schema.schema("overflwo")
    assert "did you mean overflow?" in told.value.next_step
