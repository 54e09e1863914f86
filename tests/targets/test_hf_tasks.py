"""The tasks of the hf target on tiny real models: what torch and transformers really do at the boundary."""

from __future__ import annotations

from importlib.util import find_spec
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.targets.inside.caches import overfed, random_ids
from contextlab.targets.inside.positions import STRETCHES, Texts, likelihood, sampled
from contextlab.targets.inside.random_models import ARCHITECTURES
from contextlab.targets.inside.tokens import lost_end
from tests.targets.hf_models import WINDOW, measured, model

pytestmark = [
    pytest.mark.hf,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra hf"),
    pytest.mark.filterwarnings("ignore"),
]
EXACT = 1e-4
"""Difference of logits, in their spreads, that float32 alone makes."""


# ── positions ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["gpt2", "opt"])
@pytest.mark.parametrize("window", [None, 100])
def test_a_table_of_positions_ends_at_its_exact_length(name: str, window: int | None) -> None:
    edge = window or WINDOW
    found = measured("positions", model(name, window=window), inside_tokens=edge, past_tokens=2 * edge)
    assert (found["position_kind"], found["positions"]) == ("table", edge)
    assert (found["ok_tokens"], found["error_tokens"]) == (edge, edge + 1)
    assert (found["error_type"], found["error"]) == ("IndexError", "index out of range in self")


def test_an_edge_that_is_elsewhere_is_found_by_bisection() -> None:
    found = measured("positions", model("gpt2"), inside_tokens=64, past_tokens=300)
    assert (found["ok_tokens"], found["error_tokens"]) == (WINDOW, WINDOW + 1)
    found = measured("positions", model("gpt2"), inside_tokens=200, past_tokens=300)
    assert (found["ok_tokens"], found["error_tokens"]) == (WINDOW, WINDOW + 1)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in ("gpt2", "opt")])
def test_everything_else_goes_past_it_in_silence(name: str) -> None:
    found = measured("positions", model(name), inside_tokens=WINDOW, past_tokens=2 * WINDOW)
    assert "error_type" not in found
    assert (found["ok_tokens"], found["past_finite"], found["warned"]) == (2 * WINDOW, True, None)
    assert found["position_kind"] == ("ALiBi" if name == "bloom" else "rotary")
    assert found["nll_step_count"] == 16
    assert (found["past_far_asked"], found["past_near_asked"]) == (1, 1)


@pytest.mark.parametrize("name", ["gpt2", "opt"])
def test_a_longer_table_hides_the_error_and_nothing_else(name: str) -> None:
    found = measured("resized-table", model(name), inside_tokens=WINDOW, past_tokens=2 * WINDOW)
    assert (found["inside_agreement"], found["inside_max_difference"]) == (1.0, 0.0)
    assert found["past_agreement"] < 0.5
    assert measured("resized-table", model("llama"), inside_tokens=WINDOW, past_tokens=200) == {"table": None}


@pytest.mark.parametrize(("inside", "head"), [(64, 64), (128, 128), (1000, 300), (4000, 1024)])
def test_texts_are_exact_and_their_needles_as_far_as_they_should_be(inside: int, head: int) -> None:
    texts = Texts(model("llama"), head, inside, Random(1))
    for length in (inside, inside + head):
        text = texts.of(length)
        assert len(text.ids) == length
        for ask in text.asks:
            code = list(ask.code)
            assert text.ids[ask.at : ask.at + len(code)] == code
            assert text.ids[ask.at - ask.distance : ask.at - ask.distance + len(code)] == code
            if inside > 128:
                assert (ask.distance >= inside) == (ask.far and length > inside)
        assert sum(ask.far for ask in text.asks) * 2 == len(text.asks)
    assert texts.plain(7) == texts.plain(9)[:7]


def test_likelihood_compares_the_same_words() -> None:
    inside, width = 80, 80 // STRETCHES
    words = [(index, index % 5) for index in range(120)]
    picked = sampled(words, inside)
    assert all(word in picked for word in words if word[0] >= inside - 2 * width)
    losses = [
        (index, place, float(place) + 2 * (index >= inside) + (index >= inside - width)) for index, place in picked
    ]
    found = likelihood(losses, inside)
    assert (found["nll_slope_mean"], found["nll_step_mean"], found["nll_step_sd"]) == (1.0, 2.0, 0.0)
    assert (found["nll_inside"], found["nll_past"]) == (3.0, 5.0)


