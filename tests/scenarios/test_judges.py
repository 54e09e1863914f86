"""What the judges of the edge scenarios make of observations made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextlab.model import Exchange, Gauges, Judgement, Observation, Outcome, Probe, Usage
from contextlab.scenarios.overflow import (
    after_the_storm,
    conversation_growth,
    find_limit,
    kv_exhaustion,
    reply_past_window,
    token_blowup,
)
from tests.analysis.seen import KNOWN, exchange, failed, observation, recalling

POOL = "Context size has been exceeded."
MIB = 1 << 20


def judged(scenario: Any, seen: Observation, **about: Any) -> list[Judgement]:
    """The judgements of a scenario's judge on a probe with these numbers."""
    probe = Probe(name="p", requests=tuple(one.request for one in seen.exchanges), about=about)
    return list(scenario.SCENARIO.judge(probe, seen))


def outcomes(scenario: Any, seen: Observation, **about: Any) -> list[Outcome]:
    return [judgement.outcome for judgement in judged(scenario, seen, **about)]


# ── find_limit ──


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (511, "has 511 tokens, as a window of 512 promises;"),
        (600, "has 600 tokens, more than the declared window of 512;"),
    ],
)
def test_a_limit_that_is_larger_than_declared_is_no_promise_kept(measured: int, words: str) -> None:
    about = {"role": "edge", "accepted_tokens": measured, "measured_tokens": measured, "window_tokens": 512}
    [found] = judged(find_limit, observation(recalling("HEAD", 400, read=400)), **about)
    assert found.outcome is Outcome.OK
    assert words in found.why


# ── after_the_storm ──


def storm(**after: Any) -> Observation:
    before = Gauges(busy_slots=0, waiting_requests=0, memory_bytes=400 * MIB)
    return observation(knowledge=replace(KNOWN, gauges=before), gauges=replace(before, **after))


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        ({}, Outcome.OK),
        ({"memory_bytes": 450 * MIB}, Outcome.OK),
        ({"memory_bytes": 900 * MIB}, Outcome.DEGRADED),
        ({"busy_slots": 1}, Outcome.DEGRADED),
        ({"waiting_requests": 2}, Outcome.DEGRADED),
    ],
)
def test_after_the_storm_compares_with_the_opening(after: dict[str, int], outcome: Outcome) -> None:
    assert outcomes(after_the_storm, storm(**after)) == [outcome]


# ── kv_exhaustion ──


def test_requests_that_are_all_answered_only_waited() -> None:
    [found] = judged(kv_exhaustion, observation(exchange(sent=300), exchange(sent=300)))
    assert found.outcome is Outcome.OK
    assert found.evidence["answered"] == 2


def test_a_full_pool_is_somebody_elses_doing_to_every_request_of_a_crowd() -> None:
    seen = observation(exchange(sent=300), failed("http", POOL, status=500), failed("stream", POOL, status=200))
    [found] = judged(kv_exhaustion, seen)
    assert found.outcome is Outcome.NEIGHBOUR_ABORTED
    assert found.why.startswith("2 of 3 requests")


def test_preemption_is_degradation() -> None:
    before, after = Gauges(preemptions=1), Gauges(preemptions=4)
    seen = observation(exchange(sent=300), knowledge=replace(KNOWN, gauges=before), gauges=after)
    assert Outcome.DEGRADED in outcomes(kv_exhaustion, seen)


# ── conversation_growth ──


def test_a_turn_is_judged_by_its_foreseen_size_where_none_was_counted() -> None:
    uncounted = [
        replace(recalling(place, read=448, back=place != "HEAD"), prompt_tokens=None, exact=False) for place in PLACES
    ]
    control = {"control_HEAD": 1, "control_MIDDLE": 1, "control_TAIL": 1}
    [found] = judged(conversation_growth, observation(*uncounted), turn=5, foreseen_tokens=640, **control)
    assert found.outcome is Outcome.TRUNCATED_HEAD
    assert found.why.startswith("turn 5: ")


def test_a_refused_turn_is_named() -> None:
    [found] = judged(conversation_growth, observation(failed("http", status=400)), turn=4)
    assert (found.outcome, found.evidence["turn"]) == (Outcome.REJECTED, 4)


PLACES = ("HEAD", "MIDDLE", "TAIL")

# ── reply_past_window ──


def test_a_reply_that_ended_by_itself_has_tested_nothing() -> None:
    short = exchange(sent=488, usage=Usage(prompt_tokens=488, completion_tokens=5))
    assert outcomes(reply_past_window, observation(short)) == [Outcome.UNKNOWN]


def test_a_reply_capped_at_the_window_says_so() -> None:
    capped = exchange(sent=488, finish_reason="length", usage=Usage(prompt_tokens=488, completion_tokens=24))
    capped = replace(capped, request=replace(capped.request, reply_tokens=512))
    assert outcomes(reply_past_window, observation(capped)) == [Outcome.CAPPED]


def test_a_runaway_carries_what_the_log_says_of_the_shift() -> None:
    line = "W slot operator(): id 0 | task 1 | slot context shift, n_keep = 0, n_left = 511, n_discard = 255"
    endless = exchange(sent=488, hung_up=True, done=False, usage=None, token_s=tuple(map(float, range(1100))))
    [found] = judged(reply_past_window, observation(endless, log_lines=(line,)))
    assert (found.outcome, found.evidence["n_discard"]) == (Outcome.RUNAWAY, 255)


# ── token_blowup ──


def blown(read: int, *samples: int) -> Observation:
    """A text of which `read` tokens were read, after samples of which these many were; nothing was counted by us."""

    def one(name: str, tokens: int, ask: str = "TAIL", *, back: bool = True) -> Exchange:
        made = recalling(ask, read=tokens, back=back)
        return replace(made, request=replace(made.request, name=name), prompt_tokens=None, exact=False)

    names = [one(f"sample-{number}", tokens) for number, tokens in enumerate(samples, 1)]
    return observation(*names, one("ask:HEAD", read, "HEAD", back=False), one("ask:TAIL", read))


ABOUT = {"characters": 1740, "estimate_tokens": 435, "num_parts": 16, "control_HEAD": 1, "control_TAIL": 1}


def test_samples_foretell_the_size_and_so_the_cut() -> None:
    [found] = judged(token_blowup, blown(448, 100, 160), **ABOUT)  # 100 + 15 · 60 = 1000 were sent
    assert found.outcome is Outcome.TRUNCATED_HEAD
    assert "really about 1000" in found.why
    assert outcomes(token_blowup, blown(990, 100, 160), **ABOUT) == [Outcome.OK]


def test_samples_that_were_cut_themselves_foretell_nothing() -> None:
    assert outcomes(token_blowup, blown(448, 448, 448), **ABOUT) == [Outcome.UNKNOWN]
