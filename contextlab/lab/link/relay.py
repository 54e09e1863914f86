"""The fault proxy: bytes pass from each client to the target and back as they are read, unless a fault acts on them.

    client ══▶ Lane(up):   read ─▶ requests ─▶ stages of the faults that hit this request ─▶ due time ─▶ send ══▶ target
    client ◀══ Lane(down): send ◀─ due time ◀─ stages … ◀─ reply, cut into events if they ask for it ◀─ read ◀══ target

One read becomes one send: nothing is merged (TCP_NODELAY). What cannot be sent, or is not due yet, stops the reading on
the other side when it becomes too much, so back-pressure passes through. A FIN passes as a FIN, so half-closed
connections work; a RST passes as a RST, and drops what was still to be sent. A target that refuses connections cannot
be mirrored (the client is connected already): the client sees a RST before any byte. The time that a client takes to
connect is therefore the relay's, not the target's.

Requests on one connection come one after the other; a client that sends the next before it has the reply (pipelining)
is served, but its faults are misplaced.

Sockets are used directly, not through transports: those merge what is written within one turn of the loop, and do not
tell a FIN from a RST in time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from time import monotonic

from contextlab.experiment import Close, Direction, Piece
from contextlab.lab.alarm import Alarms
from contextlab.lab.link.exposure import Armed, Exposure, index_of
from contextlab.lab.link.lane import READ_BYTES, Lane, Shared
from contextlab.lab.link.messages import Head, Requests
from contextlab.lab.link.tap import Tap
from contextlab.model import UnableError

BACKLOG = 4096
ACCEPT_BATCH = 64
ACCEPT_AGAIN_S = 0.05
COUNTS = (
    *("connections", "refused_connections", "failed_accepts", "client_resets", "target_resets"),
    *("up_reads", "up_bytes", "down_reads", "down_bytes"),
    *("released_pieces", "late_s", "max_late_s"),
)
_LINGER_0 = struct.pack("ii", 1, 0)
_NOT_YET = (BlockingIOError, InterruptedError)


def listening(port: int) -> socket.socket:
    """A listening socket on loopback, at this port, or with 0 at a free one. Raises UnableError where it is taken."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    except OSError as error:
        message = f"port {port} of 127.0.0.1 cannot be had: {os.strerror(error.errno or 0)}"
        raise UnableError(message, "choose another one, or 0 for any that is free") from None


class Relay:
    """Passes connections on to `upstream`, with the stream faults that are armed. Lives on one event loop.

    `seed` and a request's index decide, per fault, whether it is hit and what its stages draw.
    Raises UnableError where the name of the upstream is unknown.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: tuple[str, int], *, seed: int) -> None:
        self.loop, self.seed = loop, seed
        self.alarms = Alarms(loop)
        self.counts = dict.fromkeys(COUNTS, 0.0)
        self.shared = Shared(loop, self.alarms, memoryview(bytearray(READ_BYTES)), self.counts)
        self.armed: tuple[Armed, ...] = ()
        self.tap: Tap | None = None
        self.connections: set[Connection] = set()
        self._listener: socket.socket | None = None
        try:
            found = socket.getaddrinfo(*upstream, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UnableError(f"{upstream[0]}: {error.strerror}", "name a host that this machine knows") from error
        self.addresses = [(family, address) for family, _, _, _, address in found]

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from this listening socket, which remains its maker's to close."""
        listener.setblocking(False)
        self._listener = listener
        self.loop.add_reader(listener, self._accept, listener)

    def arm(self, armed: Sequence[Armed]) -> None:
        """Let these faults act on connections accepted from now on; none: nothing but pass.

        What acted before still does on the connections that it has spoilt, and is counted no more.
        """
        self.armed = tuple(armed)
        for one in self.armed:
            self.alarms.at(one.start_s, partial(self._window_opens, one))

    def keep(self) -> None:
        """Keep what the target sends on connections accepted from now on; what was kept before is forgotten."""
        self.tap = Tap()

    def counters(self) -> dict[str, float]:
        """What passed since the beginning; `late_s`: how late, in sum, the `released_pieces` that waited were sent."""
        return {**self.counts, "open_connections": float(len(self.connections))}

    def close(self) -> None:
        """Accept nothing more, and reset what is connected."""
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
        for connection in list(self.connections):
            connection.reset()
        self.alarms.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            for _ in range(ACCEPT_BATCH):
                client, _ = listener.accept()
                number = int(self.counts["connections"])
                self.counts["connections"] += 1
                Connection(self, client, number)
        except (*_NOT_YET, ConnectionAbortedError):
            return
        except OSError:  # too many open files: who waits must wait longer
            self.counts["failed_accepts"] += 1
            self.loop.remove_reader(listener)
            self.loop.call_later(ACCEPT_AGAIN_S, self.listen, listener)

    def _window_opens(self, one: Armed) -> None:
        if one in self.armed:
            now_s = monotonic()
            for connection in list(self.connections):
                connection.poke(now_s)


