"""The gateway in front of a real server with a real Redis behind it: what is kept, what is passed on, who leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from contextlab.deeds import Tier
from contextlab.lab.tier.tier import RunningTier
from tests.lab.processes import until
from tests.lab.tier.tiers import Bench, body_of, needs_redis, open_stream, running

pytestmark = [pytest.mark.process, needs_redis]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with running(tmp_path_factory.mktemp("gateway"), Tier(local_entries=2)) as one:
        yield one


@pytest.fixture(autouse=True)
def _emptied(bench: Bench) -> None:
    bench.tier.begin(time.monotonic())


def test_an_answer_is_told_again_as_the_stream_that_it_was(bench: Bench) -> None:
    first, again = bench.ask("hello"), bench.ask("hello")
    assert first == again
    assert first[1].count(b"data: ") >= 3
    assert first[1].endswith(b"data: [DONE]\n\n")
    assert (bench.counts["origin_requests"], bench.counts["local_hits"]) == (1, 1)


def test_what_the_local_tier_has_no_room_for_comes_from_redis(bench: Bench) -> None:
    answers = {prompt: bench.ask(prompt) for prompt in ("one", "two", "three")}
    until(lambda: bench.counts["redis_puts"] == 3, "the writes to Redis")
    assert bench.ask("one") == answers["one"]
    assert (bench.counts["origin_requests"], bench.counts["redis_hits"]) == (3, 1)


def test_a_whole_answer_is_kept_too(bench: Bench) -> None:
    first, again = (bench.ask("hello", stream=False) for _ in range(2))
    assert first == again
    assert b'"usage"' in first[1]
    assert bench.counts["local_hits"] == 1


def test_streamed_and_whole_are_two_answers(bench: Bench) -> None:
    assert bench.ask("hello")[1] != bench.ask("hello", stream=False)[1]
    assert bench.counts["origin_requests"] == 2


@pytest.mark.parametrize("fields", [{"temperature": 0.7}, {"n": 2}])
def test_what_may_come_otherwise_is_passed_on(bench: Bench, fields: dict[str, Any]) -> None:
    for _ in range(2):
        assert bench.ask("hello", **fields)[0] == 200
    assert (bench.counts["passed"], bench.counts["requests"]) == (2, 0)


def test_other_paths_are_passed_on_as_they_are(bench: Bench) -> None:
    through = bench.sent("GET", "/v1/models")
    direct = bench.sent("GET", "/v1/models", at=bench.upstream)
    assert (through[0], through[2]) == (direct[0], direct[2])
    assert bench.sent("GET", "/nowhere")[0] == 404
    assert bench.sent("POST", "/v1/completions", b"not json")[0] == 400


def test_answers_are_not_shared_between_keys(bench: Bench) -> None:
    """Whoever sends another Authorization header asks for himself."""
    for token in ("Bearer a", "Bearer b"):
        bench.sent("POST", "/v1/completions", body_of("hello"), Authorization=token)
    assert bench.counts["origin_requests"] == 2


def test_a_refusal_is_told_again_for_a_short_while(bench: Bench) -> None:
    first, again = (bench.ask("hello", max_tokens=-1) for _ in range(2))
    assert first == again
    assert first[0] == 400
    assert (bench.counts["origin_requests"], bench.counts["negative_hits"]) == (1, 1)
    assert bench.counts["redis_puts"] == 0


@pytest.mark.calm
def test_a_client_that_leaves_takes_its_request_along_unless_others_want_it(tmp_path: Path) -> None:
    with running(tmp_path, token_delay_s=0.05) as slow:
        stays = open_stream(slow.tier.address, "long", max_tokens=40)
        leaves = open_stream(slow.tier.address, "long", max_tokens=40)
        leaves.close()
        time.sleep(0.3)
        assert slow.counts["cancelled"] == 0
        stays.close()
        until(lambda: slow.counts["cancelled"] == 1, "the end of the request")
        log = slow.log.read_text()
        time.sleep(0.3)
        assert slow.log.read_text() == log, "the target went on with an answer that nobody wants"
        assert (slow.counts["origin_requests"], slow.counts["joined"]) == (1, 1)


@pytest.mark.calm
def test_many_at_once_are_one_request_at_the_target_and_all_get_the_same(tmp_path: Path) -> None:
    with running(tmp_path, token_delay_s=0.05) as slow, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: slow.ask("same", max_tokens=8), range(8)))
        assert len(set(answers)) == 1
        assert slow.counts["origin_requests"] == 1
        assert slow.counts["joined"] >= 6


def test_without_the_target_it_says_so(bench: Bench, tmp_path: Path) -> None:
    with RunningTier(Tier(), ("127.0.0.1", 9), folder=tmp_path) as tier:
        status, _, body = bench.sent("POST", "/v1/completions", body_of("hello"), at=tier.address)
        assert status == 502
        assert b"did not answer" in body
