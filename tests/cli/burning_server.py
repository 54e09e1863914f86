"""A server that computes for each of its tokens, so that a CPU quota slows it down. Standard library only.

python burning_server.py PORT [QUOTA]      QUOTA: share of a core, as a control group of its own (root)
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WINDOW = 128
WORK = b"\x5a" * 1_500_000
PERIOD_US = 20_000


class Handler(BaseHTTPRequestHandler):
    """Completions of as many tokens as asked for; a word is a token."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The one model."""
        card = {"id": "burning", "object": "model", "owned_by": "test", "max_model_len": WINDOW}
        self._answer(200, {"object": "list", "data": [card]})

    def do_POST(self) -> None:
        """Refuse what is too long, else compute."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = len(str(body.get("prompt", "")).split()) or 1
        asked = int(body.get("max_tokens") or 4)
        if not self.path.endswith("/completions") or "chat" in self.path:
            return self._answer(404, {"error": {"message": "no such endpoint"}})
        if prompt + asked > WINDOW:
            message = f"This model's maximum context length is {WINDOW} tokens, you asked for {prompt + asked}."
            return self._answer(400, {"error": {"message": message, "type": "invalid_request_error"}})
        usage = {"prompt_tokens": prompt, "completion_tokens": asked, "total_tokens": prompt + asked}
        if not body.get("stream"):
            text = "".join(self._token() for _ in range(asked))
            choice = {"index": 0, "text": text, "finish_reason": "length"}
            return self._answer(200, {"id": "x", "choices": [choice], "usage": usage})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for place in range(asked):
            last = place == asked - 1
            choice = {"index": 0, "text": self._token(), "finish_reason": "length" if last else None}
            self._event({"id": "x", "choices": [choice]})
        self._event({"id": "x", "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True
        return None

    def _token(self) -> str:
        hashlib.blake2b(WORK).digest()
        return " word"

    def _event(self, thing: Any) -> None:
        self.wfile.write(f"data: {json.dumps(thing)}\n\n".encode())
        self.wfile.flush()

    def _answer(self, status: int, thing: Any) -> None:
        data = json.dumps(thing).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def group() -> tuple[Path, bool]:
    """(folder of the control group of quotas, whether it is version 1)."""
    old = Path("/sys/fs/cgroup/cpu/contextlab-test-gate")
    return (old, True) if old.parent.is_dir() else (Path("/sys/fs/cgroup/contextlab-test-gate"), False)


def limit(share: float) -> None:
    """Put this process into a group with so much of a core. Raises OSError where that is not allowed."""
    folder, old = group()
    folder.mkdir(exist_ok=True)
    quota_us = int(share * PERIOD_US)
    if old:
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
    else:
        (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def unlimit() -> None:
    """Remove the group; it is empty once its processes have ended."""
    for _ in range(40):
        try:
            group()[0].rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)


if __name__ == "__main__":
    with suppress(OSError):  # not root: then what others do beside the test shows in it
        os.nice(-19)
    if len(sys.argv) > 2:
        limit(float(sys.argv[2]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
