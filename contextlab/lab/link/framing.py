"""Cuts a reply into the pieces that faults address by event, and frames what comes out of them as valid HTTP again.

    bytes of a reply ─▶ HEAD, then for a stream of server-sent events: EVENT | FIRST_TOKEN | DONE …, TAIL
                                  for any other body: BYTES …, TAIL
    pieces, after the stages ─▶ wire(): body pieces in chunks of their own where the reply is chunked

The data of body pieces is payload, without HTTP's framing; HEAD and TAIL are on the wire as they stand. However the
bytes came cut, the same events come out; an event is held until its empty line is there. What is no HTTP/1.1 passes.
Content-encoded streams are not cut.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from contextlab.experiment import Close, Mark, Piece
from contextlab.lab.link.messages import MAX_HEAD_BYTES, Body, Head, NotHttp, head_end, parsed_head

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r){2}")
_LENGTH = re.compile(rb"(?mi)^content-length[ \t]*:[^\r\n]*")
_CHUNKED = b"Transfer-Encoding: chunked"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_BREAK_BYTES = 4
UNFRAMED = frozenset({Mark.HEAD, Mark.TAIL})
"""Pieces whose data are no part of the body."""


class ReplyReader:
    """Reads one reply. `begun`: a byte of it is there; `ended`: all of it.

    `cuts`: cut it into pieces; else it passes as it comes, and only its end is found. `rechunks`: lengths may change,
    so a declared one is replaced by chunks, or in HTTP/1.0 by the end of the connection. `is_bodiless`: the request
    was a HEAD.
    """

    def __init__(self, *, cuts: bool, rechunks: bool = False, is_bodiless: bool = False) -> None:
        self.begun = self.ended = False
        self._cuts = cuts
        self._rechunks = rechunks
        self._is_bodiless = is_bodiless
        self._held = bytearray()  # a head, or an event, that is not whole yet
        self._body: Body | None = None
        self._is_raw = self._is_stream = self._is_chunked = self._closes = False
        self._num_content = 0
        self._at_start = True

    def feed(self, data: bytes, at_s: float) -> list[Piece]:
        """The pieces that these bytes complete, all due at `at_s`."""
        self.begun = True
        pieces: list[Piece] = []
        rest = data
        while rest:
            if self._is_raw or self.ended:
                pieces.append(Piece(at_s, rest, Mark.TAIL))
                break
            rest = self._in_head(rest, at_s, pieces) if self._body is None else self._in_body(rest, at_s, pieces)
        return pieces if self._cuts else [Piece(at_s, data)]

    def close(self, at_s: float) -> list[Piece]:
        """What is left when the target has finished, and the end of the connection itself."""
        pieces: list[Piece] = []
        if self._cuts and self._body is None and self._held:
            pieces.append(Piece(at_s, bytes(self._held), Mark.TAIL))
            self._held.clear()
        elif self._cuts and self._held:
            pieces.append(self._rest(at_s))
        if self._body is not None and not self.ended and self._body.lasts:
            pieces.append(Piece(at_s, b"", Mark.TAIL))
        self.ended = True
        return [*(pieces if self._cuts else ()), Piece(at_s, close=Close.FIN)]

    def wire(self, piece: Piece) -> bytes:
        """The bytes that carry a piece to the client."""
        if self._is_chunked and self._cuts and piece.data and piece.mark not in UNFRAMED:
            return b"%x\r\n%b\r\n" % (len(piece.data), piece.data)
        return piece.data

    # ── head and body ────────────────────────────────────────────────────────────────────────────

    def _in_head(self, data: bytes, at_s: float, pieces: list[Piece]) -> bytes:
        seen = len(self._held)
        self._held += data
        end = head_end(self._held, seen)
        if end < 0 and len(self._held) <= MAX_HEAD_BYTES:
            return b""
        held = bytes(self._held)
        self._held.clear()
        raw, rest = held[:end], held[end:]
        try:
            head = parsed_head(raw) if end > 0 else Head(b"", {})
            status = head.status
            body = self._body_of(head, status)
        except (NotHttp, IndexError):
            self._is_raw = True
            return held
        if 100 <= status < 200 and status != 101:
            self.begun = bool(rest)
            pieces.append(Piece(at_s, raw, Mark.HEAD))
            return rest
        kind = head.headers.get(b"content-type", b"").lower()
        encoding = head.headers.get(b"content-encoding", b"identity").lower()
        self._is_stream = self._cuts and kind.startswith(b"text/event-stream") and encoding == b"identity"
        self._is_chunked = body.is_chunked
        if self._rechunks and self._is_stream and body.is_bounded:
            self._is_chunked = head.first_line.startswith(b"HTTP/1.1")
            self._closes = not self._is_chunked
            raw = _LENGTH.sub(_CHUNKED if self._is_chunked else b"Connection: close", raw)
        self._body = body
        pieces.append(Piece(at_s, raw, Mark.HEAD))
        if body.ended:
            self._end(body, at_s, pieces)
        return rest

    def _body_of(self, head: Head, status: int) -> Body:
        if self._is_bodiless or status in (204, 304):
            return Body(length_bytes=0)
        return Body(length_bytes=head.length_bytes, is_chunked=head.is_chunked)

    def _in_body(self, data: bytes, at_s: float, pieces: list[Piece]) -> bytes:
        body = self._body or Body()
        payload, rest = body.feed(data)
        for part in payload:
            if self._is_stream:
                self._cut(part, at_s, pieces)
            elif self._cuts:
                pieces.append(Piece(at_s, part))
        if body.is_broken:
            self._is_raw = True
            if self._held:
                pieces.append(self._rest(at_s))
        elif body.ended:
            self._end(body, at_s, pieces)
        return rest

    def _end(self, body: Body, at_s: float, pieces: list[Piece]) -> None:
        if self._held:
            pieces.append(self._rest(at_s))
        end = b"0\r\n\r\n" if self._is_chunked and not body.is_chunked else body.end
        pieces.append(Piece(at_s, end, Mark.TAIL, close=Close.FIN if self._closes else None))
        self.ended = True

    def _rest(self, at_s: float) -> Piece:
        """An event that was left without its empty line."""
        held = bytes(self._held)
        self._held.clear()
        return Piece(at_s, held)

    # ── events ───────────────────────────────────────────────────────────────────────────────────

    def _cut(self, payload: bytes, at_s: float, pieces: list[Piece]) -> None:
        held = self._held
        at = max(0, len(held) - _LONGEST_BREAK_BYTES + 1)
        held += payload
        start = 0
        while found := _BLANK_LINE.search(held, at):
            at = found.end()
            if at == len(held) and held[-1] == 0x0D:  # half of a CRLF, perhaps: the next bytes will tell
                break
            pieces.append(self._event(bytes(held[start:at]), at_s))
            start = at
        del held[:start]

    def _event(self, block: bytes, at_s: float) -> Piece:
        if self._at_start:
            self._at_start = False
            data = data_of(block.removeprefix(_BYTE_ORDER_MARK))
        else:
            data = data_of(block)
        if data == b"[DONE]":
            return Piece(at_s, block, Mark.DONE)
        if not says_words(data):
            return Piece(at_s, block, Mark.EVENT)
        number = self._num_content
        self._num_content += 1
        return Piece(at_s, block, Mark.EVENT if number else Mark.FIRST_TOKEN, number)


def data_of(block: bytes) -> bytes:
    """The data of one event: its data lines joined by LF, stripped; b"" where it has none (a comment, a keep-alive)."""
    lines = [line[5:] for line in block.splitlines() if line.startswith(b"data:")]
    return (lines[0] if len(lines) == 1 else b"\n".join(lines)).strip()


# ── which events hold words ──────────────────────────────────────────────────────────────────────


class _Reply(msgspec.Struct):
    choices: Any = None
    content: Any = None


_REPLY = msgspec.json.Decoder(_Reply)


def says_words(data: bytes) -> bool:
    """Whether the data of an event hold words of the reply, not only a role, an end, a usage or an error.

    Chat's delta (thoughts too), completions' text, and llama-server's own content.
    """
    if not data.startswith(b"{"):
        return False
    try:
        reply = _REPLY.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    if isinstance(reply.choices, list):
        return any(isinstance(choice, dict) and _has_words(choice) for choice in reply.choices)
    return bool(reply.content) and isinstance(reply.content, str)


def _has_words(choice: dict[str, Any]) -> bool:
    said = choice.get("delta") or choice.get("message")
    if isinstance(said, dict):
        return any(said.get(name) for name in ("content", "reasoning_content", "reasoning"))
    return bool(choice.get("text"))
