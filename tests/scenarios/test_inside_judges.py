"""The plans and judges of the scenarios that look inside a model, on observations made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.ends import judge_reading
from contextlab.analysis.inside import memory_limit_bytes, positions_tokens
from contextlab.analysis.intervals import mean_interval, share_interval
from contextlab.analysis.judging import common, raised, read, tokens_past_positions
from contextlab.analysis.remedies import remedy
from contextlab.model import (
    Evidence,
    Exchange,
    Failure,
    Gauges,
    Judgement,
    Knowledge,
    Layer,
    Limit,
    Limits,
    Message,
    Observation,
    Outcome,
    Policy,
    Probe,
    ProcessEnd,
    Request,
    Scenario,
    Skip,
    Usage,
    Verdict,
)
from contextlab.scenarios.overflow import (
    cache_consistency,
    cache_overflow,
    dtype_mismatch,
    find_limit,
    generate_limits,
    position_out_of_range,
    tokenizer_truncation,
)

WINDOW = 128
SCENARIOS = tuple(
    module.SCENARIO
    for module in (
        position_out_of_range,
        cache_consistency,
        cache_overflow,
        tokenizer_truncation,
        dtype_mismatch,
        generate_limits,
    )
)
INDEX_ERROR: Evidence = {"error_type": "IndexError", "error": "index out of range in self"}
FULL_CACHE: Evidence = {
    "error_type": "IndexError",
    "error": "index_copy_(): index 64 is out of bounds for dimension 2 with size 64",
}


def limit(name: str, tokens: int | None, layer: Layer = Layer.POSITIONS) -> Limit:
    """A limit that a config declares."""
    return Limit(layer=layer, name=name, tokens=tokens, source="config.json")


def known(*more: Limit, window: int | None = WINDOW, powers: tuple[str, ...] = ()) -> Knowledge:
    """What an hf target says of itself."""
    positions = limit("max_position_embeddings", WINDOW) if window else limit("seq_length (ALiBi: no range)", None)
    return Knowledge(
        flavour="transformers",
        model="m",
        limits=Limits(context_tokens=window, declared=(positions, *more)),
        powers=frozenset({"tasks", "completions", "counts-tokens", *powers}),
    )


KNOWN, CONTROL = known(), known(window=None)


def seen(measured: Evidence, of: Knowledge = KNOWN) -> Observation:
    """What a task left behind."""
    return Observation(exchanges=(), knowledge=of, client=ProcessEnd(exit_code=0), measured=measured)


def probes(scenario: Scenario, of: Knowledge = KNOWN) -> dict[str, Probe]:
    """The probes of a plan that sees nothing."""
    return {step.name: step for step in scenario.plan(of, Random(1)) if isinstance(step, Probe)}


def judged(
    scenario: Scenario, probe: Probe, measured: Evidence, of: Knowledge = KNOWN
) -> list[tuple[Outcome, Layer, str]]:
    """What the scenario's judge says."""
    found: list[Judgement] = list(scenario.judge(probe, seen(measured, of)))
    return [(one.outcome, one.layer, one.why) for one in found]


def only(scenario: Scenario, name: str, measured: Evidence, of: Knowledge = KNOWN) -> tuple[Outcome, Layer, str]:
    """The one judgement of one probe."""
    [one] = judged(scenario, probes(scenario, of)[name], measured, of)
    return one


# ── every scenario ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    "of", [KNOWN, CONTROL, known(powers=("chat",)), known(limit("sliding window", 32, Layer.ATTENTION))]
)
def test_every_probe_is_a_bounded_task(scenario: Scenario, of: Knowledge) -> None:
    found = probes(scenario, of)
    assert found
    assert scenario.needs == ("tasks",)
    for probe in found.values():
        assert probe.task
        assert not probe.requests
        assert not probe.neighbour
        assert probe.memory_limit_bytes == 3 << 30
        assert probe.timeout_s is not None
        assert not {Outcome.DEGRADED, Outcome.REJECTED_BADLY, Outcome.CRASHED} & probe.allowed
    assert probes(scenario, of) == found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_measured_is_unknown(scenario: Scenario) -> None:
    for probe in probes(scenario).values():
        outcomes = {outcome for outcome, _, _ in judged(scenario, probe, {})}
        assert outcomes == {Outcome.UNKNOWN}, probe.name


