"""One direction of a proxied connection: reads, keeps the order, waits until pieces are due, sends, and holds back.

source ─▶ read ─▶ owner (or straight on) ─▶ schedule ─▶ [due later] ─▶ [unsent: the sink takes no more] ─▶ sink
   ▲                                                        │                │
   └──────────── not read while too much waits ─────────────┴────────────────┘
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from contextlab.experiment import Close, Direction, Piece
from contextlab.lab.alarm import Alarms

READ_BYTES = 1 << 16
QUEUE_BYTES = 1 << 18
"""What may wait to be due before reading stops: 256 KiB, so 300 KB/s of a stream pass that is late by 800 ms."""
_NOT_YET = (BlockingIOError, InterruptedError)


@dataclass(frozen=True, slots=True)
class Shared:
    """What all lanes of a relay use: its loop, its timer, the buffer that is read into, and its counts."""

    loop: asyncio.AbstractEventLoop
    alarms: Alarms
    buffer: memoryview
    counts: dict[str, float]


class Owner(Protocol):
    """The connection that a lane belongs to."""

    is_closed: bool

    def arrived(self, lane: Lane, data: bytes) -> None:
        """Bytes came from the lane's source."""
        ...

    def ended(self, lane: Lane, how: Close) -> None:
        """The source sends no more (FIN), or is gone (RESET)."""
        ...

    def finished(self, lane: Lane) -> None:
        """The sink has been told that there is no more."""
        ...

    def lost(self, lane: Lane) -> None:
        """The sink is gone."""
        ...

    def reset(self) -> None:
        """Tear the connection down. May be called again."""
        ...


