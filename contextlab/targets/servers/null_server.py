"""The cheapest OpenAI-compatible server that is still honest: it streams one prepared reply to whoever asks.

    python -m contextlab.targets.servers.null_server --port 0 --events 16 --event-delay-s 0

What a client costs and how late it is shows against this server, since nothing else takes time here. It listens on
127.0.0.1 only, prints `READY http://127.0.0.1:PORT`, and exits 0 on SIGTERM. A reply is chunked: one server-sent event
a chunk, `--events` of them with words, then the finish reason, the usage and `[DONE]`. Without a delay it is one write;
with `--event-delay-s` each event is a write of its own, due at a whole number of delays after the request.
Model names are not checked, and `max_tokens` is not obeyed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import cast

import msgspec
import uvloop

from contextlab.targets.servers import own_port

MODELS = ("null",)
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "box")
MAX_REMEMBERED = 256
"""Requests whose replies are kept ready."""
MAX_REQUEST_BYTES = 64 << 20
JSON_HEAD = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
PATHS = {b"/v1/chat/completions": True, b"/v1/completions": False}


class Asked(msgspec.Struct):
    """What of a request's body matters here."""

    stream: bool = False


def whole(status: int, reason: bytes, body: object) -> bytes:
    """An answer that is one JSON text."""
    text = msgspec.json.encode(body)
    return JSON_HEAD % (status, reason, len(text)) + text


def refused(status: int, reason: bytes, message: str) -> bytes:
    """An error as OpenAI words it."""
    return whole(status, reason, {"error": {"message": message, "type": "invalid_request_error", "code": status}})


class Replies:
    """Everything the server can say, encoded once."""

    def __init__(self, num_events: int, models: Sequence[str]) -> None:
        self.num_events = num_events
        self.model = models[0]
        cards = [{"id": name, "object": "model", "created": 0, "owned_by": "contextlab"} for name in models]
        self.fixed = {
            b"/v1/models": whole(200, b"OK", {"object": "list", "data": cards}),
            b"/health": whole(200, b"OK", {"status": "ok"}),
        }
        self.not_found = refused(404, b"Not Found", "there is no such path here")
        self.bad_body = refused(400, b"Bad Request", "the body is not a JSON object")
        self.bad_head = refused(400, b"Bad Request", "the request has no Content-Length")
        self._known: dict[tuple[bytes, bytes], tuple[bytes, ...]] = {}

    def to(self, path: bytes, body: bytes) -> tuple[bytes, ...]:
        """The writes that answer a request: one, or the head and each event of a stream."""
        reply = self._known.get((path, body))
        if reply is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            reply = self._known[path, body] = self._made(path, body)
        return reply

    def _made(self, path: bytes, body: bytes) -> tuple[bytes, ...]:
        if path in self.fixed:
            return (self.fixed[path],)
        if path not in PATHS:
            return (self.not_found,)
        try:
            stream = msgspec.json.decode(body, type=Asked).stream
        except msgspec.MsgspecError:
            return (self.bad_body,)
        usage = self._usage(len(body.split()))
        return self._stream(usage, chat=PATHS[path]) if stream else (self._whole(usage, chat=PATHS[path]),)

    def _stream(self, usage: dict[str, int], *, chat: bool) -> tuple[bytes, ...]:
        frame = {
            "id": "chatcmpl-null-00000000" if chat else "cmpl-null-00000000",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1700000000,
            "model": self.model,
        }
        datas: list[object] = [
            {**frame, "choices": [{"index": 0, **_said(chat, word), "finish_reason": None}]} for word in self._words()
        ]
        end: dict[str, object] = {"index": 0, **({"delta": {}} if chat else {"text": ""}), "finish_reason": "stop"}
        datas.append({**frame, "choices": [end]})
        datas.append({**frame, "choices": [], "usage": usage})
        events = [b"data: " + msgspec.json.encode(data) + b"\n\n" for data in datas] + [b"data: [DONE]\n\n"]
        chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
        return (STREAM_HEAD, *chunks[:-1], chunks[-1] + b"0\r\n\r\n")

    def _whole(self, usage: dict[str, int], *, chat: bool) -> bytes:
        text = "".join(self._words())
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        choice = {"index": 0, **said, "finish_reason": "stop"}
        kind = "chat.completion" if chat else "text_completion"
        body = {"id": "null", "object": kind, "created": 0, "model": self.model, "choices": [choice]}
        return whole(200, b"OK", {**body, "usage": usage})

    def _words(self) -> list[str]:
        return [f" {WORDS[place % len(WORDS)]}" for place in range(self.num_events)]

    def _usage(self, num_words: int) -> dict[str, int]:
        """A word of the body counts as a token; the reply has one token an event."""
        total = num_words + self.num_events
        return {"prompt_tokens": num_words, "completion_tokens": self.num_events, "total_tokens": total}


