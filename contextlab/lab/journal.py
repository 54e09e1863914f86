"""The run record: JSON lines, appended as things happen, readable after any kind of death.

A line is written whole and flushed at once; a record that ends in the middle of a line is read up to there.
Values that equal their field's default are left out, enums stand by name.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from contextlab.analysis.exchanges import fold
from contextlab.model import (
    SCHEMA,
    Event,
    Exchange,
    Finding,
    Knowledge,
    NothingMeasured,
    Outcome,
    Probe,
    Record,
    Request,
    Run,
    Skip,
    UnableError,
    Verdict,
)

RECORD = "run.jsonl"
T = TypeVar("T")


def plain(value: object) -> Any:
    """Any of our nouns as JSON-ready values: dataclasses without their defaults, enums by name, sets sorted.

    What JSON cannot hold is told apart: NaN and infinities become null, half of a surrogate pair (a server may send
    one, and so may a command line that is not UTF-8) becomes its escape, written out.
    """
    if isinstance(value, Outcome | Verdict):
        return value.name
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: plain(item) for field, item in pairs if not _is_default(field, item)}
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def _is_default(field: dataclasses.Field[Any], value: object) -> bool:
    if field.default is not dataclasses.MISSING:
        return type(field.default) is type(value) and field.default == value
    return field.default_factory is not dataclasses.MISSING and field.default_factory() == value


def revive(value: object, kind: type[T]) -> T:
    """The noun that `plain` took apart."""
    return msgspec.convert(value, kind)


class Journal:
    """Writes one record. Every line is also handed to `listener`, after it is safe.

    `goes_on`: the folder holds a record that was cut off, and this one goes on where that ended; half a last line goes.
    Raises UnableError where the folder cannot be made or written; what was written before stays readable.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float],
        listener: Callable[[Record], None] = lambda record: None,
        *,
        goes_on: bool = False,
    ) -> None:
        self.folder = folder
        self.path = folder / RECORD
        self._clock = clock
        self._listener = listener
        try:
            if goes_on:
                _drop_half_line(self.path)
            else:
                folder.mkdir(parents=True, exist_ok=False)
            self._file = self.path.open("ab", buffering=0)
        except FileExistsError:
            raise UnableError(f"the folder {folder} exists already", "choose another --output") from None
        except OSError as error:
            raise UnableError(
                f"cannot write a run record to {folder}: {error.strerror}",
                "free some space or choose a folder that can be written: --output DIR",
            ) from error

    def append(self, kind: str, **fields: object) -> None:
        """Append one line."""
        record = {
            "kind": kind,
            "at_s": round(self._clock(), 6),
            **{name: plain(value) for name, value in fields.items()},
        }
        line = msgspec.json.encode(record) + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError(28, "No space left on device")
        except OSError as error:
            raise UnableError(
                f"cannot write the run record {self.path}: {error.strerror}",
                "free some space; what was recorded until now is still readable: contextlab report RUN",
            ) from error
        self._listener(record)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _drop_half_line(path: Path) -> None:
    """Cut a record back to its last whole line."""
    with path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def find_run(name: str, runs: Path) -> Path:
    """The record that the user means: a folder, a file, the name of a run below `runs`, or "latest".

    Raises NothingMeasured where there is none.
    """
    given = Path(name)
    if name == "latest" and not os.path.exists(given):  # asks, and never raises
        folders = sorted((path.parent for path in runs.glob(f"*/{RECORD}")), key=lambda path: path.name)
        if folders:
            return folders[-1] / RECORD
    for path in (given, given / RECORD, runs / name / RECORD):
        if os.path.isfile(path):  # not Path.is_file, which raises where the name is too long or a folder is closed
            return path
    raise NothingMeasured(
        f"run={name!r}: there is no such run record", f"name a folder below {runs}, a {RECORD}, or latest"
    )


def read_run(path: Path) -> Run:
    """Read a record whole. Raises NothingMeasured where it is no record, or one of another schema."""
    records = _records(path)
    header = records[0] if records and records[0].get("kind") == "header" else None
    if header is None:
        raise NothingMeasured(f"{path}: not a run record: it does not begin with a header", "name a folder below runs/")
    if str(header.get("schema", "")).partition("/")[0] != SCHEMA.partition("/")[0] or header.get("schema") != SCHEMA:
        raise NothingMeasured(
            f"{path}: schema {header.get('schema')!r} is not {SCHEMA!r}",
            "read it with the version of contextlab that wrote it",
        )
    try:
        return _gather(path, header, records)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise NothingMeasured(f"{path}: damaged: {error}", "run the command again") from error


def _records(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NothingMeasured(f"{path}: cannot be read: {error.strerror}", "name a run record") from error
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            break  # the tool was killed while it wrote this line, or somebody cut the file
        if not isinstance(record, dict):
            break
        found.append(record)
    return found


def _gather(path: Path, header: Record, records: list[dict[str, Any]]) -> Run:
    probes: dict[tuple[str, str], Probe] = {}
    requests: dict[tuple[str, str], dict[str, Request]] = defaultdict(dict)
    events: dict[tuple[str, str, str], list[tuple[float, Event]]] = defaultdict(list)
    findings: list[Finding] = []
    skips: list[Skip] = []
    knowledge: Knowledge | None = None
    end: Record | None = None
    for record in records:
        place = (str(record.get("scenario", "")), str(record.get("probe", "")))
        match record["kind"]:
            case "knowledge":
                knowledge = revive(record["knowledge"], Knowledge)
            case "probe":
                probe = revive(record["probe"], Probe)
                probes[place[0], probe.name] = probe
            case "event":
                if "request" in record:
                    requests[place][record["exchange"]] = revive(record["request"], Request)
                events[(*place, record["exchange"])].append((record["at_s"], revive(record["event"], Event)))
            case "finding":
                findings.append(revive(record, Finding))
            case "gate":  # what an earlier attempt concluded holds no more
                findings = [one for one in findings if one.scenario != "gate"]
                skips = [one for one in skips if one.scenario != "gate"]
            case "skip":
                skips.append(revive(record, Skip))
            case "end":
                end = record
    exchanges: dict[tuple[str, str], tuple[Exchange, ...]] = {
        place: tuple(fold(request, events[(*place, name)]) for name, request in named.items())
        for place, named in requests.items()
    }
    return Run(
        path=str(path.parent),
        header=header,
        knowledge=knowledge,
        probes=probes,
        exchanges=exchanges,
        findings=tuple(findings),
        skips=tuple(skips),
        end=end,
        records=tuple(records),
    )
