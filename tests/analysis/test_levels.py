"""The steady part of a load: what counts, when there is enough of it, and what is told of too little."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.levels import MIN_ANSWERS, Level, client_doubt, closed_level, enough, open_level
from contextlab.experiment import Ending, GeneratorHealth, Sample
from contextlab.model import Failure, Usage

TOKENS = 8


def answer(index: int, due_s: float, began_s: float, ended_s: float) -> Sample:
    """A reply of `TOKENS` tokens: the first a quarter on the way, the last at its end."""
    length_s = ended_s - began_s
    first_s = began_s + length_s / 4
    times = tuple(first_s + (ended_s - first_s) * place / (TOKENS - 1) for place in range(TOKENS))
    return Sample(
        index=index,
        mixed=0,
        due_s=due_s,
        sent_s=due_s,
        ending=Ending.WHOLE,
        status=200,
        finish_reason="length",
        num_frames=TOKENS,
        num_done=1,
        content_s=times,
        ended_s=ended_s,
        usage=Usage(completion_tokens=TOKENS, prompt_tokens=4),
    )


def given_up(sample: Sample, at_s: float) -> Sample:
    """The same when the client gave it up then."""
    return replace(
        sample,
        ending=Ending.TIMEOUT,
        finish_reason=None,
        num_done=0,
        usage=None,
        content_s=tuple(one for one in sample.content_s if one <= at_s),
        ended_s=at_s,
        failure=Failure(where="timeout", message="the arm was stopped"),
    )


def closed_loop(num_clients: int, num_slots: int, services_s: list[float], until_s: float) -> list[Sample]:
    """First come, first served by so many slots; each client sends its next request when the one before has ended.

    What is under way at `until_s` was given up a moment later. Service times are taken in turn.
    """
    queue = [(0.0, client) for client in range(num_clients)]
    free = [0.0] * num_slots
    found, index = [], 0
    while queue and queue[0][0] < until_s:
        due_s, client = heapq.heappop(queue)
        began_s = max(due_s, heapq.heappop(free))
        ended_s = began_s + services_s[index % len(services_s)]
        heapq.heappush(free, ended_s)
        one = answer(index, due_s, began_s, ended_s)
        found.append(one if ended_s <= until_s else given_up(one, until_s + 0.01))
        if ended_s <= until_s:
            heapq.heappush(queue, (ended_s, client))
        index += 1
    return found


@pytest.mark.parametrize(("num_clients", "num_slots"), [(1, 1), (8, 1), (4, 4), (8, 2), (2, 4)])
def test_a_rate_is_that_of_the_slots_wherever_the_loop_is_cut(num_clients: int, num_slots: int) -> None:
    """Also where all slots go in step, and where a cut through a service would have lost or won a part of it."""
    true = min(num_clients, num_slots) * TOKENS / 0.5
    for cut_s in (9.01, 9.2, 9.45):
        wave = min(num_clients, num_slots)
        found = closed_level(closed_loop(num_clients, num_slots, [0.5], cut_s), wave, cut_s)
        assert found.why_not == ""
        assert found.values["tokens_per_s"] == pytest.approx(true, rel=0.01)
        assert found.num_failed == 0


def test_tokens_of_what_is_under_way_at_the_cut_count() -> None:
    """Out of step, some answers are always half done; without them the rate of eight slots would be a third short."""
    services = [0.50, 0.61, 0.43, 0.57, 0.47, 0.66, 0.52, 0.39]
    cut_s = 2.6
    found = closed_level(closed_loop(8, 8, services, cut_s), 8, cut_s)
    assert found.values["tokens_per_s"] == pytest.approx(8 * TOKENS / 0.519, rel=0.12)


def test_who_came_first_is_no_part_of_it() -> None:
    """Of eight clients at one slot the first waits for nobody; from the second on, everybody waits for seven others.
    The slot was as fast before, so its rate counts from the first end on."""
    samples = closed_loop(8, 1, [0.5], 9.1)
    found = closed_level(samples, 1, 9.1)
    assert found.span.start_s == pytest.approx(0.5)
    assert found.num_requests == 10
    assert found.values["p50 ttft"] == pytest.approx(7 * 0.5 + 0.125)
    assert found.values["p99 ttft"] == pytest.approx(found.values["p50 ttft"])
    assert found.little_gap == pytest.approx(0.0, abs=0.02)


@given(
    num_clients=st.integers(1, 12),
    num_slots=st.integers(1, 8),
    services=st.lists(st.floats(0.05, 2.0), min_size=1, max_size=7),
    cut_s=st.floats(0.1, 30.0),
)
def test_what_is_told_is_a_rate_and_what_is_too_little_is_not_told(
    num_clients: int, num_slots: int, services: list[float], cut_s: float
) -> None:
    found: Level = closed_level(
        closed_loop(num_clients, num_slots, services, cut_s), min(num_clients, num_slots), cut_s
    )
    if found.why_not:
        assert found.why_not.startswith("insufficient")
        assert found.values == {}
    else:
        assert found.num_requests >= MIN_ANSWERS
        assert found.values["tokens_per_s"] > 0
        assert all(value >= 0 for value in found.values.values())


def test_it_goes_on_until_enough_requests_that_waited_for_all_others_have_ended() -> None:
    ended = [one for one in closed_loop(8, 1, [0.5], 20.0) if one.num_done]

    def length_s(wave: int, steady_s: float) -> float | None:
        return next(ended[n - 1].ended_s for n in range(len(ended)) if enough(ended[:n], wave, steady_s))

    assert length_s(1, 0.1) == pytest.approx((8 + MIN_ANSWERS) * 0.5)
    assert length_s(1, 8.0) == pytest.approx(0.5 + 8.0)
    assert length_s(8, 0.1) == pytest.approx((8 + 8) * 0.5)  # where nothing is known of slots: a wave is them all
    assert not enough([], 1, 0.1)


def test_nothing_but_failures_is_enough_too() -> None:
    refused = [
        Sample(index=n, mixed=0, due_s=0.01 * n, ending=Ending.WHOLE, status=400, ended_s=0.01 * n + 0.005)
        for n in range(40)
    ]
    assert enough(refused[:16], 4, 60.0)
    assert not enough(refused[:16], 20, 60.0)
    assert not enough([*refused[:15], answer(15, 0.1, 0.1, 0.2)], 4, 60.0)
    found = closed_level(refused, 4, 1.0)
    assert found.num_failed == found.num_requests
    assert found.failures == {"http 400": found.num_failed}


def test_one_request_is_no_rate() -> None:
    found = closed_level(closed_loop(1, 1, [0.5], 1.2), 1, 1.2)
    assert found.why_not == "insufficient: 1 request in a steady part of 0.5 s"
    assert found.values == {}
    early = closed_level(closed_loop(8, 4, [0.5], 0.4), 4, 0.4)
    assert early.why_not == "insufficient: in 0.4 s only 0 of a first 4 requests had ended"
    assert open_level([answer(0, 0.0, 0.0, 0.1)], 5.0).why_not.startswith("insufficient")


def test_what_hangs_has_failed_and_what_is_merely_under_way_has_not() -> None:
    samples = closed_loop(2, 2, [0.5], 9.1)
    assert closed_level(samples, 2, 9.1).num_failed == 0
    hung = given_up(replace(answer(99, 2.0, 2.0, 60.0), content_s=()), 9.11)
    found = closed_level([*samples, hung], 2, 9.1)
    assert found.failures == {"no end": 1}
    assert math.isinf(found.values["p99 ttft"])


def test_a_failure_in_the_steady_part_stays_in_the_quantiles_and_its_tokens_count_for_nothing() -> None:
    samples = closed_loop(1, 1, [0.5], 9.1)
    cut = replace(samples[9], ending=Ending.RESET, finish_reason=None, num_done=0)
    whole, broken = closed_level(samples, 1, 9.1), closed_level([*samples[:9], cut, *samples[10:]], 1, 9.1)
    assert broken.num_failed == 1
    assert broken.values["tokens_per_s"] == pytest.approx(whole.values["tokens_per_s"] * 16 / 17, rel=0.02)
    assert math.isinf(broken.values["p99 e2e"])


def test_an_open_loop_counts_what_is_due_after_its_first_answer() -> None:
    samples = [answer(n, 0.5 * n, 0.5 * n, 0.5 * n + 0.4) for n in range(20)]
    found = open_level(samples, 10.0)
    assert found.num_requests == 19
    assert found.values["throughput"] == pytest.approx(2.0, rel=0.1)
    assert found.values["tokens_per_s"] == pytest.approx(2.0 * TOKENS, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "open_loop", "says"),
    [
        ({}, False, ""),
        ({"cpu_s": 4.9}, False, "98%"),
        ({"loop_lag_s": (0.0, 0.0, 0.2, 0.2)}, False, "lagged by 200 ms"),
        ({"lateness_s": (0.0, 0.0, 0.1, 0.1)}, True, "100 ms after time"),
        ({"lateness_s": (0.0, 0.0, 0.1, 0.1)}, False, ""),
    ],
)
def test_a_client_that_was_part_of_what_it_measured(changes: dict[str, object], open_loop: bool, says: str) -> None:
    health = replace(GeneratorHealth(worker=0, num_requests=9, cpu_s=0.2, wall_s=5.0), **changes)  # type: ignore[arg-type]
    found = client_doubt([health], open_loop=open_loop)
    assert says in found
    assert bool(found) is bool(says)
    assert client_doubt([], open_loop=open_loop) != ""
