"""Server-sent events, as they come off the wire: bytes in, in pieces of any size; data strings out.

Only the `data` field is kept; names, ids, retry hints and comments are dropped. What the data mean
(JSON, `[DONE]`) is not this module's business.
"""

from __future__ import annotations

import re

_BREAK = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a last CR may be half of a CRLF: it waits for the next chunk
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseParser:
    """An incremental parser: however the bytes are cut into chunks, the same events come out.

    Lines end with LF, CRLF or CR; an event ends with an empty line and its data lines are joined by
    LF. Bytes that are no UTF-8 become U+FFFD. `num_bytes` counts everything that was fed.
    """

    def __init__(self) -> None:
        self.num_bytes = 0
        self._rest = b""  # the line that has not ended yet
        self._data: list[bytes] = []  # the data lines of the event that has not ended yet
        self._at_start = True

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that `chunk` completes, oldest first."""
        self.num_bytes += len(chunk)
        *lines, self._rest = _BREAK.split(self._rest + chunk)
        return self._events(lines)

    def close(self) -> list[str]:
        """The event that the stream left without its empty line, if any; call it at a proper end only."""
        line, self._rest = self._rest.removesuffix(b"\r"), b""
        return self._events([line, b""])

    def _events(self, lines: list[bytes]) -> list[str]:
        events = []
        for line in lines:
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data).decode(errors="replace"))
                    self._data = []
                continue
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
        return events
