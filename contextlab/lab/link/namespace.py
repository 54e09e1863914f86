"""Private network namespaces, without `ip` and without files that outlive us. Linux only.

    owner ──fork──▶ anchor: unshares, sets the namespace up, hands sockets back, then only waits
      │                 ▲
      └── setns(pid) ───┘   whoever else must be inside (the client) enters by the anchor's process id

A namespace lives as long as a process is in it or a socket of it is open. The anchor dies with its owner
(PR_SET_PDEATHSIG, and end of file on their pipe), so SIGKILL of the owner leaves no device and no process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from struct import pack, unpack_from

from contextlab.lab.keeper import PR_SET_PDEATHSIG, prctl
from contextlab.model import UnableError

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SETUP_TIMEOUT_S = 10.0
MESSAGE_BYTES = 16384
NEXT_STEP = "run as root or with CAP_SYS_ADMIN and CAP_NET_ADMIN, or allow unprivileged user namespaces"


def unshare_network() -> None:
    """Move this process, which must have one thread, into a network namespace of its own, with every right there.

    As root with CAP_SYS_ADMIN directly, else inside a user namespace of its own, in which it is root.
    Raises OSError where neither is allowed.
    """
    if sys.platform != "linux":
        raise OSError("network namespaces are Linux's")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        raise _error("unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def enter(pid: int) -> None:
    """Move this process, which must have one thread, into the network namespace of a process of ours.

    Where that process is in another user namespace, this one joins it too, and has every right there. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    kinds = ["net"]
    if os.stat(f"/proc/{pid}/ns/user").st_ino != os.stat("/proc/self/ns/user").st_ino:
        kinds.insert(0, "user")
    opened = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
    try:
        for fd in opened:
            if libc.setns(fd, 0) != 0:
                raise _error("setns")
    finally:
        for fd in opened:
            os.close(fd)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


Setup = Callable[[], list[int]]
Work = Callable[[bytes], bytes]


def _waits(message: bytes) -> bytes:
    """The work of an anchor that nobody asks anything."""
    return b""


class Anchor:
    """A child process that holds a private network namespace open; `fds` are what `setup` made in it.

    `setup` runs in the child, inside the namespace; then `work` turns each message that comes over `control`, at most
    MESSAGE_BYTES long, into its answer. It forks, so it is made before there are threads. Raises UnableError with the
    child's reason.
    """

    def __init__(self, setup: Setup, work: Work = _waits) -> None:
        if sys.platform != "linux":
            raise UnableError("a private network namespace needs Linux", "run on Linux")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        owner = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(theirs, owner, setup, work)
        theirs.close()
        self.control.settimeout(SETUP_TIMEOUT_S)
        try:
            word, self.fds, _, _ = socket.recv_fds(self.control, MESSAGE_BYTES, 8)
        except TimeoutError:
            word, self.fds = b"it did not answer", []
        if word != b"ready":
            self.close()
            why = word.decode(errors="replace") or "its process ended"
            raise UnableError(why, NEXT_STEP)

    def close(self) -> None:
        """End the process; the namespace goes with its last socket. May be called again."""
        self.control.close()
        if self.pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self.pid = -1