# ── caches ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_cache_is_consistent_inside(name: str) -> None:
    found = measured("cache-consistency", model(name), tokens=WINDOW // 4, steps=16)
    assert found["relative_difference"] < EXACT
    assert found["agreement"] == 1.0


@pytest.mark.parametrize(
    ("name", "edge", "same"),
    [
        ("llama", WINDOW, True),
        ("llama-linear", WINDOW, True),
        ("llama-yarn", WINDOW // 2, True),
        ("llama-llama3", WINDOW, True),
        ("mistral", WINDOW, True),
        ("gemma", WINDOW, True),
        ("deepseek", WINDOW, True),
        ("bloom", WINDOW, True),
        ("llama-dynamic", WINDOW, False),
        ("llama-longrope", WINDOW // 2, False),
        ("llama-longrope", WINDOW, True),
    ],
)
def test_only_scalings_that_look_at_the_length_are_inconsistent_across_an_edge(
    name: str, edge: int, same: bool
) -> None:
    found = measured("cache-consistency", model(name), tokens=edge + 16, steps=32)
    assert (found["relative_difference"] < EXACT) == same
    assert (found["agreement"] == 1.0) == same
    if not same:
        assert found["relative_difference"] > 1


@pytest.mark.parametrize("way", ["steps", "prompt"])
def test_a_full_static_cache_is_an_error(way: str) -> None:
    found = measured("cache-overflow", model("llama"), cache_tokens=64, tokens=72, way=way)
    assert found["error"] == "index_copy_(): index 64 is out of bounds for dimension 2 with size 64"
    assert found["ok_tokens"] == (64 if way == "steps" else 0)
    if way == "steps":
        assert found["inside_relative_difference"] < EXACT


@pytest.mark.parametrize("way", ["steps", "prompt"])
def test_sliding_layers_roll_and_answer_alike(way: str) -> None:
    found = measured("cache-overflow", model("mistral"), cache_tokens=64, tokens=72, way=way)
    assert (found["num_sliding_layers"], found["num_layers"], found["ok_tokens"]) == (2, 2, 72)
    assert found["past_relative_difference"] < EXACT


def careless(loaded: Any, length: int, *, ring: bool) -> Any:
    """A cache as people write them: past its end a slice takes nothing, or an index begins anew."""
    torch = loaded.torch
    cache = loaded.dynamic_cache()

    def update(layer: Any) -> Any:
        held: dict[str, Any] = {"count": 0}

        def store(keys: Any, values: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
            fed = keys.shape[-2]
            if "keys" not in held:
                shape = (*keys.shape[:2], length)
                held["keys"], held["values"] = (torch.zeros(*shape, some.shape[-1]) for some in (keys, values))
            for step in range(fed):
                at = held["count"] + step
                at = at % length if ring else at
                held["keys"][:, :, at : at + 1] = keys[:, :, step : step + 1][:, :, : max(0, length - at)]
                held["values"][:, :, at : at + 1] = values[:, :, step : step + 1][:, :, : max(0, length - at)]
            held["count"] += fed
            size = min(held["count"], length)
            return held["keys"][:, :, :size], held["values"][:, :, :size]

        layer.update = store
        layer.get_seq_length = lambda: held["count"]
        layer.get_mask_sizes = lambda fed: (min(held["count"] + fed, length), 0)
        return layer

    cache.layers = [update(layer) for layer in cache.layers] or None
    return cache


@pytest.mark.parametrize("ring", [False, True])
def test_a_silent_drop_and_an_overwrite_are_found_by_comparing(ring: bool) -> None:
    loaded = model("llama")
    cache = careless(loaded, 32, ring=ring)
    found: dict[str, Any] = {}
    for evidence in overfed(loaded, cache, random_ids(loaded, 40, 1), 32, in_one=False):
        found |= evidence
    assert "error_type" not in found
    assert found["ok_tokens"] == 40
    assert found["inside_relative_difference"] < EXACT
    assert found["past_relative_difference"] > 0.05


# ── types, generate(), tokenizers ────────────────────────────────────────────────────────────────


def test_types_that_do_not_match() -> None:
    pieces = {
        piece: measured("dtype-mismatch", model("llama"), piece=piece, tokens=32)
        for piece in ("growing cache", "static cache", "mask", "layer")
    }
    assert pieces["growing cache"]["became"] == "float32"
    assert 1e-3 < pieces["growing cache"]["relative_difference"] < 0.5
    assert "BFloat16 and (source) Float" in pieces["static cache"]["error"]
    assert "attn_mask.dtype: double" in pieces["mask"]["error"]
    assert "float != c10::BFloat16" in pieces["layer"]["error"]
    flat = measured("dtype-mismatch", model("bloom"), piece="mask", tokens=32)
    assert flat["mask_shape"] == "(1, T)"
    again = measured("dtype-mismatch", model("llama"), piece="growing cache", tokens=32)
    assert again == pieces["growing cache"]  # the layer is itself again


def test_generate_in_each_of_its_ways() -> None:
    near = WINDOW - 4
    learned, rope, alibi = (model(name) for name in ("gpt2", "llama", "bloom"))
    for loaded in (learned, rope, alibi):
        found = measured("generate-limits", loaded, prompt_tokens=near, max_new_tokens=5)
        assert (found["new_tokens"], found["total_tokens"]) == (5, WINDOW + 1)
    for about in ({"max_new_tokens": 8}, {"max_length": WINDOW + 4}, {"max_new_tokens": 8, "cache": "static"}):
        assert measured("generate-limits", learned, prompt_tokens=near, **about)["error_type"] == "IndexError"
        assert measured("generate-limits", rope, prompt_tokens=near, **about)["new_tokens"] == 8
    refused = measured("generate-limits", rope, prompt_tokens=WINDOW + 4)
    assert refused["error"].startswith(
        f"Input length of input_ids is {WINDOW + 4}, but `max_length` is set to {WINDOW}"
    )
    assert measured("generate-limits", alibi, prompt_tokens=WINDOW + 4)["new_tokens"] == 20
    full = measured("generate-limits", rope, prompt_tokens=60, max_new_tokens=8, cache="static:64")
    assert "index 64 is out of bounds" in full["error"]


def test_the_tokenizer_cuts_the_tail_unless_it_is_told_otherwise() -> None:
    loaded = model("llama")
    found = measured("tokenizer-truncation", loaded, max_tokens=WINDOW, way="default")
    assert (found["cut_tokens"], found["lost"], found["side"], found["unlimited"]) == (WINDOW, "tail", "right", False)
    loaded.tokenizer.truncation_side = "left"
    try:
        assert measured("tokenizer-truncation", loaded, max_tokens=WINDOW, way="length")["lost"] == "head"
    finally:
        loaded.tokenizer.truncation_side = "right"
    padded = measured("tokenizer-truncation", loaded, max_tokens=WINDOW - 1, way="pad")
    assert padded["cut_tokens"] == WINDOW  # one more than was allowed


def test_a_placeholder_makes_truncation_cut_nothing() -> None:
    found = measured("tokenizer-truncation", model("bloom"), max_tokens=WINDOW, way="default")
    assert (found["unlimited"], found["declared_tokens"], found["lost"]) == (True, None, "")
    assert found["cut_tokens"] == found["whole_tokens"] > WINDOW


@given(st.lists(st.integers(3, 6), max_size=30), st.data())
def test_which_end_is_lost(whole: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(whole)))
    assert lost_end(whole, whole) == ""
    if size < len(whole):
        assert lost_end(whole, whole[:size]) == "tail"
        assert lost_end([0, *whole], [0, *whole[:size]], frozenset({0})) == "tail"
        kept = whole[len(whole) - size :]
        assert lost_end(whole, kept) in ("head", "tail")  # a text that repeats itself may look like either
        assert lost_end([*range(3, 40)], [*range(9, 40)]) == "head"
        assert lost_end([3, 4, 5, 6], [3, 6]) == "other"
