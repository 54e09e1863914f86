"""One request on its way, and what its socket saw, unparsed: reads with their times, pieces of the body, an end.

`replies.py` makes a Sample of it when there is time.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from typing import Any

from contextlab.experiment import Ending
from contextlab.model import Failure

LAST_WORDS = re.compile(rb'(?:\A|[\r\n])data: ?(?:\[DONE\]|\{"error")')
"""What ends a stream whether its body ends or not. JSON holds no line break, so no text of a reply looks like it."""
_TAIL_BYTES = 20
"""More than LAST_WORDS can match: it may be cut in two by a read."""
TCP_INFO = getattr(socket, "TCP_INFO", None)
_TOTAL_RETRANS = struct.Struct("=100xI")
"""The field tcpi_total_retrans of Linux's struct tcp_info."""


class Flight:
    """Times are the machine's monotonic clock. `stamps` holds one time for each read, taken before anything else is
    done with it; `counts` how many of `pieces` (the body without HTTP's framing) had come after each read.

    It is its own HTTP parser's protocol: the `on_` attributes are what httptools calls.
    """

    __slots__ = (
        "_scanned",
        "_tail",
        "connected_s",
        "counts",
        "crc32",
        "due_s",
        "ended_s",
        "ending",
        "failure",
        "feed",
        "head_ended",
        "headers",
        "index",
        "keeps_open",
        "last_words_s",
        "mixed",
        "num_bytes",
        "on_body",
        "on_header",
        "parser",
        "pieces",
        "retransmits",
        "sent_s",
        "stamps",
        "status",
        "way",
        "whole",
    )

    def __init__(self, index: int, mixed: int, due_s: float) -> None:
        self.index = index
        self.mixed = mixed
        self.due_s = due_s
        self.sent_s: float | None = None
        self.connected_s: float | None = None
        self.ended_s: float | None = None
        self.ending: Ending | None = None
        self.failure: Failure | None = None
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.stamps: list[float] = []
        self.counts: list[int] = []
        self.pieces: list[bytes] = []
        self.num_bytes = 0
        self.crc32: int | None = None
        """Of all bytes that came; None where the connection is not the request's own, or not ours to read."""
        self.retransmits: int | None = None
        self.whole = self.keeps_open = False
        self.head_ended = False
        self.last_words_s: float | None = None
        self.way: Any = None
        """What its client needs to give it up: a connection or a task."""
        self.parser: Any = None
        self._scanned = 0
        self._tail = b""

    def listen(self, parser_type: Any) -> None:
        """Make the parser of the reply. It puts bodies and headers into their containers without a call of ours."""
        self.on_body: Any = self.pieces.append
        self.on_header: Any = self.headers.__setitem__
        self.parser = parser_type(self)
        self.feed: Any = self.parser.feed_data

    def on_headers_complete(self) -> None:
        """The head of the reply, or of an interim one (100 Continue), has come."""
        self.status = self.parser.get_status_code()
        self.head_ended = self.status >= 200

    def on_message_complete(self) -> None:
        """HTTP's end of the reply."""
        if self.head_ended:
            self.whole = True
            self.keeps_open = self.parser.should_keep_alive()
        else:
            self.headers.clear()
            self.status = None

    def header(self, name: bytes) -> bytes:
        """A header of the reply; empty where it has none of that name, whatever its letters' case."""
        value = self.headers.get(name) or self.headers.get(name.lower())
        return value or next((value for key, value in self.headers.items() if key.lower() == name.lower()), b"")

    @property
    def ends_with_connection(self) -> bool:
        """Whether HTTP gave the reply no other end than that of its connection."""
        if not self.head_ended:
            return False
        return not {name.lower() for name in self.headers} & {b"content-length", b"transfer-encoding"}

    def land(self, ending: Ending, at_s: float, failure: Failure | None = None) -> None:
        """The exchange is over. The parser goes, since it and the flight hold each other."""
        self.ending = ending
        self.ended_s = at_s
        self.failure = failure
        self.parser = self.feed = self.on_body = self.on_header = self.way = None

    def has_said_last_words(self, at_s: float) -> bool:
        """Whether `[DONE]` or an error has come; looks at what is new since it was asked last."""
        if self.last_words_s is None and len(self.pieces) > self._scanned:
            new = self._tail + b"".join(self.pieces[self._scanned :])
            self._scanned = len(self.pieces)
            if LAST_WORDS.search(new):
                self.last_words_s = self.stamps[-1] if self.stamps else at_s
            self._tail = new[-_TAIL_BYTES:]
        return self.last_words_s is not None


def retransmits(transport: asyncio.BaseTransport | None) -> int | None:
    """Segments that the kernel sent again on a connection until now (TCP_INFO); None where it does not tell."""
    if TCP_INFO is None or transport is None or transport.is_closing():
        return None
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, TCP_INFO, _TOTAL_RETRANS.size)
        return int(_TOTAL_RETRANS.unpack(info)[0])
    except (AttributeError, OSError, struct.error):
        return None
