"""Which end of a prompt was read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.ends import about_control, judge_reading, recalled
from contextlab.analysis.prompts import PLACES
from contextlab.model import Exchange, Outcome, Probe, Usage
from tests.analysis.seen import KNOWN, PROBE, failed, recalling

WEAK = Probe(name="p", about={"control_HEAD": 0, "control_MIDDLE": 0, "control_TAIL": 0})


def asked(kept: str, read: int, sent: int = 600) -> list[Exchange]:
    """Three exchanges of which the named places came back."""
    return [recalling(place, sent, read=read, back=place in kept.split()) for place in PLACES]


@pytest.mark.parametrize(
    ("kept", "outcome"),
    [
        ("MIDDLE TAIL", Outcome.TRUNCATED_HEAD),
        ("TAIL", Outcome.TRUNCATED_HEAD),
        ("HEAD TAIL", Outcome.TRUNCATED_MIDDLE),
        ("HEAD", Outcome.TRUNCATED_TAIL),
        ("", Outcome.TRUNCATED_TAIL),
    ],
)
def test_short_counts_and_codes_name_the_end(kept: str, outcome: Outcome) -> None:
    judged = judge_reading(PROBE, asked(kept, read=448), KNOWN)
    assert judged.outcome is outcome
    assert judged.evidence["missing_tokens"] == 152


def test_full_counts_inside_the_window_outweigh_a_forgotten_code() -> None:
    """A weak model forgets codes that it did read."""
    assert judge_reading(PROBE, asked("TAIL", read=400, sent=400), KNOWN).outcome is Outcome.OK


def test_full_counts_past_the_window_do_not() -> None:
    assert judge_reading(PROBE, asked("MIDDLE TAIL", read=600), KNOWN).outcome is Outcome.TRUNCATED_HEAD
    assert judge_reading(PROBE, asked("HEAD MIDDLE TAIL", read=600), KNOWN).outcome is Outcome.OK


def test_a_model_that_repeats_nothing_leaves_the_end_to_what_is_known_of_the_engine() -> None:
    assert judge_reading(WEAK, asked("", read=448), KNOWN).outcome is Outcome.TRUNCATED_HEAD
    sglang = replace(KNOWN, flavour="sglang")
    judged = judge_reading(WEAK, asked("", read=448), sglang)
    assert judged.outcome is Outcome.TRUNCATED_TAIL
    assert "inferred" in judged.why


def test_a_weak_model_past_the_window_with_full_counts_is_not_accused() -> None:
    assert judge_reading(WEAK, asked("", read=600), KNOWN).outcome is Outcome.OK


def test_a_refusal_is_read_before_any_code() -> None:
    assert judge_reading(PROBE, [failed("http", status=400)], KNOWN).outcome is Outcome.REJECTED


def test_the_evidence_used_is_named() -> None:
    by_count = judge_reading(PROBE, asked("HEAD MIDDLE TAIL", read=400, sent=400), KNOWN)
    assert "says it read 400 of 400" in str(by_count.evidence["evidence_used"])
    silent = [replace(one, usage=None) for one in asked("HEAD MIDDLE TAIL", read=400, sent=400)]
    assert "codes alone" in str(judge_reading(PROBE, silent, KNOWN).evidence["evidence_used"])


def test_control_round_trips_through_about() -> None:
    about = about_control(recalled(asked("HEAD TAIL", read=400, sent=400)))
    assert about == {"control_HEAD": 1, "control_MIDDLE": 0, "control_TAIL": 1}


@given(st.sets(st.sampled_from(PLACES)), st.integers(1, 2000), st.none() | st.integers(0, 2000), st.booleans())
def test_judging_is_total_and_short_counts_never_pass(
    kept: set[str], sent: int, read: int | None, strong: bool
) -> None:
    seen = [recalling(place, sent, read=read, back=place in kept) for place in PLACES]
    if read is None:
        seen = [replace(one, usage=Usage()) for one in seen]
    judged = judge_reading(PROBE if strong else WEAK, seen, KNOWN)
    if read is not None and sent - read > 20:
        assert judged.outcome.name.startswith("TRUNCATED") or judged.outcome is Outcome.SHIFTED


def test_without_counts_and_without_a_code_nothing_is_known() -> None:
    """A long answer to an over-long prompt is no proof that the prompt was read."""
    silent = [replace(one, usage=None) for one in asked("", read=600)]
    assert judge_reading(WEAK, silent, KNOWN).outcome is Outcome.UNKNOWN


def test_one_token_is_told_in_the_singular() -> None:
    [short] = asked("", read=400, sent=400)[:1]
    short = replace(short, usage=Usage(prompt_tokens=400, completion_tokens=1))
    assert judge_reading(PROBE, [short], KNOWN).why.startswith("answered: 1 token, finish_reason ")


def test_a_prompt_that_nobody_counted_leaves_no_question_mark() -> None:
    exchanges = [replace(one, prompt_tokens=None) for one in asked("HEAD MIDDLE TAIL", read=400)]
    why = judge_reading(PROBE, exchanges, KNOWN).why
    assert "it says it read 400 tokens" in why
    assert "?" not in why
