"""A relay in a thread of this process, and clients that look at bare sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from contextlab import registry
from contextlab.experiment import Landed, Placed
from contextlab.lab.link.exposure import Armed
from contextlab.lab.link.relay import Relay
from tests.lab.link.upstream import LINGER_0

T = TypeVar("T")
PATIENCE_S = 5.0


def fault(name: str, start_s: float = 0.0, length_s: float = 60.0, **options: Any) -> Placed:
    """A placed fault; without a time it always acts."""
    return Placed(name=name, start_s=start_s, length_s=length_s, options=options)


class Relaying:
    """A relay to `upstream` with these faults, whose zero is now."""

    def __init__(self, upstream: tuple[str, int], *faults: Placed, seed: int = 7) -> None:
        self._loop = uvloop.new_event_loop()
        self._errors: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda loop, context: self._errors.append(context))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.relay = Relay(self._loop, upstream, seed=seed)
        self.zero_s = time.monotonic()
        self.armed = [
            Armed(
                registry.wire_fault(one),
                number=number,
                start_s=self.zero_s + one.start_s,
                end_s=self.zero_s + one.end_s,
            )
            for number, one in enumerate(faults)
        ]
        self.relay.arm(self.armed)
        self.relay.listen(self._listener)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, act: Callable[[], T]) -> T:
        """Do something on the relay's own loop."""
        found: list[T] = []
        done = threading.Event()

        def run() -> None:
            found.append(act())
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(PATIENCE_S)
        return found[0]

    def tally(self, number: int = 0) -> dict[str, float]:
        """What a fault has counted until now."""
        return self.do(self.armed[number].tally)

    def landed(self, number: int = 0) -> Landed:
        """Whether a fault landed."""
        return self.armed[number].fault.landed(self.tally(number), {})

    def counters(self) -> dict[str, float]:
        """What passed."""
        return self.do(self.relay.counters)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self.relay.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        self._listener.close()
        assert not self._errors


@dataclass(slots=True)
class Reads:
    """What a client read: each read with its time since the request was sent, and how it ended."""

    at_s: list[float] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    ended: str = ""
    """ "fin", "reset", or "" while it is open."""
    ended_s: float = 0.0

    @property
    def raw(self) -> bytes:
        """All bytes."""
        return b"".join(self.data)

    @property
    def body(self) -> bytes:
        """The body without its chunks, as far as it came."""
        return dechunked(self.raw)[0]

    @property
    def is_whole(self) -> bool:
        """Whether a chunked body came to its end."""
        return dechunked(self.raw)[1]


class Client:
    """A connection to a relay; `index` marks its first request."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent_s = time.monotonic()

    def ask(self, index: int | None = 0, body: bytes = b'{"prompt": "x"}') -> None:
        """Send a request."""
        mark = b"" if index is None else b"X-Request-Id: fault-%d\r\n" % index
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n" % (mark, len(body))
        self._sent_s = time.monotonic()
        self.socket.sendall(head + body)

    def read(self, until: Callable[[Reads], bool] = lambda reads: False, *, timeout_s: float = PATIENCE_S) -> Reads:
        """Read until the end, until `until` holds, or until nothing more has come for the time."""
        reads = Reads()
        self.socket.settimeout(timeout_s)
        while not until(reads):
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                break
            except ConnectionResetError:
                reads.ended = "reset"
            else:
                if data:
                    reads.at_s.append(time.monotonic() - self._sent_s)
                    reads.data.append(data)
                    continue
                reads.ended = "fin"
            reads.ended_s = time.monotonic() - self._sent_s
            break
        return reads

    def leave(self, *, reset: bool = False) -> None:
        """Close, in order or with a RST."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def asked(relaying: Relaying, index: int = 0, *, timeout_s: float = PATIENCE_S) -> Reads:
    """One request on a connection of its own, read to its end."""
    with Client(relaying.address) as client:
        client.ask(index)
        return client.read(whole, timeout_s=timeout_s)


def whole(reads: Reads) -> bool:
    """Whether HTTP says that the reply is complete."""
    raw = reads.raw
    if b"\r\n\r\n" not in raw:
        return False
    head, _, body = raw.partition(b"\r\n\r\n")
    if b"chunked" in head:
        return reads.is_whole
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(length) and len(body) >= int(length[0].partition(b":")[2])


def dechunked(raw: bytes) -> tuple[bytes, bool]:
    """The body in a raw reply, and whether its last chunk is there; strict: what is no chunk fails."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return rest, False
    body = b""
    while rest:
        size, line, after = rest.partition(b"\r\n")
        if not line:
            break
        length = int(size, 16)
        if not length:
            return body, after == b"\r\n"
        body += after[:length]
        assert after[length : length + 2] in (b"\r\n"[: max(0, len(after) - length)], b"\r\n")
        rest = after[length + 2 :]
    return body, False


def until(holds: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.002)


def texts(body: bytes) -> list[str]:
    """The words of the content events in a body, one item for each; no event may be anything but JSON or `[DONE]`."""
    import json

    found = []
    for block in body.decode().split("\n\n"):
        data = block.removeprefix("data: ")
        if data and data != "[DONE]":
            choices = json.loads(data)["choices"]
            found += [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]
    return found
