"""Each fake, as a real process: it departs from good behaviour in its own way, and in no other."""

import asyncio
import json
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from typing import Any, Self
from urllib.parse import urlsplit

import psutil
import pytest

from contextlab.model import Api, Outcome, TargetSpec, UsageError
from contextlab.targets import fake
from contextlab.targets.servers import fake_engine
from contextlab.targets.servers.fake_engine import AtWindow, Engine, Job, Refused
from contextlab.targets.servers.fake_model import COMMON_WORDS

WINDOW = 128
CODE = "The secret code of HEAD is 7391."
CUE = "The secret code of HEAD is"


# ── a client ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back, streamed or not."""

    status: int
    text: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, int] | None = None
    error: Mapping[str, Any] | None = None
    done: bool = False

    @property
    def counts(self) -> tuple[int, int]:
        """Tokens of the prompt and of the reply, as told."""
        assert self.usage is not None
        assert self.usage["total_tokens"] == self.usage["prompt_tokens"] + self.usage["completion_tokens"]
        return self.usage["prompt_tokens"], self.usage["completion_tokens"]


def numbers(count: int) -> str:
    """A prompt of `count` tokens that offers nothing to copy."""
    return " ".join(map(str, range(count)))


def recall(size: int, *, code_at: int) -> str:
    """A prompt of `size` tokens that asks for the code standing at token `code_at` (8 tokens long)."""
    filler = numbers(size - 8 - 6).split()
    return " ".join([*filler[:code_at], CODE, *filler[code_at:], CUE])


class Fake:
    """A running fake and a client of it."""

    def __init__(self, name: str, *, window: int = WINDOW, slots: int = 2, token_delay_s: float = 0.0) -> None:
        settings = {"window": window, "slots": slots, "token_delay_s": token_delay_s}
        command = fake.server(TargetSpec(name=name, scheme="fake", address=name, settings=settings))
        assert command.url is None
        self.name, self.window = name, window
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(command.argv, stdout=subprocess.PIPE, stderr=self._stderr, text=True)
        assert self.process.stdout is not None
        ready, _, self.url = self.process.stdout.readline().strip().partition(" ")
        assert ready == "READY"
        assert self.url.startswith("http://127.0.0.1:")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()

    @property
    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()

    @contextmanager
    def opened(self, path: str, body: bytes | None = None) -> Iterator[HTTPConnection]:
        """A connection on which the request is sent and nothing is read."""
        with closing(HTTPConnection(urlsplit(self.url).netloc, timeout=10)) as connection:
            connection.request("GET" if body is None else "POST", path, body)
            yield connection

    def get(self, path: str) -> Any:
        with self.opened(path) as connection:
            return json.loads(connection.getresponse().read())

    def post(self, body: bytes, path: str = "/v1/completions") -> Answer:
        with self.opened(path, body) as connection:
            return read_answer(connection.getresponse())

    def complete(self, prompt: str, **fields: Any) -> Answer:
        return self.post(completion(prompt, **fields))

    @contextmanager
    def neighbour(self, prompt: str = "hello", **fields: Any) -> Iterator[HTTPResponse]:
        """Another client's stream, of which the first token has come."""
        with self.opened("/v1/completions", completion(prompt, **fields)) as connection:
            response = connection.getresponse()
            assert response.readline().startswith(b"data: ")
            yield response

    def dies_of(self, prompt: str) -> int:
        """The exit status after a prompt that is never answered; negative for a signal."""
        with pytest.raises((RemoteDisconnected, ConnectionResetError)):
            self.complete(prompt)
        return self.process.wait(10)


def completion(prompt: str, *, stream: bool = True, **fields: Any) -> bytes:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    return json.dumps({"model": "fake", "prompt": prompt, "stream": stream, **options, **fields}).encode()


