"""The null server against the client that it calibrates, and `calibrate` itself."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from contextlab.cli import calibrate as verb
from contextlab.experiment import Ending
from contextlab.lab import calibrate
from contextlab.lab.calibrate import Calibration, Level, null_server
from contextlab.lab.server import OwnedServer
from tests.lab.load import loads
from tests.lab.load.loads import BODY, CHAT

LEVEL = Level(
    rate_per_s=200.0,
    duration_s=5.0,
    planned=1000,
    whole=1000,
    achieved_per_s=200.0,
    ttft_s=(0.0005, 0.002),
    e2e_s=(0.0006, 0.003),
    lateness_s=(0.0001, 0.001),
    loop_lag_s=(0.0001, 0.0015),
    cpu_s_per_request=0.0002,
    cpu_share=0.04,
    server_cpu_share=0.02,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnedServer]:
    with null_server(tmp_path_factory.mktemp("null") / "server.log", events=4, event_delay_s=0.02) as one:
        yield one


def ask(server: OwnedServer, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.process
def test_it_answers_as_an_openai_compatible_server_does(server: OwnedServer) -> None:
    status, body = ask(server, "GET", "/v1/models")
    assert (status, [card["id"] for card in json.loads(body)["data"]]) == (200, ["null"])
    assert ask(server, "GET", "/health") == (200, b'{"status":"ok"}')
    status, body = ask(server, "POST", CHAT, b'{"messages": []}')
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == " the quick brown fox"
    assert json.loads(body)["usage"]["completion_tokens"] == 4
    for path, sent, wanted in (("/nowhere", b"{}", 404), (CHAT, b"[", 400), (CHAT, b'{"stream": 3}', 400)):
        status, body = ask(server, "POST", path, sent)
        assert (status, json.loads(body)["error"]["code"]) == (wanted, wanted)


@pytest.mark.process
@pytest.mark.parametrize("kept", [True, False])
def test_its_streams_are_whole_and_paced(server: OwnedServer, kept: bool, tmp_path: Path) -> None:
    port = urlsplit(server.url).port or 0
    one = loads.order(port, [CHAT, "/v1/completions"], times=[0.0, 0.01, 0.3], kept_connections=kept)
    came = loads.run(one, tmp_path)
    for sample in came.samples:
        assert sample.ending is Ending.WHOLE
        assert "".join(sample.pieces) == " the quick brown fox"
        assert (sample.finish_reason, sample.num_done, sample.num_frames) == ("stop", 1, 7)
        assert sample.usage is not None
        assert sample.usage.completion_tokens == 4
        gaps = [later - earlier for earlier, later in pairwise(sample.content_s)]
        assert sum(gaps) > 0.05  # three delays of 20 ms, each event a read of its own
        assert sample.num_reads >= 4
        assert sample.num_bytes > 4 * 100
        assert sample.retransmits in {0, None}


@pytest.mark.process
def test_pipelined_requests_are_answered_in_their_order(server: OwnedServer) -> None:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.connect()
    request = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    health = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    connection.sock.sendall(request + health[:20])
    connection.sock.sendall(health[20:])
    said = b""
    while data := connection.sock.recv(65536):
        said += data
    connection.close()
    assert said.count(b"HTTP/1.1 200 OK") == 2
    assert said.index(b"[DONE]") < said.index(b'{"status":"ok"}')


# ── calibrate ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.process
def test_calibrate_measures_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "BUDGET_S", 0.0)  # the asked rate only
    found = calibrate.calibrate(100.0, 0.5)
    assert found.at.whole == found.at.planned > 20
    assert 0 < found.at.lateness_s[0] <= found.at.lateness_s[1]
    assert 0 < found.at.ttft_s[0] <= found.at.ttft_s[1]
    assert 0 < found.at.cpu_s_per_request < 0.05
    assert (found.levels, found.ended_by) == ((), "the time for the search was up")


def found(**how: object) -> Calibration:
    level = Level(**{**{name: getattr(LEVEL, name) for name in LEVEL.__slots__}, **how})
    return Calibration(
        workers=1, duration_s=5.0, at=level, levels=(LEVEL, level), highest_per_s=500.0, ended_by="the time was up"
    )


@pytest.mark.parametrize(
    ("how", "code", "why"),
    [
        ({}, 0, "kept to the plan"),
        ({"lateness_s": (0.001, 0.0051)}, 3, "lateness p99 is 5.1 ms"),
        ({"achieved_per_s": 197.0, "whole": 985}, 3, "197 of 200 requests/s"),
    ],
)
def test_a_client_that_lagged_makes_nothing_known(how: dict[str, object], code: int, why: str) -> None:
    one = found(**how)
    assert verb.exit_code(one) == code
    assert why in verb.lines(one)[-1]
    document = verb.document(one)
    assert document["exit"]["code"] == code
    assert document["verdict"] == ("UNKNOWN" if code else "PASS")


def test_the_report_names_the_floor_and_the_document_holds_it() -> None:
    one = found()
    text = "\n".join(verb.lines(one))
    for words in ("TTFT floor", "p50 0.50 ms, p99 2.00 ms", "200 µs a request", "500 requests/s", "lateness", "lag"):
        assert words in text
    document = json.loads(json.dumps(verb.document(one)))
    assert (document["schema"], document["command"]) == ("contextlab.calibrate/1", "calibrate")
    assert document["floor"]["ttft_s"] == {"p50": 0.0005, "p99": 0.002}
    assert document["highest_per_s"] == 500.0
    assert [level["sustained"] for level in document["search"]["levels"]] == [True, True]


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("5s", 5.0), ("500ms", 0.5), (" 2.5s", 2.5)])
def test_durations(text: str, seconds: float) -> None:
    assert verb._duration(text) == seconds
