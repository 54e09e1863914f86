"""Hands for one fault on the target's processes (`deeds.Hands`): each deed is on the undo record before it is done.

    deed ─▶ ledger.add(step), synced ─▶ the deed itself ─▶ … ─▶ undo(): helpers end, steps undone, the latest first

Only the target's main process and its descendants are touched: never the load's clients, the relay, a keeper, or
ourselves. Linux only.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from contextlab.deeds import Deed, Value, Victim
from contextlab.experiment import Placed
from contextlab.lab.host import disks, groups, tree
from contextlab.lab.host.groups import ControlGroup
from contextlab.lab.host.tree import Counted
from contextlab.lab.process import KeptProcess
from contextlab.lab.undo import steps
from contextlab.lab.undo.steps import Step
from contextlab.model import UnableError

if TYPE_CHECKING:
    from contextlab.lab.host.injector import Injector
    from contextlab.lab.host.machine import TargetMachine

LEASE_SLACK_S = 5.0
"""The watchdog undoes a deed so long after its fault should have been over."""
AGAIN = 20
"""So often a tree is looked at again for processes and threads that were born meanwhile."""
BUSY_PART, IDLE_SHARE = 0.25, 0.01
"""A thread works if it ran for this part of what the busiest one did; none does if that was idle."""
NOT_OURS = "act on the server's processes as their owner, or as root"


class TargetHands:
    """The hands of one fault; made by `TargetMachine.hands`. `undo` may be called twice."""

    def __init__(self, machine: TargetMachine, placed: Placed, injector: Injector) -> None:
        self.tally: dict[str, float] = {}
        self.rng = injector.rng(placed)
        self.length_s = placed.length_s
        self._machine, self._placed, self._injector = machine, placed, injector
        self._numbers: list[int] = []
        self._stopped: set[Victim] = set()
        self._groups: dict[str, ControlGroup | None] = {}
        self._helpers: dict[Victim, KeptProcess] = {}
        self._had: dict[Victim, frozenset[int]] = {}
        self._pinned: frozenset[int] = frozenset()
        self._disk_controller = ""
        self._ran: tuple[dict[Victim, float], float] = {}, 0.0

    # ── processes ──

    def tree(self) -> tuple[Victim, ...]:
        """The target's processes now, the one that was started first at the head."""
        return tuple(one.victim for one in self._machine.tree())

    def stop(self, *victims: Victim) -> None:
        """SIGSTOP; all of the tree, parents first, until nobody runs who was born meanwhile, where none is named."""
        for _ in range(AGAIN):
            new = [victim for victim in victims or self._alive() if victim not in self._stopped]
            for victim in new:
                self._record(steps.resume(victim.pid, victim.started))
                self._stopped.add(victim)
            for victim in new if new else victims or self._alive():
                send(victim, signal.SIGSTOP)
            if victims or not new:
                return

    def resume(self, *victims: Victim) -> None:
        """SIGCONT to what was stopped; the steps stay on record, since it may be stopped again."""
        for victim in victims or tuple(self._stopped):
            send(victim, signal.SIGCONT)

    def kill(self, *victims: Victim, signal: str = "SIGKILL") -> None:
        """End these processes, or the tree; see `Deaths`."""
        if self._machine.deaths is None:
            raise UnableError("the target's processes are not ours to end", "let contextlab start the server")
        self._machine.deaths.kill(victims or self._alive(), signal, self._injector)

    def restart(self) -> float:
        """Start the target's server again; seconds until it answered."""
        if self._machine.deaths is None:
            raise UnableError("the target's server is not ours to start", "let contextlab start it")
        return self._machine.deaths.restart(self._injector)

    # ── groups, processors, helpers ──

    def group(self, controller: str) -> ControlGroup | None:
        """The tree's own group of this controller; asked for once, it stays the same."""
        if controller not in self._groups:
            self._alive()
            found = self._machine.group(controller, self._record)
            self._groups[controller] = found
        return self._groups[controller]

    def pin(self, cpus: Sequence[int]) -> None:
        """Let every thread run on these processors only. Called again it takes in who was born since.

        A new thread inherits the processors of the one that made it: it gets back those that its process had.
        """
        self._pinned = frozenset(cpus)
        for _ in range(AGAIN):
            if not sum(self._pin(one) for one in self._alive()):
                return

    def helper(self, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> Victim:
        """Start a process of ours under a keeper, so that it dies with the tool from its first moment on."""
        process, victim = self._start(argv)
        if victim is None:
            process.close()
            raise UnableError(f"a helper did not start: {argv[0]}", "is the machine out of processes or memory?")
        if cpus:
            os.sched_setaffinity(victim.pid, cpus)
        return victim

    def helper_within(self, controller: str, argv: Sequence[str]) -> Victim:
        """A helper that lives in the target's group of this controller."""
        return self.helper(self._within(controller, argv))

    def _start(self, argv: Sequence[str]) -> tuple[KeptProcess, Victim | None]:
        """A process of ours, on record as something to end; None: it has ended by now, if it began at all."""
        process = KeptProcess(argv, log=Path(os.devnull))
        pid = process.pid
        started = None if pid is None else steps.started_of(pid)
        if pid is None or started is None:
            return process, None
        victim = Victim(pid=pid, started=started, name=Path(argv[0]).name)
        self._helpers[victim] = process
        self._record(steps.end_process(pid, started))
        return process, victim

    def _within(self, controller: str, argv: Sequence[str]) -> list[str]:
        """The words of a helper that first joins the target's group of this controller."""
        group = self.group(controller)
        if group is None:
            raise UnableError(f"no control group of {controller} can be made for the target", groups.AS_ROOT)
        procs = str(group.place.folder / "cgroup.procs")
        return [sys.executable, "-m", "contextlab.lab.host.hogs", "join", procs, *argv]

    # ── disks ──

    def overmount(self, folder: str, *, free_bytes: int | None) -> None:
        """Let a folder take no more than so many bytes; None: read-only."""
        path = disks.coverable(folder, self._alive()[0].pid)
        if free_bytes is None:
            disks.make_read_only(path, self._record)
        else:
            disks.make_full(path, free_bytes, self._record)

    def slow_disk(self, folder: str, bytes_per_s: int) -> None:
        """Limit the target's group on the disk of a folder."""
        device = disks.device_of(folder)
        self._disk_controller = disks.controller()
        group = self.group(self._disk_controller)
        if group is None:
            raise UnableError(f"no control group of {self._disk_controller} can be made for the target", groups.AS_ROOT)
        disks.limit(group.place, device, bytes_per_s, self._record)

    def try_write(self, folder: str, num_bytes: int) -> tuple[str, float]:
        """Let a helper write a file there and sync it, in the target's group where that is limited."""
        path = disks.new_file(folder)
        self._record(steps.remove(path))
        argv = disks.writing(path, num_bytes)
        began_s = time.monotonic()
        within = self._disk_controller
        process, victim = self._start(self._within(within, argv) if within else argv)
        end = process.wait(disks.WRITE_WITHIN_S)
        if victim is not None:
            del self._helpers[victim]
        process.close()
        return disks.error_of(end), time.monotonic() - began_s

    def note(self, what: str, **about: Value) -> None:
        """Put a deed on record."""
        self._injector.tell(Deed(at_s=self._injector.now_s(), fault=self._placed.name, what=what, about=about))

    # ── what there is to see ──

    def processors(self) -> tuple[int, ...]:
        """Those that the target may use, the last one first; the first of several is left to the load's clients."""
        found = sorted(os.sched_getaffinity(self._alive()[0].pid), reverse=True)
        return tuple(found[:-1]) if len(found) > 1 else tuple(found)

    def look(self) -> Mapping[str, float]:
        """What is known of the tree now; see `deeds.MachineHands`."""
        found = self._machine.tree()
        now_s = time.monotonic()
        helpers = [one for victim in self._helpers if (one := tree.counted(victim.pid)) is not None]
        return {
            **self._machine.counters(found),
            "at_s": now_s,
            "rss_bytes": sum(one.rss_bytes for one in found),
            "processors": len(os.sched_getaffinity(found[0].victim.pid)) if found else 0,
            "threads": sum(one.num_threads for one in found),
            "busy_threads": self._busy_threads(found, now_s),
            "available_bytes": psutil.virtual_memory().available,
            "helpers": len(helpers),
            "helper_rss_bytes": sum(one.rss_bytes for one in helpers),
        }

    # ── the end ──

    def undo(self) -> None:
        """Reverse everything, the latest first. Raises UndoFailedError."""
        with suppress(UnableError):  # it has no process any more
            if self._pinned:
                self.pin(tuple(self._pinned))  # who was born last has what to give back, too
        self._pinned = frozenset()
        for process in self._helpers.values():
            process.close()
        self._helpers.clear()
        numbers, self._numbers = self._numbers, []
        self._machine.ledger.undo(numbers)
        self._stopped.clear()
        self._groups.clear()

    def _alive(self) -> tuple[Victim, ...]:
        found = self.tree()
        if not found:
            raise UnableError("the target has no process any more", "look at server.log for why it ended")
        return found

    def _record(self, step: Step) -> None:
        left_s = self._placed.end_s - self._injector.now_s()
        self._numbers.append(self._machine.ledger.add(step, lease_s=max(0.0, left_s) + LEASE_SLACK_S))

    def _pin(self, process: Victim) -> int:
        """Pin the threads of one process that are not yet; how many."""
        num_new = 0
        for thread in tree.started_threads(process.pid):
            if thread in self._had:
                continue
            try:
                had = frozenset(os.sched_getaffinity(thread.pid))
                if had == self._pinned:  # born of a pinned one
                    had = self._had.get(process, had)
                self._record(steps.affinity(thread.pid, thread.started, sorted(had)))
                self._had[thread] = had
                os.sched_setaffinity(thread.pid, self._pinned)
            except ProcessLookupError:
                continue
            except OSError as error:
                raise UnableError(f"thread {thread.pid} cannot be pinned: {error.strerror}", NOT_OURS) from error
            num_new += 1
        return num_new

    def _busy_threads(self, found: Sequence[Counted], now_s: float) -> int:
        """How many threads did the work since the last look: each ran for a good part of what the busiest one did.

        What one waits does not count: held to a quota, every thread that wakes for a moment waits for long.
        """
        threads = [thread for process in found for thread in tree.ran(process.victim.pid)]
        before, before_s = self._ran
        self._ran = {thread.victim: thread.run_s for thread in threads}, now_s
        ran_s = [thread.run_s - before[thread.victim] for thread in threads if thread.victim in before]
        most_s = max(ran_s, default=0.0)
        return sum(one >= BUSY_PART * most_s for one in ran_s) if most_s > IDLE_SHARE * (now_s - before_s) else 0


def send(victim: Victim, number: int) -> bool:
    """Send a signal to exactly this process; False where it is gone. Raises UnableError where that is not allowed."""
    try:
        fd = os.pidfd_open(victim.pid)
    except ProcessLookupError:
        return False
    try:
        if not steps.is_alive(victim.pid, victim.started):  # another one under its number
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise UnableError(f"process {victim.pid} ({victim.name}) takes no signal from us", NOT_OURS) from error
    finally:
        os.close(fd)
    return True
