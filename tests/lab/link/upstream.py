"""A target by script: it answers every request with the same steps, and remembers what its clients did."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

Step = bytes | float | Literal["fin", "rst", "read nothing"]
"""Bytes to send (one send each), seconds to wait, or what to do with the connection."""
Framing = Literal["chunked", "close", "length"]
LINGER_0 = struct.pack("ii", 1, 0)
FRAMINGS: tuple[Framing, ...] = ("chunked", "close", "length")


@dataclass(slots=True)
class Seen:
    """One connection as the target saw it. `ended`: "fin" or "rst", by the client; `sent_bytes` before that."""

    requests: list[bytes]
    ended: str = ""
    ended_s: float = 0.0
    sent_bytes: int = 0


class Upstream:
    """Listens on 127.0.0.1 from construction on; one thread for each connection."""

    def __init__(self, steps: Sequence[Step], *, accepts: bool = True) -> None:
        self.steps = steps
        self.seen: list[Seen] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open: list[socket.socket] = []
        if accepts:
            threading.Thread(target=self._accept, daemon=True).start()
        else:
            self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(one)
                self.seen.append(Seen([]))
                threading.Thread(target=self._serve, args=(one, self.seen[-1]), daemon=True).start()

    def _serve(self, one: socket.socket, seen: Seen) -> None:
        try:
            rest = b""
            while True:
                request, rest = _request(one, rest)
                if not request:
                    seen.ended = "fin"
                    break
                seen.requests.append(request)
                self._answer(one, seen)
        except OSError:
            seen.ended = seen.ended or "rst"
        seen.ended_s = time.monotonic()
        one.close()

    def _answer(self, one: socket.socket, seen: Seen) -> None:
        for step in self.steps:
            if isinstance(step, bytes):
                one.sendall(step)
                seen.sent_bytes += len(step)
            elif isinstance(step, float):
                time.sleep(step)
            elif step == "fin":
                one.shutdown(socket.SHUT_WR)
            elif step == "rst":
                seen.ended = "by us"
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
                one.close()


def _request(one: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    """The next request with its body, and what came after it; b"" where the client sends no more."""
    while b"\r\n\r\n" not in data:
        chunk = one.recv(65536)
        if not chunk:
            return b"", b""
        data += chunk
    end = data.index(b"\r\n\r\n") + 4
    found = re.search(rb"(?i)content-length: *(\d+)", data[:end])
    end += int(found[1]) if found else 0
    while len(data) < end:
        data += one.recv(65536)
    return data[:end], data[end:]


# ── replies ──────────────────────────────────────────────────────────────────────────────────────

WORDS = ("Zwölf", " Boxer", " jagen", " Viktor", " über", " den", " Deich", ".")


def event(data: dict[str, Any] | str) -> bytes:
    """One server-sent event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}\n\n".encode()


def content(text: str, **more: object) -> bytes:
    """A chat event with words."""
    return event({"id": "c-1", "choices": [{"index": 0, "delta": {"content": text, **more}, "finish_reason": None}]})


def events(words: Sequence[str] = WORDS, *, done: bool = True) -> list[bytes]:
    """The events of a whole reply: a role, the words, a finish reason, the usage, `[DONE]`."""
    role = event({"id": "c-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    finish = event({"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = event({"id": "c-1", "choices": [], "usage": {"completion_tokens": len(words)}})
    return [role, *(content(word) for word in words), finish, usage, *([event("[DONE]")] if done else [])]


def head(framing: Framing, length_bytes: int = 0, *, kind: str = "text/event-stream") -> bytes:
    """The head of a reply."""
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}"]
    lines += {
        "chunked": ["Transfer-Encoding: chunked"],
        "close": ["Connection: close"],
        "length": [f"Content-Length: {length_bytes}"],
    }[framing]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def reply(
    framing: Framing, parts: Sequence[bytes], pause_s: float = 0.0, *, kind: str = "text/event-stream"
) -> list[Step]:
    """The steps of a reply whose body comes in parts, with a pause before each."""
    steps: list[Step] = [head(framing, sum(map(len, parts)), kind=kind)]
    for part in parts:
        steps += [pause_s] if pause_s else []
        steps.append(chunk(part) if framing == "chunked" else part)
    if framing == "chunked":
        steps.append(b"0\r\n\r\n")
    if framing == "close":
        steps.append("fin")
    return steps
