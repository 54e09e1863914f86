"""What each kind of evidence is judged to be; and that judges are total."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.judging import common, read, shift
from contextlab.model import (
    Exchange,
    Failure,
    Health,
    Observation,
    Outcome,
    ProcessEnd,
    Usage,
)
from tests.analysis.seen import KNOWN, PROBE, REFUSAL, exchange, failed, observation


def outcomes(seen: Observation) -> list[Outcome]:
    return [judgement.outcome for judgement in common(PROBE, seen)]


# ── one exchange ──


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (exchange(sent=400), Outcome.OK),
        (failed("http", status=400), Outcome.REJECTED),
        (failed("http", status=413), Outcome.REJECTED),
        (failed("http", status=500), Outcome.REJECTED_BADLY),
        (failed("http", "bad request", status=400), Outcome.REJECTED_BADLY),
        (failed("http", "invalid api key", status=401), Outcome.UNKNOWN),
        (failed("http", "Rate limit reached: too many tokens per minute", status=429), Outcome.UNKNOWN),
        (failed("stream", status=200), Outcome.REJECTED_BADLY),
        (failed("transport", "peer closed the connection"), Outcome.CUT),
        (failed("protocol", "not JSON", status=200), Outcome.REJECTED_BADLY),
        (failed("timeout", "waited 5 s"), Outcome.HUNG),
        (exchange(sent=400, done=False), Outcome.CUT),
        (exchange(sent=400, finish_reason=None), Outcome.CUT),
        (exchange(sent=400, text="", usage=Usage(prompt_tokens=400, completion_tokens=0)), Outcome.EMPTY),
        (exchange(sent=400, finish_reason="length"), Outcome.CAPPED),
        (exchange(sent=510, usage=Usage(prompt_tokens=510, completion_tokens=40)), Outcome.SHIFTED),
        (exchange(sent=400, hung_up=True, done=False, finish_reason=None), Outcome.RUNAWAY),
    ],
)
def test_reading_one_exchange(seen: Exchange, outcome: Outcome) -> None:
    assert read(seen, KNOWN).outcome is outcome


def test_a_reply_cut_at_its_own_max_tokens_is_no_cap() -> None:
    asked = exchange(sent=400, finish_reason="length", usage=Usage(prompt_tokens=400, completion_tokens=8))
    assert read(asked, KNOWN).outcome is Outcome.OK


def test_a_refusal_that_quotes_less_than_was_accepted_is_bad() -> None:
    assert read(failed("http", status=400), KNOWN, accepted_tokens=511).outcome is Outcome.REJECTED
    assert read(failed("http", status=400), KNOWN, accepted_tokens=513).outcome is Outcome.REJECTED_BADLY


def test_a_refusal_that_counts_wrongly_is_bad_but_a_lower_bound_is_not() -> None:
    assert read(failed("http", status=400, sent=700), KNOWN).outcome is Outcome.REJECTED_BADLY
    words = (
        "This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
    )
    known = replace(KNOWN, flavour="vllm")
    assert read(failed("http", words, status=400, sent=900), known).outcome is Outcome.REJECTED


def test_more_room_than_declared_is_not_a_shift() -> None:
    beyond = exchange(sent=510, usage=Usage(prompt_tokens=510, completion_tokens=40))
    assert shift(beyond, KNOWN) is not None
    assert shift(beyond, KNOWN, accepted_tokens=600) is None
    assert shift(exchange(sent=600), KNOWN) is None


def test_a_shift_names_what_was_lost_from_the_log() -> None:
    line = "W slot operator(): id 0 | task 1 | slot context shift, n_keep = 0, n_left = 511, n_discard = 255"
    beyond = exchange(sent=510, usage=Usage(prompt_tokens=510, completion_tokens=40))
    judged = shift(beyond, KNOWN, log_lines=[line, "nothing", line])
    assert judged is not None
    assert (judged.evidence["num_shifts"], judged.evidence["n_discard"]) == (2, 255)
    assert "255 oldest tokens" in judged.why


def test_a_reply_still_flowing_when_time_is_up_does_not_hang() -> None:
    times = tuple(1.0 + index / 100 for index in range(400))
    flowing = failed("timeout", "waited 4 s", sent=100)
    flowing = replace(flowing, token_s=times, ended_s=5.0, request=replace(flowing.request, reply_tokens=None))
    assert read(flowing, KNOWN).outcome is Outcome.UNKNOWN
    assert Outcome.HUNG not in outcomes(observation(flowing))
    endless = replace(flowing, token_s=tuple(1.0 + index / 500 for index in range(1999)))
    assert read(endless, KNOWN).outcome is Outcome.RUNAWAY


# ── the common judgements ──


def test_a_dead_server_is_crashed_and_nothing_else() -> None:
    end = ProcessEnd(signal="SIGABRT", stderr_tail=("x.cpp:12: GGML_ASSERT(n <= m) failed",))
    broken = exchange(failure=Failure(where="transport", message="closed"), done=False)
    [judged] = common(PROBE, observation(failed("transport"), server=end, neighbour=broken, aftermath=broken))
    assert judged.outcome is Outcome.CRASHED
    assert judged.evidence["signal"] == "SIGABRT"
    assert "GGML_ASSERT" in judged.why


def test_an_out_of_memory_kill_says_so() -> None:
    [judged] = common(PROBE, observation(server=ProcessEnd(signal="SIGKILL", out_of_memory=True)))
    assert "memory limit" in judged.why
    [unproven] = common(PROBE, observation(server=ProcessEnd(signal="SIGKILL")))
    assert "memory" not in unproven.why


def test_a_running_server_and_a_child_that_ended_well_are_no_deaths() -> None:
    assert outcomes(observation(exchange(sent=400), server=ProcessEnd())) == []


@pytest.mark.parametrize("end", [ProcessEnd(signal="SIGSEGV"), ProcessEnd(exit_code=1), ProcessEnd(exit_code=139)])
def test_a_dead_child_is_crashed(end: ProcessEnd) -> None:
    assert outcomes(observation(client=end)) == [Outcome.CRASHED]


def test_a_shell_between_does_not_hide_the_signal() -> None:
    [judged] = common(PROBE, observation(server=ProcessEnd(exit_code=139)))
    assert judged.evidence["signal"] == "SIGSEGV"
    assert "exit code 139" in judged.why
    [plain] = common(PROBE, observation(server=ProcessEnd(exit_code=1)))
    assert "signal" not in plain.evidence


def test_a_child_killed_at_its_deadline_hung() -> None:
    assert outcomes(observation(client=ProcessEnd(signal="SIGKILL", timed_out=True))) == [Outcome.HUNG]


def test_a_target_that_is_not_ours_and_refuses_connections_has_crashed() -> None:
    gone = failed("connect", "connection refused")
    assert outcomes(observation(failed("http", status=400), aftermath=gone)) == [Outcome.CRASHED]


def test_a_hang_tells_what_health_said_meanwhile() -> None:
    looks = (Health(at_s=1.0, healthy=True), Health(at_s=2.0, healthy=True))
    [judged] = common(PROBE, observation(failed("timeout", "waited 5 s for the reply"), health=looks))
    assert judged.outcome is Outcome.HUNG
    assert "green in 2 of 2" in judged.why


def test_a_neighbour_that_waits_for_ever_is_a_hang_too() -> None:
    assert outcomes(observation(exchange(sent=400), neighbour=failed("timeout"))) == [Outcome.HUNG]


def test_an_ended_neighbour_is_aborted() -> None:
    words = "Context size has been exceeded."
    ended = replace(failed("stream", words, status=200), token_s=(1.0, 1.1, 1.2))
    [judged] = common(PROBE, observation(failed("http", status=400), neighbour=ended))
    assert judged.outcome is Outcome.NEIGHBOUR_ABORTED
    assert "after 3 tokens" in judged.why


def test_a_changed_neighbour_is_corrupted_only_if_it_repeats_undisturbed() -> None:
    changed = exchange(text="as it is", sent=30)
    again = (exchange(text="as it was", sent=30),) * 2
    seen = observation(exchange(sent=400), neighbour=changed, neighbour_again=again)
    assert outcomes(seen) == [Outcome.NEIGHBOUR_CORRUPTED]
    noisy = replace(seen, neighbour_again=(exchange(text="as it was", sent=30), exchange(text="as it were", sent=30)))
    assert outcomes(noisy) == [Outcome.UNKNOWN]
    assert outcomes(replace(seen, neighbour_again=())) == [Outcome.UNKNOWN]


def test_an_unstable_neighbour_is_not_compared() -> None:
    changed = observation(exchange(sent=400), neighbour=exchange(text="as it is", sent=30))
    assert outcomes(replace(changed, knowledge=replace(KNOWN, neighbour_stable=False))) == []


def test_another_clients_secret_is_a_leak_and_what_else_it_shows_is_not_asked() -> None:
    secret = "the copper violin"
    beside = exchange(sent=30, text="as it was")
    beside = replace(beside, request=replace(beside.request, secret=secret))
    seen = observation(exchange(text=f"and {secret} sang"), neighbour=beside)
    assert outcomes(seen) == [Outcome.LEAKED]


def test_a_failing_aftermath_is_degraded() -> None:
    assert outcomes(observation(failed("http", status=400), aftermath=failed("http", "boom", status=500))) == [
        Outcome.DEGRADED
    ]


ends = st.builds(
    ProcessEnd,
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.sampled_from(["SIGKILL", "SIGSEGV"]),
    timed_out=st.booleans(),
    out_of_memory=st.none() | st.booleans(),
)
failures = st.builds(
    Failure,
    where=st.sampled_from(["connect", "http", "stream", "transport", "timeout", "protocol", "elsewhere"]),
    message=st.sampled_from([REFUSAL, "", "boom"]) | st.text(max_size=40),
    status=st.none() | st.integers(100, 599),
)
usages = st.builds(
    Usage,
    prompt_tokens=st.none() | st.integers(0, 2000),
    completion_tokens=st.none() | st.integers(0, 2000),
    evaluated_tokens=st.none() | st.integers(0, 2000),
)


@st.composite
def exchanges(draw: Any) -> Exchange:
    return exchange(
        sent=draw(st.integers(1, 2000)),
        exact=draw(st.booleans()),
        failure=draw(st.none() | failures),
        done=draw(st.booleans()),
        hung_up=draw(st.booleans()),
        finish_reason=draw(st.none() | st.sampled_from(["stop", "length"])),
        text=draw(st.text(max_size=20)),
        token_s=tuple(sorted(draw(st.lists(st.floats(1.0, 9.0), max_size=5)))),
        ended_s=draw(st.none() | st.floats(9.0, 12.0)),
        usage=draw(st.none() | usages),
    )


@given(st.lists(exchanges(), max_size=3), st.none() | exchanges(), st.none() | exchanges(), ends, st.none() | ends)
def test_the_common_judgements_are_total(
    main: list[Exchange], beside: Exchange | None, after: Exchange | None, client: ProcessEnd, server: ProcessEnd | None
) -> None:
    seen = observation(*main, neighbour=beside, aftermath=after, client=client, server=server)
    for judgement in common(PROBE, seen):
        assert judgement.outcome is not Outcome.OK
        assert judgement.why


@given(exchanges(), st.integers(0, 1000))
def test_reading_is_total_and_a_failure_is_never_ok(seen: Exchange, accepted: int) -> None:
    judged = read(seen, KNOWN, accepted_tokens=accepted)
    assert judged.why
    if seen.failure is not None or not seen.done:
        assert judged.outcome not in (Outcome.OK, Outcome.CAPPED)