class Connection:
    """One client's connection and the one to the target that stands behind it. `number`: how many came before it.

    `is_dark`: nothing passes any more; `is_lost`: the target is gone, and only what it said before is still passed.
    """

    def __init__(self, relay: Relay, client: socket.socket, number: int) -> None:
        self.relay, self.client, self.number = relay, client, number
        self.target: socket.socket | None = None
        self.is_closed = self.is_dark = self.is_lost = False
        self.requests = Requests() if relay.armed else None
        self.exposure: Exposure | None = None
        self.kept = relay.tap.connection() if relay.tap is not None else None
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        relay.connections.add(self)
        self._connect(list(relay.addresses))

    # ── its beginning ────────────────────────────────────────────────────────────────────────────

    def _connect(self, addresses: list[tuple[int, tuple[object, ...]]]) -> None:
        """Try one address after the other; a RST to the client where none accepts."""
        if not addresses:
            self.relay.counts["refused_connections"] += 1
            self.reset()
            return
        (family, address), *others = addresses
        try:
            target = self.target = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # too many open files
            self._connect([])
            return
        target.setblocking(False)
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if target.connect_ex(address) not in (0, errno.EINPROGRESS):
            target.close()
            self._connect(others)
            return
        self.relay.loop.add_writer(target, self._connected, target, others)

    def _connected(self, target: socket.socket, others: list[tuple[int, tuple[object, ...]]]) -> None:
        self.relay.loop.remove_writer(target)
        if target.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            target.close()
            self._connect(others)
            return
        shared, is_plain = self.relay.shared, self.requests is None and self.kept is None
        self.up = Lane(self, shared, Direction.UP, self.client, target, is_plain=is_plain)
        self.down = Lane(self, shared, Direction.DOWN, target, self.client, is_plain=is_plain)
        self.down.read_on()
        self.up.read_on()

    # ── what comes, with faults armed ────────────────────────────────────────────────────────────

    def arrived(self, lane: Lane, data: bytes) -> None:
        """Bytes came, either way."""
        now_s = monotonic()
        if self.kept is not None:
            self.kept.saw(lane.direction, data)
        if lane is self.down and self.exposure is not None:
            pieces = self.exposure.reply(data, now_s)
            if not lane.is_dropped or self.is_dark:  # in the dark nothing comes of it, but it is counted
                self._pass(lane, pieces, now_s)
        elif lane.is_dropped:
            return
        elif lane is self.up and self.requests is not None:
            self._from_client(self.requests, data, now_s)
        else:
            lane.schedule([Piece(now_s, data)], now_s)

    def _from_client(self, requests: Requests, data: bytes, now_s: float) -> None:
        """Bytes of requests: each begins an exposure of its own."""
        for part in requests.feed(data):
            if part.head is not None:
                self._begin(part.head, now_s)
            if self.exposure is None:
                self.up.schedule([Piece(now_s, part.data)], now_s)
                continue
            self._pass(self.up, self.exposure.request(part.data, now_s, ends=part.ends), now_s)
            if part.ends:
                gone_s = max(now_s, self.up.last_s)
                self._pass(self.down, self.exposure.poke(Direction.DOWN, now_s, gone_s), now_s)
            if self.is_closed or self.is_dark:
                return

    def poke(self, now_s: float) -> None:
        """Let the request under way know that a window has opened."""
        if self.exposure is not None and (self.exposure.is_live or self.down.waits):
            for lane in (self.up, self.down):
                self._pass(lane, self.exposure.poke(lane.direction, now_s, now_s), now_s)

    def _begin(self, head: Head, now_s: float) -> None:
        if self.exposure is not None:
            self.exposure.settle()
        relay = self.relay
        index = index_of(head, self.number)
        self.exposure = Exposure(relay.armed, seed=relay.seed, index=index, head=head, now_s=now_s)
        self.poke(now_s)

    def _pass(self, lane: Lane, pieces: Iterable[Piece], now_s: float) -> None:
        if self.is_closed:
            return
        lane.schedule(pieces, now_s)
        if self.exposure is not None and self.exposure.is_dark and not self.is_dark:
            self.is_dark = True
            self.up.deafen()
            self.down.deafen()

    # ── its end ──────────────────────────────────────────────────────────────────────────────────

    def ended(self, lane: Lane, how: Close) -> None:
        """The source of a lane sends no more (FIN), or is gone (RESET)."""
        if how is Close.RESET:
            self.relay.counts["client_resets" if lane is self.up else "target_resets"] += 1
        if lane.is_dropped:  # nobody is to be told any more; when the client leaves, all is over
            if lane is self.up and not self.is_lost:
                self.close()
            return
        if how is Close.RESET:
            (self.down if lane is self.up else self.up).drop()
        now_s = monotonic()
        if lane is self.up and self.requests is not None and (held := self.requests.close()):
            lane.schedule([Piece(now_s, held)], now_s)
        if self.exposure is None:
            lane.schedule([Piece(now_s, close=how)], now_s)
            return
        self._pass(lane, self.exposure.closed(lane.direction, how, now_s), now_s)
        if self.is_dark and lane is self.up:
            self.close()

    def finished(self, lane: Lane) -> None:
        """The sink of a lane has been told that there is no more."""
        if not lane.source_ended:  # a fault's doing: the relay leaves the target as a client would
            lane.drop()
            if lane is self.down:
                lane.leave_source()
                self._release(lane.source)
                self.up.drop()
                self.up.sink_ended = True
        if self.up.source_ended and self.up.sink_ended and self.down.sink_ended:
            self.close()

    def lost(self, lane: Lane) -> None:
        """The sink of a lane is gone. What a target said before it went still reaches the client, then the RST."""
        self.relay.counts["target_resets" if lane is self.up else "client_resets"] += 1
        if lane is self.down or self.down.source_ended:
            self.reset()
        else:
            self.is_lost = True
            lane.drop()
            self.down.drain()

    def reset(self) -> None:
        """Tear both sides down: RST, and nothing of what was still to be sent."""
        for one in (self.client, self.target):
            if one is not None and one.fileno() >= 0:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        self.close()

    def close(self) -> None:
        """Release both sides. May be called again."""
        if self.is_closed:
            return
        self.is_closed = True
        for one in (self.client, self.target):
            if one is not None:
                self._release(one)
        self.relay.connections.discard(self)
        if self.exposure is not None:
            self.exposure.settle()

    def _release(self, one: socket.socket) -> None:
        if one.fileno() >= 0:
            self.relay.loop.remove_reader(one)
            self.relay.loop.remove_writer(one)
            one.close()