def read_answer(response: HTTPResponse) -> Answer:
    """The whole of an answer, from where it stands."""
    if response.headers.get_content_type() == "text/event-stream":
        lines = [line.removeprefix(b"data: ").strip() for line in response if line.strip()]
        done = lines[-1:] == [b"[DONE]"]
        events = [json.loads(line) for line in (lines[:-1] if done else lines)]
    else:
        done = True
        events = [json.loads(response.read())]
    choices = [choice for event in events for choice in event.get("choices", [])]
    finish_reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return Answer(
        status=response.status,
        text="".join(choice["text"] if "text" in choice else said(choice) for choice in choices),
        finish_reason=finish_reasons[0] if finish_reasons else None,
        usage=next((event["usage"] for event in events if "usage" in event), None),
        error=next((event["error"] for event in events if "error" in event), None),
        done=done,
    )


def said(choice: Mapping[str, Any]) -> str:
    return str((choice.get("delta") or choice.get("message") or {}).get("content", ""))


def refusal(*, prompt_tokens: int, reply_tokens: int, limit: int = WINDOW, code: int = 400) -> Mapping[str, Any]:
    return {
        "message": f"This model's maximum context length is {limit} tokens. However, you requested "
        f"{prompt_tokens + reply_tokens} tokens ({prompt_tokens} in the messages, {reply_tokens} in the completion). "
        "Please reduce the length of the messages or completion.",
        "type": "BadRequestError" if code == 400 else "InternalServerError",
        "code": code,
    }


def assert_refuses_well(server: Fake) -> None:
    for size in server.window, server.window + 100:
        for stream in True, False:
            answer = server.complete(numbers(size), max_tokens=8, stream=stream)
            error = refusal(prompt_tokens=size, reply_tokens=8, limit=server.window)
            assert (answer.status, answer.error) == (400, error)


def assert_good_where_it_should_be(server: Fake) -> None:
    """All that a well-behaved engine does and that this fake does not depart from."""
    departure = {**fake_engine.DEPARTURES, **fake_engine.UNDER_FAULTS}[server.name]
    assert server.get("/health") == {"status": "unhealthy" if departure.says_unwell else "ok"}
    [model] = server.get("/v1/models")["data"]
    assert (model["id"], model["owned_by"], model["max_model_len"]) == ("fake", "contextlab-fake", server.window)
    for stream in True, False:
        recalled = server.complete(f"{CODE} {CUE}", max_tokens=8, stream=stream)
        assert recalled == Answer(
            status=200,
            text=" 7391.",
            finish_reason="stop",
            usage={"prompt_tokens": 14, "completion_tokens": 2, "total_tokens": 16},
            done=True,
        )
    room_for_two = numbers(server.window - 2)
    just_fits = server.complete(room_for_two, max_tokens=2)
    assert (just_fits.counts, just_fits.finish_reason, just_fits.done) == ((server.window - 2, 2), "length", True)
    if departure.at_window is AtWindow.CAP:
        capped = server.complete(room_for_two, max_tokens=3)
        assert capped == just_fits
    if departure.too_long is fake_engine.refuse:
        assert_refuses_well(server)


tested: set[str] = set()


