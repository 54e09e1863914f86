"""The JSON document of a sweep: its shape, its numbers, and what is null."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from contextlab.analysis.frontier import Interval
from contextlab.analysis.tradeoffs import Comparison
from contextlab.model import Run, UnableError
from contextlab.reports import json as report
from contextlab.reports.pareto import json as pareto_json
from tests.reports import pareto_sample as sample
from tests.reports.test_json import NULL, SHAPE, check
from tests.reports.test_pareto import RUNS, made, of

NUMBER = (int, float)
MAYBE = (int, float, NULL)
FIGURE = {"value": MAYBE, "low": MAYBE, "high": MAYBE}
SLO = {"objective": str, "op": str, "limit": NUMBER, "unit": str, "text": str}
SWEEP: dict[str, Any] = {
    "axes": [{"name": str, "values": list, "unit": str, "restarts": bool}],
    "goals": [{"name": str, "direction": str, "unit": str}],
    "slos": [SLO],
    "fixed": dict,
    "baseline": dict,
    "budget_s": NUMBER,
    "used_s": NUMBER,
    "seed": int,
    "confidence": NUMBER,
    "num_configs": int,
    "num_measurements": int,
    "how": str,
}
POINT: dict[str, Any] = {
    "settings": dict,
    "n": int,
    "objectives": dict,
    "membership": str,
    "probability": MAYBE,
    "by": (dict, NULL),
    "feasible": MAYBE,
    "status": str,
    "why": str,
    "failures": {"requests": int, "failed": int, "causes": dict},
    "facts": dict,
}
OWN: dict[str, Any] = {
    "sweep": (dict, NULL),
    "points": [POINT],
    "frontier": [dict],
    "one_of": [{"settings": list, "probability": NUMBER}],
    "knee": (dict, NULL),
    "hypervolume": (dict, NULL),
    "recommended": (dict, NULL),
    "undecided": [{"settings": (dict, NULL), "why": str}],
    "drift": [{"objective": str, **FIGURE, "num_repeats": int, "shown": bool}],
    "comparison": NULL,
}
PARETO = {**{name: SHAPE[name] for name in SHAPE if name != "run"}, **OWN, "run": SHAPE["run"]}
PARTS: dict[str, dict[str, Any]] = {
    "sweep": SWEEP,
    "knee": {
        "settings": dict,
        "objectives": dict,
        "probability": MAYBE,
        "none": MAYBE,
        "others": [{"settings": dict, "probability": NUMBER}],
        "ranges": dict,
    },
    "hypervolume": {**FIGURE, "reference": dict},
    "recommended": {
        "settings": (dict, NULL),
        "probability": MAYBE,
        "objectives": (dict, NULL),
        "slos": [SLO],
        "why": str,
    },
}


def written(run: Run) -> Any:
    out = io.StringIO()
    report.write(run, out)
    assert out.getvalue().isascii()
    return json.loads(out.getvalue())


@pytest.mark.parametrize("name", RUNS)
def test_every_run_has_the_same_shape(name: str) -> None:
    document = written(made(name))
    check(document, PARETO)
    for part, shape in PARTS.items():
        if document[part] is not None:
            check(document[part], shape, part)
    for point in document["points"]:
        assert list(point["objectives"]) == [goal["name"] for goal in document["sweep"]["goals"]]
        for each in point["objectives"].values():
            check(each, {**FIGURE, "unit": str})


def test_a_failure_has_the_same_keys() -> None:
    document = report.failure_document("pareto", "smollm2", UnableError("it did not start", "look at its log"))
    check({name: thing for name, thing in document.items() if name != "next_step"}, PARETO)
    assert [document[name] for name in OWN] == [None, [], [], [], None, None, None, [], [], None]
    assert document == json.loads(report.encoded(document))
    document["points"].append({})
    again = report.failure_document("pareto", "smollm2", UnableError("it did not start", "look at its log"))
    assert again["points"] == []


def test_points_are_in_the_order_of_the_table_and_say_what_became_of_them() -> None:
    document = written(made("whole"))
    rows = of("whole").rows
    assert [point["settings"] for point in document["points"][: len(rows)]] == [row.settings for row in rows]
    first = document["points"][1]
    assert first["settings"] == {"slots": 4, "context": 2048, "concurrency": 4}
    assert first["membership"] == "member"
    assert first["n"] == 3
    value = first["objectives"]["p99 ttft"]
    assert value["low"] < value["value"] < value["high"]
    assert value["unit"] == "s"
    assert len(first["facts"]["client_lateness_p99_s"]) == 4, "one for each measurement, also the one left out"
    refused, crashed = sorted(document["points"][-2:], key=lambda point: point["status"], reverse=True)
    assert (refused["status"], refused["why"]) == ("infeasible", sample.REFUSED)
    assert crashed["status"] == "crashed"
    assert refused["membership"] == crashed["membership"] == "excluded"
    assert refused["objectives"]["tokens_per_s"] == {"value": None, "low": None, "high": None, "unit": "tokens/s"}
    [slow] = [each for each in document["points"] if each["failures"]["failed"]]
    assert slow["failures"] == {"requests": 768, "failed": 12, "causes": {"timeout": 8, "http 500": 4}}


def test_frontier_names_the_members() -> None:
    document = written(made("whole"))
    members = [point["settings"] for point in document["points"] if point["membership"] == "member"]
    assert document["frontier"] == members
    dominated = [point for point in document["points"] if point["membership"] == "dominated"]
    known = [point["settings"] for point in document["points"]]
    assert all(point["by"] in known for point in dominated)


def test_what_follows_has_its_numbers() -> None:
    document = written(made("whole"))
    assert document["recommended"]["settings"] == {"slots": 4, "context": 2048, "concurrency": 4}
    assert document["recommended"]["slos"][0]["text"] == "p99 ttft < 200ms"
    assert document["hypervolume"]["reference"] == {"tokens_per_s": 100.0, "p99 ttft": 1.2}
    assert document["drift"][0] == {
        "objective": "tokens_per_s",
        "value": -0.004,
        "low": -0.031,
        "high": 0.022,
        "num_repeats": 4,
        "shown": False,
    }
    assert document["sweep"]["axes"][0] == {"name": "slots", "values": [1, 2, 4], "unit": "", "restarts": True}
    assert document["sweep"]["num_measurements"] == 48


def test_what_is_not_known_is_null() -> None:
    once = written(made("once"))
    assert all(point["probability"] is None for point in once["points"])
    assert once["points"][0]["objectives"]["tokens_per_s"]["low"] is None
    assert once["hypervolume"]["low"] is None
    assert once["recommended"]["settings"] is None
    assert written(made("infeasible"))["recommended"]["why"].startswith("none is proven feasible")
    assert written(made("empty"))["points"] == []
    assert written(made("empty"))["sweep"]["budget_s"] == 480.0


def test_comparison() -> None:
    gain, unknown = Interval(value=0.1, low=0.02, high=0.2), Interval(value=0.1, low=-float("inf"), high=float("inf"))
    found = Comparison(hypervolume=gain, shift=unknown, joined=({"slots": 4},))
    assert pareto_json.comparison("runs/a", "runs/b", found, ["tokens_per_s", "p99 ttft"]) == {
        "old": "runs/a",
        "new": "runs/b",
        "verdict": "better",
        "goals": ["tokens_per_s", "p99 ttft"],
        "hypervolume": {"value": 0.1, "low": 0.02, "high": 0.2},
        "shift": {"value": 0.1, "low": None, "high": None},
        "joined": [{"slots": 4}],
        "left": [],
        "missing": [],
    }
