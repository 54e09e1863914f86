"""Where HTTP/1.1 messages begin and end on a connection, however their bytes are cut; not what they mean.

bytes of a client ─▶ Requests ─▶ Part(head?, data, ends?) …        bytes of a body ─▶ Body ─▶ payload, rest
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEAD_BYTES = 1 << 16
"""A head longer than this is not one; what holds it lets it pass."""
_END = re.compile(rb"\r?\n\r?\n")
_SIZE = re.compile(rb"[ \t]*([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?\r?\Z")


class NotHttp(ValueError):
    """What stands here is no HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a message and its headers, names in lower case, the last of each name."""

    first_line: bytes
    headers: dict[bytes, bytes]

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks that tell their sizes."""
        return b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()

    @property
    def length_bytes(self) -> int | None:
        """The body's declared size; None where none is declared, or chunks overrule it. Raises NotHttp."""
        text = self.headers.get(b"content-length")
        if text is None or self.is_chunked:
            return None
        if not text.isdigit():
            raise NotHttp(f"a content-length of {text!r}")
        return int(text)

    @property
    def status(self) -> int:
        """The status of a reply. Raises NotHttp where this is no reply's head."""
        words = self.first_line.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            raise NotHttp(f"a first line of {self.first_line[:40]!r}")
        return int(words[1])


def head_end(data: bytes | bytearray, start: int = 0) -> int:
    """Where the head that begins the data ends, its empty line included; -1 where more must come."""
    found = _END.search(data, max(0, start - 3))
    return found.end() if found else -1


def parsed_head(data: bytes) -> Head:
    """The head that these bytes are."""
    first_line, *lines = data.splitlines()
    headers = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return Head(first_line, headers)


class Body:
    """Reads one body off the wire.

    `ended`: it is complete; `end` is then what closed it on the wire (chunks only). `is_bounded`: it has a declared
    length. `is_broken`: its chunks are none.
    """

    __slots__ = ("_left", "_line", "_state", "end", "ended", "is_bounded", "is_broken", "is_chunked")

    def __init__(self, *, length_bytes: int | None = None, is_chunked: bool = False) -> None:
        """Neither a length nor chunks: it lasts until the connection ends."""
        self.is_chunked = is_chunked
        self.is_broken = False
        self.end = b""
        self.ended = length_bytes == 0 and not is_chunked
        self.is_bounded = length_bytes is not None and not is_chunked
        self._left = length_bytes or 0
        self._line = b""
        self._state = self._size if is_chunked else None

    @property
    def lasts(self) -> bool:
        """Whether nothing but the end of the connection ends it."""
        return not self.is_chunked and not self.is_bounded

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The payload in what came, without its framing, and what comes after the body, or where it breaks."""
        if self.ended:
            return [], data
        if self._state is None:
            taken = data[: self._left] if self.is_bounded else data
            self._left -= len(taken)
            self.ended = self.is_bounded and not self._left
            return [taken] if taken else [], data[len(taken) :]
        found: list[bytes] = []
        at = 0
        while at < len(data) and not self.ended:
            line = self._line
            try:
                at = self._state(data, at, found)
            except NotHttp:
                self.is_broken = True
                return found, line + data[at:]
        return found, data[at:]

    def _size(self, data: bytes, at: int, found: list[bytes]) -> int:
        line, at = self._whole_line(data, at)
        if line is None:
            return at
        size = _SIZE.match(line)
        if size is None:
            raise NotHttp(f"a chunk's size of {line[:40]!r}")
        self._left = int(size[1], 16)
        if self._left:
            self._state = self._payload
        else:
            self.end = line + b"\n"
            self._state = self._trailer
        return at

    def _payload(self, data: bytes, at: int, found: list[bytes]) -> int:
        part = data[at : at + self._left]
        found.append(part)
        self._left -= len(part)
        if not self._left:
            self._state = self._after_payload
        return at + len(part)

    def _after_payload(self, data: bytes, at: int, found: list[bytes]) -> int:
        line, at = self._whole_line(data, at)
        if line is not None:
            if line.strip():
                raise NotHttp(f"{line[:40]!r} after a chunk")
            self._state = self._size
        return at

    def _trailer(self, data: bytes, at: int, found: list[bytes]) -> int:
        line, at = self._whole_line(data, at)
        if line is not None:
            self.end += line + b"\n"
            self.ended = not line.strip()
        return at

    def _whole_line(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """The line that ends in the data, without its LF, and where the next begins; None: more must come."""
        end = data.find(b"\n", at)
        if end < 0:
            self._line += data[at:]
            if len(self._line) > MAX_HEAD_BYTES:
                raise NotHttp("a line without an end")
            return None, len(data)
        line, self._line = self._line + data[at:end], b""
        return line, end + 1


@dataclass(frozen=True, slots=True)
class Part:
    """Some of what a client sent: all of one request. `head`: a request begins here; `ends`: it is complete here."""

    data: bytes
    head: Head | None = None
    ends: bool = False


class Requests:
    """Cuts what a client sends into requests. A head is held until it is whole; what is no HTTP passes as it comes."""

    __slots__ = ("_body", "_held", "_is_raw")

    def __init__(self) -> None:
        self._held = bytearray()
        self._body: Body | None = None
        self._is_raw = False

    def feed(self, data: bytes) -> list[Part]:
        """The parts of requests in what came; together they are the bytes that came, in order."""
        parts: list[Part] = []
        while data:
            if self._is_raw:
                parts.append(Part(data))
                break
            data = self._begin(data, parts) if self._body is None else self._inside(self._body, data, parts)
        return parts

    def _begin(self, data: bytes, parts: list[Part]) -> bytes:
        seen = len(self._held)
        self._held += data
        end = head_end(self._held, seen)
        if end < 0:
            if len(self._held) > MAX_HEAD_BYTES:
                self._pass_raw(parts)
            return b""
        raw, rest = bytes(self._held[:end]), bytes(self._held[end:])
        try:
            head = parsed_head(raw)
            body = Body(length_bytes=head.length_bytes or 0, is_chunked=head.is_chunked)
        except (NotHttp, IndexError):
            self._pass_raw(parts)
            return b""
        self._held.clear()
        _, after = body.feed(rest)
        if body.is_broken:
            self._is_raw, after = True, b""
        parts.append(Part(raw + rest[: len(rest) - len(after)], head, body.ended))
        self._body = None if body.ended else body
        return after

    def _inside(self, body: Body, data: bytes, parts: list[Part]) -> bytes:
        _, rest = body.feed(data)
        if body.is_broken:
            self._is_raw = True
            return data
        parts.append(Part(data[: len(data) - len(rest)], None, body.ended))
        if body.ended:
            self._body = None
        return rest

    def close(self) -> bytes:
        """What was held of a head that never became whole; the client sends no more."""
        held = bytes(self._held)
        self._held.clear()
        return held

    def _pass_raw(self, parts: list[Part]) -> None:
        self._is_raw = True
        parts.append(Part(bytes(self._held)))
        self._held.clear()