def of(name: str, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test of the fake `name`, which is running and known to be good where it should be."""
    tested.add(name)
    by_name = pytest.mark.parametrize("server", [pytest.param((name, settings), id=name)], indirect=True)
    return lambda test: pytest.mark.process(by_name(test))


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Fake]:
    """The fake of the test. If it survives, it must end well when told to."""
    name, settings = request.param
    with Fake(name, **settings) as running:
        assert_good_where_it_should_be(running)
        yield running
        if running.process.poll() is None:
            assert running.get("/health")["status"] in ("ok", "unhealthy")
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(10) == 0


# ── each fake ────────────────────────────────────────────────────────────────────────────────────


@of("rejects")
def test_rejects(server: Fake) -> None:
    answer = server.complete(numbers(WINDOW - 2), max_tokens=3)
    assert (answer.status, answer.error) == (400, refusal(prompt_tokens=WINDOW - 2, reply_tokens=3))
    unlimited = server.complete(numbers(WINDOW - 2))
    assert (unlimited.counts, unlimited.finish_reason) == ((WINDOW - 2, 2), "length")


@of("caps")
def test_caps(server: Fake) -> None:
    for limit in {}, {"max_tokens": 10**9}:
        answer = server.complete(numbers(100), stream=False, **limit)
        assert (answer.counts, answer.finish_reason) == ((100, WINDOW - 100), "length")


@of("rejects-500")
def test_rejects_500(server: Fake) -> None:
    for stream in True, False:
        answer = server.complete(numbers(WINDOW), max_tokens=8, stream=stream)
        assert (answer.status, answer.error) == (500, refusal(prompt_tokens=WINDOW, reply_tokens=8, code=500))


@of("error-in-200")
def test_error_in_200(server: Fake) -> None:
    for stream in True, False:
        answer = server.complete(numbers(WINDOW), max_tokens=8, stream=stream)
        assert answer == Answer(status=200, error=refusal(prompt_tokens=WINDOW, reply_tokens=8), done=True)


@of("wrong-limit")
def test_wrong_limit(server: Fake) -> None:
    answer = server.complete(numbers(WINDOW), max_tokens=8)
    assert answer.status == 400
    assert answer.error == refusal(prompt_tokens=WINDOW, reply_tokens=8, limit=WINDOW // 2)
    assert server.complete(numbers(WINDOW // 2 + 10), max_tokens=8).counts == (WINDOW // 2 + 10, 8)


@of("empty-200")
def test_empty_200(server: Fake) -> None:
    for stream in True, False:
        answer = server.complete(numbers(WINDOW + 5), max_tokens=8, stream=stream)
        usage = {"prompt_tokens": WINDOW + 5, "completion_tokens": 0, "total_tokens": WINDOW + 5}
        assert answer == Answer(status=200, finish_reason="length", usage=usage, done=True)


@of("no-done")
def test_no_done(server: Fake) -> None:
    streamed = server.complete(numbers(100), max_tokens=100)
    assert streamed == Answer(status=200, text="".join((COMMON_WORDS * 2)[: WINDOW - 100]))
    whole = server.complete(numbers(100), max_tokens=100, stream=False)
    assert (whole.text, whole.finish_reason) == (streamed.text, "length")


@of("drops-head", window=256)
def test_drops_head(server: Fake) -> None:
    assert codes_recalled(server) == [False, True, True]


@of("drops-middle", window=256)
def test_drops_middle(server: Fake) -> None:
    assert codes_recalled(server) == [True, False, True]


@of("drops-tail", window=256)
def test_drops_tail(server: Fake) -> None:
    assert codes_recalled(server) == [False, False, False]  # the question itself is lost
    last_seen = recall(256 - 64, code_at=0)
    assert server.complete(f"{last_seen} {numbers(200)}", max_tokens=8).text == " 7391."


def codes_recalled(server: Fake) -> list[bool]:
    """Whether a code at the head, in the middle and at the tail of a prompt that is too long comes back."""
    size = server.window + 20
    answers = [server.complete(recall(size, code_at=at), max_tokens=8) for at in (0, size // 2 - 20, size - 20)]
    assert {answer.counts[0] for answer in answers} == {server.window - 64}
    assert {(answer.status, answer.done) for answer in answers} == {(200, True)}
    return [answer.text == " 7391." for answer in answers]


@of("shifts")
def test_shifts(server: Fake) -> None:
    answer = server.complete(numbers(100), max_tokens=3 * WINDOW)
    assert (answer.counts, answer.finish_reason) == ((100, 3 * WINDOW), "length")
    unlimited = server.complete(numbers(100))
    assert (unlimited.counts, unlimited.finish_reason) == ((100, 2 * WINDOW), "stop")
    # The reply copies the prompt without end; when its source has been dropped, it must say something else.
    copied = " ".join(["so it begins", *numbers(WINDOW - 20).split(), "so it begins"])
    assert COMMON_WORDS[0] in server.complete(copied, max_tokens=2 * WINDOW).text


@of("runs-away", slots=1)
def test_runs_away(server: Fake) -> None:
    for limit in {}, {"max_tokens": WINDOW}:
        with server.neighbour(f"{CODE} {CUE}", **limit) as response:
            for _ in range(3 * WINDOW * 2):
                assert response.readline()
    # The only slot is free again when the client has left.
    assert server.complete("hello", max_tokens=2).counts == (1, 2)
    with server.opened("/v1/completions", completion("hello", stream=False)) as connection:
        assert is_silent(connection)


@of("aborts-neighbour", token_delay_s=0.05)
def test_aborts_neighbour(server: Fake) -> None:
    with server.neighbour(max_tokens=100) as streaming:
        assert_refuses_well(server)
        end = read_answer(streaming)
    error = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
    assert (end.error, end.finish_reason, end.usage, end.done) == (error, None, None, False)


@of("aborts-neighbour", token_delay_s=0.05, slots=3)
def test_aborts_neighbour_that_does_not_stream(server: Fake) -> None:
    with server.opened("/v1/completions", completion("hello", max_tokens=100, stream=False)) as connection:
        with server.neighbour(max_tokens=100):  # sent later and running, so that the first runs too
            assert_refuses_well(server)
        aborted = read_answer(connection.getresponse())
    assert aborted.status == 500
    assert aborted.error == {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}


@of("corrupts-neighbour", token_delay_s=0.04)
def test_corrupts_neighbour(server: Fake) -> None:
    with server.neighbour(max_tokens=30) as streaming:
        assert_refuses_well(server)
        end = read_answer(streaming)
    assert (end.counts, end.finish_reason, end.done) == ((1, 30), "length", True)
    words = [" " + word for word in end.text.split()]
    num_sound = sum(word in COMMON_WORDS for word in words)
    assert words[num_sound:]
    assert set(words[num_sound:]) <= set(fake_engine.OTHER_WORDS)
    undisturbed = server.complete("hello", max_tokens=10)
    assert undisturbed.text == "".join(COMMON_WORDS[:10])


@of("leaks", token_delay_s=0.02)
def test_leaks(server: Fake) -> None:
    secret = "my password is heron " * 8
    with server.neighbour(f"long ago {numbers(40)} {secret}"):
        leak = server.complete(numbers(WINDOW + 9), max_tokens=8)
    assert leak.text.split() == f"{numbers(40)} {secret}".split()[-60:]
    assert (leak.counts[0], leak.finish_reason, leak.done) == (WINDOW + 9, "stop", True)
    # When nobody else runs any more, it is the last one seen that was another's and said something.
    lonely = "a lonely secret that took ten words to be told"
    for text in (lonely, numbers(20), "too few words to tell"):
        server.complete(text, max_tokens=1)
    assert server.complete(numbers(WINDOW), stream=False).text == lonely


@of("hangs", slots=1)
def test_hangs(server: Fake) -> None:
    with server.opened("/v1/completions", completion(numbers(WINDOW))) as connection:
        assert is_silent(connection)
        assert server.get("/health") == {"status": "ok"}
        assert server.complete("hello", max_tokens=2).counts == (1, 2)
        assert is_silent(connection)


@of("aborts")
def test_aborts(server: Fake) -> None:
    assert server.dies_of(numbers(WINDOW)) == -signal.SIGABRT
    assert server.stderr.endswith("fake_server: GGML_ASSERT(n_tokens <= n_ctx) failed\n")


@of("segfaults")
def test_segfaults(server: Fake) -> None:
    assert server.dies_of(numbers(WINDOW)) == -signal.SIGSEGV
    assert "Fatal Python error" not in server.stderr


@of("dies-later")
def test_dies_later(server: Fake) -> None:
    answer = server.complete(numbers(WINDOW), max_tokens=8)
    assert (answer.status, answer.error) == (400, refusal(prompt_tokens=WINDOW, reply_tokens=8))
    assert server.get("/health") == {"status": "ok"}
    assert server.dies_of("hello") == -signal.SIGSEGV


@of("eats-memory")
def test_eats_memory(server: Fake) -> None:
    limit_bytes = 256 * 2**20
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    assert server.dies_of(numbers(WINDOW)) == -signal.SIGABRT
    assert server.stderr.endswith("MemoryError: cannot allocate 16777216 bytes\n")


def test_memory_is_not_eaten_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_engine, "EATEN_AT_MOST_BYTES", 2 * fake_engine.EATEN_AT_ONCE_BYTES)
    engine = Engine(window=WINDOW, departure=fake_engine.DEPARTURES["eats-memory"])
    with pytest.raises(Refused, match="memory limit missing"):
        asyncio.run(engine.admit(Job(api=Api.COMPLETIONS, prompt=[" word"] * WINDOW, text="")))


@of("says-well", token_delay_s=0.01)
def test_says_well(server: Fake) -> None:
    """A pause wedges it in the middle of a stream; whoever asks then waits for ever, and hears that it is well."""
    with server.neighbour(max_tokens=100) as stream:
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        server.process.send_signal(signal.SIGCONT)
        with server.opened("/v1/completions", completion("hello", max_tokens=1, stream=False)) as waiting:
            assert is_silent(waiting, 0.5)
        assert server.get("/health") == {"status": "ok"}
        assert not stream.closed
    assert server.stderr.endswith("engine: stuck\n")


@of("says-unwell")
def test_says_unwell(server: Fake) -> None:
    """Its status is one of trouble, and it serves."""
    with server.opened("/health") as connection:
        assert connection.getresponse().status == 503
    assert server.complete("hello", max_tokens=1).counts == (1, 1)


def wait_for_metric(server: Fake, name: str, value: int) -> None:
    """Until /metrics says so."""
    until = time.monotonic() + 5
    while metric(server, name) != value:
        assert time.monotonic() < until, f"{name} is {metric(server, name)}, not {value}"
        time.sleep(0.01)


def metric(server: Fake, name: str) -> int:
    with server.opened("/metrics") as connection:
        lines = connection.getresponse().read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def leave(server: Fake, times: int) -> None:
    """So many clients leave in the middle of a stream, one after the other."""
    for _ in range(times):
        with server.neighbour(max_tokens=100):
            pass


@of("keeps-slot", token_delay_s=0.01)
def test_keeps_slot(server: Fake) -> None:
    """Who is answered whole gives the slot back, who leaves does not; with the last slot gone everybody waits."""
    wait_for_metric(server, "fake:requests_running", 0)
    leave(server, 2)
    wait_for_metric(server, "fake:requests_running", 2)
    with server.opened("/v1/completions", completion("hello", max_tokens=1, stream=False)) as waiting:
        assert is_silent(waiting, 0.3)
        assert metric(server, "fake:requests_waiting") == 1


@of("keeps-descriptor", token_delay_s=0.01)
def test_keeps_descriptor(server: Fake) -> None:
    process = psutil.Process(server.process.pid)
    before = process.num_fds()
    leave(server, 6)
    wait_for_metric(server, "fake:requests_running", 0)
    assert before + 6 <= process.num_fds() <= before + 7  # and perhaps the look's own connection
    assert server.complete("hello", max_tokens=1).counts == (1, 1)


@of("keeps-memory", token_delay_s=0.01)
def test_keeps_memory(server: Fake) -> None:
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    leave(server, 6)
    wait_for_metric(server, "fake:requests_running", 0)
    assert process.memory_info().rss - before > 5 * fake_engine.KEPT_BYTES
    assert server.complete("hello", max_tokens=1).counts == (1, 1)


def test_each_fake_is_tested() -> None:
    assert tested == set(fake.NAMES)


def is_silent(connection: HTTPConnection, for_s: float = 0.1) -> bool:
    """Whether nothing at all comes for a while."""
    return not select.select([connection.sock], [], [], for_s)[0]


# ── what all of them share ───────────────────────────────────────────────────────────────────────


@of("rejects", slots=1, token_delay_s=0.02)
def test_requests_beyond_the_slots_wait(server: Fake) -> None:
    second = completion("second", max_tokens=2)
    with ExitStack() as stack:
        with server.neighbour(max_tokens=100):
            with server.opened("/v1/completions", second):
                pass  # a client that leaves before its turn holds nobody up
            waiting = stack.enter_context(server.opened("/v1/completions", second))
            assert is_silent(waiting)
        assert read_answer(waiting.getresponse()).counts == (1, 2)


@of("rejects")
def test_chat(server: Fake) -> None:
    messages = [{"role": "user", "content": text} for text in (CODE, "What is the secret code of HEAD?")]
    body = {"messages": messages, "model": "fake", "max_completion_tokens": 20}
    whole = server.post(json.dumps(body).encode(), "/v1/chat/completions")
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = server.post(json.dumps({**body, **stream}).encode(), "/v1/chat/completions")
    assert whole == streamed
    assert (whole.text, whole.finish_reason, whole.counts) == (CODE, "stop", (8 + 8 + 2 * 4 + 3, 8))
    plain = server.post(json.dumps({**body, "stream": True}).encode(), "/v1/chat/completions")
    assert (plain.text, plain.usage, plain.done) == (CODE, None, True)
    going_on = server.post(json.dumps({**body, "ignore_eos": True}).encode(), "/v1/chat/completions")
    assert (going_on.counts[1], going_on.finish_reason) == (20, "length")


@of("caps")
def test_what_is_not_a_request_is_refused(server: Fake) -> None:
    for path, body, status, words in [
        ("/v1/completions", b"{", 400, "not JSON"),
        ("/v1/completions", b"[]", 400, "JSON object"),
        ("/v1/completions", b"{}", 400, "prompt is required"),
        ("/v1/completions", b'{"prompt": 7}', 400, "prompt must be of type str"),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": "8"}', 400, "max_tokens must be of type int"),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": true}', 400, "max_tokens must be of type int"),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": 0}', 400, "at least 1"),
        ("/v1/completions", b'{"prompt": "a", "stream": 1}', 400, "stream must be of type bool"),
        ("/v1/completions", b'{"prompt": "a", "model": "gpt"}', 404, "`gpt` does not exist"),
        ("/v1/chat/completions", b'{"messages": []}', 400, "at least one"),
        ("/v1/chat/completions", b'{"messages": ["a"]}', 400, "at least one object"),
        ("/v1/chat/completions", b'{"messages": [{"role": "user"}]}', 400, "content is required"),
    ]:
        answer = server.post(body, path)
        assert answer.status == status
        assert answer.error is not None
        assert answer.error["code"] == status
        assert words in answer.error["message"]


def test_an_unknown_name_is_the_users_mistake() -> None:
    with pytest.raises(UsageError) as caught:
        fake.server(TargetSpec(name="x", scheme="fake", address="drop-head"))
    assert caught.value.message.startswith("fake='drop-head':")
    assert "drops-head" in caught.value.next_step
    assert all(name in caught.value.next_step for name in fake.NAMES)


def test_every_outcome_that_can_be_faked_has_a_fake() -> None:
    not_faked = {Outcome.OK, Outcome.DEGRADED, Outcome.UNKNOWN}
    # Of faults, not of a fake:
    under_load = {Outcome.STREAM_DAMAGED, Outcome.BOUND_BROKEN, Outcome.NOT_RECOVERED}
    under_load |= {Outcome.NOT_RELEASED, Outcome.HEALTH_LIED}
    assert set(fake.EXPECTED.values()) == set(Outcome) - not_faked - under_load
    assert set(fake.EXPECTED_UNDER_FAULTS.values()) <= under_load


def test_a_limit_of_its_own_only_for_the_eater() -> None:
    limits = {
        name: fake.server(TargetSpec(name=name, scheme="fake", address=name)).memory_limit_bytes for name in fake.NAMES
    }
    assert limits.pop("eats-memory") == 512 * 2**20
    assert set(limits.values()) == {None}


def test_listing_the_fakes_loads_no_server() -> None:
    code = "import sys, contextlab.targets.fake; sys.exit(bool({'aiohttp', 'asyncio'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