@pytest.mark.parametrize("scenario", SCENARIOS)
@given(data=st.data())
def test_judges_are_total(scenario: Scenario, data: st.DataObject) -> None:
    names = [
        *("error_type", "error", "ok_tokens", "error_tokens", "position_kind", "positions", "rope", "dtype", "own"),
        *("max_difference", "relative_difference", "agreement", "compared", "past_relative_difference", "new_tokens"),
        *("inside_relative_difference", "num_sliding_layers", "total_tokens", "warned", "whole_tokens", "cut_tokens"),
        *("unlimited", "declared_tokens", "num_warnings", "special_tokens_lost", "vocabulary", "past_finite"),
        *("nll_step_mean", "nll_step_sd", "nll_step_count", "nll_inside", "nll_past", "inside_far_asked"),
    ]
    numbers = st.integers(0, 300) | st.none()
    measured: dict[str, Any] = data.draw(st.dictionaries(st.sampled_from(names), numbers, max_size=8))
    measured |= {name: str(measured[name]) for name in ("error_type", "error", "dtype", "own") if measured.get(name)}
    for probe in probes(scenario).values():
        assert judged(scenario, probe, measured)


def test_a_large_model_gets_the_memory_that_it_needs() -> None:
    large = replace(KNOWN, gauges=Gauges(memory_bytes=5 << 30))
    assert memory_limit_bytes(large) == 10 << 30
    assert memory_limit_bytes(KNOWN) == 3 << 30
    assert positions_tokens(known(limit("original positions × RoPE factor", 512))) == 512


# ── position-out-of-range ────────────────────────────────────────────────────────────────────────

POSITIONS = position_out_of_range.SCENARIO
TRAINED: dict[str, Any] = {
    "position_kind": "rotary",
    "rope": "default",
    "positions": WINDOW,
    "vocabulary": 49152,
    "past_finite": True,
    "nll_inside": 2.4,
    "nll_past": 2.5,
    "nll_slope_mean": 0.2,
    "nll_slope_sd": 0.5,
    "nll_slope_count": 100,
    **{f"{side}_{group}_asked": 12 for side in ("inside", "past") for group in ("far", "near")},
    **{f"{side}_{group}_right": 8 for side in ("inside", "past") for group in ("far", "near")},
}


def step(mean: float, sd: float = 0.5, count: int = 100) -> dict[str, Any]:
    """A change of likelihood over the edge."""
    return {"nll_step_mean": mean, "nll_step_sd": sd, "nll_step_count": count}


def test_an_exception_is_named_with_its_exact_length() -> None:
    measured = {"position_kind": "table", "positions": 128, "ok_tokens": 128, "error_tokens": 129, **INDEX_ERROR}
    outcome, layer, why = only(POSITIONS, "past-the-range", measured)
    assert (outcome, layer) == (Outcome.REJECTED_BADLY, Layer.POSITIONS)
    assert why.startswith("128 tokens are read, 129 are not; the model declares 128 positions")
    assert "IndexError: index out of range in self" in why


def test_positions_without_an_end_are_the_control() -> None:
    outcome, _, why = only(POSITIONS, "past-the-range", {"position_kind": "ALiBi", "ok_tokens": 256}, CONTROL)
    assert outcome is Outcome.OK
    assert "256 tokens were read without an error" in why


