"""Baselines and calibrations as files: small, one launch a line, to be read in a diff and committed.

.contextlab/baselines/NAME.json         what counts: launches of a target, where, of what, and why
.contextlab/baselines/NAME.noise.json   what `gate calibrate` found out of this place
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from contextlab.analysis.gate.nouns import MIN_BLOCKS, Calibration, Fingerprint, Measure
from contextlab.analysis.gate.stored import BASELINE_SCHEMA, Baseline, Stored, as_baseline, read
from contextlab.analysis.quantities import count
from contextlab.lab.journal import find_run, plain, read_run
from contextlab.model import NothingMeasured, UnableError, UsageError

FOLDER = Path(".contextlab/baselines")
NOISE_SCHEMA = "contextlab.noise/1"
NOISE_ENDING = ".noise"
LONGEST_NAME = 60


class Noise(msgspec.Struct, kw_only=True):
    """A calibration with the place it is of."""

    target: str
    fingerprint: Fingerprint
    calibration: Calibration


def slug(target: str) -> str:
    """A target as the name of a file."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", target).strip("-.")[:LONGEST_NAME] or "target"


def accept(run: str, runs: Path, *, reason: str, name: str | None, folder: Path = FOLDER) -> Path:
    """Write the candidate of a recorded gate as the baseline.

    Raises UsageError without a reason and for a name that cannot be the file's, NothingMeasured where the run holds no
    gate, or too little of its candidate to compare with.
    """
    if not reason.strip():
        raise UsageError("--reason='': a baseline says why it is what counts", 'add --reason "…"')
    if name is not None and (slug(name) != name or name.endswith(NOISE_ENDING)):
        rule = f"at most {LONGEST_NAME} letters of ASCII, digits, dots and dashes, and no {NOISE_ENDING} at its end"
        raise UsageError(
            f"--name={name!r}: must be {rule}", f"for example --name {slug(name.removesuffix(NOISE_ENDING))}"
        )
    stored = stored_run(run, runs)
    target = stored.begins.candidate.split()[0] if stored.begins.candidate.split() else "target"
    named = slug(name or target)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    baseline = as_baseline(stored, name=named, reason=" ".join(reason.split()), at=at)
    if (num := len(baseline.measures)) < MIN_BLOCKS:
        raise NothingMeasured(
            f"{run}: measured its candidate in {count(num, 'block')}, and a comparison takes {MIN_BLOCKS} or more",
            f"go on with it: its own command and --resume {run}",
        )
    rows = [plain(one) for one in baseline.measures]
    head = {key: value for key, value in plain(baseline).items() if key != "measures"}
    path = folder / f"{named}.json"
    _write(path, {"schema": BASELINE_SCHEMA, **head}, "measures", rows)
    return path


def keep_noise(target: str, fingerprint: Fingerprint, calibration: Calibration, folder: Path = FOLDER) -> Path:
    """Store what a calibration found."""
    path = folder / f"{slug(target)}{NOISE_ENDING}.json"
    noise = plain(calibration)
    rows = noise.pop("metrics", [])
    head = {"schema": NOISE_SCHEMA, "target": target, "fingerprint": plain(fingerprint), "calibration": noise}
    _write(path, head, "metrics", rows)
    return path


def noise_of(target: str, folder: Path = FOLDER) -> tuple[Noise, Path] | None:
    """The stored calibration of a target; None where there is none. Raises UsageError for a file that is none."""
    path = folder / f"{slug(target)}{NOISE_ENDING}.json"
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
                found = msgspec.convert(table, Baseline)
            except msgspec.ValidationError as error:
                raise UsageError(f"{path}: damaged: {error}", "accept a run anew") from None
            for place, measure in enumerate(found.measures):
                if why := _unsound(measure):
                    raise UsageError(f"{path}: damaged: measures[{place}]: {why}", "accept a run anew")
            return found
    try:
        stored = stored_run(name, runs)
    except NothingMeasured as error:
        stored_names = ", ".join(
            sorted(path.stem for path in folder.glob("*.json") if not path.stem.endswith(NOISE_ENDING))
        )
        there = f"there are {stored_names}" if stored_names else f"there is none below {folder}"
        message = f"{name!r} is no baseline ({there}) and no recorded gate: {error.message}"
        raise NothingMeasured(message, "measure a gate, then contextlab gate accept RUN --reason TEXT") from None
    return as_baseline(stored, name=name, reason="", at="")


def _unsound(measure: Measure) -> str:
    """What in a launch can be no measurement, in words; "" where nothing is."""
    for name, value in measure.metrics.items():
        if not (math.isfinite(value) and value >= 0):
            return f"{name}={value}: must be a number from 0 on"
    for name in ("num_failed", "num_truncated"):
        if not 0 <= getattr(measure, name) <= measure.num_requests:
            return f"{name}={getattr(measure, name)}: must be from 0 to num_requests={measure.num_requests}"
    return ""


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