class Lane:
    """One direction of a connection: from its source to its sink, in order, each piece when it is due.

    `last_s`: when the last piece that was scheduled is due. `is_dropped`: what comes is thrown away. `is_plain`: what
    is read is sent without asking the owner.
    """

    def __init__(
        self,
        owner: Owner,
        shared: Shared,
        direction: Direction,
        source: socket.socket,
        sink: socket.socket,
        *,
        is_plain: bool,
    ) -> None:
        self.direction, self.source, self.sink = direction, source, sink
        self.source_ended = self.sink_ended = self.is_dropped = False
        self.last_s = 0.0
        self._owner = owner
        self._loop, self._alarms = shared.loop, shared.alarms
        self._buffer, self._counts = shared.buffer, shared.counts
        self._is_plain = is_plain
        self._reads, self._bytes = f"{direction}_reads", f"{direction}_bytes"
        self._is_reading = self._fin_waits = self._is_gone = False
        self._unsent: deque[bytes] = deque()  # due, but the sink takes no more at the moment
        self._delayed: deque[Piece] = deque()
        self._delayed_bytes = 0

    @property
    def waits(self) -> bool:
        """Whether anything is still to be sent."""
        return bool(self._delayed or self._unsent)

    def read_on(self) -> None:
        """Read, unless too much waits already."""
        wanted = not self._unsent and self._delayed_bytes <= QUEUE_BYTES and not self.source_ended
        if wanted and not self._is_reading:
            self._loop.add_reader(self.source, self._readable)
        elif self._is_reading and not wanted:
            self._loop.remove_reader(self.source)
        self._is_reading = wanted

    def schedule(self, pieces: Iterable[Piece], now_s: float) -> None:
        """Send pieces when they are due, never before those that were scheduled before; but a RESET waits for none."""
        for piece in pieces:
            if self._owner.is_closed:
                return
            if piece.close is Close.RESET:
                if piece.at_s > now_s:
                    self._alarms.at(piece.at_s, self._owner.reset)
                    continue
                self._owner.reset()
                return
            if self.is_dropped or not (piece.data or piece.close):
                continue
            self.last_s = piece.at_s = max(piece.at_s, self.last_s)
            if piece.at_s <= now_s and not self._delayed:
                self._deliver(piece)
                continue
            self._delayed.append(piece)
            self._delayed_bytes += len(piece.data)
            if len(self._delayed) == 1:
                self._alarms.at(piece.at_s, self._release)
        if self._delayed_bytes > QUEUE_BYTES:
            self.read_on()

    def leave_source(self) -> None:
        """Read no more: the source is about to be closed."""
        self.source_ended = True
        self.read_on()

    def deafen(self) -> None:
        """Throw away whatever comes from now on; what waits is still sent."""
        self.is_dropped = True

    def drop(self) -> None:
        """Throw away what waits, and whatever comes."""
        self.is_dropped = True
        self._unsent.clear()
        self._delayed.clear()
        self._delayed_bytes = 0
        self._fin_waits = False
        if self.sink.fileno() >= 0:
            self._loop.remove_writer(self.sink)
        if self.source.fileno() >= 0:
            self.read_on()

    def drain(self) -> None:
        """Read what a source that is gone has left behind, and its end."""
        self._is_gone = True
        while not self._owner.is_closed and not self.source_ended and self._read():
            pass

    def _readable(self) -> None:
        if not self._read() or self._owner.is_closed or self.source_ended:
            return
        # libuv watches a socket no more once it has reported an error on it, whether all was read or not
        if self.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.drain()

    def _read(self) -> bool:
        """Read once; whether there may be more."""
        try:
            size = self.source.recv_into(self._buffer)
        except _NOT_YET:
            return False
        except OSError:
            size = -1
        if size <= 0:
            self.source_ended = True
            self.read_on()
            self._owner.ended(self, Close.RESET if size or self._is_gone else Close.FIN)
            return False
        self._counts[self._reads] += 1
        self._counts[self._bytes] += size
        if self._is_plain and not self.is_dropped:
            self._send(self._buffer[:size])
        else:
            self._owner.arrived(self, bytes(self._buffer[:size]))
        return True

    def _release(self) -> None:
        """Send what is due by now."""
        now_s = monotonic()
        while self._delayed and self._delayed[0].at_s <= now_s and not self._owner.is_closed:
            piece = self._delayed.popleft()
            self._delayed_bytes -= len(piece.data)
            late_s = now_s - piece.at_s
            self._counts["released_pieces"] += 1
            self._counts["late_s"] += late_s
            self._counts["max_late_s"] = max(self._counts["max_late_s"], late_s)
            self._deliver(piece)
        if self._owner.is_closed:
            return
        if self._delayed:
            self._alarms.at(self._delayed[0].at_s, self._release)
        self.read_on()

    def _deliver(self, piece: Piece) -> None:
        if piece.data:
            self._send(piece.data)
        if piece.close is not None and not self._owner.is_closed:
            self._fin_waits = True
            self._finish()

    def _send(self, data: bytes | memoryview) -> None:
        if self._unsent:
            self._unsent.append(bytes(data))
            return
        try:
            sent = self.sink.send(data)
        except _NOT_YET:
            sent = 0
        except OSError:
            self._owner.lost(self)
            return
        if sent < len(data):
            self._unsent.append(bytes(data[sent:]))
            self._loop.add_writer(self.sink, self._writable)
            self.read_on()

    def _writable(self) -> None:
        while self._unsent:
            data = self._unsent[0]
            try:
                sent = self.sink.send(data)
            except _NOT_YET:
                return
            except OSError:
                self._owner.lost(self)
                return
            if sent < len(data):
                self._unsent[0] = data[sent:]
                return
            self._unsent.popleft()
        self._loop.remove_writer(self.sink)
        self._finish()
        if not self._owner.is_closed:
            self.read_on()

    def _finish(self) -> None:
        """Tell the sink that there is no more, once all is sent."""
        if self._unsent or not self._fin_waits:
            return
        self._fin_waits = False
        self.sink_ended = True
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._owner.lost(self)
            return
        self._owner.finished(self)
