"""Plans are pure: equal seeds give equal probes, and the edges they probe are where they say."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from contextlab import registry
from contextlab.lab.journal import plain
from contextlab.model import Api, Knowledge, Limits, Probe, Scenario

SCENARIOS = registry.scenarios("overflow")
KNOWN = Knowledge(
    flavour="llama-server",
    model="m",
    limits=Limits(context_tokens=512, pool_tokens=512, num_slots=4),
    powers=frozenset({"window", "chat", "completions", "counts-tokens", "ignores-eos", "serves-many"}),
)


def probes(scenario: Scenario, seed: int, known: Knowledge = KNOWN) -> list[Probe]:
    """The probes of a plan that sees nothing."""
    return [step for step in scenario.plan(known, Random(seed)) if isinstance(step, Probe)]


@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if not set(one.needs) - KNOWN.powers])
def test_equal_seeds_give_equal_plans(name: str) -> None:
    one, same = probes(SCENARIOS[name], 7), probes(SCENARIOS[name], 7)
    assert plain(one) == plain(same)
    assert [probe.name for probe in one] == [probe.name for probe in probes(SCENARIOS[name], 8)]
    assert len({probe.name for probe in one}) == len(one)


def test_prompt_too_long_stands_on_both_sides_of_the_edge() -> None:
    sizes = [int(probe.about.get("size_tokens", 0)) for probe in probes(SCENARIOS["prompt-too-long"], 0)]
    assert {511, 512, 513, 1024} < set(sizes)
    names = {probe.name for probe in probes(SCENARIOS["prompt-too-long"], 0)}
    ways = {f"{api}-{way}" for api in ("chat", "completions") for way in ("stream", "whole")}
    assert {f"{way}-{size}" for way in ways for size in ("fits", "full", "one-over", "twice")} < names


def test_a_limit_is_foreseen_where_it_is_declared() -> None:
    names = [probe.name for probe in probes(SCENARIOS["find-limit"], 0)]
    assert names == ["control-256", "prompt-511", "prompt-512", "edge-511"]


def test_a_control_is_foreseen_once_for_each_endpoint() -> None:
    names = [probe.name for probe in probes(SCENARIOS["prompt-too-long"], 0) if probe.name.endswith("-control")]
    assert names == ["chat-whole-control", "completions-whole-control"]


def test_blowup_texts_are_of_equal_length_in_characters() -> None:
    lengths = set()
    for probe in probes(SCENARIOS["token-blowup"], 0):
        lengths.add(int(probe.about["characters"]))
        assert int(probe.about["estimate_tokens"]) < 512
    assert len(lengths) == 1


def test_kv_exhaustion_asks_for_more_than_the_pool_while_each_fits() -> None:
    for probe in probes(SCENARIOS["kv-exhaustion"], 0):
        sizes = [(request.size_tokens or 0) + (request.reply_tokens or 0) for request in probe.requests]
        assert max(sizes) < 512 < sum(sizes)


def test_a_target_whose_pool_is_smaller_than_its_window_gets_a_request_larger_than_the_pool() -> None:
    known = Knowledge(
        flavour="vllm", model="m", limits=Limits(context_tokens=512, pool_tokens=300), powers=KNOWN.powers
    )
    [larger] = [probe for probe in probes(SCENARIOS["kv-exhaustion"], 0, known) if probe.name == "larger-than-pool"]
    assert 300 < (larger.requests[0].size_tokens or 0) < 512


def test_a_target_that_only_chats_is_probed_by_chat_alone() -> None:
    known = replace(KNOWN, powers=KNOWN.powers - {"completions"})
    for scenario in SCENARIOS.values():
        if not set(scenario.needs) - known.powers:
            for probe in probes(scenario, 0, known):
                assert {request.api for request in probe.requests} <= {Api.CHAT}, scenario.name
