"""What is written for chaos becomes a plan, or a clear refusal that names the value, the rule and the next step."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from contextlab import registry
from contextlab.experiment import Experiment, Pace, Placed
from contextlab.lab.chaos.planning import Words, chosen, planned
from contextlab.model import Knowledge, Limits, UsageError

PLAN = """
target = "smollm2"
seed = 7
duration = "20s"
rate = 4
arrivals = "constant"
hypothesis = ["p90 ttft < 2s", "errors < 1%"]
stop = ["errors > 50%"]
recovery_within = "10s"
faults = ["loss:rate=15%@5s+5s", "delay:delay=50ms@12s+3s"]

[settings]
slots = 2
kv_unified = false

[[request]]
prompt = "The capital of France is"
reply_tokens = 4
weight = 3

[[request]]
name = "chatty"
prompt = "Hello"
api = "chat"
"""


def test_a_plan_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN, encoding="utf-8")
    plan = planned(Words(), file)
    asked = plan.asked
    assert (plan.target, plan.seed, plan.settings) == ("smollm2", 7, ("slots=2", "kv_unified=false"))
    assert (asked.duration_s, asked.rate_per_s, asked.recovery_within_s) == (20.0, 4.0, 10.0)
    assert asked.arrivals is not None
    assert asked.arrivals.pace is Pace.CONSTANT
    assert [fault.name for fault in asked.faults] == ["loss", "delay"]
    assert asked.faults[0] == Placed(name="loss", start_s=5.0, length_s=5.0, options={"rate": 0.15})
    assert [bound.text for bound in asked.hypothesis or ()] == ["p90 ttft < 2s", "errors < 1%"]
    assert [(mixed.request.name, mixed.weight, mixed.request.reply_tokens) for mixed in asked.mix] == [
        ("request-1", 3.0, 4),
        ("chatty", 1.0, 8),
    ]
    assert plan.is_written


def test_options_win_over_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN, encoding="utf-8")
    asked = planned(Words(duration="1min", rate="2", faults=["loss:rate=1%"]), file).asked
    assert (asked.duration_s, asked.rate_per_s) == (60.0, 2.0)
    assert [(fault.name, fault.start_s, fault.length_s) for fault in asked.faults] == [("loss", 20.0, 20.0)]


def test_a_fault_without_a_time_takes_the_middle_third() -> None:
    [fault] = planned(Words(faults=["loss:rate=15%"])).asked.faults
    assert (fault.start_s, fault.length_s) == (10.0, 10.0)
    [fault] = planned(Words(faults=["loss:rate=15%@25s"])).asked.faults
    assert (fault.start_s, fault.length_s) == (25.0, 5.0)


@pytest.mark.parametrize(("plan", "requests", "kept"), [("", 24, 4), (PLAN, 2, 1)])
def test_a_fault_on_redis_meets_requests_that_the_local_tier_does_not_hold(
    tmp_path: Path, plan: str, requests: int, kept: int
) -> None:
    (tmp_path / "plan.toml").write_text(plan, encoding="utf-8")
    written = planned(Words(faults=["redis-slow"]), tmp_path / "plan.toml")
    [scenario] = chosen(written, [])
    known = Knowledge(flavour="other", model="m", limits=Limits())
    experiment = next(scenario.plan(known, written.asked, Random(0)))
    assert isinstance(experiment, Experiment)
    assert experiment.tier is not None
    assert (len(experiment.load.mix), experiment.tier.local_entries) == (requests, kept)


def test_nothing_written_runs_the_scenarios() -> None:
    plan = planned(Words(rate="3"))
    assert not plan.is_written
    assert {"packet-loss", "burst", "pressure"} <= {scenario.name for scenario in chosen(plan, [])}
    assert [scenario.name for scenario in chosen(plan, ["burst"])] == ["burst"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (Words(faults=["los:rate=1%"]), ("los", "did you mean loss")),
        (Words(faults=["loss:rat=1%"]), ("no option 'rat'", "did you mean rate")),
        (Words(faults=["loss:rate"]), ("'rate' is not of the form", "rate")),
        (Words(faults=["loss:rate=150%"]), ("150%", "from 0 to 1")),
        (Words(faults=["loss:rate=1%,rate=2%"]), ("given twice", "once")),
        (Words(faults=["loss:rate=1%@5s+0s"]), ("length of 0 s", "@10s+30s")),
        (Words(faults=["loss:rate=1%@five"]), ("start 'five'", "duration")),
        (Words(faults=["loss:rate=1%@10s+30s"]), ("ends at 40 s", "--duration")),
        (Words(faults=["loss:rate=1%@5s+9s", "loss:rate=2%@6s+2s"]), ("contradict", "one after the other")),
        (Words(duration="soon"), ("duration='soon'", "such as 200ms")),
        (Words(duration="0s"), ("duration='0s'", "from")),
        (Words(rate="-1"), ("rate='-1'", "above 0")),
        (Words(rate="nan"), ("rate='nan'", "above 0")),
        (Words(arrivals="poison"), ("poison", "did you mean poisson")),
        (Words(arrivals="closed"), ("number of clients", "closed:8")),
        (Words(arrivals="closed:0"), ("number of clients", "closed:8")),
        (Words(arrivals="burst:many"), ("factor", "burst:10x")),
        (Words(arrivals="burst:0x"), ("must be a factor above 0 and up to 1000", "burst:10x")),
        (Words(arrivals="replay:/nowhere/at/all"), ("No such file", "file of times")),
        (Words(arrivals="closed:4", rate="8"), ("has no rate", "one of them")),
        (Words(hypothesis=["p99 tft < 1s"]), ("tft", "ttft")),
        (Words(hypothesis=["p99 ttft is fast"]), ("p99 ttft is fast", "")),
        (Words(warmup="40s"), ("warmup", "--duration")),
    ],
)
def test_what_cannot_be_meant_is_refused(words: Words, said: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        planned(words)
    whole = f"{caught.value.message} {caught.value.next_step}"
    assert said[0] in whole
    assert said[1] in whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("durations = '3s'", "did you mean duration"),
        ("duration = [1]", "must be a text or a number"),
        ("faults = 'loss'", "must be a list of texts"),
        ("seed = 'x'", "whole number"),
        ("[[request]]\nprompt = 3", "prompt=3"),
        ("[[request]]\nprompt = 'x'\nweigth = 3", "did you mean weight"),
        ("[[request]]\nprompt = 'x'\napi = 'voice'", "chat or completions"),
        ("control = 'yes'", "true or false"),
        ("not toml", "not TOML"),
        ("settings = 3", "must be a table"),
    ],
)
def test_a_plan_with_a_mistake_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        planned(Words(), file)
    assert said in f"{caught.value.message} {caught.value.next_step}"
    assert str(file) in caught.value.message


def test_a_plan_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        planned(Words(), tmp_path / "none.toml")


def test_a_scenario_beside_a_fault_is_refused() -> None:
    with pytest.raises(UsageError, match="brings its own faults"):
        chosen(planned(Words(faults=["loss"])), ["burst"])


@pytest.mark.parametrize("text", ["loss:rate=15%@10s+30s", "delay:delay=200ms@0s+1s", "rate:limit=1MB/s@1s+2s"])
def test_a_fault_is_shown_as_it_is_written(text: str) -> None:
    placed = registry.parse_fault(text, start_s=0.0, length_s=1.0)
    shown = registry.shown_fault(placed)
    assert registry.parse_fault(shown, start_s=5.0, length_s=5.0) == placed


def test_a_replay_takes_its_times_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "times.txt"
    file.write_text("0.5\n0.1\n2\n", encoding="utf-8")
    asked = planned(Words(arrivals=f"replay:{file}")).asked
    assert asked.arrivals is not None
    assert asked.arrivals.trace_s == (0.1, 0.5, 2.0)
    file.write_text("0.5\n100\n", encoding="utf-8")
    with pytest.raises(UsageError, match="less than the run's 30 s"):
        planned(Words(arrivals=f"replay:{file}"))
