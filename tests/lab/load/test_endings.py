"""Every ending by a real socket's doing, and what each kind of reply says, by both clients."""

from __future__ import annotations

import socket
import ssl
import subprocess
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from contextlab.experiment import Ending, Sample
from contextlab.lab.load.fleet import Fleet
from contextlab.model import UnableError, Usage
from tests.lab.load import loads, scripted
from tests.lab.load.scripted import ACTS, AT_ONCE, WORDS, Scripted

pytestmark = pytest.mark.process

TIMEOUT_S = 2.5
PATHS = [path for path in (*AT_ONCE, *ACTS) if path != "/pausing"]
USAGE = Usage(prompt_tokens=5, completion_tokens=3)
ALL = {"ending": Ending.WHOLE, "pieces": WORDS, "finish_reason": "stop", "usage": USAGE, "failure": None}
PLAIN = {**ALL, "status": 200, "num_frames": 6, "num_done": 1, "reply_ids": ("one",), "after_end_bytes": 0}
PLAIN |= {"open_after_end_s": None, "error_frames": (), "num_bad_json": 0, "num_bad_utf8": 0}
SAID_ALL = {name: PLAIN[name] for name in ("pieces", "finish_reason", "usage", "num_done", "after_end_bytes")}
FULL = {"where": "stream", "message": "the cache is full", "error_type": "server_error"}
WITHIN = {"where": "transport", "message": "the connection ended in the middle of the answer"}

EXPECTED: dict[str, dict[str, Any]] = {
    "/whole": PLAIN,
    "/one-chunk": PLAIN,
    "/interim": PLAIN,
    "/crlf": PLAIN,
    "/comments": PLAIN,
    "/paced": PLAIN,
    "/bytewise": PLAIN,
    "/until-closed": PLAIN,
    "/json": {
        "ending": Ending.WHOLE,
        "pieces": ("All at once",),
        "finish_reason": "length",
        "usage": USAGE,
        "num_frames": 0,
        "num_done": 0,
        "reply_ids": ("two",),
        "failure": None,
    },
    "/refusal": {
        "ending": Ending.WHOLE,
        "status": 429,
        "pieces": (),
        "failure": {**FULL, "where": "http", "status": 429, "fields": {"n_ctx": 64, "code": 500}},
    },
    "/page": {"ending": Ending.WHOLE, "failure": {"where": "http", "status": 502, "message": "bad gateway"}},
    "/error-frame": {
        "ending": Ending.WHOLE,
        "pieces": WORDS[:2],
        "failure": FULL,
        "error_frames": 1,
        "num_done": 0,
        "after_end_bytes": 0,
    },
    "/error-then-done": {"failure": FULL, "error_frames": 1, "num_done": 1, "after_end_bytes": 14},
    "/bad-json": {
        **SAID_ALL,
        "pieces": (WORDS[0], WORDS[2]),
        "num_bad_json": 1,
        "num_frames": 6,
        "failure": {"where": "protocol"},
    },
    "/bad-utf8": {**ALL, "num_bad_utf8": 1, "num_bad_json": 0, "pieces": (WORDS[0], " \ufffd", WORDS[2])},
    "/done-twice": {**ALL, "num_done": 2, "after_end_bytes": 14},
    "/after-end": {**ALL, "pieces": (*WORDS, "more"), "after_end_bytes": len(scripted.word("more"))},
    "/foreign": {**ALL, "reply_ids": ("one", "other")},
    "/no-done": {**ALL, "num_done": 0},
    "/empty-stream": {"ending": Ending.WHOLE, "num_frames": 0, "pieces": (), "failure": None},
    "/odd-fields": {**ALL, "usage": Usage(cached_tokens=1, evaluated_tokens=5), "finish_reason": None},
    "/surrogate": {**ALL, "pieces": ("\ufffd", *WORDS)},
    "/fin-within": {"ending": Ending.FIN, "pieces": WORDS[:2], "failure": WITHIN, "num_done": 0},
    "/fin-in-head": {"ending": Ending.FIN, "pieces": (), "num_done": 0, "failure": {"where": "transport"}},
    "/reset-before": {"ending": Ending.RESET, "pieces": (), "failure": {"message": "the connection was reset"}},
    "/reset-within": {
        "ending": Ending.RESET,
        "pieces": WORDS[:1],
        "failure": {"where": "transport", "message": "the connection was reset"},
    },
    "/silent": {
        "ending": Ending.TIMEOUT,
        "status": None,
        "num_reads": 0,
        "failure": {"where": "timeout", "message": "no answer within 2.5 s"},
    },
    "/stalls": {
        "ending": Ending.TIMEOUT,
        "pieces": WORDS[:1],
        "open_after_end_s": None,
        "failure": {"where": "timeout", "message": "the reply did not end within 2.5 s"},
    },
    "/open-after-end": {**SAID_ALL, "ending": Ending.TIMEOUT},
    "/torn-done-open": {**SAID_ALL, "ending": Ending.TIMEOUT, "after_end_bytes": 14},
    "/fin-after-end": {**SAID_ALL, "ending": Ending.FIN, "failure": WITHIN},
    "/garbled": {"ending": Ending.GARBLED, "status": None, "failure": {"where": "protocol"}},
    "/garbled-within": {"ending": Ending.GARBLED, "pieces": WORDS[:1], "failure": {"where": "protocol"}},
}
NOT_NOTICED = {"/garbled-within": {"pieces": WORDS[:1]}}
"""aiohttp waits on when a chunk has no size."""


