"""Plays the tool that is killed: one process that has imported all, and forks a tool for each order on its input.

    order {"fault", "victim", "at_line", "at_s", …} ─▶ fork ─▶ the fault acts ─▶ SIGKILL at its point
    answer {"pid", "lines", "error"} ◀─────────────────────────────────────────────────┘

A point is a line of the code that injects and undoes (`ROOMS`), just before the tool runs it for the n-th time, in any
of its threads: it may fall between a record and its deed. Or it is a time. Without a point the tool runs to its end,
and says how often it ran each line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import contextlab
from contextlab import registry
from contextlab.deeds import Tier, Victim
from contextlab.experiment import Placed, Plane
from contextlab.lab.host.deaths import Deaths
from contextlab.lab.host.injector import Injector, Machine
from contextlab.lab.host.machine import TargetMachine
from contextlab.lab.link.route import Route
from contextlab.lab.server import OwnedServer
from contextlab.lab.tier.tier import RunningTier
from contextlab.lab.undo.ledger import Ledger
from contextlab.lab.undo.steps import started_of
from contextlab.model import ServerCommand

ROOMS = tuple(
    str(Path(contextlab.__file__).parent / room)
    for room in ("lab/host/", "lab/undo/", "lab/process.py", "lab/link/", "lab/tier/", "faults/")
)
LENGTH_S, SLACK_S = 0.25, 20.0
"""How long each fault acts, and how long the rest of it may take."""
WIRE = "wire"
NOBODY = ("127.0.0.1", 9)
"""Where nothing listens: no request is made here."""
MEMORY_BYTES = 256 << 20
TINY = ServerCommand(argv=(sys.executable, "-S", str(Path(__file__).with_name("tiny_server.py"))))


class Point:
    """Where the tool dies. `lines` counts how often each line ran until then."""

    def __init__(self, order: dict[str, Any], ledger: Ledger) -> None:
        self.lines = Counter[str]()
        self._at_line: list[Any] | None = order["at_line"]
        self._watchdog_too: bool = order["watchdog_too"]
        self._ledger = ledger
        if order["at_s"] is not None:
            timer = threading.Timer(order["at_s"], self.die)
            timer.daemon = True
            timer.start()
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def die(self) -> None:
        """End as no program can prevent."""
        if self._watchdog_too and (watchdog := self._ledger.watchdog_pid) is not None:
            os.kill(watchdog, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(ROOMS):
            return None
        if event == "line":
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            self.lines[line] += 1
            if self._at_line is not None and self._at_line == [line, self.lines[line]]:
                self.die()
        return self._trace


def play(order: dict[str, Any]) -> dict[str, int]:
    """Let one fault act on the target, from the first record to the last undo; how often it ran each line."""
    os.environ["CONTEXTLAB_STATE"] = order["state"]
    os.environ.update(order["mark"])
    log = Path(order["log"])
    with Ledger(run=order["fault"], target="tiny") as ledger:
        point = Point(order, ledger)
        if order["fault"] == WIRE:
            wire(log)
            return dict(point.lines)
        placed = registry.parse_fault(order["fault"], start_s=0.0, length_s=LENGTH_S)
        if registry.plane_of(placed) is Plane.TIER:
            with RunningTier(Tier(), NOBODY, folder=log.parent) as tier:
                inflict(placed, tier.machine(ledger))
        elif order["victim"] is None:
            with OwnedServer(TINY, log=log, memory_limit_bytes=MEMORY_BYTES) as server:
                deaths = Deaths(server, lambda: None)
                inflict(placed, TargetMachine(root=lambda: victim_of(server.process.pid), ledger=ledger, deaths=deaths))
        else:
            pid, started = order["victim"]
            inflict(placed, TargetMachine(root=lambda: Victim(pid=pid, started=started), ledger=ledger))
    return dict(point.lines)


def victim_of(pid: int | None) -> Victim | None:
    """A process of ours, as it is now."""
    started = None if pid is None else started_of(pid)
    return None if pid is None or started is None else Victim(pid=pid, started=started)


def inflict(placed: Placed, machine: Machine) -> None:
    """A fault on a host or on a cache tier, from its beginning to its end."""
    with Injector([(0, placed)], machine, seed=1) as injector:
        injector.start(time.monotonic())
        until_s = time.monotonic() + LENGTH_S + SLACK_S
        while 0 not in injector.evidence() and time.monotonic() < until_s:
            time.sleep(0.005)
    if injector.error is not None:
        raise injector.error


def wire(log: Path) -> None:
    """A fault on packets: a TUN device in a network namespace of its own."""
    placed = Placed(name="loss", start_s=0.0, length_s=LENGTH_S)
    with Route(NOBODY, engine="packet link", log=log, seed=1) as route:
        route.arm([placed], time.monotonic())
        time.sleep(LENGTH_S)


def say(line: str) -> None:
    """One line of the answer."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer orders until the input ends."""
    registry.faults()
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                lines = play(order)
                os.write(writing, json.dumps({"lines": lines}).encode())
            except BaseException as error:
                os.write(writing, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as said:
            os.waitpid(pid, 0)
            words = said.read()
        answer = {"pid": pid, **(json.loads(words) if words else {})}
        say(json.dumps(answer))


if __name__ == "__main__":
    main()