@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        (step(0.0), Outcome.UNKNOWN, "no difference that the measurements could tell"),
        (step(-1.0), Outcome.UNKNOWN, "no difference"),
        (step(0.05, sd=0.5), Outcome.UNKNOWN, "+0.050 (95 %: -0.0"),
        (step(0.2), Outcome.DEGRADED, "no cliff: over the stretch before the edge it had changed by +0.200"),
        (step(2.0), Outcome.DEGRADED, "likelihood: 2.5 nats a word past the edge and 2.4 before it"),
        ({**step(0.0), "past_far_right": 0}, Outcome.DEGRADED, "over the whole length: 0 of 12 came back"),
        ({**step(0.0), "past_near_right": 0}, Outcome.DEGRADED, "over less than the range: 0 of 12"),
        ({**step(0.0), "past_far_right": 6}, Outcome.UNKNOWN, "inside 8 (39% to 86%)"),
        ({**step(2.0), "past_finite": False}, Outcome.DEGRADED, "infinities or NaN"),
        ({}, Outcome.UNKNOWN, "too few words to compare"),
    ],
)
def test_silence_past_the_range_is_what_was_measured(change: dict[str, Any], outcome: Outcome, words: str) -> None:
    found, layer, why = only(POSITIONS, "past-the-range", {**TRAINED, **change})
    assert (found, layer) == (outcome, Layer.POSITIONS)
    assert words in why
    assert why.startswith("no error at 256 tokens, 128 past the model's positions")


def test_a_cliff_is_not_called_a_slope() -> None:
    assert "no cliff" not in only(POSITIONS, "past-the-range", {**TRAINED, **step(2.0)})[2]


def test_of_a_model_that_foretells_nothing_nothing_is_said() -> None:
    random = {**TRAINED, "vocabulary": 417, "nll_inside": 7.7, "nll_past": 9.9, **step(2.0)}
    random |= {name: 0 for name in random if name.endswith("_right")}
    outcome, _, why = only(POSITIONS, "past-the-range", random)
    assert outcome is Outcome.UNKNOWN
    assert "inside them, too, this model foretells nothing" in why


def test_rope_past_its_range_is_never_ok() -> None:
    for change in ({}, step(-3.0), step(0.0)):
        assert only(POSITIONS, "past-the-range", {**TRAINED, **change})[0] is not Outcome.OK


def test_a_table_is_made_longer_only_where_there_is_one() -> None:
    def second(measured: Evidence) -> list[Probe | Skip]:
        plan = POSITIONS.plan(KNOWN, Random(0))
        next(plan)
        try:
            return [plan.send(seen(measured))]
        except StopIteration:
            return []

    [probe] = second({"position_kind": "table", **INDEX_ERROR})
    assert isinstance(probe, Probe)
    assert probe.task == "resized-table"
    assert second({"position_kind": "rotary"}) == []
    longer: dict[str, Any] = {"table": "wpe", "inside_agreement": 1.0, "past_agreement": 0.1}
    assert judged(POSITIONS, probe, longer)[0][0] is Outcome.DEGRADED
    assert judged(POSITIONS, probe, {**longer, "past_agreement": 1.0})[0][0] is Outcome.UNKNOWN
    assert judged(POSITIONS, probe, {"table": None})[0][0] is Outcome.UNKNOWN
    assert judged(POSITIONS, probe, {"table": "wpe", **INDEX_ERROR})[0][0] is Outcome.REJECTED_BADLY


# ── caches ───────────────────────────────────────────────────────────────────────────────────────


def test_the_edges_of_rope_scaling_are_crossed() -> None:
    plain = {name: probe.about["tokens"] for name, probe in probes(cache_consistency.SCENARIO).items()}
    assert plain == {"inside": 64, "across-128": 144}
    scaled = known(limit("original positions before RoPE scaling", 64))
    assert {name: probe.about["tokens"] for name, probe in probes(cache_consistency.SCENARIO, scaled).items()} == {
        "inside": 32,
        "across-64": 72,
        "across-128": 136,
    }


def test_a_table_of_positions_is_not_crossed() -> None:
    plan = cache_consistency.SCENARIO.plan(KNOWN, Random(0))
    next(plan)
    assert isinstance(plan.send(seen({"position_kind": "table"})), Skip)
    assert list(plan) == []


