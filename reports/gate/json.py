"""The gate of a run in the JSON document: blocks as measured, every metric decided, and what the exit code rests on."""

from __future__ import annotations

from typing import Any

import msgspec

from contextlab.model import Run
from contextlab.reports.gate import facts as gate_facts

NOTHING: dict[str, Any] = {
    "gate_verdict": None,
    "base": None,
    "candidate": None,
    "metrics": [],
    "exact": [],
    "rates": [],
    "budgets": [],
    "waived": [],
    "contaminated": None,
    "left_out": {},
    "advice": None,
    "likeness": None,
    "attempts": 0,
    "blocks": [],
    "fingerprints": {},
    "calibration": None,
    "settings_of_gate": None,
}


def fields(run: Run | None) -> dict[str, Any]:
    """What only a gate has; the same keys, with nothing in them, where there is none."""
    one, _ = gate_facts.shown(run) if run is not None else (None, "")
    if one is None:
        return dict(NOTHING)
    stored, result = one.stored, one.result
    begins = stored.begins
    return {
        "gate_verdict": gate_facts.word(one).lower(),
        "base": begins.base,
        "candidate": begins.candidate,
        "metrics": _plain(result.metrics),
        "exact": _plain(result.exact),
        "rates": _plain(result.rates),
        "budgets": _plain(result.budgets),
        "waived": _plain(result.waived),
        "contaminated": result.contaminated or None,
        "left_out": {str(number): why for number, why in result.left_out.items()},
        "advice": result.advice or None,
        "likeness": _plain(result.likeness),
        "attempts": stored.num_attempts,
        "blocks": _plain(one.blocks),
        "fingerprints": _plain(stored.fingerprints),
        "calibration": _plain(stored.calibration),
        "settings_of_gate": _plain(begins.settings),
    }


def _plain(thing: object) -> Any:
    return msgspec.to_builtins(thing, str_keys=True)
