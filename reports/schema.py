"""The JSON Schema of a document: what programs that read `--json` may rely on (draft 2020-12).

Each schema is a file in `schemas/`, named after its command; what all documents of a run share stands in
`envelope.json`. As printed, a schema holds everything that it refers to: it can be saved and used alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, TextIO

from contextlab.model import Run, UsageError
from contextlab.reports.parts import summary

ENVELOPE = "envelope"


def write(run: Run, out: TextIO) -> None:
    """Write the schema of this run's document (`--as json`)."""
    out.write(text(summary.command(run)))


def text(name: str) -> str:
    """A schema as indented JSON, with a line end."""
    return json.dumps(schema(name), indent=2) + "\n"


def names() -> list[str]:
    """The commands whose documents have a schema."""
    found = (path.name.removesuffix(".json") for path in _folder().iterdir() if path.name.endswith(".json"))
    return sorted(name for name in found if name != ENVELOPE)


def schema(name: str) -> Mapping[str, Any]:
    """The schema of a command's document, whole. Raises UsageError where there is none of that name."""
    if name not in names():
        close = get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"schema={name!r}: there is no such schema", f"{hint}choose from: {', '.join(names())}")
    found = _read(name)
    shared = _read(ENVELOPE)
    if found.get("$ref") == shared["$id"]:
        found["$defs"] = {**found.get("$defs", {}), ENVELOPE: shared}
    return found


def _read(name: str) -> dict[str, Any]:
    found = json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8"))
    return dict(found)


def _folder() -> Any:
    return files("contextlab.reports") / "schemas"