@pytest.mark.parametrize(
    ("dtype", "relative", "outcome"),
    [
        ("float32", 1e-5, Outcome.OK),
        ("float32", 3.5, Outcome.DEGRADED),
        ("float32", 0.1, Outcome.DEGRADED),
        ("bfloat16", 0.1, Outcome.OK),
        ("bfloat16", 3.5, Outcome.DEGRADED),
    ],
)
def test_consistency_by_the_spread_of_the_logits(dtype: str, relative: float, outcome: Outcome) -> None:
    measured: dict[str, Any] = {
        "dtype": dtype,
        "rope": "dynamic",
        "max_difference": relative,
        "agreement": 0.4,
        "compared": 32,
    }
    found, _, why = only(cache_consistency.SCENARIO, "across-128", {**measured, "relative_difference": relative})
    assert found is outcome
    assert "in 40%" in why
    assert ("dynamic RoPE" in why) == (outcome is Outcome.DEGRADED)


def test_a_full_cache() -> None:
    scenario = cache_overflow.SCENARIO
    apart: dict[str, Any] = {"dtype": "float32", "ok_tokens": 72, "inside_relative_difference": 1e-6, "num_layers": 2}
    outcome, layer, why = only(scenario, "by-steps", {**apart, "ok_tokens": 64, "error_tokens": 65, **FULL_CACHE})
    assert (outcome, layer) == (Outcome.REJECTED_BADLY, Layer.KV_CACHE)
    assert "a static cache of 64 tokens took 64 and not 65" in why
    silent = only(scenario, "by-steps", {**apart, "past_relative_difference": 2.0})
    assert silent[0] is Outcome.DEGRADED
    assert "dropped or overwritten in silence" in silent[2]
    rolls = only(scenario, "by-prompt", {**apart, "past_relative_difference": 0.0, "num_sliding_layers": 2})
    assert rolls[0] is Outcome.OK
    assert "2 of 2 layers slide" in rolls[2]
    both = judged(scenario, probes(scenario)["by-steps"], {**apart, "inside_relative_difference": 1.0, **FULL_CACHE})
    assert [outcome for outcome, _, _ in both] == [Outcome.DEGRADED, Outcome.REJECTED_BADLY]


# ── types, generate(), tokenizers ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [
        ({"error_type": "RuntimeError", "error": "got (self) BFloat16 and (source) Float"}, Outcome.REJECTED),
        ({"error_type": "RuntimeError", "error": "float != c10::BFloat16"}, Outcome.REJECTED),
        (
            {"error_type": "RuntimeError", "error": "expect parameter to have scalar type of Float"},
            Outcome.REJECTED_BADLY,
        ),
        ({"error_type": "RuntimeError", "error": "expected BFloat16"}, Outcome.REJECTED_BADLY),
        ({"relative_difference": 0.02, "became": "float32"}, Outcome.DEGRADED),
        ({"relative_difference": 1e-6, "became": "float32"}, Outcome.OK),
    ],
)
def test_types_by_name_or_in_silence(measured: dict[str, Any], outcome: Outcome) -> None:
    found, layer, why = only(
        dtype_mismatch.SCENARIO, "growing-cache", {"own": "float32", "other": "bfloat16", **measured}
    )
    assert (found, layer) == (outcome, Layer.KV_CACHE)
    assert why.startswith("a growing cache in bfloat16 in a model in float32")


def test_doubles_are_named_so() -> None:
    words = "Expected attn_mask dtype to match, but got attn_mask.dtype: double and query.dtype: float instead."
    assert dtype_mismatch.names_type(words, "float64")
    assert dtype_mismatch.names_type(words, "float32")
    assert not dtype_mismatch.names_type(words, "bfloat16")
    assert not dtype_mismatch.names_type("c10::BFloat16", "float32")


