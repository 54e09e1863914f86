"""Misbehaving clients as a real process on real sockets, as their target sees them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.experiment import FaultEvidence
from contextlab.lab.crowd.crowd import Crowd
from contextlab.lab.link.engines import PACKET_LINK
from contextlab.lab.link.route import Route
from contextlab.lab.load.order import LoadOrder, Prepared
from contextlab.model import UnableError
from tests.lab.crowd.target import Target
from tests.packets import needs_packets

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

BODY = b'{"model":"m","prompt":"Hello there","max_tokens":8,"stream":true,"stream_options":{"include_usage":true}}'
HEAD_START_S = 0.05


def order(port: int) -> LoadOrder:
    """What the load sends, and where."""
    return LoadOrder(
        host="127.0.0.1",
        port=port,
        requests=(Prepared(path="/v1/completions", body=BODY),),
        schedule=(),
        duration_s=0.0,
        timeout_s=5.0,
        headers=(("Authorization", "Bearer key"),),
        arm="fault",
    )


def acted(target: Target, folder: Path, *faults: str, length_s: float = 0.6) -> Mapping[int, FaultEvidence]:
    """Let faults act for a while; what they counted, by their place."""
    placed = [registry.parse_fault(text, start_s=0.0, length_s=length_s) for text in faults]
    with Crowd(list(enumerate(placed)), order(target.port), seed=1, log=folder / "client.log") as crowd:
        crowd.start(time.monotonic() + HEAD_START_S)
        time.sleep(HEAD_START_S + max(one.end_s for one in placed) + 0.05)
        crowd.finish()
        return crowd.evidence()


def settled(target: Target) -> list[str]:
    """How the connections ended, when none of them is open any more."""
    until = time.monotonic() + 5
    while not all(talk.end for talk in target.talks):
        assert time.monotonic() < until, [talk.end for talk in target.talks]
        time.sleep(0.01)
    return [talk.end for talk in target.talks]


@pytest.mark.parametrize(("close", "end"), [("fin", "fin"), ("reset", "reset")])
def test_a_stream_is_left_as_it_says(close: str, end: str, tmp_path: Path) -> None:
    with Target() as target:
        seen = acted(target, tmp_path, f"abort:at=event:2,close={close},clients=2,reply_tokens=99")[0]
        ends = settled(target)
    assert seen.engine == "crowd"
    assert seen.landed.proven is True, seen
    assert seen.tally["aborted"] >= 4
    assert seen.tally["events_before_abort"] >= 3 * seen.tally["aborted"]
    assert seen.tally["connected"] == len(target.talks) == seen.tally["clients"] == seen.tally["requests"]
    assert ends.count(end) >= seen.tally["aborted"]


def test_its_requests_are_the_loads_asked_otherwise_and_have_their_own_names(tmp_path: Path) -> None:
    with Target() as target:
        acted(target, tmp_path, "abort:stream=false,wait=100ms,clients=1,reply_tokens=99", "abort:clients=1")
        settled(target)
    quiet = [talk for talk in target.talks if not talk.body["stream"]]
    assert quiet
    for talk in target.talks:
        assert talk.head.startswith("POST /v1/completions HTTP/1.1\r\n")
        assert "Authorization: Bearer key" in talk.head
        assert talk.body["prompt"] == "Hello there"
    assert [talk.name for talk in quiet] == [f"fault-abort-0-{number}" for number in range(len(quiet))]
    assert all(
        talk.body == {"model": "m", "prompt": "Hello there", "max_tokens": 99, "stream": False} for talk in quiet
    )
    assert {talk.name for talk in target.talks if talk.body["stream"]} >= {"fault-abort-1-0", "fault-abort-1-1"}


def test_long_prompts_are_never_the_same_twice(tmp_path: Path) -> None:
    with Target(pause_s=0.5) as target:
        seen = acted(target, tmp_path, "abort-prefill:words=50,clients=1")[0]
        settled(target)
    prompts = [talk.body["prompt"] for talk in target.talks]
    assert all(len(prompt.split()) == 52 and prompt.endswith(" Hello there") for prompt in prompts)
    assert len(set(prompts)) == len(prompts) >= 3
    assert seen.tally["aborted"] >= 3
    assert seen.landed.proven is True


def test_what_nobody_reads_stands_in_the_kernel_and_is_counted(tmp_path: Path) -> None:
    with Target(pause_s=0.0005, event_bytes=2000) as target:
        seen = acted(target, tmp_path, "never-reads:clients=1,hold=10s")[0]
    assert seen.landed.proven is True, seen
    assert seen.tally["most_unread_bytes"] > 1000
    assert seen.tally["unsent_bytes"] > seen.tally["most_unread_bytes"]
    assert seen.tally.get("bytes_read", 0) == 0


def test_a_slow_reader_keeps_its_pace(tmp_path: Path) -> None:
    with Target() as target:
        seen = acted(target, tmp_path, "slow-reader:rate=300,clients=1", length_s=1.0)[0]
    assert seen.landed.proven is True, seen
    assert 100 <= seen.tally["bytes_read"] <= 310
    assert seen.tally["unread_bytes"] > 0


def test_a_half_closed_client_still_reads(tmp_path: Path) -> None:
    with Target(num_events=5) as target:
        seen = acted(target, tmp_path, "half-open:clients=1")[0]
        ends = settled(target)
    assert "fin" in ends
    assert seen.tally["half_closed"] >= 2
    assert seen.tally["cut"] == seen.tally["half_closed"]  # this target takes FIN for a client that has left


def test_whole_answers_are_counted_with_their_tokens(tmp_path: Path) -> None:
    with Target(num_events=4, pause_s=0.001) as target:
        seen = acted(target, tmp_path, "retry-storm:clients=1,timeout=5s")[0]
        settled(target)
    answers = seen.tally["answers"]
    assert answers >= 5
    assert seen.tally["events_in_answers"] == 4 * answers
    assert seen.tally["tokens_in_answers"] == 7 * answers
    assert seen.landed.proven is False  # nothing was asked twice


def test_a_storm_repeats_the_same_request_under_the_same_name(tmp_path: Path) -> None:
    with Target() as target:
        seen = acted(target, tmp_path, "retry-storm:clients=1,attempts=3,timeout=100ms", length_s=0.8)[0]
        settled(target)
    names = [talk.name for talk in target.talks]
    assert names[:3] == ["fault-retry-storm-0-0"] * 3
    assert seen.tally["requests_repeated"] == len(names) - len(set(names)) >= 3
    assert seen.tally["attempts"] / seen.tally["asked"] > 2
    assert seen.landed.proven is True


def test_a_loris_sends_one_byte_after_the_other(tmp_path: Path) -> None:
    with Target() as target:
        seen = acted(target, tmp_path, "slow-loris:clients=3,pause=20ms")[0]
        ends = settled(target)
    assert len(target.talks) == 3
    assert ends == ["fin"] * 3
    assert sum(talk.num_reads for talk in target.talks) == pytest.approx(seen.tally["slow_bytes"], abs=3)
    assert all(not talk.head for talk in target.talks)
    assert "requests" not in seen.tally


def test_a_fault_acts_in_its_window_only_and_ends_with_the_arm(tmp_path: Path) -> None:
    early = registry.parse_fault("abort:clients=1@0s+200ms", start_s=0.0, length_s=1.0)
    late = registry.parse_fault("abort:clients=1@300ms+60s", start_s=0.0, length_s=1.0)
    never = registry.parse_fault("abort:clients=1@30s+60s", start_s=0.0, length_s=1.0)
    with (
        Target() as target,
        Crowd([(3, early), (5, late), (8, never)], order(target.port), seed=1, log=tmp_path / "client.log") as crowd,
    ):
        crowd.start(time.monotonic() + HEAD_START_S)
        time.sleep(0.6)
        began_s = time.monotonic()
        crowd.finish()
        assert time.monotonic() - began_s < 2.0
        crowd.finish()
        seen = crowd.evidence()
        assert all(end in ("fin", "reset") for end in settled(target))
    assert list(seen) == [3, 5, 8]
    assert seen[3].tally["aborted"] >= 1
    assert seen[5].tally["aborted"] >= 1
    assert seen[8].tally == {}
    assert seen[8].landed.proven is False


def test_it_may_end_before_it_began(tmp_path: Path) -> None:
    placed = registry.parse_fault("abort", start_s=0.0, length_s=1.0)
    with Target() as target, Crowd([(0, placed)], order(target.port), seed=1, log=tmp_path / "client.log") as crowd:
        crowd.finish()
        assert crowd.evidence()[0].landed.proven is False
        assert target.talks == []


def test_a_target_that_is_not_there_is_not_asked_without_pause(tmp_path: Path) -> None:
    with Target() as target:
        pass
    seen = acted(target, tmp_path, "abort:clients=1")[0]
    assert 5 <= seen.tally["not_connected"] <= 14
    assert seen.landed.proven is False
    assert "none of" in seen.landed.why


def test_its_death_is_told(tmp_path: Path) -> None:
    placed = registry.parse_fault("abort", start_s=0.0, length_s=9.0)
    with Target() as target, Crowd([(0, placed)], order(target.port), seed=1, log=tmp_path / "client.log") as crowd:
        crowd.start(time.monotonic())
        [pid] = crowd.pids
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(UnableError, match="SIGKILL"):
            crowd.finish()


def test_it_ends_with_the_tool(tmp_path: Path) -> None:
    """Leaving kills it, whatever its clients are doing."""
    placed = registry.parse_fault("never-reads", start_s=0.0, length_s=9.0)
    with Target() as target, Crowd([(0, placed)], order(target.port), seed=1, log=tmp_path / "client.log") as crowd:
        crowd.start(time.monotonic())
        [pid] = crowd.pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert crowd.pids == []


@needs_packets
def test_it_enters_a_network_namespace_where_it_is_told(tmp_path: Path) -> None:
    """There the packet link is the only way to the target; its address means nothing outside."""
    placed = registry.parse_fault("abort:clients=1", start_s=0.0, length_s=0.5)
    with (
        Target() as target,
        Route(("127.0.0.1", target.port), engine=PACKET_LINK, log=tmp_path / "link.log", seed=0) as route,
        Crowd(
            [(0, placed)],
            replace(order(route.address[1]), host=route.address[0]),
            seed=1,
            log=tmp_path / "client.log",
            namespace_pid=route.namespace_pid,
        ) as crowd,
    ):
        assert route.namespace_pid is not None
        crowd.start(time.monotonic())
        time.sleep(0.6)
        crowd.finish()
        assert crowd.evidence()[0].landed.proven is True
        assert settled(target)


def test_a_bare_socket_speaks_no_tls(tmp_path: Path) -> None:
    for one in (replace(order(1), scheme="https"), replace(order(1), proxy="http://127.0.0.1:1")):
        with pytest.raises(UnableError, match="plain http") as caught:
            Crowd([], one, seed=1, log=tmp_path / "client.log")
        assert caught.value.next_step
