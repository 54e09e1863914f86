"""Where a gate's settings are read: `contextlab.toml` or `[tool.contextlab.gate]` of the project in this folder."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from contextlab.analysis.gate import settings
from contextlab.analysis.gate.settings import Settings
from contextlab.model import UsageError

OWN_FILE, PROJECT = "contextlab.toml", "pyproject.toml"
OWN_KEYS = ("gate",)


def gate_settings(folder: Path | None = None) -> Settings:
    """The settings of the project in `folder` (by default this one); the usual ones where it says nothing.

    Raises UsageError for a file that cannot be read, an unknown key, and where both files speak.
    """
    folder = folder or Path()
    today = datetime.now(UTC).date()
    own = _table(folder / OWN_FILE)
    for key in own:
        if key not in OWN_KEYS:
            close = get_close_matches(key, OWN_KEYS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"{OWN_FILE} has no key {key!r}", f"{hint}the keys are {', '.join(OWN_KEYS)}")
    project: Any = _table(folder / PROJECT)
    for name in ("tool", "contextlab"):
        project = project.get(name, {}) if isinstance(project, Mapping) else {}
    theirs = project.get("gate") if isinstance(project, Mapping) else None
    if "gate" in own and theirs is not None:
        message = f"{OWN_FILE} and {PROJECT} both hold settings of the gate"
        raise UsageError(message, "keep them in one of the two files")
    table, where = (
        (own["gate"], f"{OWN_FILE}: gate") if "gate" in own else (theirs or {}, f"{PROJECT}: tool.contextlab.gate")
    )
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}={table!r}: must be a table", "for example [tool.contextlab.gate]")
    return settings.read(table, where, today)


def _table(path: Path) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", "mend the file, or run in another folder") from None