def test_generate_by_words_and_by_length() -> None:
    scenario = generate_limits.SCENARIO
    fits = only(scenario, "max-new-tokens-to-the-edge", {"new_tokens": 5, "total_tokens": WINDOW + 1})
    assert fits[0] is Outcome.OK
    past = only(scenario, "max-new-tokens-past", {"new_tokens": 8, "total_tokens": WINDOW + 4, "warned": "a reminder"})
    assert past[:2] == (Outcome.UNKNOWN, Layer.POSITIONS)
    assert "3 of them read past the model's 128 positions; warned: a reminder" in past[2]
    capped = only(scenario, "static-past", {"new_tokens": 4, "total_tokens": WINDOW})
    assert capped[0] is Outcome.CAPPED
    control = only(scenario, "max-new-tokens-past", {"new_tokens": 8, "total_tokens": WINDOW + 4}, CONTROL)
    assert control[0] is Outcome.OK
    refused = {
        "error_type": "ValueError",
        "error": "Input length of input_ids is 132, but `max_length` is set to 128. This can lead to …",
    }
    assert only(scenario, "no-length", refused)[0] is Outcome.REJECTED
    assert only(scenario, "max-length-past", INDEX_ERROR)[:2] == (Outcome.REJECTED_BADLY, Layer.POSITIONS)
    assert only(scenario, "static-cache-full", FULL_CACHE)[:2] == (Outcome.REJECTED_BADLY, Layer.KV_CACHE)


def test_generate_slides_only_where_something_does_and_leaves_long_models_alone() -> None:
    sliding = known(limit("sliding window", 32, Layer.ATTENTION))
    assert probes(generate_limits.SCENARIO, sliding)["sliding-window-past"].about["prompt_tokens"] == 28
    assert "sliding-window-past" not in probes(generate_limits.SCENARIO)
    long = replace(KNOWN, limits=Limits(context_tokens=8192, declared=(limit("max_position_embeddings", 8192),)))
    steps = list(generate_limits.SCENARIO.plan(long, Random(0)))
    assert [type(one) for one in steps] == [Skip, Probe]


CUT: dict[str, Any] = {
    "whole_tokens": 257,
    "cut_tokens": 128,
    "lost": "tail",
    "num_warnings": 0,
    "declared_tokens": 128,
    "unlimited": False,
}


@pytest.mark.parametrize(
    ("name", "change", "outcome", "words"),
    [
        ("default", {}, Outcome.TRUNCATED_TAIL, "cut 129 of 257 tokens, the tail of the text, without a word"),
        (
            "default",
            {"lost": "head", "num_warnings": 1},
            Outcome.TRUNCATED_HEAD,
            "the head of the text, with a warning",
        ),
        ("to-the-positions", {"special_tokens_lost": 2}, Outcome.TRUNCATED_TAIL, "2 special tokens went with it"),
        (
            "chat-to-the-positions",
            {"generation_prompt_kept": False},
            Outcome.TRUNCATED_TAIL,
            "open the reply went with",
        ),
        (
            "default",
            {"lost": "", "cut_tokens": 257, "unlimited": True, "declared_tokens": None},
            Outcome.DEGRADED,
            "cut nothing, without a word: the tokenizer declares no limit (a placeholder)",
        ),
        ("pad-to-multiple", {"cut_tokens": 128, "lost": ""}, Outcome.DEGRADED, "max_length=127, pad_to_multiple_of=8"),
        ("pad-to-multiple", {"cut_tokens": 127, "lost": ""}, Outcome.OK, "padded to 127"),
    ],
)
def test_truncation(name: str, change: dict[str, Any], outcome: Outcome, words: str) -> None:
    found, layer, why = only(tokenizer_truncation.SCENARIO, name, {**CUT, **change}, known(powers=("chat",)))
    assert (found, layer) == (outcome, Layer.TOKENIZER)
    assert words in why


def test_a_placeholder_is_right_where_the_model_has_no_range() -> None:
    whole = {**CUT, "lost": "", "cut_tokens": 257, "unlimited": True}
    assert only(tokenizer_truncation.SCENARIO, "default", whole, CONTROL)[0] is Outcome.OK
    assert "to-the-positions" not in probes(tokenizer_truncation.SCENARIO, CONTROL)