def _serve(control: socket.socket, owner: int, setup: Setup, work: Work) -> None:
    """The anchor's whole life. It keeps nothing of its owner's open, and never returns into the owner's code."""
    try:
        _close_all_but(control.fileno())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the owner ends it, in its own order
        signal.set_wakeup_fd(-1)
        try:
            unshare_network()
        except OSError as error:
            raise OSError(f"no private network namespace: {error}") from error
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == owner:
            fds = setup()
            socket.send_fds(control, [b"ready"], fds)
            for fd in fds:
                os.close(fd)
            while message := control.recv(MESSAGE_BYTES):
                control.send(work(message)[:MESSAGE_BYTES])
    except BaseException as error:  # a forked child must never return into its owner's code
        with contextlib.suppress(OSError):
            control.send((str(error) or repr(error)).encode())
    finally:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    """Close what was inherited: an end of a pipe that stayed open here would hide the owner's death."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


# ── its devices ──────────────────────────────────────────────────────────────────────────────────

SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU = 0x8913, 0x8914, 0x8916, 0x891C, 0x8922
IFF_UP = 1
RTM_NEWLINK, NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 16, 1, 4, 2
IFLA_TXQLEN, IFLA_GSO_MAX_SEGS = 13, 40


def bring_up(device: str, *, mtu_bytes: int, address: str = "", netmask: str = "") -> None:
    """Set a device of this namespace up, with an IPv4 address where one is given. Raises OSError."""
    name = device.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, text in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, netmask)):
            if text:
                fcntl.ioctl(control, request, pack("16sHH4s16x", name, socket.AF_INET, 0, socket.inet_aton(text)))
        fcntl.ioctl(control, SIOCSIFMTU, pack("16si20x", name, mtu_bytes))
        (flags,) = unpack_from("H", fcntl.ioctl(control, SIOCGIFFLAGS, pack("16s24x", name)), 16)
        fcntl.ioctl(control, SIOCSIFFLAGS, pack("16sH22x", name, flags | IFF_UP))


def set_link(device: str, attribute: int, number: int) -> None:
    """Set one of the IFLA_… numbers of a device of this namespace. Raises OSError.

    By netlink: the ioctl for the queue asks for rights on the whole machine, even inside a user namespace.
    """
    body = pack("BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(device), 0, 0)
    body += pack("HHI", 8, attribute, number)
    head = pack("IHHII", 16 + len(body), RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as control:
        control.send(head + body)
        kind, _, _, _, error = unpack_from("HHIIi", control.recv(4096), 4)
    if kind == NLMSG_ERROR and error:
        raise OSError(-error, f"device {device}: {os.strerror(-error)}")


def allow_many_connections() -> None:
    """Let one client make thousands of connections a second to one address: more ports, used again after a second.

    Loopback has the second by default. Where /proc/sys cannot be written the kernel's own limits stay.
    """
    for name, text in (("ip_local_port_range", "1024 65535"), ("tcp_tw_reuse", "1")):
        with contextlib.suppress(OSError), open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as file:
            file.write(text)


def listener(address: str) -> socket.socket:
    """A listening socket of this namespace on a free port of an address, non-blocking. Raises OSError."""
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.bind((address, 0))
    one.listen(4096)
    one.setblocking(False)
    return one


# ── what its kernel counts ───────────────────────────────────────────────────────────────────────

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "segments_received": ("Tcp.InSegs",),
    "segments_sent": ("Tcp.OutSegs",),
    "retransmitted_segments": ("Tcp.RetransSegs",),
    "segments_in_error": ("Tcp.InErrs",),
    "checksum_errors": ("Tcp.InCsumErrors", "Udp.InCsumErrors"),
    "resets_sent": ("Tcp.OutRsts",),
    "retransmission_timeouts": ("TcpExt.TCPTimeouts",),
    "lost_retransmissions": ("TcpExt.TCPLostRetransmit",),
    "fast_retransmissions": ("TcpExt.TCPFastRetrans",),
    "tail_loss_probes": ("TcpExt.TCPLossProbes",),
    "spurious_retransmissions": ("TcpExt.TCPDSACKRecv",),
    "duplicate_segments": ("TcpExt.TCPDSACKOldSent", "TcpExt.TCPDSACKOfoSent"),
    "out_of_order_segments": ("TcpExt.TCPOFOQueue",),
}
"""Our names, and the counters of /proc/net/snmp and /proc/net/netstat that are added up for each."""


def kernel_counters(pid: int) -> dict[str, float]:
    """What the kernel has counted in the network namespace of a process since it began, by the names of COUNTERS.

    Raises OSError where that process is gone.
    """
    found: dict[str, int] = {}
    for name in ("snmp", "netstat"):
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
            lines = file.read().splitlines()
        for names, numbers in zip(lines[::2], lines[1::2], strict=True):
            group, *keys = names.split()
            found |= {f"{group[:-1]}.{key}": int(number) for key, number in zip(keys, numbers.split()[1:], strict=True)}
    return {ours: float(sum(found.get(key, 0) for key in keys)) for ours, keys in COUNTERS.items()}
