"""The relay where no fault acts: bytes, read boundaries, closes, resets and back-pressure pass as they are."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tests.lab.link.relaying import Client, Relaying, asked, fault, until
from tests.lab.link.upstream import FRAMINGS, Framing, Upstream, content, events, head, reply

PAUSE_S = 0.02
pytestmark = pytest.mark.process
BIG = bytes(range(256)) * 4096 * 16
"""16 MiB: more than all buffers on the way hold."""


@pytest.mark.parametrize("framing", FRAMINGS)
def test_bytes_and_read_boundaries_pass_unchanged(framing: Framing) -> None:
    steps = reply(framing, events(), PAUSE_S)
    with Upstream(steps) as upstream, Relaying(upstream.address) as relaying:
        reads = asked(relaying)
    sent = [step for step in steps if isinstance(step, bytes)]
    assert reads.raw == b"".join(sent)
    boundaries = [len(b"".join(sent[:n])) for n in range(1, len(sent) + 1)]
    seen = [len(b"".join(reads.data[:n])) for n in range(1, len(reads.data) + 1)]
    assert set(seen) <= set(boundaries), "a read was cut"
    assert len(seen) >= len(boundaries) // 2, "reads were merged"  # the last ones come without a pause
    assert upstream.seen[0].requests[0].endswith(b'{"prompt": "x"}')


def test_armed_faults_that_do_not_act_now_change_nothing() -> None:
    steps = reply("chunked", events(), PAUSE_S)
    later = [fault("latency", start_s=60.0), fault("drop-event", start_s=60.0), fault("cut", share=0.0)]
    with Upstream(steps) as upstream, Relaying(upstream.address, *later) as relaying:
        reads = asked(relaying)
        assert relaying.tally(0) == {"requests_seen": 0, "requests_hit": 0, "applied": 0, "delay_s": 0, "bytes": 0}
        assert relaying.tally(2) == {"requests_seen": 1, "requests_hit": 0}
    assert reads.raw == b"".join(step for step in steps if isinstance(step, bytes))


def test_many_requests_on_one_connection() -> None:
    with Upstream(reply("length", [b"hello"])) as upstream, Relaying(upstream.address) as relaying:
        with Client(relaying.address) as client:
            for _ in range(3):
                client.ask()
                assert client.read(lambda reads: reads.raw.endswith(b"hello")).raw.endswith(b"hello")
        until(lambda: upstream.seen[0].ended)
        assert len(upstream.seen) == 1
        assert relaying.counters()["connections"] == 1
        until(lambda: relaying.counters()["open_connections"] == 0)


def test_a_close_of_the_target_is_a_close_and_the_client_may_still_send() -> None:
    with Upstream([head("close"), "fin", PAUSE_S]) as upstream, Relaying(upstream.address) as relaying:
        with Client(relaying.address) as client:
            client.ask()
            assert client.read().ended == "fin"
            client.ask()
            until(lambda: len(upstream.seen[0].requests) == 2)
        until(lambda: upstream.seen[0].ended)


def test_a_half_close_of_the_client_passes_and_the_reply_still_comes() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, Relaying(listener.getsockname()) as relaying, Client(relaying.address) as client:
        target, _ = listener.accept()
        with target:
            client.socket.sendall(b"all of it")
            client.socket.shutdown(socket.SHUT_WR)
            asked_for = b""
            while data := target.recv(100):
                asked_for += data
            assert asked_for == b"all of it"
            time.sleep(PAUSE_S)
            target.sendall(b"the answer")
        reads = client.read()
        assert (reads.raw, reads.ended) == (b"the answer", "fin")


def test_a_reset_of_the_target_is_a_reset() -> None:
    with Upstream([head("chunked"), PAUSE_S, "rst"]) as upstream, Relaying(upstream.address) as relaying:
        reads = asked(relaying)
        assert (reads.raw, reads.ended) == (head("chunked"), "reset")
        assert relaying.counters()["target_resets"] == 1


@pytest.mark.parametrize("reset", [False, True])
def test_the_target_learns_at_once_that_its_client_has_left(reset: bool) -> None:
    with Upstream([head("close"), content("a")]) as upstream, Relaying(upstream.address) as relaying:
        client = Client(relaying.address)
        client.ask()
        client.read(lambda reads: reads.raw.endswith(content("a")))
        left_s = time.monotonic()
        client.leave(reset=reset)
        until(lambda: upstream.seen[0].ended_s)
        assert upstream.seen[0].ended == ("rst" if reset else "fin")
        assert upstream.seen[0].ended_s - left_s < 0.5
        if reset:
            assert relaying.counters()["client_resets"] == 1


def test_a_target_that_refuses_is_a_reset_before_any_byte() -> None:
    with Upstream([], accepts=False) as upstream, Relaying(upstream.address) as relaying:
        with pytest.raises(ConnectionResetError), socket.create_connection(relaying.address) as client:
            assert client.recv(1) == b"a byte"
        assert relaying.counters()["refused_connections"] == 1


def test_what_a_target_says_before_it_refuses_the_rest_of_a_request_arrives() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, Relaying(listener.getsockname()) as relaying, Client(relaying.address) as client:
        target, _ = listener.accept()
        client.socket.sendall(BIG[: 1 << 16])
        with target:
            target.recv(1)
            target.sendall(head("close") + b"too long")  # and closes with the rest unread, which is a RST
        reads = client.read()
        assert reads.raw.endswith(b"too long")
        assert reads.ended == "reset"
        until(lambda: relaying.counters()["open_connections"] == 0)


def test_a_slow_client_holds_the_target_back_and_loses_nothing() -> None:
    steps = reply("length", [BIG])
    with Upstream(steps) as upstream, Relaying(upstream.address) as relaying, Client(relaying.address) as client:
        client.ask()
        time.sleep(0.2)
        before = relaying.counters()["down_bytes"]
        time.sleep(0.1)
        assert relaying.counters()["down_bytes"] == before < len(BIG), "the relay reads what nobody takes"
        reads = client.read(lambda reads: sum(map(len, reads.data)) == len(BIG) + len(head("length", len(BIG))))
        assert reads.raw.endswith(BIG)


def test_a_slow_target_holds_the_client_back_and_loses_nothing() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, Relaying(listener.getsockname()) as relaying, Client(relaying.address) as client:
        sending = threading.Thread(target=client.socket.sendall, args=(BIG,))
        sending.start()
        target, _ = listener.accept()
        time.sleep(0.2)
        assert sending.is_alive()
        assert relaying.counters()["up_bytes"] < len(BIG)
        received = bytearray()
        with target:
            while len(received) < len(BIG):
                received += target.recv(1 << 20)
        sending.join()
        assert received == BIG


def test_delayed_bytes_hold_the_target_back_too() -> None:
    steps = reply("length", [BIG])
    late = fault("latency", delay_s=30.0)
    with Upstream(steps) as upstream, Relaying(upstream.address, late) as relaying, Client(relaying.address) as client:
        client.ask()
        time.sleep(0.2)
        before = relaying.counters()["down_bytes"]
        time.sleep(0.1)
        assert relaying.counters()["down_bytes"] == before < 1 << 20


def test_a_client_that_goes_while_bytes_wait_for_it_is_noticed() -> None:
    with (
        Upstream(reply("length", [BIG])) as upstream,
        Relaying(upstream.address) as relaying,
        Client(relaying.address) as client,
    ):
        client.ask()
        client.read(lambda reads: bool(reads.raw))
        client.leave(reset=True)
        until(lambda: upstream.seen[0].ended == "rst")
        until(lambda: relaying.counters()["open_connections"] == 0)


def test_a_burst_of_connections() -> None:
    with Upstream(reply("length", [b"hello"])) as upstream, Relaying(upstream.address) as relaying:
        clients = [Client(relaying.address) for _ in range(100)]
        for client in clients:
            client.ask()
        for client in clients:
            assert client.read(lambda reads: reads.raw.endswith(b"hello")).raw.endswith(b"hello")
            client.leave()
        until(lambda: relaying.counters()["open_connections"] == 0)