def test_a_tokenizer_that_refuses() -> None:
    named = {
        "error_type": "ValueError",
        "error": "truncation length (127) is not a multiple of pad_to_multiple_of (8).",
    }
    assert only(tokenizer_truncation.SCENARIO, "pad-to-multiple", named)[0] is Outcome.REJECTED
    nameless = {"error_type": "OverflowError", "error": "int too big to convert"}
    assert only(tokenizer_truncation.SCENARIO, "default", nameless)[0] is Outcome.REJECTED_BADLY


# ── what is judged the same way everywhere ───────────────────────────────────────────────────────


def exchange(prompt: int, reply: int, *, truncated: bool | None = False, **fields: Any) -> Exchange:
    """One answered request of an hf target."""
    request = Request(
        name="ask:HEAD", messages=(Message(role="prompt", parts=("x",)),), reply_tokens=reply, expects="7391"
    )
    usage = Usage(prompt_tokens=prompt, completion_tokens=reply, evaluated_tokens=prompt, truncated=truncated)
    ended: Mapping[str, Any] = {"done": True, "finish_reason": "length", "text": "abc", "usage": usage}
    return Exchange(request=request, prompt_tokens=prompt, exact=True, sent_s=0.0, ended_s=1.0, **{**ended, **fields})


@pytest.mark.parametrize(
    ("prompt", "reply", "past"), [(100, 8, 0), (128, 1, 0), (121, 8, 0), (122, 8, 1), (129, 1, 1), (256, 8, 135)]
)
def test_tokens_past_the_positions(prompt: int, reply: int, past: int) -> None:
    one = exchange(prompt, reply)
    assert tokens_past_positions(one, KNOWN) == past
    assert tokens_past_positions(one, CONTROL) == 0
    assert tokens_past_positions(exchange(prompt, reply, truncated=None), KNOWN) == 0
    judged = read(one, KNOWN)
    assert judged.outcome is (Outcome.UNKNOWN if past else Outcome.OK)
    assert not past or judged.layer is Layer.POSITIONS


def test_codes_that_are_lost_past_the_positions_are_a_degradation() -> None:
    probe = Probe(name="x", about={"control_HEAD": 1})
    assert judge_reading(probe, [exchange(256, 8)], KNOWN).outcome is Outcome.DEGRADED
    assert judge_reading(probe, [exchange(256, 8, text="7391.")], KNOWN).outcome is Outcome.UNKNOWN
    assert judge_reading(Probe(name="x"), [exchange(256, 8)], KNOWN).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("error_type", "message", "outcome", "layer"),
    [
        ("IndexError", "index out of range in self", Outcome.REJECTED_BADLY, Layer.POSITIONS),
        (
            "IndexError",
            "index 64 is out of bounds for dimension 0 with size 64",
            Outcome.REJECTED_BADLY,
            Layer.POSITIONS,
        ),
        ("IndexError", str(FULL_CACHE["error"]), Outcome.REJECTED_BADLY, Layer.KV_CACHE),
        (
            "ValueError",
            "Input length of input_ids is 72, but `max_length` is set to 64.",
            Outcome.REJECTED,
            Layer.ENGINE,
        ),
        ("RuntimeError", "something else", Outcome.REJECTED_BADLY, Layer.ENGINE),
        ("RuntimeError", "CUDA error: device-side assert triggered", Outcome.CRASHED, Layer.ENGINE),
        ("OverflowError", "int too big to convert", Outcome.UNKNOWN, Layer.TOKENIZER),
    ],
)
def test_exceptions_of_the_library(error_type: str, message: str, outcome: Outcome, layer: Layer) -> None:
    found = raised(error_type, message, KNOWN, {})
    assert (found.outcome, found.layer) == (outcome, layer)
    failure = Failure(where="exception", message=message, error_type=error_type)
    one = exchange(130, 8, failure=failure, done=False, finish_reason=None, usage=None)
    assert read(one, KNOWN).outcome is outcome


