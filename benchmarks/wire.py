"""What the way to a target costs: the relay and the packet link without faults, a direct connection, and HAProxy.

    python benchmarks/wire.py [--blocks 10] [--messages 2000] [--megabytes 64] [--json FILE]

One server and one client per way, all Python with blocking sockets, so that every way differs in its middle alone.
Blocks are interleaved: in each, every way has its turn, in an order that rotates. `echo`: messages of 200 bytes, one
at a time over one connection (latency). `bulk`: megabytes from the server to the client over one connection (CPU).
Numbers are medians of the blocks'; a ratio is taken inside each block, and its median stands with its quartiles. CPU
time is the scheduler's, to the nanosecond, of the middle's processes and of everything together; on loopback and
through a TUN device the kernel's TCP works in the context of whoever sends, so it is in there.

HAProxy runs in TCP mode with one thread. The packet link's MTU is 1500, loopback's 65536: that is part of its price.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from contextlab.lab.link.namespace import enter
from contextlab.lab.link.route import Route
from contextlab.lab.process import KeptProcess
from contextlab.model import UnableError

HOST = "127.0.0.1"
MESSAGE = b"m" * 200
CHUNK = b"z" * (1 << 16)


# ── both ends, each a process of its own ─────────────────────────────────────────────────────────


def serve(listening_fd: int) -> None:
    """Echo what comes; a line `bulk N` is answered by N bytes. One connection after the other, and no threads: what a
    thread has used is not told any more when it has ended."""
    listening = socket.socket(fileno=listening_fd)
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(ConnectionError):
            _serve_one(connection)


def _serve_one(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while data := connection.recv(1 << 16):
            if not data.startswith(b"bulk "):
                connection.sendall(data)
                continue
            left = int(data[5:])
            while left > 0:
                left -= connection.send(CHUNK[:left])


def be_client(control_fd: int, host: str, port: int, namespace_pid: int) -> None:
    """Do what is asked over the control socket, one JSON line each."""
    control = socket.socket(fileno=control_fd).makefile("rw")
    if namespace_pid:
        enter(namespace_pid)
    for line in control:
        order = json.loads(line)
        with socket.create_connection((host, port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _one_message(connection)  # connected all the way through
            answer = _echo(connection, order["echo"]) if "echo" in order else _bulk(connection, order["bulk"])
        control.write(json.dumps(answer) + "\n")
        control.flush()


def _one_message(connection: socket.socket) -> None:
    connection.sendall(MESSAGE)
    left = len(MESSAGE)
    while left:
        left -= len(connection.recv(left))


def _echo(connection: socket.socket, num: int) -> list[float]:
    times = []
    for _ in range(num):
        began_s = time.perf_counter()
        _one_message(connection)
        times.append(time.perf_counter() - began_s)
    return times


def _bulk(connection: socket.socket, num_bytes: int) -> list[float]:
    buffer = bytearray(1 << 18)
    began_s = time.perf_counter()
    connection.sendall(b"bulk %d" % num_bytes)
    left = num_bytes
    while left > 0:
        left -= connection.recv_into(buffer)
    return [time.perf_counter() - began_s]


# ── the ways ─────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Way:
    """One way from its client to the server; `blocks` holds what each block measured, by the names of METRICS."""

    name: str
    pids: frozenset[int]
    control: socket.socket
    blocks: list[dict[str, float]] = field(default_factory=list)

    def ask(self, **order: int) -> list[float]:
        """Let the client do something; what it measured."""
        self.control.sendall(json.dumps(order).encode() + b"\n")
        return [float(value) for value in json.loads(self.control.makefile("r").readline())]


def descendants() -> frozenset[int]:
    """All processes that this one started."""
    return frozenset(process.pid for process in psutil.Process().children(recursive=True))


def cpu_s(pids: Sequence[int] | frozenset[int]) -> float:
    """CPU time of processes with all their threads, as the scheduler counts it."""
    total_ns = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def haproxy(server: tuple[str, int], folder: Path) -> tuple[KeptProcess, tuple[str, int]]:
    """HAProxy in TCP mode, one thread, listening on a socket of ours."""
    listening = socket.create_server((HOST, 0), backlog=1024)
    address = listening.getsockname()
    fd = listening.detach()
    config = folder / "haproxy.cfg"
    config.write_text(
        "global\n nbthread 1\n maxconn 1000\n"
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
        f"frontend in\n bind fd@{fd}\n default_backend out\n"
        f"backend out\n server one {server[0]}:{server[1]}\n"
    )
    program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "haproxy"
    process = KeptProcess([program, "-db", "-f", str(config)], log=folder / "haproxy.log", pass_fds=(fd,))
    return process, (str(address[0]), int(address[1]))


def opened(stack: ExitStack, folder: Path, say: Callable[[str], None]) -> list[Way]:
    """The server, then every way that can be had here, each with its client."""
    listening = socket.create_server((HOST, 0))
    server = (HOST, int(listening.getsockname()[1]))
    fd = listening.detach()
    here = str(Path(__file__).resolve())
    argv = [sys.executable, here, "--serve", str(fd)]
    stack.enter_context(KeptProcess(argv, log=folder / "server.log", pass_fds=(fd,)))

    def route(engine: str) -> tuple[Route, tuple[str, int], int]:
        one = Route(server, engine=engine, log=folder / f"{engine}.log", seed=1)
        return one, one.address, one.namespace_pid or 0

    def proxied() -> tuple[KeptProcess, tuple[str, int], int]:
        process, address = haproxy(server, folder)
        return process, address, 0

    ways: list[Way] = []
    makers: dict[str, Callable[[], tuple[Any, tuple[str, int], int]]] = {
        "direct": lambda: (None, server, 0),
        "relay": lambda: route("relay"),
        "packet link": lambda: route("packet link"),
        "HAProxy": proxied,
    }
    for name, make in makers.items():
        if name == "HAProxy" and shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
            say("haproxy not found: its rows are missing (Debian: apt-get install haproxy)")
            continue
        before = descendants()
        try:
            middle, (host, port), namespace_pid = make()
        except UnableError as error:
            say(f"{name}: {error.message}")
            continue
        if middle is not None:
            stack.callback(middle.close)
        time.sleep(0.3)
        pids = descendants() - before
        ours, theirs = socket.socketpair()
        theirs_fd = theirs.detach()
        words = ["--client", str(theirs_fd), host, str(port), str(namespace_pid)]
        client = KeptProcess([sys.executable, here, *words], log=folder / f"{name}-client.log", pass_fds=(theirs_fd,))
        stack.callback(client.close)
        ways.append(Way(name, pids, ours))
    return ways


# ── the measurement ──────────────────────────────────────────────────────────────────────────────


def measure(ways: list[Way], *, num_blocks: int, num_messages: int, num_megabytes: int) -> None:
    """All blocks; the first of each way warms it up and is not counted."""
    num_bytes = num_megabytes * 1_000_000
    for block in range(num_blocks + 1):
        for turn in range(len(ways)):
            way = ways[(block + turn) % len(ways)]
            cpu_before = cpu_s(way.pids)
            times = way.ask(echo=num_messages)
            echo_cpu = cpu_s(way.pids) - cpu_before
            everything = descendants()
            cpu_before, all_before = cpu_s(way.pids), cpu_s(everything)
            (took_s,) = way.ask(bulk=num_bytes)
            bulk_cpu, all_cpu = cpu_s(way.pids) - cpu_before, cpu_s(everything) - all_before
            if block == 0:
                continue
            way.blocks.append(
                {
                    "p50_us": quantile(times, 0.5) * 1e6,
                    "p99_us": quantile(times, 0.99) * 1e6,
                    "cpu_us_per_message": echo_cpu / num_messages * 1e6,
                    "cpu_ms_per_mb": bulk_cpu / num_megabytes * 1e3,
                    "total_cpu_ms_per_mb": all_cpu / num_megabytes * 1e3,
                    "mb_per_s": num_megabytes / took_s,
                }
            )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def added(way: Way, direct: Way, metric: str) -> list[float]:
    """How much more than the direct connection, block by block."""
    return [one[metric] - other[metric] for one, other in zip(way.blocks, direct.blocks, strict=True)]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The median of the blocks' ratios, and their quartiles."""
    found = sorted(one / other for one, other in zip(ours, theirs, strict=True) if other > 0)
    if len(found) < 2:
        return "unknown"
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return f"×{middle:.2f} ({low:.2f}–{high:.2f})"


