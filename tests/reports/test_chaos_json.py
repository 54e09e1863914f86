"""The JSON document of a chaos run: its shape, its numbers, and what is null."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from contextlab.experiment import Phase
from contextlab.model import Run, UnableError
from contextlab.reports import json as report
from tests.reports import chaos_sample as sample
from tests.reports.test_chaos import RUNS, made
from tests.reports.test_json import NULL, SHAPE, check

NUMBER = (int, float)
MAYBE = (int, float, NULL)
FIGURE: dict[str, Any] = {"value": MAYBE, "low": MAYBE, "high": MAYBE, "enough": bool}
QUANTILES = {"p50": FIGURE, "p90": FIGURE, "p99": FIGURE}
SHARE = {"share": MAYBE, "low": MAYBE, "high": MAYBE, "count": int, "of": int}
PHASE: dict[str, Any] = {
    "n": int,
    "length_s": NUMBER,
    "errors": {**SHARE, "taxonomy": dict},
    **dict.fromkeys(("ttft", "service_ttft", "itl", "gap", "e2e", "service_e2e", "queue"), QUANTILES),
    "throughput": MAYBE,
    "goodput": MAYBE,
    "tokens_per_s": MAYBE,
    "tokens_per_event": MAYBE,
    "backlog_max": int,
    "backlog": {
        "client_queue": int,
        "in_flight": int,
        "server_running": MAYBE,
        "server_waiting": MAYBE,
        "kv_usage": MAYBE,
    },
    "integrity": {**SHARE, "names": dict, "noticed": dict, "not_compared": int},
    "client_retransmits": int,
}
LOAD = {
    "text": str,
    "pace": str,
    "open": bool,
    "rate_per_s": MAYBE,
    "concurrency": (int, NULL),
    "duration_s": NUMBER,
    "timeout_s": MAYBE,
    "kept_connections": bool,
}
STEPS = {"p50": NUMBER, "p90": NUMBER, "p99": NUMBER, "max": NUMBER}
LIE = {"low_s": NUMBER, "high_s": NUMBER, "longest_s": NUMBER, "since_s": MAYBE}
EXPERIMENT: dict[str, Any] = {
    "name": str,
    "scenario": str,
    "verdict": str,
    "empty": str,
    "load": LOAD,
    "extra": (dict, NULL),
    "seed": (int, NULL),
    "path": str,
    "emulated": bool,
    "faults": [{"name": str, "text": str, "start_s": NUMBER, "end_s": NUMBER, "options": dict}],
    "hypothesis": [
        {
            "text": str,
            "phase": str,
            "state": str,
            "observed": MAYBE,
            "low": MAYBE,
            "high": MAYBE,
            "n": int,
            "why": str,
        }
    ],
    "phases": {str(phase): (dict, NULL) for phase in Phase},
    "ratios": {
        "phase": str,
        "against": (str, NULL),
        **dict.fromkeys(("ttft", "itl", "e2e", "service_e2e"), dict),
    },
    "recovery_s": MAYBE,
    "stopped": dict,
    "evidence": [
        {
            "name": str,
            "text": str,
            "engine": str,
            "emulated": bool,
            "landed": (bool, NULL),
            "why": str,
            "tally": dict,
            "kernel": dict,
        }
    ],
    "generators": [
        {
            "arm": str,
            "worker": int,
            "num_requests": int,
            "cpu_s": NUMBER,
            "wall_s": NUMBER,
            "lateness_s": STEPS,
            "loop_lag_s": STEPS,
            "fast": bool,
            "kept_up": bool,
            "lateness_limit_s": NUMBER,
        }
    ],
    "control_difference": (dict, NULL),
    "measured": dict,
    "deeds": [{"arm": str, "at_s": NUMBER, "fault": str, "what": str, "about": dict}],
    "deaths": [
        {
            "arm": str,
            "at_s": NUMBER,
            "ours": bool,
            "ready_s": MAYBE,
            "signal": (str, NULL),
            "exit_code": (int, NULL),
            "out_of_memory": (bool, NULL),
            "text": str,
        }
    ],
    "process": dict,
    "kernel": dict,
    "release": [
        {
            "name": str,
            "baseline": NUMBER,
            "allowed": NUMBER,
            "last": NUMBER,
            "last_s": NUMBER,
            "after_s": MAYBE,
        }
    ],
    "health": [
        {
            "arm": str,
            "false_green": LIE,
            "false_red": LIE,
            "deadline_s": NUMBER,
            "num_health": int,
            "num_completions": int,
            "every_s": NUMBER,
            "enough": bool,
        }
    ],
    "cost": dict,
    "qos": {
        "kinds": [
            {
                "kind": str,
                "phase": str,
                "n": int,
                "served": int,
                "cut": int,
                "refused": int,
                "timed_out": int,
                "refused_clearly": int,
                "ttft_p50": FIGURE,
            }
        ],
        "losses": [
            {
                "kind": str,
                "mixed": int,
                "num_lost": int,
                "n": int,
                "first_s": NUMBER,
                "last_s": NUMBER,
                "first_fate": str,
            }
        ],
    },
    "tier": dict,
}
CHAOS = {**{name: SHAPE[name] for name in SHAPE if name != "run"}, "experiments": [EXPERIMENT], "run": SHAPE["run"]}


def written(run: Run) -> Any:
    out = io.StringIO()
    report.write(run, out)
    assert out.getvalue().isascii()
    return json.loads(out.getvalue())


@pytest.mark.parametrize("name", RUNS)
def test_every_run_has_the_same_shape(name: str) -> None:
    document = written(made(name))
    check(document, CHAOS)
    for one in document["experiments"]:
        for phase in one["phases"].values():
            if phase is not None:
                check(phase, PHASE)


def only(name: str) -> Any:
    [one] = written(made(name))["experiments"]
    return one


def test_numbers_of_a_run_with_a_fault() -> None:
    one = only("loss")
    during = one["phases"]["during"]
    assert (one["verdict"], one["seed"], one["emulated"], one["empty"]) == ("FAIL", 7, False, "")
    assert one["load"]["text"] == "Poisson 8/s for 50s"
    assert one["faults"][0]["text"] == "loss:rate=0.15@10s+30s"
    assert one["faults"][0]["options"] == {"rate": 0.15}
    assert during["length_s"] == 30.0
    assert during["ttft"]["p90"]["low"] < during["ttft"]["p90"]["value"] < during["ttft"]["p90"]["high"]
    assert one["ratios"]["against"] == "control"
    assert one["ratios"]["ttft"]["p90"]["low"] > 3
    assert one["evidence"][0]["landed"] is True
    assert one["evidence"][0]["kernel"] == {"retransmitted_segments": 198.0}
    assert [each["kept_up"] for each in one["generators"]] == [True, True]
    assert one["control_difference"]["ttft_s"]["p50"]["enough"] is True
    states = {(each["text"], each["phase"]): each["state"] for each in one["hypothesis"]}
    assert states["p90 ttft < 800ms", "during"] == "broken"
    assert states["errors < 1%", "control"] == "held"


def test_damage_stands_by_name_with_who_noticed() -> None:
    one = only("damaged")
    during = one["phases"]["during"]
    assert one["emulated"] is True
    assert [each["emulated"] for each in one["evidence"]] == [False, True]
    assert {"CUT", "RESET", "DUPLICATED", "REFUSED", "INTACT"} == set(during["integrity"]["names"])
    assert set(during["integrity"]["noticed"]) == {"transport", "nobody"}
    assert during["errors"]["taxonomy"]["refused"] == during["integrity"]["names"]["REFUSED"]
    assert during["errors"]["count"] < sum(during["errors"]["taxonomy"].values()), (
        "damage that nobody refused counts too"
    )


def test_a_quantile_that_nothing_reached_is_null_and_not_insufficient() -> None:
    control = only("gate")["phases"]["control"]
    assert control["ttft"]["p90"] == {"value": None, "low": None, "high": None, "enough": True}
    short = only("undecided")["phases"]["during"]
    assert short["ttft"]["p99"]["enough"] is False
    assert short["ttft"]["p99"]["low"] is None


def test_phases_that_were_not_measured_are_null() -> None:
    assert [name for name, phase in only("gate")["phases"].items() if phase is None] == ["before", "during", "after"]
    assert only("no_control")["phases"]["control"] is None
    assert only("no_control")["stopped"] == {"fault": "errors > 50%"}
    assert only("killed")["empty"].startswith("not whole: the run was killed in the fault arm")


def test_what_was_done_beside_the_wire() -> None:
    one = only("beside")
    assert [(deed["fault"], deed["what"]) for deed in one["deeds"]] == [
        ("pause", "stopped"),
        ("kill", "killed"),
        ("kill", "restarted"),
    ]
    [death] = one["deaths"]  # told twice, once when it answered again
    assert (death["arm"], death["ours"], death["ready_s"], death["signal"]) == ("fault", True, 1.9, "SIGKILL")
    assert one["process"]["control"]["cpus"] == 0.9
    assert one["process"]["during"]["cpus"] < 0.6
    assert one["kernel"]["num_throttled"] == 12
    assert {each["name"]: each["after_s"] for each in one["release"]}["descriptors"] is None
    control, fault = one["health"]
    assert control["false_green"] == {"low_s": 0, "high_s": 0, "longest_s": 0, "since_s": None}
    assert 7 < fault["false_green"]["low_s"] < 8 < fault["false_green"]["high_s"] < 10
    assert one["cost"]["fault"]["tokens_used"] < one["cost"]["control"]["tokens_used"]
    during = [each for each in one["qos"]["kinds"] if each["phase"] == "during"]
    counts = ("served", "cut", "refused", "timed_out")
    assert all(each["n"] == sum(each[name] for name in counts) for each in during)
    assert [each["refused_clearly"] for each in during] == [0, 7]
    assert one["qos"]["losses"][0]["first_fate"] == "timed out"
    assert one["tier"] == {}


def test_tier_and_a_death_for_want_of_memory() -> None:
    one = only("tiered")
    assert one["tier"]["control"]["amplification"] == 1.2
    assert one["tier"]["fault"]["breaker_open_s"] == 14.2
    [death] = one["deaths"]
    assert (death["ours"], death["out_of_memory"], death["ready_s"]) == (False, True, None)
    assert len(one["deeds"]) == 20


def test_only_chaos_has_experiments() -> None:
    from tests.reports import sample as other

    assert "experiments" not in report.document(other.held())
    failure = report.failure_document("chaos", "smollm2", UnableError("no packet link here", "use --allow-emulation"))
    check(failure, {**CHAOS, "next_step": str})
    assert failure["experiments"] == []
    assert "experiments" not in report.failure_document("overflow", "smollm2", UnableError("x"))
    assert written(sample.bare())["experiments"] == []
