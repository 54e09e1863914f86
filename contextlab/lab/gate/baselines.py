"""Baselines and calibrations as files: small, one launch a line, to be read in a diff and committed.

.contextlab/baselines/NAME.json         what counts: launches of a target, where, of what, and why
.contextlab/baselines/NAME.noise.json   what `gate calibrate` found out of this place
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from contextlab.analysis.gate.nouns import Calibration, Fingerprint
from contextlab.analysis.gate.stored import BASELINE_SCHEMA, Baseline, Stored, as_baseline, read
from contextlab.lab.journal import find_run, plain, read_run
from contextlab.model import NothingMeasured, UnableError, UsageError

FOLDER = Path(".contextlab/baselines")
NOISE_SCHEMA = "contextlab.noise/1"


class Noise(msgspec.Struct, kw_only=True):
    """A calibration with the place it is of."""

    target: str
    fingerprint: Fingerprint
    calibration: Calibration


def slug(target: str) -> str:
    """A target as the name of a file."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", target).strip("-.")[:60] or "target"


def accept(run: str, runs: Path, *, reason: str, name: str | None, folder: Path = FOLDER) -> Path:
    """Write the candidate of a recorded gate as the baseline. Raises UsageError without a reason, NothingMeasured where
    the run holds no gate, or none of its candidate."""
    if not reason.strip():
        raise UsageError("--reason='': a baseline says why it is what counts", 'add --reason "…"')
    stored = stored_run(run, runs)
    target = stored.begins.candidate.split()[0] if stored.begins.candidate.split() else "target"
    named = slug(name or target)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    baseline = as_baseline(stored, name=named, reason=" ".join(reason.split()), at=at)
    rows = [plain(one) for one in baseline.measures]
    head = {key: value for key, value in plain(baseline).items() if key != "measures"}
    path = folder / f"{named}.json"
    _write(path, {"schema": BASELINE_SCHEMA, **head}, "measures", rows)
    return path


def keep_noise(target: str, fingerprint: Fingerprint, calibration: Calibration, folder: Path = FOLDER) -> Path:
    """Store what a calibration found."""
    path = folder / f"{slug(target)}.noise.json"
    noise = plain(calibration)
    rows = noise.pop("metrics", [])
    head = {"schema": NOISE_SCHEMA, "target": target, "fingerprint": plain(fingerprint), "calibration": noise}
    _write(path, head, "metrics", rows)
    return path


def noise_of(target: str, folder: Path = FOLDER) -> tuple[Noise, Path] | None:
    """The stored calibration of a target; None where there is none. Raises UsageError for a file that is none."""
    path = folder / f"{slug(target)}.noise.json"
    if not os.path.isfile(path):
        return None
    table = _read(path, NOISE_SCHEMA)
    table["calibration"] = {**table.get("calibration", {}), "metrics": table.pop("metrics", [])}
    try:
        return msgspec.convert(table, Noise), path
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: damaged: {error}", "measure it again: contextlab gate calibrate") from None


def side(name: str, runs: Path, folder: Path = FOLDER) -> Baseline:
    """One side of a comparison: a baseline by name or file, or the candidate of a recorded gate.

    Raises NothingMeasured where there is neither, UsageError for a file that is neither.
    """
    for path in (Path(name), folder / f"{name}.json", folder / name):
        if os.path.isfile(path) and path.suffix == ".json":
            table = _read(path, BASELINE_SCHEMA)
            try:
                return msgspec.convert(table, Baseline)
            except msgspec.ValidationError as error:
                raise UsageError(f"{path}: damaged: {error}", "accept a run anew") from None
    try:
        stored = stored_run(name, runs)
    except NothingMeasured as error:
        stored_names = ", ".join(sorted(path.stem for path in folder.glob("*.json") if ".noise" not in path.name))
        there = f"there are {stored_names}" if stored_names else f"there is none below {folder}"
        message = f"{name!r} is no baseline ({there}) and no recorded gate: {error.message}"
        raise NothingMeasured(message, "measure a gate, then contextlab gate accept RUN --reason TEXT") from None
    return as_baseline(stored, name=name, reason="", at="")


def stored_run(name: str, runs: Path) -> Stored:
    """The gate of a recorded run. Raises NothingMeasured where it holds none."""
    path = find_run(name, runs)
    try:
        stored = read(read_run(path).records)
    except (msgspec.ValidationError, KeyError) as error:
        raise NothingMeasured(f"{path}: damaged: {error}", "run the command again") from None
    if stored is None:
        raise NothingMeasured(f"{path}: holds no gate", "name a run of contextlab gate run")
    return stored


def _read(path: Path, schema: str) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", "name another one") from None
    if not isinstance(table, dict) or table.get("schema") != schema:
        found = table.get("schema") if isinstance(table, dict) else None
        raise UsageError(f"{path}: schema {found!r} is not {schema!r}", "name a file that this command wrote")
    return table


def _write(path: Path, head: Mapping[str, Any], name: str, rows: list[Any]) -> None:
    """Indented, but each row on a line of its own."""
    text = json.dumps({**head, name: []}, indent=1, sort_keys=False)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    text = text.removesuffix("[]\n}") + (f"[\n{lines}\n ]" if rows else "[]") + "\n}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnableError(f"cannot write {path}: {error.strerror}", "choose a folder that can be written") from None