def differs(sample: Sample, expected: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not as expected, as they are; failures are compared by the fields that are named."""
    found: dict[str, Any] = {}
    for name, value in expected.items():
        seen = getattr(sample, name)
        if name == "error_frames" and isinstance(value, int):
            seen = len(seen)
        if name == "failure" and value is not None and seen is not None:
            seen = {key: getattr(seen, key) for key in value}
        if seen != value:
            found[name] = seen
    return found


@pytest.fixture(scope="module")
def matrices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Sample]]:
    """For both clients the sample of every path. The general one goes through a proxy, which the server also is."""
    log = tmp_path_factory.mktemp("matrix") / "client.log"
    with Scripted() as server, ExitStack() as stack:
        through = {"proxy": f"http://127.0.0.1:{server.port}", "host": "target.invalid", "port": 80}
        orders = {
            name: loads.order(**{"port": server.port, **way}, paths=PATHS, timeout_s=TIMEOUT_S, arm=name)
            for name, way in (("fast", {}), ("general", through))
        }
        fleets = {name: stack.enter_context(Fleet(one, log=log)) for name, one in orders.items()}
        for fleet in fleets.values():
            fleet.start()
        came = {name: loads.gathered(fleet) for name, fleet in fleets.items()}
    for name, one in came.items():
        assert [health.fast for health in one.healths] == [name == "fast"]
        assert [sample.index for sample in one.samples] == list(range(len(PATHS)))
    marks = sorted(head.lower().partition(b"x-request-id: ")[2].split(b"\r\n")[0] for head in server.heads)
    assert marks == sorted(f"{name}-{index}".encode() for name in orders for index in range(len(PATHS)))
    assert set(server.bodies) == {loads.BODY}
    assert server.num_connections == 2 * len(PATHS)
    return {name: one.by_path(orders[name]) for name, one in came.items()}


@pytest.fixture(params=["fast", "general"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def matrix(client: str, matrices: dict[str, dict[str, Sample]]) -> dict[str, Sample]:
    return matrices[client]


def test_every_path_is_expected_to_do_something() -> None:
    assert EXPECTED.keys() == set(PATHS)
    endings = {expected["ending"] for expected in EXPECTED.values() if "ending" in expected}
    assert endings == set(Ending) - {Ending.REFUSED, Ending.UNREACHED, Ending.UNSENT}


@pytest.mark.parametrize("path", PATHS)
def test_the_sample_says_what_the_socket_did(client: str, matrix: dict[str, Sample], path: str) -> None:
    expected = NOT_NOTICED.get(path) if client == "general" else None
    assert differs(matrix[path], expected or EXPECTED[path]) == {}


def test_the_checksum_is_of_every_byte_that_came(matrices: dict[str, dict[str, Sample]]) -> None:
    for path, sent in AT_ONCE.items():
        assert matrices["fast"][path].crc32 == crc32(sent), path
        assert matrices["fast"][path].num_bytes == len(sent), path
        assert matrices["general"][path].crc32 is None


def test_times_are_in_order(matrix: dict[str, Sample]) -> None:
    for path, sample in matrix.items():
        times = [
            sample.due_s,
            sample.sent_s,
            sample.connected_s,
            sample.first_byte_s,
            *sample.content_s,
            sample.ended_s,
        ]
        known = [at_s for at_s in times if at_s is not None]
        assert known == sorted(known), path
        assert len(sample.content_s) == len(sample.pieces), path
        assert sample.retransmits in {0, None}, path


def test_each_event_has_the_time_of_the_read_that_completed_it(matrix: dict[str, Sample]) -> None:
    paced = matrix["/paced"]
    gaps = [later - earlier for earlier, later in pairwise(paced.content_s)]
    assert len(gaps) == 2
    assert min(gaps) > 0.02
    assert paced.first_byte_s is not None
    assert paced.content_s[0] - paced.first_byte_s > 0.02
    assert paced.num_reads >= 4


def test_a_reply_that_said_its_last_words_is_waited_for_two_seconds(matrix: dict[str, Sample]) -> None:
    for path in ("/open-after-end", "/torn-done-open"):
        assert 2.0 <= (matrix[path].open_after_end_s or 0) < TIMEOUT_S, path
    assert 0.15 < (matrix["/fin-after-end"].open_after_end_s or 0) < 1.5


def test_a_time_out_counts_from_when_it_was_sent(matrix: dict[str, Sample]) -> None:
    for path in ("/silent", "/stalls"):
        sample = matrix[path]
        assert sample.ended_s is not None
        assert sample.sent_s is not None
        assert 0 <= sample.ended_s - sample.sent_s - TIMEOUT_S < 0.5


# ── no connection ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["fast", "general"])
def test_refused(way: str, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        proxy = {"proxy": f"http://127.0.0.1:{port}"} if way == "general" else {}
        came = loads.run(loads.order(port, times=[0.0, 0.01], **proxy), tmp_path)
    for sample in came.samples:
        assert sample.ending is Ending.REFUSED
        assert sample.failure is not None
        assert (sample.failure.where, sample.failure.message) == ("connect", "connection refused")
        assert sample.connected_s is None
        assert sample.sent_s is not None
        assert sample.ended_s is not None


def test_unreached(tmp_path: Path) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # two that nobody accepts fill its queue: the kernel then drops what asks for more
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        came = loads.run(loads.order(port, times=[0.0, 0.01], connect_timeout_s=0.3), tmp_path)
    for sample in came.samples:
        assert sample.ending is Ending.UNREACHED
        assert sample.failure is not None
        assert (sample.failure.where, sample.failure.message) == ("connect", "no connection within 0.3 s")


def test_a_name_that_does_not_resolve_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match=r"no such host: nowhere\.invalid"):
        Fleet(loads.order(1, host="nowhere.invalid"), log=tmp_path / "client.log")


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────


def test_https(tmp_path: Path) -> None:
    """A real TLS server; its certificate is its own, so one client trusts it and the other does not."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    try:
        subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Scripted(context) as server:
        paths = ("/whole", "/fin-within", "/reset-within")
        trusting = loads.order(server.port, paths, scheme="https", verify_tls=False)
        for path, sample in loads.run(trusting, tmp_path).by_path(trusting).items():
            assert differs(sample, {name: EXPECTED[path][name] for name in ("ending", "pieces")}) == {}, path
        careful = loads.order(server.port, ["/whole"], scheme="https")
        (refused,) = loads.run(careful, tmp_path).samples
    assert refused.ending is Ending.UNREACHED
    assert refused.failure is not None
    assert refused.failure.message.startswith("TLS failed")
