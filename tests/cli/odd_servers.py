"""Servers that are not what a user hopes for, one odd thing each, by name.

    python odd_servers.py NAME

Prints `READY http://127.0.0.1:PORT` and serves until it is killed. The standard library only: a test starts these in
a process of their own, and a few milliseconds later they answer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-right-key-4711"
HTML = "<!doctype html><html><head><title>Welcome</title></head><body>It works!</body></html>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """What a server does: `card` is added to the one model that it lists.

    `silent`: it accepts, reads, and never answers; "all" of it, or the "replies" alone.
    """

    card: Mapping[str, Any] = field(default_factory=dict)
    silent: str = ""
    page: str = ""
    key: str = ""
    usage: bool = True
    garbage: bytes = b""
    moved_to: str = ""
    status: int = 200


ODDITIES: Mapping[str, Oddity] = {
    "silent": Oddity(silent="all"),
    "mute": Oddity(silent="replies", card={"max_model_len": 256}),
    "html": Oddity(page=HTML),
    "no-counts": Oddity(usage=False, card={"max_model_len": 256}),
    "wants-key": Oddity(key=KEY),
    "one-model": Oddity(card={"max_model_len": 256, "owned_by": "vllm"}),
    "window-0": Oddity(card={"max_model_len": 0}),
    "window-10m": Oddity(card={"max_model_len": 10_000_000}),
    "not-http": Oddity(garbage=b"SSH-2.0-OpenSSH_9.6\r\n"),
    "hangs-up": Oddity(garbage=b"HTTP/1.1 "),
    "moved": Oddity(moved_to="/elsewhere"),
    "broken": Oddity(status=500),
}


class Handler(BaseHTTPRequestHandler):
    """Answers as the oddity says; for the rest, as a small server of one model."""

    oddity: Oddity
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The list of models; there is no other page."""
        if self._odd():
            return
        if self.path == "/v1/models":
            card = {"id": "model-7b", "object": "model", "owned_by": "someone", **self.oddity.card}
            self._say(200, {"object": "list", "data": [card]})
        else:
            self._say(404, {"error": {"message": "Not Found", "type": "NotFoundError"}})

    def do_POST(self) -> None:
        """A reply of three words."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self._odd():
            return
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            self._say(404, {"error": {"message": "Not Found", "type": "NotFoundError"}})
            return
        if self.oddity.silent:
            time.sleep(3600)
        text = "one two three"
        said = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        num_words = len(json.dumps(body.get("prompt") or body["messages"]).split())
        usage = {"prompt_tokens": num_words, "completion_tokens": 3} if self.oddity.usage else None
        self._say(200, {"choices": [{"index": 0, "finish_reason": "stop", **said}], "usage": usage})

    def _odd(self) -> bool:
        """Whether the oddity has answered already, in its way."""
        odd = self.oddity
        if odd.silent == "all":
            time.sleep(3600)
        if odd.garbage:
            self.wfile.write(odd.garbage)
            self.close_connection = True
        elif odd.moved_to:
            self._say(308, {}, Location=odd.moved_to)
        elif odd.page:
            self._send(200, odd.page.encode(), "text/html")
        elif odd.key and self.headers.get("Authorization") != f"Bearer {odd.key}":
            self._say(401, {"error": {"message": f"Incorrect API key provided: {self.headers.get('Authorization')}"}})
        elif odd.status != 200:
            self._say(odd.status, {"error": {"message": "out of cheese", "type": "server_error"}})
        else:
            return False
        return True

    def _say(self, status: int, body: Mapping[str, Any], **headers: str) -> None:
        self._send(status, json.dumps(body).encode(), "application/json", **headers)

    def _send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: standard error is the test's."""


def serve(name: str) -> None:
    """Serve the oddity of that name."""
    Handler.oddity = ODDITIES[name]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sys.stdout.write(f"READY http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1])
