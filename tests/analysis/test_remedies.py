"""Every outcome of every engine has a remedy, and the remedy names that engine's own setting."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.remedies import ANY, REMEDIES, remedy
from contextlab.analysis.signatures import FLAVOURS
from contextlab.model import Layer, Outcome

WORST = [outcome for outcome in Outcome if outcome is not Outcome.OK]


@pytest.mark.parametrize("flavour", [*FLAVOURS, "", "an-engine-nobody-knows"])
@pytest.mark.parametrize("outcome", WORST, ids=str)
def test_every_outcome_has_a_remedy(outcome: Outcome, flavour: str) -> None:
    assert remedy(outcome, flavour=flavour)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_held_needs_no_remedy(flavour: str) -> None:
    assert remedy(Outcome.OK, flavour=flavour) == ""


@given(
    st.sampled_from(WORST),
    st.sampled_from(FLAVOURS),
    st.text(),
    st.sampled_from([None, *Layer]),
    st.dictionaries(
        st.sampled_from(["out_of_memory", "kind", "n_ctx"]), st.sampled_from([True, False, None, "pool", 1])
    ),
)
def test_a_remedy_is_found_whatever_is_known(
    outcome: Outcome,
    flavour: str,
    scenario: str,
    layer: Layer | None,
    evidence: dict[str, int | float | str | bool | None],
) -> None:
    assert remedy(outcome, flavour=flavour, scenario=scenario, layer=layer, evidence=evidence)


@pytest.mark.parametrize(
    ("flavour", "outcome", "about", "settings"),
    [
        ("llama-server", Outcome.NEIGHBOUR_ABORTED, {}, ["--no-kv-unified", "-c ", "--parallel", "kv_unified=false"]),
        ("llama-server", Outcome.SHIFTED, {}, ["--context-shift"]),
        ("llama-server", Outcome.REJECTED, {"signature": "llama-prompt-too-long"}, ["-c (--ctx-size)"]),
        ("llama-server", Outcome.REJECTED, {"signature": "llama-batch-too-small"}, ["--ubatch-size", "--batch-size"]),
        ("llama-server", Outcome.RUNAWAY, {}, ["--predict", "max_tokens"]),
        ("llama-server", Outcome.CRASHED, {"evidence": {"out_of_memory": True}}, ["--ctx-size", "--cache-type-k"]),
        ("llama-server", Outcome.CUT, {"layer": Layer.KV_CACHE}, ["--no-kv-unified"]),
        ("vllm", Outcome.HUNG, {"scenario": "kv-exhaustion"}, ["--max-model-len", "--gpu-memory-utilization"]),
        ("vllm", Outcome.HUNG, {"layer": Layer.KV_CACHE}, ["num_gpu_blocks − 1", "block_size"]),
        ("vllm", Outcome.CRASHED, {"evidence": {"kind": "out-of-memory"}}, ["--max-num-batched-tokens"]),
        ("ollama", Outcome.TRUNCATED_HEAD, {}, ["options.num_ctx", "OLLAMA_CONTEXT_LENGTH", "truncate:false", "/v1"]),
        ("sglang", Outcome.TRUNCATED_TAIL, {}, ["--allow-auto-truncate"]),
        ("tgi", Outcome.TRUNCATED_HEAD, {}, ["`truncate`", "--max-input-tokens", "--max-total-tokens"]),
        ("transformers", Outcome.CRASHED, {"layer": Layer.POSITIONS}, ["max_position_embeddings"]),
        ("other", Outcome.REJECTED, {}, ["max_tokens"]),
        ("other", Outcome.CAPPED, {}, ["finish_reason=length"]),
    ],
)
def test_a_remedy_names_the_setting_of_that_engine(
    flavour: str, outcome: Outcome, about: dict[str, object], settings: list[str]
) -> None:
    text = remedy(outcome, flavour=flavour, **about)  # type: ignore[arg-type]
    for setting in settings:
        assert setting in text


def test_a_want_of_memory_is_told_from_a_crash_of_another_cause() -> None:
    crashed = remedy(Outcome.CRASHED, flavour="vllm", evidence={"out_of_memory": False})
    starved = remedy(Outcome.CRASHED, flavour="vllm", evidence={"out_of_memory": True})
    assert crashed != starved


def test_the_table_speaks_only_of_flavours_that_exist() -> None:
    assert {flavour for flavour, _, _ in REMEDIES} <= {*FLAVOURS, ANY}
    assert {outcome for flavour, outcome, about in REMEDIES if (flavour, about) == (ANY, "")} == set(Outcome)


@pytest.mark.parametrize("key", REMEDIES, ids=str)
def test_a_remedy_is_one_or_two_sentences(key: tuple[str, Outcome, str]) -> None:
    text = REMEDIES[key]
    assert len(re.findall(r"\.(?: |$)", text)) <= 2
    assert text == text.strip()
    assert not text or text[0].isupper()
    assert not text or text.endswith(".")
