"""What is written for a sweep becomes axes, goals and SLOs, or a clear refusal."""

from __future__ import annotations

from typing import Any

import pytest

from contextlab import registry
from contextlab.analysis.frontier import Direction
from contextlab.lab.sweep.plan import declared, planned, spec_for
from contextlab.model import UsageError

FAKE = registry.parse_target("fake:caps")
URL = registry.parse_target("http://127.0.0.1:9")
HF = registry.parse_target("hf:random/llama")
RUN = registry.parse_target("run:serve -c {context} -n {slots}", at="http://127.0.0.1:9")


def test_a_sweep_of_a_server_of_ours() -> None:
    found = planned(
        FAKE,
        axes=["concurrency=1..3", "slots=1,2"],
        fixed=["reply_tokens=4"],
        goals=["up:tokens_per_s", "down:p90 itl", "down:memory_bytes"],
        slos=["p99 ttft < 200ms", "errors <= 1%"],
        budget_s=60.0,
    )
    assert found.restarts == {"slots"}
    assert len(found.configs) == 6
    assert [(goal.text, goal.direction) for goal in found.sweep.goals] == [
        ("tokens_per_s", Direction.UP),
        ("p90 itl", Direction.DOWN),
        ("memory_bytes", Direction.DOWN),
    ]
    assert [(slo.objective, slo.op, slo.limit) for slo in found.sweep.slos] == [
        ("p99 ttft", "<", 0.2),
        ("errors", "<=", 0.01),
    ]
    assert found.sweep.fixed["reply_tokens"] == 4
    assert found.sweep.baseline in found.configs


def test_a_url_has_the_axes_of_the_load_alone() -> None:
    assert set(declared(URL)) == {"concurrency", "rate", "prompt_tokens", "reply_tokens"}
    assert planned(URL, axes=["rate=1..4x2"], budget_s=60.0).configs == ({"rate": 1.0}, {"rate": 2.0}, {"rate": 4.0})


def test_placeholders_of_a_command_are_axes() -> None:
    found = planned(RUN, axes=["context=512,1024", "slots=1,auto"], budget_s=60.0)
    assert found.restarts == {"context", "slots"}
    assert found.configs[1] == {"context": 512, "slots": "auto"}
    assert spec_for(RUN, found.configs[1], found.restarts).address == "serve -c 512 -n auto"


def test_the_baseline_can_be_named() -> None:
    assert planned(FAKE, axes=["slots=1,2,4"], baseline=["slots=4"], budget_s=60.0).sweep.baseline == {"slots": 4}


@pytest.mark.parametrize(
    ("target", "words", "said"),
    [
        (FAKE, {"axes": ["slot=1,2"]}, "did you mean slots"),
        (FAKE, {"axes": []}, "no axis is named"),
        (FAKE, {"axes": ["slots=4..1"]}, "slots"),
        (FAKE, {"axes": ["slots="]}, "slots"),
        (FAKE, {"axes": ["slots=0,1"]}, "slots=0"),
        (FAKE, {"axes": ["slots=1,2"], "fixed": ["slots=1"]}, "both swept and fixed"),
        (FAKE, {"axes": ["concurrency=1,2"], "fixed": ["rate=3"]}, "closed loop or an open one"),
        (FAKE, {"axes": ["slots=1,2"], "goals": ["fast"]}, "up: or down:"),
        (FAKE, {"axes": ["slots=1,2"], "goals": ["up:p99 tft", "down:errors"]}, "ttft"),
        (FAKE, {"axes": ["slots=1,2"], "goals": ["up:errors"]}, "at least two"),
        (FAKE, {"axes": ["slots=1,2"], "goals": ["up:backlog", "down:errors"]}, "not measured in a sweep"),
        (FAKE, {"axes": ["slots=1,2"], "slos": ["p99 ttft"]}, "p99 ttft"),
        (FAKE, {"axes": ["slots=1,2"], "slos": ["p99 ttft < 3x before"]}, "not measured in a sweep"),
        (FAKE, {"axes": ["slots=1,2"], "slos": ["p95 ttft < 1s"]}, "p95 ttft is not measured"),
        (FAKE, {"axes": ["slots=1,2"], "slos": ["errors = 0%"]}, "no limit that a setting can keep"),
        (FAKE, {"axes": ["slots=1,2"], "slos": ["memory_bytes < 1"]}, "not measured in a sweep of this target; choose"),
        (FAKE, {"axes": ["slots=1,2"], "goals": ["up:throughput", "down:max e2e"]}, "max e2e is not measured"),
        (FAKE, {"axes": ["slots=1,2"], "goals": ["up:throughput", "down:p99 connect"]}, "'connect' is not measured"),
        (FAKE, {"axes": ["slots=1,2"], "goals": ["up:tokens", "down:errors"]}, "did you mean"),
        (URL, {"axes": ["rate=1,2"], "goals": ["up:throughput", "down:memory_bytes"]}, "choose from: tokens_per_s"),
        (HF, {"axes": ["batch=1,2"], "slos": ["p99 e2e < 1s"]}, "choose from: tokens_per_s, p50 ttft"),
        (HF, {"axes": ["batch=1,2"], "fixed": ["dtype=float16"]}, "--set dtype=float16"),
        (FAKE, {"axes": ["concurrency=1,2"], "fixed": ["slots=3"]}, "--set slots=3 makes the target so"),
        (FAKE, {"axes": ["slots=1,2"], "baseline": ["slots=7"]}, "--baseline slots=7: is no point of this sweep"),
        (URL, {"axes": ["slots=1,2"]}, "concurrency"),
        (RUN, {"axes": ["context=512"]}, "{slots}"),
    ],
)
def test_what_cannot_be_meant(target: Any, words: dict[str, list[str]], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(target, budget_s=60.0, **words)  # type: ignore[arg-type]
    assert said in f"{caught.value.message}; {caught.value.next_step}"
    assert not {"connect,", "integrity", "backlog,"} & set(caught.value.next_step.split())


def test_a_bound_on_a_time_is_the_second_goal_where_none_is_named() -> None:
    for slos, goal in (
        ([], "p99 ttft"),
        (["p99 itl < 100ms"], "p99 itl"),
        (["errors < 1%", "p90 e2e < 2s"], "p90 e2e"),
        (["tokens_per_s > 5"], "p99 ttft"),
    ):
        found = planned(FAKE, axes=["slots=1,2"], slos=slos, budget_s=60.0)
        assert [one.text for one in found.sweep.goals] == ["tokens_per_s", goal]


def test_prompts_are_longer_than_the_pieces_that_are_swept() -> None:
    """And fit: four requests of 96 tokens, what is around them and 16 of a reply share a window of 512."""
    spec = registry.parse_target("smollm2")

    def prompt_tokens(*axes: str, fixed: tuple[str, ...] = ()) -> object:
        return planned(spec, axes=axes, fixed=fixed, budget_s=60.0).sweep.fixed.get("prompt_tokens")

    assert prompt_tokens("batch=64,128,512", "slots=4") == 96
    assert prompt_tokens("batch=64,128,512", "slots=4", "context=4096") == 128
    assert prompt_tokens("batch=64,512", "slots=1,4", "context=2048") == 128
    assert prompt_tokens("batch=64,512", fixed=("prompt_tokens=10",)) == 10
    assert prompt_tokens("batch=8,16") is None
    assert prompt_tokens("slots=1,2") is None
