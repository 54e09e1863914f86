"""The packet link: a TUN device in a private network namespace, through which real IP packets pass one by one.

    client ─▶ far address ─▶ TUN ─▶ read ─▶ chain of stages ─▶ swap addresses ─▶ write ─▶ listener on the near address
    client ◀─ far address ◀─ write ◀─ swap addresses ◀─ chain of stages ◀─ read ◀─ TUN ◀─ its replies

Both ways every packet goes from the near to the far address when it is read, and the other way round when it is
written; the checksums are sums, so the swap leaves them valid. The kernel's own TCP at both ends does what it does on a
network: it retransmits, backs off and refuses what is damaged. What is not IPv4 between the two is left out, and IP
options are not understood (no TCP sends them).

The namespace belongs to the anchor (see `namespace.py`); this process stays where it is, so it can reach the target.
Packets that are due later wait in `lab.alarm.Alarms`, in the order of due times, then of arrival.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Mapping
from functools import partial
from io import FileIO
from struct import pack, unpack
from time import monotonic

from contextlab.experiment import Direction, Piece
from contextlab.lab.alarm import Alarms
from contextlab.lab.link.chain import Chain
from contextlab.lab.link.namespace import (
    IFLA_TXQLEN,
    Anchor,
    allow_many_connections,
    bring_up,
    kernel_counters,
    listener,
    set_link,
)
from contextlab.model import UnableError

NEAR, FAR, NETMASK = "10.83.0.1", "10.83.0.2", "255.255.255.252"
DEVICE = "link0"
MTU_BYTES = 1500
QUEUE_PACKETS = 20_000
"""Packets that the device keeps for us while we are busy; it drops what comes beyond, which would be our fault."""
BATCH = 256
"""Packets taken for one wake-up; the loop has other work too."""
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
IPV4_WITHOUT_OPTIONS = 0x45
(READ,) = unpack("Q", socket.inet_aton(NEAR) + socket.inet_aton(FAR))
(WRITTEN,) = unpack("Q", socket.inet_aton(FAR) + socket.inet_aton(NEAR))
"""Source and destination (bytes 12 to 20 of a packet) as packets are read and as they are written."""


def open_tunnel() -> Tunnel:
    """Bring the link up: device, addresses and listener; nothing passes before `run`. Raises UnableError with why."""
    try:
        return Tunnel(Anchor(_set_up))
    except UnableError as error:
        raise UnableError(f"no packet link here: {error.message}", error.next_step) from None


def _set_up() -> list[int]:
    """In the anchor: the device's and the listener's descriptors."""
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, TUNSETIFF, pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    except OSError as error:
        raise OSError(f"no TUN device: {error}") from error
    allow_many_connections()
    bring_up("lo", mtu_bytes=MTU_BYTES)
    bring_up(DEVICE, mtu_bytes=MTU_BYTES, address=NEAR, netmask=NETMASK)
    set_link(DEVICE, IFLA_TXQLEN, QUEUE_PACKETS)
    return [tun, listener(NEAR).detach()]


class Tunnel:
    """The link while it is up. `listener` accepts what clients send to `far`; its user accepts and closes connections.

    `namespace_pid`: who wants to reach `far` enters the namespace of this process.
    """

    def __init__(self, anchor: Anchor) -> None:
        self._anchor = anchor
        self._fd, listening = anchor.fds
        self.listener = socket.socket(fileno=listening)
        self.listener.setblocking(False)
        self.namespace_pid = anchor.pid
        self.far: tuple[str, int] = (FAR, self.listener.getsockname()[1])
        memory = memoryview(bytearray(4 + 2044))  # the packet begins at 4, so that its addresses begin at 16
        self._device = FileIO(self._fd, "r+", closefd=False)
        self._buffer = memory[4:]
        self._sized = [memory[4 : 4 + size] for size in range(MTU_BYTES + 1)]
        self._addresses = memory.cast("Q")
        self._ports = memory.cast("H")
        self._port = unpack("H", pack("!H", self.far[1]))[0]
        self._running: tuple[asyncio.AbstractEventLoop, Alarms] | None = None
        self._counts = dict.fromkeys(
            ("up_packets", "up_bytes", "down_packets", "down_bytes", "ignored_packets", "refused_packets"), 0.0
        )
        self._delays = {"held_packets": 0.0, "late_s": 0.0, "max_late_s": 0.0}
        self.arm({})

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to pass packets, on this loop."""
        alarms = Alarms(loop)
        self._running = loop, alarms
        loop.add_reader(self._fd, self._readable, alarms)

    def arm(self, chains: Mapping[Direction, Chain]) -> None:
        """Let these chains act from now on, in their windows, instead of what was armed before; {} lets all pass.

        What a chain before has held back is still delivered when it is due.
        """
        self._up = chains.get(Direction.UP, Chain())
        self._down = chains.get(Direction.DOWN, Chain())
        self._begins_s = min(self._up.begins_s, self._down.begins_s)
        self._ends_s = max(self._up.ends_s, self._down.ends_s)

    def counters(self) -> dict[str, float]:
        """What came to the link since it is up, before faults, and how late it delivered what was due later.

        `held_packets` were due later and have been delivered, `late_s` after that in sum; `ignored_packets` were no
        IPv4 between the two addresses; `refused_packets` the kernel did not take back; `device_dropped_packets` it
        dropped before we read them.
        """
        return {**self._counts, **self._delays, "device_dropped_packets": self._device_dropped()}

    def kernel(self) -> dict[str, float]:
        """What the kernel counted in the namespace; see `namespace.COUNTERS`. Raises OSError after `close`."""
        return kernel_counters(self.namespace_pid)

    def close(self) -> None:
        """Take the link down; connections through it are lost. May be called again."""
        if self._fd < 0:
            return
        if self._running is not None and not self._running[0].is_closed():
            loop, alarms = self._running
            loop.remove_reader(self._fd)
            alarms.close()
        os.close(self._fd)
        self._fd = -1
        self.listener.close()
        self._anchor.close()

    # ── the way of a packet ──────────────────────────────────────────────────────────────────────

    def _readable(self, alarms: Alarms) -> None:
        if self._begins_s <= monotonic() < self._ends_s:
            self._shape(alarms)
        else:
            self._pass()

    def _pass(self) -> None:
        """Turn packets around as they are: what every packet costs while no fault acts."""
        buffer, sized, read, write = self._buffer, self._sized, self._device.readinto, self._device.write
        addresses, ports, port = self._addresses, self._ports, self._port
        num = num_bytes = num_up = up_bytes = 0
        for _ in range(BATCH):
            size = read(buffer)
            if size is None:
                break
            if addresses[2] != READ or buffer[0] != IPV4_WITHOUT_OPTIONS:
                self._counts["ignored_packets"] += 1
                continue
            addresses[2] = WRITTEN
            num += 1
            num_bytes += size
            if ports[13] == port:
                num_up += 1
                up_bytes += size
            try:
                write(sized[size])
            except OSError:
                self._counts["refused_packets"] += 1
        self._count(num_up, up_bytes, num - num_up, num_bytes - up_bytes)

    def _shape(self, alarms: Alarms) -> None:
        """The same through the chains, packet by packet, each with its own time of arrival."""
        buffer, addresses = self._buffer, self._addresses
        for _ in range(BATCH):
            size = self._device.readinto(buffer)
            if size is None:
                return
            arrived_s = monotonic()
            if addresses[2] != READ or buffer[0] != IPV4_WITHOUT_OPTIONS:
                self._counts["ignored_packets"] += 1
                continue
            addresses[2] = WRITTEN
            is_up = self._ports[13] == self._port
            self._count(is_up, size * is_up, not is_up, size * (not is_up))
            chain = self._up if is_up else self._down
            for piece in chain.feed(Piece(arrived_s, bytes(self._sized[size])), arrived_s):
                if piece.at_s <= arrived_s:
                    self._write(piece.data)
                else:
                    alarms.at(piece.at_s, partial(self._deliver, piece.at_s, piece.data))

    def _count(self, num_up: int, up_bytes: int, num_down: int, down_bytes: int) -> None:
        counts = self._counts
        counts["up_packets"] += num_up
        counts["up_bytes"] += up_bytes
        counts["down_packets"] += num_down
        counts["down_bytes"] += down_bytes

    def _write(self, data: bytes) -> None:
        try:
            self._device.write(data)
        except OSError:
            self._counts["refused_packets"] += 1

    def _deliver(self, due_s: float, data: bytes) -> None:
        delays, late_s = self._delays, monotonic() - due_s
        delays["held_packets"] += 1
        delays["late_s"] += late_s
        delays["max_late_s"] = max(delays["max_late_s"], late_s)
        self._write(data)

    def _device_dropped(self) -> float:
        """Packets for which the device had no room left, from the transmit columns of /proc/net/dev."""
        with open(f"/proc/{self.namespace_pid}/net/dev", encoding="ascii") as file:
            for line in file:
                name, _, numbers = line.partition(":")
                if name.strip() == DEVICE:
                    return float(numbers.split()[11])
        return 0.0
