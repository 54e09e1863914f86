"""What the target sent for each request, kept before any fault can touch it, so that damage on the way can be told from
what the target itself said differently this time.

Only connections that carry one request are kept: on others nobody could tell whose bytes are whose.
"""

from __future__ import annotations

import re
from zlib import crc32

from contextlab.experiment import Direction

MOST_BYTES = 256 << 20
"""Of all connections of an arm together; what comes beyond is not kept."""
_MARK = re.compile(rb"(?i)\r\nX-Request-Id:[^\r\n]*-(\d{1,12})\r\n")


class Tap:
    """What the connections of one arm carried down, by the number in each request's mark."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._kept: dict[int, Kept] = {}

    def connection(self) -> Kept:
        """The keeper of a new connection."""
        return Kept(self)

    def claim(self, index: int, kept: Kept) -> None:
        """A connection carries this request. A request that is sent twice is nobody's."""
        if self._kept.setdefault(index, kept) is not kept:
            self._kept[index].spoil()

    def is_as_sent(self, index: int, size: int, crc: int) -> bool:
        """Whether the first `size` bytes that the target sent for a request have this CRC-32."""
        kept = self._kept.get(index)
        return (
            kept is not None and kept.is_whole and size <= len(kept.down) and crc32(memoryview(kept.down)[:size]) == crc
        )


class Kept:
    """What one connection carries down. `is_whole`: all of it is kept, and it is one request's."""

    def __init__(self, tap: Tap) -> None:
        self.down = bytearray()
        self.is_whole = True
        self._tap = tap
        self._is_claimed = False

    def saw(self, direction: Direction, data: bytes) -> None:
        """Bytes came."""
        if direction is Direction.DOWN:
            if self.is_whole:
                self._tap.num_bytes += len(data)
                self.down += data
                if self._tap.num_bytes > MOST_BYTES:
                    self.spoil()
            return
        for found in _MARK.finditer(data):
            if self._is_claimed:
                self.spoil()
                return
            self._is_claimed = True
            self._tap.claim(int(found[1]), self)

    def spoil(self) -> None:
        """Nothing can be told of it any more."""
        self._tap.num_bytes -= len(self.down)
        self.is_whole = False
        self.down = bytearray()