def test_a_failed_check_on_the_device_ends_the_process_for_all_that_follows() -> None:
    words = "CUDA error: device-side assert triggered"
    stderr = "indexSelectLargeIndex: block: [0,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
    end = ProcessEnd(exit_code=0, stderr_tail=(stderr,))
    by_task = replace(seen({"error_type": "RuntimeError", "error": words}), client=end)
    failure = Failure(where="exception", message=words, error_type="RuntimeError")
    by_request = replace(seen({}), exchanges=(exchange(130, 8, failure=failure, done=False),))
    [one] = common(Probe(name="x"), by_task)
    assert (one.outcome, one.layer) == (Outcome.CRASHED, Layer.POSITIONS)
    [one] = common(Probe(name="x"), by_request)
    assert (one.outcome, one.layer) == (Outcome.CRASHED, Layer.ENGINE)
    assert common(Probe(name="x"), seen(INDEX_ERROR)) == []


def test_the_search_for_the_limit_stops_where_nothing_ends_it() -> None:
    def searched(of: Knowledge, largest: int | None, past: bool) -> list[str]:
        plan = find_limit.SCENARIO.plan(of, Random(0))
        probe: Probe | Skip = next(plan)
        names: list[str] = []
        while True:
            assert isinstance(probe, Probe)
            names.append(probe.name)
            size = int(probe.about["size_tokens"])
            if largest is not None and size > largest and not past:
                failure = Failure(where="exception", message="index out of range in self", error_type="IndexError")
                answers = tuple(exchange(size, 1, failure=failure, done=False) for _ in probe.requests)
            else:
                answers = tuple(exchange(size, one.reply_tokens or 1) for one in probe.requests)
                answers = tuple(replace(a, request=r) for a, r in zip(answers, probe.requests, strict=True))
            what = replace(seen({}, of), exchanges=answers)
            [last] = list(find_limit.SCENARIO.judge(probe, what))
            try:
                probe = plan.send(what)
            except StopIteration:
                assert ("measured_tokens" in last.evidence) == (of is KNOWN)
                return names

    edge = ["control-80", "prompt-127", "prompt-128", "prompt-129", "edge-128"]
    assert searched(KNOWN, 128, past=False) == edge
    assert searched(KNOWN, None, past=True) == edge
    assert searched(CONTROL, None, past=True) == ["control-160", "prompt-1024", "prompt-2048", "edge-2048"]


@pytest.mark.parametrize("scenario", [*(one.name for one in SCENARIOS), "find-limit"])
def test_every_finding_has_a_remedy_of_its_own(scenario: str) -> None:
    for outcome in (Outcome.DEGRADED, Outcome.REJECTED_BADLY, Outcome.UNKNOWN):
        advice = remedy(outcome, flavour="transformers", scenario=scenario, layer=Layer.POSITIONS)
        assert advice
        assert "status" not in advice
    assert Policy().verdict(Outcome.UNKNOWN, frozenset()) is Verdict.UNKNOWN


# ── intervals ────────────────────────────────────────────────────────────────────────────────────


def test_shares() -> None:
    low, high = share_interval(8, 12)
    assert (round(low, 3), round(high, 3)) == (0.391, 0.862)  # Wilson, 1927; by hand
    assert share_interval(0, 0) == (0.0, 1.0)
    assert share_interval(0, 12)[0] == 0.0
    assert share_interval(12, 12)[1] == 1.0
    with pytest.raises(ValueError, match="successes=3"):
        share_interval(3, 2)


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_share_lies_in_its_interval(successes: int, more: int) -> None:
    total = successes + more
    low, high = share_interval(successes, total)
    assert 0 <= low <= high <= 1
    if total:
        assert low <= successes / total + 1e-12
        assert successes / total - 1e-12 <= high


def test_means() -> None:
    low, high = mean_interval(1.0, 2.0, 16)
    assert (round(low, 4), round(high, 4)) == (-0.0657, 2.0657)  # t = 2.1314 for 15 degrees
    assert mean_interval(1.0, 2.0, 1) == (float("-inf"), float("inf"))