METRICS = ("p50_us", "p99_us", "cpu_us_per_message", "cpu_ms_per_mb", "total_cpu_ms_per_mb", "mb_per_s")


def summary(ways: list[Way]) -> dict[str, dict[str, float]]:
    """The numbers of each way, medians of its blocks."""
    found = {}
    for way in ways:
        found[way.name] = {name: statistics.median(block[name] for block in way.blocks) for name in METRICS}
        for name in ("p50_us", "p99_us"):
            found[way.name][f"added_{name}"] = statistics.median(added(way, ways[0], name))
    return found


def lines(ways: list[Way]) -> list[str]:
    """The table, then ratios against HAProxy where it ran."""
    heads = ("p50 µs", "p99 µs", "+p50", "+p99", "CPU µs/msg", "CPU ms/MB", "all ms/MB", "MB/s")
    names = ("p50_us", "p99_us", "added_p50_us", "added_p99_us", *METRICS[2:])
    out = ["way".ljust(12) + "".join(head.rjust(11) for head in heads)]
    for name, one in summary(ways).items():
        out.append(name.ljust(12) + "".join(f"{one[key]:.2f}".rjust(11) for key in names))
    by_name = {way.name: way for way in ways}
    if "HAProxy" in by_name:
        out += ["", "against HAProxy in the same block (1 is equal, less is better):"]
        other, direct = by_name["HAProxy"], ways[0]
        ours = [way for way in ways if way.name not in ("direct", "HAProxy")]
        out.append(" " * 24 + "".join(way.name.rjust(22) for way in ours))
        for metric in METRICS[:2]:
            ratios = [ratio(added(way, direct, metric), added(other, direct, metric)) for way in ours]
            out.append(f"added {metric[:3]}".ljust(24) + "".join(one.rjust(22) for one in ratios))
        for metric, head in zip(METRICS[2:5], ("CPU per message", "CPU per MB", "all CPU per MB"), strict=True):
            ratios = [ratio(*([block[metric] for block in one.blocks] for one in (way, other))) for way in ours]
            out.append(head.ljust(24) + "".join(one.rjust(22) for one in ratios))
    return out


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(asked.serve)
    if asked.client is not None:
        fd, host, port, namespace_pid = asked.client
        be_client(int(fd), host, int(port), int(namespace_pid))
        return

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="wire-") as folder, ExitStack() as stack:
        ways = opened(stack, Path(folder), say)
        measure(ways, num_blocks=asked.blocks, num_messages=asked.messages, num_megabytes=asked.megabytes)
    say(
        f"{asked.blocks} blocks of {asked.messages} messages and {asked.megabytes} MB, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    for line in lines(ways):
        say(line)
    if asked.json:
        asked.json.write_text(json.dumps(summary(ways), indent=1) + "\n")


if __name__ == "__main__":
    main()