def _said(chat: bool, word: str) -> dict[str, object]:
    return {"delta": {"content": word}} if chat else {"text": word}


class Connection(asyncio.Protocol):
    """One client. Requests are answered in their order; a second one waits for the end of the first reply."""

    def __init__(self, replies: Replies, event_delay_s: float) -> None:
        self._replies = replies
        self._delay_s = event_delay_s
        self._rest = b""
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """The client has left."""
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._rest = self._rest + data if self._rest else data
        self._advance()

    def _advance(self) -> None:
        while self._rest and not self._busy:
            head_end = self._rest.find(b"\r\n\r\n")
            if head_end < 0:
                if len(self._rest) > MAX_REQUEST_BYTES:
                    self._transport.abort()
                return
            head = self._rest[:head_end].lower()
            start = head.find(b"\r\ncontent-length:")
            length = 0
            if start >= 0:
                value = head[start + 17 :].split(b"\r\n", 1)[0].strip()
                if not value.isdigit() or int(value) > MAX_REQUEST_BYTES:
                    self._transport.write(self._replies.bad_head)
                    self._transport.close()
                    return
                length = int(value)
            elif b"\r\ntransfer-encoding:" in head:
                self._transport.write(self._replies.bad_head)
                self._transport.close()
                return
            end = head_end + 4 + length
            if len(self._rest) < end:
                return
            path = head.split(b" ", 2)[1] if head.count(b" ") >= 2 else b""
            writes = self._replies.to(path, self._rest[head_end + 4 : end])
            self._rest = self._rest[end:]
            self._answer(writes, last=b"\r\nconnection: close" in head)

    def _answer(self, writes: tuple[bytes, ...], *, last: bool) -> None:
        if self._delay_s and len(writes) > 1:
            self._busy = True
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            self._transport.write(writes[0])
            loop.call_at(began_s + self._delay_s, self._paced, writes, 1, began_s, last)
            return
        self._transport.write(writes[0] if len(writes) == 1 else b"".join(writes))
        if last:
            self._transport.close()

    def _paced(self, writes: tuple[bytes, ...], place: int, began_s: float, last: bool) -> None:
        """Write one event, and see to the next; the end of the stream comes together with `[DONE]`."""
        if self._transport.is_closing():
            return
        self._transport.write(writes[place])
        place += 1
        if place < len(writes):
            loop = asyncio.get_running_loop()
            loop.call_at(began_s + self._delay_s * place, self._paced, writes, place, began_s, last)
            return
        self._busy = False
        if last:
            self._transport.close()
        else:
            self._advance()


async def serve(replies: Replies, event_delay_s: float, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    server = await loop.create_server(lambda: Connection(replies, event_delay_s), "127.0.0.1", port, backlog=4096)
    sys.stdout.write(f"READY http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the server that the command line describes."""
    parser = argparse.ArgumentParser(prog="null_server", description="A server that costs next to nothing.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (%(default)s)")
    parser.add_argument("--events", type=int, default=16, help="events with words in a reply (%(default)s)")
    parser.add_argument("--event-delay-s", type=float, default=0.0, help="time between events (%(default)s)")
    parser.add_argument("--models", nargs="+", default=MODELS, help="the names it lists (%(default)s)")
    options = parser.parse_args(argv)
    uvloop.run(serve(Replies(options.events, options.models), options.event_delay_s, own_port(options.port)))


if __name__ == "__main__":
    main()
