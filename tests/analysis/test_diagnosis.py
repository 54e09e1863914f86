"""From lines of a log to what happened, and what to change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.diagnosis import diagnose
from contextlab.analysis.signatures import KINDS, signatures
from contextlab.model import Outcome, Policy, Verdict

REFUSED = "request (700 tokens) exceeds the available context size (512 tokens), try increasing it"
SHIFT = "slot context shift, n_keep = 0, n_left = 511, n_discard = 255"
VLLM = next(one.example for one in signatures() if one.engine == "vllm" and one.kind == "overflow")


def test_each_kind_is_told_once_with_its_place_and_the_worst_first() -> None:
    found = diagnose(["started", REFUSED, SHIFT, "ok", SHIFT])
    assert (found.engine, found.num_lines, found.num_known) == ("llama-server", 5, 3)
    shifted, refused = found.sightings
    assert (shifted.outcome, shifted.verdict, shifted.count, shifted.lines) == (
        Outcome.SHIFTED,
        Verdict.FAIL,
        2,
        (3, 5),
    )
    assert shifted.numbers["n_discard"] == 255
    assert "--context-shift" in shifted.remedy
    assert (refused.outcome, refused.verdict, refused.lines) == (Outcome.REJECTED, Verdict.PASS, (2, 2))
    assert refused.numbers == {"prompt_tokens": 700, "limit_tokens": 512}
    assert found.verdict is Verdict.FAIL


def test_an_input_over_the_batch_is_not_sent_to_a_larger_window() -> None:
    [one] = diagnose(["input is too large to process. increase the physical batch size"]).sightings
    assert "--ubatch-size" in one.remedy
    assert "--ctx-size" not in one.remedy


def test_nothing_known_is_not_a_pass() -> None:
    assert diagnose(["started", "listening"]).verdict is Verdict.UNKNOWN
    assert diagnose([]).verdict is Verdict.UNKNOWN


def test_the_policy_moves_the_line() -> None:
    assert diagnose([SHIFT], policy=Policy(allow=frozenset({Outcome.SHIFTED}))).verdict is Verdict.PASS
    assert diagnose([REFUSED], policy=Policy(fail_on=frozenset({Outcome.REJECTED}))).verdict is Verdict.FAIL


def test_a_body_of_many_lines_is_one_message() -> None:
    lines = ["{", *REFUSED.replace("exceeds the", "exceeds\nthe").splitlines(), "}"]
    [one] = diagnose(lines).sightings
    assert (one.engine, one.kind, one.lines) == ("llama-server", "overflow", (1, 4))


def test_whose_words_they_are_may_be_said() -> None:
    assert diagnose(["prompt too long"], engine="mlx").engine == "mlx"
    assert diagnose([VLLM, VLLM, REFUSED]).engine == "vllm"


@pytest.mark.parametrize("one", signatures(), ids=lambda one: one.id)
def test_every_signature_comes_to_a_verdict_and_what_is_bad_has_a_remedy(one: object) -> None:
    example = one.example  # type: ignore[attr-defined]
    found = diagnose(example.splitlines())
    assert found.sightings
    for sighting in found.sightings:
        assert sighting.kind in KINDS
        assert sighting.remedy or sighting.kind in ("adjusted", "not-overflow")
        assert (sighting.verdict is Verdict.PASS) == (
            sighting.kind in ("overflow", "capped", "adjusted", "not-overflow")
        )


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from([REFUSED, SHIFT, VLLM])), max_size=20))
def test_whatever_is_read_comes_to_an_end_in_which_nothing_is_counted_twice(lines: list[str]) -> None:
    found = diagnose(lines)
    assert found.num_lines == len(lines)
    assert found.num_known <= max(1, len(lines))
    for one in found.sightings:
        assert 1 <= one.lines[0] <= one.lines[1] <= len(lines)
        assert one.count <= one.lines[1] - one.lines[0] + 1
